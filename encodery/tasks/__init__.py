"""The question in text, and the mark for an answer. Nothing in this package imports torch."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from encodery.tasks.base import Task

SPLITS = {
    "train": "train",
    "dev": "dev",
    "validation": "dev",
    "dev_matched": "dev",
    "validation_matched": "dev",
    "dev_mismatched": "dev_mismatched",
    "validation_mismatched": "dev_mismatched",
    "test": "test",
    "test_matched": "test",
    "test_mismatched": "test_mismatched",
}


class Entry(NamedTuple):
    """A line of the list of tasks."""

    name: str
    description: str
    kind: str  # what is asked: single, multilabel, regression, span…
    splits: tuple[str, ...]


def split_name(text: str) -> tuple[str, str | None]:
    """`glue/mnli:validation_matched` -> (`glue/mnli`, `dev`); a last word that is no split belongs to the name."""
    task, colon, word = text.rpartition(":")
    return (task, SPLITS[word]) if colon and word in SPLITS else (text, None)


def task_classes() -> dict[str, "type[Task]"]:
    """File (or folder) name -> its public task, for each in this package that has one."""
    from encodery.config.components import names
    from encodery.tasks.base import Task

    by_name: dict[str, type[Task]] = {}
    for name in names("tasks"):
        for value in vars(import_module(f"{__name__}.{name}")).values():
            if isinstance(value, type) and issubclass(value, Task) and _is_of(value, name):
                by_name[name] = value
    return by_name


def _is_of(task: type, name: str) -> bool:
    """Bases have no parts, and an imported class belongs to its own file."""
    return f"{task.__module__}.".startswith(f"{__name__}.{name}.") and "parts" in vars(task)


def _form(task: "Task") -> str:
    objective = task.objective()
    return str(objective.get("form", objective["kind"]))


def catalogue() -> list[Entry]:
    """All tasks by name, for people."""
    entries: list[Entry] = []
    for stem, task in task_classes().items():
        doc = (task.__doc__ or "").strip().splitlines()[0]
        for part, description in task.parts.items():
            options = {"part": part} if part else {}
            kind = task.variant(options)
            chosen = kind.model_construct(None, **options)  # from the list: checking it again costs time
            entries.append(Entry(chosen.name, description, _form(chosen), chosen.splits()))
        if not task.parts:
            entries.append(Entry(stem, doc, "", ()))
    return entries
