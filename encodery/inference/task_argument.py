"""What a person means by `--on glue/rte:dev`: a task by its name, or the own task of a config or a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from encodery.config import load
from encodery.config.validate import SPELLINGS
from encodery.core import yaml
from encodery.errors import UserError
from encodery.inference.answer_head import no_such_head
from encodery.inference.file_task import SPLIT as file_split
from encodery.inference.file_task import of_file
from encodery.runs.directory import RunDir
from encodery.tasks import split_name
from encodery.tasks.base import Task

# What decides how lines become blocks: another text is read with these options of the run's own.
AS_THE_RUN = ("format", "text", "blocks", "keep_overflow", "order_preserving", "seed", "skip_bad_rows", "shard_size")


OWN_TEXT = "corpus"
FILES = (".txt", ".json", ".jsonl", ".parquet", ".csv", ".tsv")  # no task is called like this


class TaskSplit(NamedTuple):
    """A split of a task."""

    task: Task
    split: str

    @property
    def key(self) -> str:
        """`glue/rte:dev`."""
        return f"{self.task.name}:{self.split}"


def resolve_split(
    text: str,
    data: str | None = None,
    runs: Sequence[RunDir] = (),
    *,
    allow_code: bool = False,
    columns: Mapping[str, Any] | None = None,
    labelled: bool = True,
    head: str | None = None,
    models: Sequence[str] = (),
) -> list[TaskSplit]:
    """The splits meant by a word: one if it names one, else all dev splits that are here, else all test splits.

    A name that is the task of one of the `runs` means that very task, with the options and files of the run; other
    tasks are looked for in the run's data folder. A text file or a prepared corpus is read as the run's own text is, a
    file with rows with the run's own columns and labels, or with these `columns` (and `skip_bad_rows`);
    without `labelled` it needs no label. `head` says which head of the runs, or of the other `models`, is asked, and
    which task of a config with several.
    """
    name, split = split_name(text)
    if file := of_file(name, runs, columns or {}, labelled, head, models):
        if split not in (None, file_split):
            raise UserError(f"{text}: a file has no splits; write {name}")
        return [TaskSplit(file, file_split)]
    if any(value for key, value in (columns or {}).items() if key != "skip_bad_rows"):
        raise UserError(f"--on {text}: columns are named for a file such as gold.csv only")
    own = _of_path(name, data, allow_code, head) or _of_runs(name, data, runs, allow_code)
    if own is None and (text_task := _of_text(name, runs)):
        return [TaskSplit(text_task, split or ("dev" if text_task.has("dev") else "train"))]
    if own is None:
        _refuse_other_split(name, data, runs)
    task = own or named(name, data or _folder_of(runs))
    if (columns or {}).get("skip_bad_rows") and "skip_bad_rows" in type(task).model_fields:
        task = type(task).model_validate(task.to_dict() | {"skip_bad_rows": True})
    return [TaskSplit(task, one) for one in ([split] if split else default_splits(task))]


def splits_of(words: Sequence[str], data: str | None, runs: Sequence[RunDir], **reading: Any) -> list[TaskSplit]:
    """The splits meant by several words; two files that would be kept under one name are refused."""
    by_word = {word: resolve_split(word, data, runs, **reading) for word in words}
    kept_as: dict[str, tuple[str, TaskSplit]] = {}
    for word, split in ((word, split) for word, splits in by_word.items() for split in splits):
        other, before = kept_as.setdefault(split.key, (word, split))
        if before is not split and not _same_rows(other, before, word, split):
            raise UserError(
                f"--on: {other} and {word} would both be {split.key}, and the second would replace the first; "
                "give one of them another name"
            )
    return [split for splits in by_word.values() for split in splits]


def _same_rows(word: str, first: TaskSplit, other: str, second: TaskSplit) -> bool:
    """Whether two words mean the same file, or other names of the same rows."""
    paths = [Path(one).expanduser() for one in (word, other)]
    if all(path.is_file() for path in paths):
        return paths[0].samefile(paths[1])
    return first.task.origin(first.split).digest == second.task.origin(second.split).digest


def _refuse_other_split(name: str, data: str | None, runs: Sequence[RunDir]) -> None:
    """`toy/nli:tst`: the task is right and the split is not."""
    head, colon, word = name.rpartition(":")
    if not colon or ".py" in name or name.startswith("recipe:"):
        return
    task = _of_path(head, data, False) or _of_runs(head, data, runs, False) or named(head, data or _folder_of(runs))
    raise UserError(task.no_split(word))


def named(name: str, data: str | None = None) -> Task:
    """A task that has a name, such as glue/rte."""
    if Path(name).suffix.lower() in FILES:
        raise UserError(f"{name}: there is no such file")
    family, _, part = SPELLINGS.get(name, name).partition("/")
    kind = load.find("tasks", family)
    if name == OWN_TEXT:
        raise UserError(
            f"{name}: your own text has no task name; give the text file, a prepared folder, or a run that read it"
        )
    has_no_parts = "" in getattr(kind, "parts", ())  # hans: the file's name says it all
    if "part" in kind.model_fields and not part:
        raise UserError(f"{name}: give a part too, such as {family}/{next(iter(getattr(kind, 'parts', ['…'])), '…')}")
    if has_no_parts and part:
        raise UserError(f"{name}: {family} has no parts: write {family}")
    if "part" not in kind.model_fields and not has_no_parts:
        raise UserError(
            f"{name}: your own files have no task name; give the config or the run that names them, such as RUN:dev "
            f"(of several tasks, --head {name} chooses this one)"
        )
    options = {} if has_no_parts else {"part": part}
    try:
        kind = kind.variant(options) if issubclass(kind, Task) else kind
        task = kind.model_validate(options | {"data": data})
    except ValidationError as error:
        raise UserError("; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())) from None
    assert isinstance(task, Task)
    return task


def default_splits(task: Task) -> list[str]:
    """What is meant when nobody names a split."""
    here = [split for split in task.splits() if task.has(split)]
    for begin in ("dev", "test"):
        if found := [split for split in here if split.startswith(begin)]:
            return found
    raise UserError(f"{task.name}: has neither dev nor test rows; it has {', '.join(here) or 'no rows at all'}")


def _of_path(name: str, data: str | None, allow_code: bool, head: str | None = None) -> Task | None:
    """The task of a config file or a run directory."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or (path / "config.yaml").is_file() or name.startswith("recipe:"):
        return _only(load.load(name, _data(data), allow_code=allow_code), name, head)
    return None


