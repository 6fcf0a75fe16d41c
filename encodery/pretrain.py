"""What a run on plain text needs besides what every run has: its blocks, heads to go on from, probes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from encodery import on, probe
from encodery.data.batches import AllRows
from encodery.data.pieces import TokenizerPieces
from encodery.data.subset import training_rows
from encodery.data.tokens import TokenTable
from encodery.errors import UserError
from encodery.models.model import Model
from encodery.probe import Probe
from encodery.schema import Config, Entry
from encodery.tasks.base import Task

KEPT = (6.25, 12.5, 25.0, 50.0)  # percent of the steps of a pretraining whose models are kept; 100 is model/

BUDGET = 16384  # tokens of a micro-batch where nobody asked for a number
BUDGET_OF_TEXT = 4096  # in pretraining on a CPU: steps are large there, and smaller pieces are as quick


def token_budget(config: Config, tasks: Sequence[Task], device: torch.device) -> int:
    """Most tokens of a micro-batch: as asked, else by what is trained where. The gradient is the same."""
    usual = BUDGET if any(task.labelled for task in tasks) or device.type != "cpu" else BUDGET_OF_TEXT
    return usual if config.train.token_budget is None else config.train.token_budget


def kept_shares(config: Config, tasks: Sequence[Task]) -> Sequence[float]:
    """At which percent of the steps models are kept: as asked; if nobody asked, ELECTRA's for plain text, none else."""
    asked = config.train.keep_at
    shares = asked if asked is not None else () if any(task.labelled for task in tasks) else KEPT
    if shares and config.model.tune == "lora":
        raise UserError("train.keep_at: adapters are merged at the end only; with model.tune: lora set it to []")
    return shares


def training_blocks(task: Task, entry: Entry, table: TokenTable, seed: int) -> np.ndarray | AllRows:
    """The blocks to train on; all of them need no list."""
    if not len(table):
        raise UserError(f"{task.name}: the training set is empty")
    if entry.fraction == 1 and entry.count is None:
        return AllRows(len(table))
    return training_rows(np.arange(len(table)), entry.fraction, entry.count, seed)


def go_on(model: Model, task: Task, folder: Path, generator: Path | None) -> list[str]:
    """Pretraining that goes on from a checkpoint takes its heads over too; says what is new."""
    notes: list[str] = model.question(task.name).go_on(model.encoder, folder, generator)
    return notes


def make_probes(config: Config, pieces: TokenizerPieces, length: int) -> list[Probe]:
    """The tasks that the encoder is probed on, tokenised."""
    if config.probe is None:
        return []
    longest, rows = min(length, config.probe.max_length), config.probe.train_rows
    return [probe.prepare(on.named(name, config.data), pieces, longest, rows) for name in config.probe.tasks]
