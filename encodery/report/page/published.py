"""Published numbers beside ours: what the headers of recipes say about a task and a model."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from encodery import recipes, yaml_reader
from encodery.metric_table import METRICS
from encodery.report.groups import Row

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
    name, _, split = row.data.rpartition(":")
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
    tree = yaml_reader.read_text(path.read_text(encoding="utf-8"), str(path)).tree
    base = str(tree.get("extends") or "")
    found = _tree(base.removeprefix("recipe:")).copy() if base.startswith("recipe:") else {}
    for key, inner in (("model", "name"), ("method", "kind")):
        value = tree.get(key)
        value = value.get(inner) if isinstance(value, dict) else value
        if value:
            found[key] = value
    return found
