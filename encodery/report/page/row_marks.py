"""What training dynamics say of each row: confidence, variability, correctness, area under the margin.

Of the runs of one configuration the means over seeds. Files are those of data/row_dynamics.py, which is above this
package; no torch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from encodery.core import files
from encodery.core.label_errors import area_under_margin
from encodery.core.redact import without_paths
from encodery.core.text import are, counted
from encodery.errors import UserError
from encodery.report.page.data import PageData
from encodery.report.records import Record
from encodery.tasks.base import Example
from encodery.tasks.forms.classification import softmax

FOLDER = "dynamics"
COLUMN = 40  # values of a column that rows can be coloured by


@dataclass(frozen=True)
class RowMarks:
    """The rows of a training set with what the runs of a configuration recorded, [n] each."""

    name: str
    task: str
    examples: Sequence[Example]
    labels: Sequence[str]
    looks: int
    runs: int
    confidence: np.ndarray  # mean p(label)
    variability: np.ndarray  # its standard deviation
    correctness: np.ndarray  # share of looks at which the label was the likeliest
    margin: np.ndarray  # area under the margin
    predicted: np.ndarray  # the likeliest label by mean probability
    record: str


def of_runs(page: PageData) -> list[RowMarks]:
    """One for each configuration whose runs recorded dynamics; read once."""
    if "row_marks" not in page.kept:
        page.kept["row_marks"] = _of_runs(page)
    marks: list[RowMarks] = page.kept["row_marks"]
    return marks


def _of_runs(page: PageData) -> list[RowMarks]:
    by_group: dict[str, list[Record]] = {}
    for record in page.records:
        if (record.path / FOLDER / "meta.json").is_file():
            by_group.setdefault(page.group(record), []).append(record)
    marks = []
    for name, records in by_group.items():
        each = [one for record in records if (one := _read(page, record, name))]
        same = [one for one in each if [e.id for e in one.examples] == [e.id for e in each[0].examples]]
        if len(same) < len(each):
            other = len(each) - len(same)
            page.remark(f"{name}: dynamics of {counted(other, 'run')} {are(other)} of other rows and not shown")
        if same:
            marks.append(_mean(same))
    return marks


def _read(page: PageData, record: Record, name: str) -> RowMarks | None:
    folder = record.path / FOLDER
    try:
        meta: dict[str, Any] = files.read_json(folder / "meta.json")
        ids: list[str] = json.loads((folder / "ids.json").read_text("utf-8"))
        logits = np.load(folder / "logits.npy", mmap_mode="r", allow_pickle=False)
        if logits.ndim != 3 or logits.shape[1:] != (len(ids), len(meta["labels"])):
            raise ValueError(f"logits of shape {logits.shape} do not fit {len(ids)} rows")
        rows = page.rows(record, f"{record.task}:train")
        by_id = {example.id: example for example in rows.examples} if rows else {}
        places = [place for place, id in enumerate(ids) if id in by_id and by_id[id].label in meta["labels"]]
        if not places:
            return None
        examples = [by_id[ids[place]] for place in places]
        return _marks(name, record.task, examples, meta, np.asarray(logits[:, places], np.float64))
    except (UserError, OSError, ValueError, KeyError, TypeError) as error:
        page.remark(f"{record.name}: its dynamics are not shown, because {without_paths(str(error))}")
        return None


def _marks(
    name: str, task: str, examples: Sequence[Example], meta: Mapping[str, Any], logits: np.ndarray
) -> RowMarks | None:
    """[looks, n, labels] → marks; a row that some looks did not see counts by the others."""
    labels = list(meta["labels"])
    gold = np.array([labels.index(str(example.label)) for example in examples])
    seen = ~np.isnan(logits).any(axis=2)  # [looks, n]
    some = seen.any(axis=0)
    if not some.any():
        return None
    logits, gold, seen = logits[:, some], gold[some], seen[:, some]
    kept = [example for example, there in zip(examples, some.tolist(), strict=True) if there]
    filled = np.where(seen[..., None], logits, 0.0)
    chances = softmax(filled)  # [looks, n, labels]
    own = np.where(seen, chances[:, np.arange(len(gold)), gold], np.nan)
    right = np.where(seen, filled.argmax(-1) == gold, np.nan)
    mean = np.where(seen[..., None], chances, 0.0).sum(0)
    return RowMarks(
        name, task, kept, labels, int(seen.any(axis=1).sum()), 1, np.nanmean(own, 0), np.nanstd(own, 0),
        np.nanmean(right, 0), area_under_margin(logits, gold), mean.argmax(-1), str(meta.get("record", "")),
    )  # fmt: skip


def _mean(each: Sequence[RowMarks]) -> RowMarks:
    """Over runs; the predicted label is the commonest one."""
    first = each[0]
    parts = {
        name: np.mean([getattr(one, name) for one in each], 0)
        for name in ("confidence", "variability", "correctness", "margin")
    }
    said = np.stack([one.predicted for one in each], 1)  # [n, runs]
    votes = np.stack([np.bincount(row, minlength=len(first.labels)) for row in said])
    return RowMarks(
        first.name, first.task, first.examples, first.labels, min(one.looks for one in each), len(each),
        predicted=votes.argmax(1), record=first.record, **parts,
    )  # fmt: skip


def columns_of(examples: Sequence[Example]) -> dict[str, list[str | None]]:
    """What rows of own data or of a set have besides texts and label, where it is a handful of values."""
    names = dict.fromkeys(name for example in examples for name in example.extra)
    columns: dict[str, list[str | None]] = {}
    for name in names:
        values = [example.extra.get(name) for example in examples]
        kinds = {value for value in values if isinstance(value, str | int)}
        if all(value is None or isinstance(value, str | int) for value in values) and 1 < len(kinds) <= COLUMN:
            columns[name] = [None if value is None else str(value) for value in values]
    return columns
