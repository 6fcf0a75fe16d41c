"""Training dynamics of a run, for reading: logits of each training row in each epoch.

dynamics/ of a run holds logits.npy [looks, rows, labels] (NaN: not seen), ids.json and meta.json. `train`: what the
steps of an epoch saw, with dropout on; `eval`: all rows after each epoch, dropout off; `200 steps`: every 200 steps.
No torch here: a selection that needs no model answers at once.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encodery.core import files
from encodery.data.provenance import UNKNOWN, Provenance
from encodery.errors import UserError
from encodery.runs.finished import Finished

FOLDER = "dynamics"


@dataclass(frozen=True)
class Dynamics:
    """The record of one run, for reading."""

    logits: np.ndarray  # [epochs, rows, labels]
    ids: Sequence[str]
    labels: Sequence[str]  # names in the order of the logits
    record: str
    path: Path
    made_from: Provenance = UNKNOWN

    @classmethod
    def open(cls, run: Path | str) -> "Dynamics":
        """Of a run directory."""
        folder = Path(run) / FOLDER
        if not Path(run).is_dir():
            raise UserError(f"{run}: there is no such run")
        if not (folder / "meta.json").is_file():
            inside = sorted(str(path.parents[1]) for path in Path(run).glob(f"*/{FOLDER}/meta.json"))
            if inside:  # of `train --seeds`
                raise UserError(f"{run}: is a folder of runs; give those that have dynamics: {','.join(inside)}")
            raise UserError(f"{run}: has no dynamics; train it with train.dynamics: true")
        if not (Path(run) / "DONE").is_file():
            raise UserError(f"{run}: is not finished; run its command again")
        Finished(Path(run)).require_intact(folder)
        meta = files.read_json(folder / "meta.json")
        logits = np.load(folder / "logits.npy", mmap_mode="r", allow_pickle=False)
        ids = json.loads((folder / "ids.json").read_text("utf-8"))
        task = files.read_json(Path(run) / "run.json").get("task")  # of runs whose record does not tell it
        made_from = Provenance.read(meta, task=task, split="train")
        return cls(logits, ids, meta["labels"], meta["record"], folder, made_from)

    def in_order_of(self, labels: Sequence[str]) -> np.ndarray:
        """The logits with their last axis in the order of these labels, which must be the run's own."""
        if sorted(labels) != sorted(self.labels):
            theirs, ours = ", ".join(self.labels), ", ".join(labels)
            raise UserError(f"{self.path}: its logits are for the labels {theirs}, but the pool has {ours}")
        return self.logits[..., [list(self.labels).index(label) for label in labels]]

    def aligned(self, ids: Sequence[str], labels: Sequence[str]) -> np.ndarray:
        """[epochs, n, labels] for these examples; each must have been seen in each epoch."""
        at = {id: i for i, id in enumerate(self.ids)}
        lost = next((id for id in ids if id not in at), None)
        if lost is not None:
            raise UserError(f"{self.path}: example {lost} was not trained on; use runs on the whole pool")
        logits = np.asarray(self.in_order_of(labels), np.float64)[:, np.array([at[id] for id in ids], np.int64)]
        unseen = np.asarray(np.isnan(logits).max(axis=2))
        complete = ~unseen.any(axis=1)
        if not complete.any():
            example = ids[int(np.flatnonzero(unseen[0])[0])]
            raise UserError(
                f"{self.path}: no epoch is complete (example {example} was not seen); train for at least one epoch"
            )
        return logits[complete]  # the last epoch may have been a part only