def _of_text(name: str, runs: Sequence[RunDir]) -> Task | None:
    """Plain text: a folder that `prepare` made, or a file; its lines and blocks are made as the run's are."""
    from encodery.tasks.corpus import Corpus

    path = Path(name).expanduser()
    if (path / "recipe.json").is_file() and (path / "shards").is_dir():
        return Corpus(prepared=str(path.absolute())).called(name)
    if not path.is_file() or path.suffix in (".yaml", ".yml", ".py"):
        return None
    own = next((task for run in runs for task, _ in load.load(run.path).tasks if isinstance(task, Corpus)), None)
    kept = {key: value for key, value in own.to_dict().items() if key in AS_THE_RUN} if own else {}
    cleaned = {"min_line": own.shortest_line, "drop_brackets": own.without_brackets} if own else {}
    return Corpus.model_validate({**kept, **cleaned, "files": str(path.absolute())}).called(name)


def _of_runs(name: str, data: str | None, runs: Sequence[RunDir], allow_code: bool) -> Task | None:
    for run in runs:
        names = run.task_names()
        text = name == OWN_TEXT  # whatever its text is called
        meant = next((one for one in names if _same(name, one) or (text and OWN_TEXT in one.split("/"))), None)
        if meant is not None and len(names) == 1:
            return _only(load.load(run.path, _data(data), allow_code=allow_code), str(run.path))
        if meant is not None:
            return next(t for t, _ in load.load(run.path, {}, allow_code=allow_code).tasks if t.name == meant)
    return None


def _same(one: str, other: str) -> bool:
    return SPELLINGS.get(one, one) == SPELLINGS.get(other, other)


def _folder_of(runs: Sequence[RunDir]) -> str | None:
    """The data folder that the runs were given."""
    trees = (yaml.read_text(run.config_text(), str(run.config)).tree for run in runs)
    return next((tree["data"] for tree in trees if isinstance(tree, dict) and tree.get("data")), None)


def _data(data: str | None) -> dict[str, object]:
    return {} if data is None else {"data": data, "tasks": {"data": data}}


def _only(resolved: load.Resolved, where: str, head: str | None = None) -> Task:
    """The only task, or of several the one that the head is of."""
    tasks = {task.name: task for task, _ in resolved.tasks}
    if len(tasks) == 1:
        return next(iter(tasks.values()))
    if head in tasks:
        return tasks[head]
    if head is None:
        first = next(iter(tasks))
        raise UserError(
            f"{where}: has {len(tasks)} tasks: {', '.join(tasks)}; choose one with --head, such as --head {first} "
            f"(for the run's own model also --on {first})"
        )
    raise UserError(no_such_head(where, head, list(tasks), "task"))
