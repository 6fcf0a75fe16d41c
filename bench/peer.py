"""The peer of the step bench: transformers' Trainer on the rows of one of our token tables.

It runs in a process of its own, so that nothing we set for ours (the allocator, dropout) speeds it up or slows it down.
On each line of its input, `KIND STEPS`, it takes so many steps and prints its seconds per cell.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import common
import numpy as np
import torch
from torch.utils.data import Sampler
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.utils import logging

from encodery.data.token_table import TokenTable

Kind = Literal["padded", "dynamic", "grouped"]
SIZE, LONGEST = 32, 128
SKIP = 2  # first steps of a round, not counted


class Given(Sampler[int]):
    """Rows in the order they are given."""

    def __init__(self, rows: list[int]):
        self.rows = rows

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class Measured(Trainer):
    """Trainer on given rows: which ones is decided beforehand, so that what is measured stands for the epoch."""

    order: list[int]

    def _get_train_sampler(self, *_: Any) -> Given:
        return Given(self.order)


class Stamps(TrainerCallback):
    """The clock at the end of every step."""

    def __init__(self, now: Callable[[], float]):
        self.now, self.times = now, list[float]()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times.append(self.now())


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """The rows of a token table as Trainer wants them, made ahead (padded ones already padded, as run_glue does)."""

    def __init__(self, table: TokenTable, longest: int | None, pad: int):
        self.table, self.longest, self.pad = table, longest, pad

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: int) -> dict[str, Any]:
        begin, end = self.table.starts[row : row + 2]
        ids, types = self.table.ids[begin:end].tolist(), self.table.types[begin:end].tolist()
        rest = self.longest - len(ids) if self.longest else 0
        return {
            "input_ids": ids + [self.pad] * rest,
            "token_type_ids": types + [0] * rest,
            "attention_mask": [1] * len(ids) + [0] * rest,
            "labels": int(self.table.targets["label"][row]),
        }


class Epoch:
    """The full batches of one epoch, in the order of their cells."""

    def __init__(self, kind: Kind, lengths: np.ndarray):
        self.kind, self.lengths = kind, lengths
        self.rng = np.random.default_rng(0)
        order = self.rng.permutation(len(lengths))
        if kind == "grouped":
            generator = torch.Generator().manual_seed(0)
            order = np.array(list(LengthGroupedSampler(SIZE, lengths=lengths.tolist(), generator=generator)))
        full = [order[i : i + SIZE] for i in range(0, len(order) - SIZE + 1, SIZE)]
        self.batches = sorted(full, key=self.cells_of)

    def cells_of(self, rows: np.ndarray) -> int:
        """Cells of a batch: with padding."""
        return len(rows) * (LONGEST if self.kind == "padded" else int(self.lengths[rows].max()))

    def cells(self) -> float:
        """Cells per example of an epoch."""
        return float(np.mean([self.cells_of(rows) for rows in self.batches])) / SIZE

    def sample(self, count: int) -> list[np.ndarray]:
        """So many batches, one from each stretch of lengths, in random order."""
        edges = np.linspace(0, len(self.batches), count + 1)
        picks = [int(self.rng.uniform(a, b)) for a, b in pairwise(edges)]
        return [self.batches[i] for i in self.rng.permutation(picks)]


class Peer:
    """A model of the stock class, and Trainer over its batches."""

    def __init__(self, kind: Kind, folder: Path, table: TokenTable):
        self.folder, self.epoch = folder, Epoch(kind, np.asarray(table.lengths))
        self.model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.rows = Rows(table, LONGEST if kind == "padded" else None, tokenizer.pad_token_id)
        self.collate = default_data_collator if kind == "padded" else DataCollatorWithPadding(tokenizer)

    def round(self, steps: int, now: Callable[[], float]) -> float:
        """Seconds per cell over so many steps, after a few that do not count."""
        counted = self.epoch.sample(steps)
        stamps = Stamps(now)
        arguments = TrainingArguments(
            output_dir=str(self.folder / "out"), per_device_train_batch_size=SIZE, max_steps=SKIP + steps,
            save_strategy="no", logging_strategy="no", eval_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=True, learning_rate=2e-5, max_grad_norm=1.0, weight_decay=0.01, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = Measured(self.model, arguments, self.collate, self.rows, callbacks=[stamps])
        trainer.remove_callback(PrinterCallback)
        trainer.order = np.concatenate([*self.epoch.sample(SKIP), *counted]).tolist()
        trainer.train()
        seconds = stamps.times[-1] - stamps.times[SKIP - 1]
        return seconds / sum(map(self.epoch.cells_of, counted))


class Worker:
    """The process with the peers, seen from outside."""

    def __init__(self, model: Path, table: Path, clock: str, threads: int):
        words = [sys.executable, "-W", "ignore", __file__, str(model), str(table), clock, str(threads)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self, kind: Kind, steps: int) -> float:
        """Seconds per cell."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{kind} {steps}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def stop(self) -> None:
        """Its input ends, so does it."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def main(model: str, table: str, clock: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    peers: dict[str, Peer] = {}
    for line in sys.stdin:
        kind, steps = line.split()
        peers[kind] = peers.get(kind) or Peer(kind, Path(model), TokenTable(Path(table)))  # type: ignore[arg-type]
        print(peers[kind].round(int(steps), common.clock(clock)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
