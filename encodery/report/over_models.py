"""Two levels: over fine-tuning seeds, then over pretrained models. How stable is a pretraining?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from encodery.core import yaml
from encodery.errors import UserError
from encodery.report import stats
from encodery.report.groups import Row, spelled, varying_keys
from encodery.report.records import Record, split_seed
from encodery.runs.directory import RunDir

Score = Literal["mean", "median", "best"]
MODEL_KEYS = ("model.name", "model.init_from", "model.revision", "model.tokenizer")


def over_models(rows: Sequence[Row], score: Score) -> list[dict[str, Any]]:
    """Of each data set: mean, sd, max, min and number of models, where a model's score is that of its seeds."""
    families = Families(rows)
    groups: dict[tuple[str, ...], dict[str, float]] = {}
    heads: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        value = getattr(row.summary, score)
        if value is None:
            continue
        model = model_of(row)
        rest = {key: word for key, word in row.settings.items() if key not in MODEL_KEYS}
        head = {**rest, **families.label(model), "data": row.data, "metric": row.metric}
        at = tuple(map(str, head.values()))
        heads[at] = head
        groups.setdefault(at, {})[model] = value
    if not groups:
        raise UserError("--over-models: no run has a score yet")
    return [_folded(heads[at], score, values) for at, values in groups.items()]


def _folded(head: Mapping[str, Any], score: Score, values: Mapping[str, float]) -> dict[str, Any]:
    each = list(values.values())
    over = {"mean": stats.mean(each), "sd": stats.sd(each), "max": max(each), "min": min(each), "models": len(each)}
    return {**head, "score": f"{score} of seeds", **over, "of_models": dict(values)}


def model_of(row: Row) -> str:
    """The pretrained model behind a row: what init_from names, else the model."""
    record = (row.members or list(row.runs.values()))[0]
    model = record.tree.get("model") or {}  # with its path, by which its run is found
    return str(model.get("init_from") or model.get("name") or "fresh weights")


class Families:
    """Pretrained models that differ in more than their seed are not put together, where their runs can be read."""

    def __init__(self, rows: Sequence[Row]) -> None:
        records = {model_of(row): (row.members or list(row.runs.values()))[0] for row in rows if _has_runs(row)}
        self.settings = {model: _pretraining(model, record) for model, record in records.items()}
        self.keys = varying_keys([found for found in self.settings.values() if found])

    def label(self, model: str) -> dict[str, str]:
        """What varies between the pretrainings, as columns."""
        found = self.settings.get(model, {})
        return {f"pretraining {key}": spelled(found.get(key, "")) for key in self.keys}


def _has_runs(row: Row) -> bool:
    return bool(row.members or row.runs)


def _pretraining(model: str, record: Record) -> dict[str, Any]:
    """The settings of the run that made the model, without its seed; nothing if that is no run on this disk."""
    for base in (Path(), *list(record.path.resolve().parents)[:4]):
        config = base / model / "config.yaml"
        if config.is_file():
            tree = yaml.read_text(RunDir(config.parent).config_text(), str(config)).tree
            return split_seed(tree)[0]
    return {}
