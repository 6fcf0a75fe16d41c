"""Published numbers beside ours: what the headers of recipes say about a task and a model."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from encodery import recipes
from encodery.core import yaml
from encodery.errors import UserError
from encodery.report.groups import Row
from encodery.runs.directory import task_and_split
from encodery.tasks.forms.metric_table import METRICS

_SPLITS = {"dev": "matched", "dev_mismatched": "mismatched"}


@dataclass(frozen=True)
class Published:
    """A number, where it stands, and the whole sentence."""

    value: float  # times 100, as papers print it
    recipe: str
    words: str

    @property
    def on_test(self) -> bool:
        """Whether it was measured on the test set."""
        return "test set" in self.words


def published(row: Row) -> Published | None:
    """The number for a row's task, model, method and metric; None where no recipe has one."""
    records = list(row.runs.values())
    name, split = task_and_split(row.data)
    if not records or split not in _SPLITS:
        return None
    settings = records[0].settings
    model, method = _short(settings.get("model.name")), str(settings.get("method.kind", "plain"))
    if settings.get("model.init_from"):
        return None
    for recipe, expect in _of_task(name):
        tree = _tree(recipe)
        if _short(tree.get("model")) == model and tree.get("method", "plain") == method:
            value = number(expect, row.metric, split)
            if value is not None:
                return Published(value, recipe, expect)
    return None


def number(expect: str, metric: str, split: str) -> float | None:
    """`accuracy 84.6 matched, 83.4 mismatched on dev` -> 84.6 for accuracy on dev."""
    if metric not in METRICS:
        return None
    word = "(?:" + "|".join((metric, *METRICS[metric].spellings)) + ")"
    if split == "dev_mismatched":
        found = re.search(r"(\d+\.\d+) (?:mismatched|on dev_mismatched)", expect)
        return float(found[1]) if found and re.search(rf"(?i)\b{word}\b", expect) else None
    found = re.search(rf"(?i)(?<!of )\b{word} (\d+\.\d+)", expect)
    return float(found[1]) if found else None


def _short(model: Any) -> str:
    return PurePosixPath(str(model or "")).name.lower()


@cache
def _of_task(task: str) -> tuple[tuple[str, str], ...]:
    """Recipes of a task that expect something."""
    return tuple(_recipes(task))


def _recipes(task: str) -> Iterator[tuple[str, str]]:
    part = task.rpartition("/")[2]
    for name in recipes.names():
        if part in name.split("/") and (expect := recipes.describe(name).expect):
            yield name, expect


@cache
def _tree(name: str) -> dict[str, Any]:
    """Model and method of a recipe, those of what it extends included."""
    path = recipes.path(name)
    tree = yaml.read_text(path.read_text(encoding="utf-8"), str(path)).tree
    base = str(tree.get("extends") or "")
    settings = _tree(base.removeprefix("recipe:")).copy() if base.startswith("recipe:") else {}
    for key, inner in (("model", "name"), ("method", "kind")):
        value = tree.get(key)
        value = value.get(inner) if isinstance(value, dict) else value
        if value:
            settings[key] = value
    return settings


# A curve of somebody else's, from a CSV file: columns step and loss, lr, tokens_per_second or score.


CURVES = ("loss", "lr", "tokens_per_second", "score")


@dataclass(frozen=True)
class Reference:
    """Points by curve."""

    name: str
    curves: dict[str, tuple[list[float], list[float]]]


def read(path: Path) -> Reference:
    """The file's curves; blank cells are gaps."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            names = [name for name in reader.fieldnames or [] if name in CURVES]
            if "step" not in (reader.fieldnames or []) or not names:
                raise UserError(f"{path}: needs a column step and one of {', '.join(CURVES)}")
            return Reference(path.stem, _curves(path, list(reader), names))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"--reference {path}: {error}") from None


def _curves(
    path: Path, rows: Sequence[dict[str, str]], names: Sequence[str]
) -> dict[str, tuple[list[float], list[float]]]:
    curves: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    for line, row in enumerate(rows, start=2):
        for name in names:
            if not (row[name] or "").strip():
                continue
            try:
                step, value = float(row["step"]), float(row[name])
            except (TypeError, ValueError):
                raise UserError(f"{path}, line {line}: {row['step']!r} or {row[name]!r} is not a number") from None
            curves[name][0].append(step)
            curves[name][1].append(value)
    return curves
