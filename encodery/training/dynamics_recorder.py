"""Records training dynamics: logits of each training row in each epoch (read by data/row_dynamics.py).

The file is written in place: a step that is taken again after a kill writes the same numbers again.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.data.batches import Batch, Batches, MicroBatcher, Share
from encodery.data.provenance import Provenance
from encodery.data.row_dynamics import FOLDER
from encodery.distributed import comm
from encodery.errors import UserError
from encodery.inference.outputs import in_turns
from encodery.models.model import Model, Outputs
from encodery.tasks.base import Example, Task
from encodery.tasks.forms.classification import SWAPPED

CHUNK = 64  # sequences that are looked at between two looks at the clock


class Recorder:
    """Keeps the dynamics of a run while it is trained; of several processes the first writes what all have seen."""

    def __init__(
        self, run: Path, task: Task, model: Model, batches: Batches, total: int, record: str,
        examples: Sequence[Example],
    ):  # fmt: skip
        require_labels(task, model, batches)
        if record == "train" and batches.sampler is not None:
            raise UserError("train.dynamics: an epoch of rows drawn by their scores does not see all rows; use eval")
        self.model, self.batches, self.total, self.record = model, batches, total, record
        self.rows = np.asarray(batches.rows[np.arange(len(batches.rows))])
        self.at = np.full(len(batches.table), -1, np.int64)
        self.at[self.rows] = np.arange(len(self.rows))
        self.stamp = np.full(len(self.rows), -1, np.int64)
        self.every = int(record.split()[0]) if record[0].isdigit() else batches.steps_per_epoch
        looks = math.ceil(total / self.every)
        shape = looks, len(self.rows), len(task.labels)
        self.examples = examples
        self.logits = self._open(run / FOLDER, task, shape) if comm.is_main() else None
        self.held: list[tuple[int, list[int], Any]] = []  # what this process has seen and not told yet
        if record == "train":
            model.watch = self.seen

    def _open(self, folder: Path, task: Task, shape: tuple[int, ...]) -> np.ndarray:
        with files.io_trouble(f"{folder} cannot be written", folder.parent):
            folder.mkdir(exist_ok=True)
        path, table = folder / "logits.npy", self.batches.table
        if not path.is_file() or np.load(path, mmap_mode="r", allow_pickle=False).shape != shape:
            with files.atomic(path) as stream:
                np.save(stream, np.full(shape, np.nan, np.float32), allow_pickle=False)
        ids = [table.example_ids[int(table.example[row])] for row in self.rows]
        files.write_atomic(folder / "ids.json", json.dumps(ids))
        about = {
            "record": self.record,
            "labels": list(task.labels),
            "looks": shape[0],
            "every": self.every,
            "rows": shape[1],
            **self.made_from(task).to_dict(),
        }
        files.write_json(folder / "meta.json", about)
        files.require_unlinked(path)
        found: np.ndarray = np.load(path, mmap_mode="r+", allow_pickle=False)
        return found

    def made_from(self, task: Task) -> Provenance:
        """The rows that are recorded; a pair in its other order is the same row."""
        own = (self.examples[int(self.batches.table.example[row])] for row in self.rows)
        return Provenance.of(task.name, "train", (one for one in own if not one.id.endswith(SWAPPED)))

    def seen(self, batch: Batch, outputs: Outputs) -> None:
        """A pass of a training step; of methods with several passes the first one counts."""
        rows = self.at[batch.ids.numpy()]
        new = self.stamp[rows] != batch.step
        self.stamp[rows] = batch.step
        self.held.append((batch.step // self.every, rows[new].tolist(), plain(outputs)[new].tolist()))

    def after(self, step: int) -> bool:
        """What all processes have seen in a step is written down; whether all rows are to be looked at now."""
        if self.record == "train":
            for epoch, rows, logits in (one for some in comm.gather(self.held) for one in some):
                self._put(epoch, rows, logits)
            self.held = []
        return self.due(step)

    def _put(self, epoch: int, rows: Sequence[int], logits: Any) -> None:
        if self.logits is not None and len(rows):
            self.logits[epoch, rows] = np.asarray(logits, np.float32)

    def due(self, step: int) -> bool:
        """Whether all rows are looked at after this step."""
        return self.record != "train" and (step % self.every == 0 or step == self.total)

    def record_rows(self, step: int, batcher: MicroBatcher, on_progress: Callable[[int], None]) -> None:
        """Logits of all rows without dropout; rows that are there already stay (after a stop)."""
        epoch, share = (step - 1) // self.every, Share(comm.rank(), comm.size())
        left = self.rows[np.asarray(comm.from_main(self.missing(epoch)), np.int64)]
        left = left[np.argsort(-np.asarray(self.batches.table.lengths[left]), kind="stable")]
        chunks = [left[i : i + CHUNK] for i in range(0, len(left), CHUNK)]
        for i in range(0, len(chunks), share.size):
            cut = [batcher.split(self.batches.table, rows, self.batches.task, 0) for rows in chunks[i : i + share.size]]
            for ids, logits in in_turns(self.model, [b for some in cut for b in some], self.said, on_progress, share):
                self._put(epoch, self.at[ids].tolist(), logits)

    def said(self, batch: Batch) -> Any:
        """The model's logits of a batch, by row of the table."""
        return batch.ids.tolist(), plain(self.model.outputs(batch)).tolist()

    def missing(self, epoch: int) -> list[int]:
        """Places of the rows that were not looked at; nobody but the first process knows."""
        return [] if self.logits is None else np.flatnonzero(np.isnan(self.logits[epoch]).any(1)).tolist()

    def owed(self, step: int) -> bool:
        """Whether a stop came before all rows were looked at."""
        due = step > 0 and self.due(step)
        return bool(comm.from_main(due and bool(self.missing((step - 1) // self.every))))

    def flush(self) -> None:
        """To the disk, before a checkpoint says that these steps are done."""
        self.logits.flush()  # type: ignore[union-attr]


def plain(outputs: Outputs) -> np.ndarray:
    """The logits, out of the graph and of the device."""
    found: np.ndarray = outputs["logits"].detach().float().cpu().numpy()
    return found


def require_labels(task: Task, model: Model, batches: Batches) -> None:
    """One label for each sequence, or there is nothing to record."""
    options: Any = getattr(model.objective(task.name), "options", None)
    if getattr(options, "form", None) != "single" or batches.table.group is not None:
        raise UserError(f"train.dynamics: {task.name} does not have exactly one label per text")
