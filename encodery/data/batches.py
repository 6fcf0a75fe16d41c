"""Batches: which rows a step sees is a function of (seed, step); how they lie in memory is the layout's business."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from encodery.data import rng
from encodery.data.balance import Balance, copies
from encodery.data.layouts import (
    Layout,
    Offsets,
    Packed,
    Reduce,
    Rows,
    attention_groups,
    fill_cuts,
    group_cuts,
    groups_of,
    row_cuts,
)
from encodery.data.sampling import Sampler
from encodery.data.token_table import TokenTable
from encodery.tasks.base import HIDDEN

# Which part of a step's rows a process takes. The step as a whole is the same for any number of processes.


@dataclass(frozen=True)
class Share:
    """The part of process `rank` of `size`."""

    rank: int = 0
    size: int = 1

    def of(self, table: TokenTable, rows: np.ndarray) -> np.ndarray:
        """This process's rows, in their order; rows of one group stay together. Everybody has about as many tokens."""
        if self.size == 1:
            return rows
        lengths = np.asarray(table.lengths[rows])
        group = rows if table.group is None else np.asarray(table.group[rows])
        _, part = np.unique(group, return_inverse=True)
        whose = self.deal(np.bincount(part, weights=lengths))
        mine: np.ndarray = rows[whose[part] == self.rank]
        return mine

    def deal(self, tokens: np.ndarray) -> np.ndarray:
        """Who takes each example: the longest first, each to the one with the fewest tokens so far."""
        loads, whose = np.zeros(self.size), np.zeros(len(tokens), np.int64)
        for i in np.argsort(-tokens, kind="stable"):
            whose[i] = np.argmin(loads)
            loads[whose[i]] += tokens[i]
        return whose


WHOLE = Share()


LayoutName = Literal["packed", "rows", "padded"]
CPU = torch.device("cpu")
Laid = Callable[[np.ndarray, int], Tensor]  # numbers per token of a table, in the layout of a batch


@dataclass(frozen=True)
class InputForm:
    """What an encoder wants to be given."""

    types: bool  # token_type_ids are meaningful
    pad_id: int
    first_position: int = 0  # RoBERTa counts from pad id + 1


@dataclass(frozen=True)
class Batch:
    """One micro-batch of one task."""

    task: str
    inputs: dict[str, Any]  # exactly the keyword arguments of the encoder
    targets: dict[str, Tensor]
    ids: Tensor  # row numbers in the token table
    layout: Layout
    seed: int = 0  # of everything random inside the pass (dropout), from (seed, step, micro-batch, rank)
    weights: Tensor | None = None  # importance weights, if a Subset brought them
    step: int = 0  # steps done before this one
    noise: int = 0  # key of draws that belong to an example of this step, however it is cut (perturbations)
    group: Tensor | None = None  # number of each sequence's example in this batch; None: one sequence an example
    twin: "Batch | None" = None  # the same on the host, where this one is on another device
    copied_ids: Tensor | None = None  # the row numbers on the device of the inputs, where that is another one
    drawn_as: str = ""  # what the draws of its task go by, where that is not the task's name
    masked: Any = None  # its masked positions (objectives/parts/masking.py), where they were drawn before the pass

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def host(self) -> "Batch":
        """The batch on the host: what is asked of it there does not wait for a device."""
        if self.twin is None:
            return self
        return replace(
            self.twin, seed=self.seed, step=self.step, noise=self.noise, masked=self.masked, drawn_as=self.drawn_as
        )

    @property
    def ids_there(self) -> Tensor:
        """Row numbers where the inputs are."""
        return self.ids if self.copied_ids is None else self.copied_ids

    @property
    def example_of_sequence(self) -> Tensor:
        """Number (in this batch) of the example that each sequence belongs to."""
        return torch.arange(len(self), device=self.layout.lengths.device) if self.group is None else self.group

    @property
    def examples(self) -> int:
        """How many examples there are: sequences that belong together count once."""
        group = self.group if self.twin is None else self.twin.group
        return len(self) if group is None else int(group.max()) + 1

    def per_example(self, values: Tensor, how: Reduce) -> Tensor:
        """Sum, mean or maximum over the sequences of each example."""
        if self.group is None:
            return values
        index = self.group.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
        empty = values.new_zeros(self.examples, *values.shape[1:])
        return empty.scatter_reduce(0, index, values, "amax" if how == "max" else how, include_self=False)

    def first(self, hidden: Tensor) -> Tensor:
        """The vector of each sequence's first token."""
        return self.layout.first(hidden)

    def tokens(self, values: Tensor) -> Tensor:
        """All real tokens, sequence by sequence."""
        return self.layout.tokens(values)

    def rows(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """One sequence a row, and the mask of real tokens."""
        return self.layout.rows(values)

    def per_sequence(self, values: Tensor, how: Reduce) -> Tensor:
        """Sum, mean or maximum over the tokens of each sequence."""
        return self.layout.per_sequence(values, how)


@dataclass(frozen=True)
class MicroBatcher:
    """Splits the sequences of a step into micro-batches of one layout, below a token budget."""

    layout: LayoutName
    form: InputForm
    budget: int
    max_sequences: int | None = None
    device: torch.device = CPU

    def split(self, table: TokenTable, rows: np.ndarray, task: str, seed: int) -> list[Batch]:
        """Micro-batches of the given table rows. Without dropout the gradient does not depend on how they are split."""
        if table.group is not None:
            return self._split_groups(table, rows, task, seed)
        lengths = np.asarray(table.lengths[rows])
        if self.layout != "padded":
            order = np.argsort(-lengths, kind="stable")  # longest first: a lack of memory shows at once
            rows, lengths = rows[order], lengths[order]
        sizes = self.sizes(lengths)
        places = np.cumsum([0, *sizes])
        return [
            self.batch(table, rows[a:b], task, rng.key(seed, "micro", i)) for i, (a, b) in enumerate(pairwise(places))
        ]

    def _split_groups(self, table: TokenTable, rows: np.ndarray, task: str, seed: int) -> list[Batch]:
        """As `split`, where sequences of one group stay together; a group larger than the budget goes alone."""
        assert table.group is not None
        lengths = np.asarray(table.lengths[rows])
        parts = [np.flatnonzero(table.group[rows] == number) for number in dict.fromkeys(table.group[rows].tolist())]
        parts.sort(key=lambda part: -int(lengths[part].max()))
        sizes = group_cuts([lengths[part] for part in parts], self.budget, self.max_sequences, self.layout != "packed")
        batches, place = [], 0
        for i, size in enumerate(sizes):
            chosen = np.concatenate(parts[place : place + size])
            chosen = chosen[np.argsort(-lengths[chosen], kind="stable")]
            batches.append(self.batch(table, rows[chosen], task, rng.key(seed, "micro", i)))
            place += size
        return batches

    def sizes(self, lengths: np.ndarray) -> list[int]:
        """How many sequences go into each micro-batch."""
        if self.layout == "rows":
            return row_cuts(lengths, self.budget, self.max_sequences)
        return fill_cuts(lengths, self.budget, self.max_sequences, padded=self.layout == "padded")

    def batch(self, table: TokenTable, rows: np.ndarray, task: str, seed: int) -> Batch:
        """One micro-batch of exactly these rows."""
        if self.device.type != "cpu":
            return moved(replace(self, device=CPU).batch(table, rows, task, seed), self.device)
        make = self._packed if self.layout == "packed" else self._rows
        inputs, layout, laid = make(table, rows)
        targets = {name: self._put(values[rows]) for name, values in table.targets.items()}
        targets |= {name: laid(values, HIDDEN) for name, values in table.token_targets.items()}
        group = None if table.group is None else self._put(np.unique(table.group[rows], return_inverse=True)[1])
        return Batch(task, inputs, targets, torch.from_numpy(rows), layout, seed, group=group)

    def _packed(self, table: TokenTable, rows: np.ndarray) -> tuple[dict[str, Any], Packed, Laid]:
        starts, lengths = table.starts[rows], np.asarray(table.lengths[rows])
        index = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, lengths, strict=True)])
        position = np.concatenate([np.arange(n) for n in lengths]) + self.form.first_position

        def laid(values: np.ndarray, fill: int) -> Tensor:
            return self._put(values[index].astype(np.int64))[None]

        inputs: dict[str, Any] = {"input_ids": laid(table.ids, 0), "position_ids": self._put(position)[None]}
        if self.form.types:
            inputs["token_type_ids"] = laid(table.types, 0)
        inputs["groups"] = groups_of(lengths, attention_groups(lengths), self.device)
        layout = Packed(self._put(lengths), lengths)
        inputs["offsets"] = Offsets.of(layout.lengths, lengths)
        return inputs, layout, laid

    def _rows(self, table: TokenTable, rows: np.ndarray) -> tuple[dict[str, Any], Rows, Laid]:
        starts, lengths = table.starts[rows], np.asarray(table.lengths[rows])
        place = np.arange(int(lengths.max()))
        mask = place < lengths[:, None]
        index = np.where(mask, starts[:, None] + place, starts[:, None])
        real = self._put(mask)

        def laid(values: np.ndarray, fill: int) -> Tensor:
            return self._put(np.where(mask, values[index], fill).astype(np.int64))

        inputs: dict[str, Any] = {"input_ids": laid(table.ids, self.form.pad_id), "attention_mask": real.long()}
        if self.form.types:
            inputs["token_type_ids"] = laid(table.types, 0)
        return inputs, Rows(real, lengths), laid

    def _put(self, array: np.ndarray) -> Tensor:
        made = torch.from_numpy(np.array(array))
        return made if self.device.type == "cpu" else sent(made, self.device)


class AllRows:
    """The rows of a whole table, without a list of them: row i is i."""

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        return places


@dataclass(frozen=True)
class Batches:
    """The training stream of one task: `at(step)` needs no history."""

    task: str
    table: TokenTable
    rows: np.ndarray | AllRows  # the table rows in use (a subset, a part without the hold-out); of a group its first
    batch_size: int
    seed: int  # of the data: order
    noise: int  # of the weights: dropout
    batcher: MicroBatcher
    weights: np.ndarray | None = None  # of each table row, where a selection has some
    drawn_as: str = ""  # what its draws go by, where that is not the task's name
    own: str = ""  # sets its draws apart from those of the run's other tasks, which may be as long
    neighbours: bool = False  # batches of neighbours, the same in every epoch, for comparison with MT-DNN
    share: Share = WHOLE  # what this process takes of each step
    balance: Balance | None = None  # all classes equally often, instead of each row once in an epoch
    sampler: Sampler | None = None  # draws rows by saved scores, with replacement

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass; the last one may be smaller."""
        return -(-len(self.rows) // self.batch_size)

    def rows_at(self, step: int) -> np.ndarray:
        """The table rows of a step: each once in an epoch in random order, all classes equally often, or by scores."""
        epoch, index = divmod(step, self.steps_per_epoch)
        begin = index * self.batch_size
        end = min(begin + self.batch_size, len(self.rows))
        if self.sampler is not None:
            places = self.sampler.draw(rng.key(self.seed, f"sample{self.own}", step), end - begin)
            return self.table.whole_groups(self.rows[places])
        if self.neighbours:
            number = rng.Order(self.seed, 0, self.steps_per_epoch, f"batches{self.own}").at(np.array([index]))[0]
            begin = number * self.batch_size
            return self.table.whole_groups(self.rows[np.arange(begin, min(begin + self.batch_size, len(self.rows)))])
        if self.balance:
            places = epoch * len(self.rows) + np.arange(begin, end)
            return self.table.whole_groups(self.rows[self.balance.at(places, self.seed, self.own)])
        order = rng.Order(self.seed, epoch, len(self.rows), f"order{self.own}")
        return self.table.whole_groups(self.rows[order.at(np.arange(begin, end))])

    def tasks_at(self, step: int) -> dict[str, float]:
        """The tasks of a step, and how much each counts."""
        return {self.task: 1.0}

    def stream(self, task: str) -> "Batches":
        """That of one task: this one."""
        return self

    def with_budget(self, budget: int) -> "Batches":
        """The same stream in smaller micro-batches."""
        return self if budget == self.batcher.budget else replace(self, batcher=replace(self.batcher, budget=budget))

    def example_ids(self, micro: Sequence[Batch]) -> list[str]:
        """Ids of the examples in these micro-batches, for messages."""
        table, _ = texts_of(self.table, np.zeros(1, np.int64))
        return [table.example_ids[int(table.example[row])] for batch in micro for row in batch.ids]

    def alone(self, row: int) -> Batch:
        """One row of the table, with its group, as a micro-batch of its own, to look at it closely."""
        table, _ = texts_of(self.table, np.zeros(1, np.int64))
        return self.batcher.batch(table, table.whole_groups(np.array([row])), self.task, 0)

    def at(self, step: int) -> list[Batch]:
        """The micro-batches of a step."""
        return self.nth(step, step)

    def nth(self, number: int, step: int, place: int = 0) -> list[Batch]:
        """The micro-batches of a batch that lies at a place of a step."""
        return self.of_rows(self.rows_at(number), step, place)

    def uniform_rows(self, step: int, count: int) -> np.ndarray:
        """So many rows of the set, each at most once, drawn for this step alone; all of them if there are fewer."""
        order = rng.Order(self.seed, step, len(self.rows), f"presample{self.own}")
        return self.table.whole_groups(self.rows[order.at(np.arange(min(count, len(self.rows))))])

    def of_rows(self, rows: np.ndarray, step: int, pass_index: int = 0) -> list[Batch]:
        """Micro-batches of table rows for a step, which may hold several: this process's share, perhaps none."""
        mine = self.share.of(self.table, rows)
        if not len(mine):
            return []
        table, rows = texts_of(self.table, mine)
        when = (step, pass_index) if pass_index else (step,)
        who = (
            (step, pass_index, self.share.rank) if self.share.rank else when
        )  # dropout alone differs between processes
        first, *more = [rows] if table.group is None else copies(rows)
        micro = self.batcher.split(table, first, self.task, rng.key(self.noise, "dropout", *who))
        for turn, again in enumerate(more, 1):
            micro += self.batcher.split(table, again, self.task, rng.key(self.noise, "dropout of copies", *who, turn))
        noise = rng.key(self.noise, "noise", *when)
        same: dict[str, Any] = {"step": step, "noise": noise, "drawn_as": self.drawn_as}
        return [replace(batch, weights=self.weights_of(batch), **same) for batch in micro]

    def weights_of(self, batch: Batch) -> Tensor | None:
        """The weights of a micro-batch's sequences."""
        return None if self.weights is None else self.batcher._put(self.weights[batch.ids.numpy()])


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on a device that nobody waits for: out of pinned memory, where the device can read that by itself."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def moved(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device, with its twin on the host."""

    def put(value: Any) -> Any:
        return sent(value, device) if isinstance(value, Tensor) else value

    layout, group = batch.layout, None if batch.group is None else put(batch.group)
    inputs, targets = ({name: put(value) for name, value in named.items()} for named in (batch.inputs, batch.targets))
    there: Layout
    if isinstance(layout, Packed):
        there = Packed(put(layout.lengths), layout.lengths_on_host)
        inputs["offsets"] = replace(batch.inputs["offsets"], lengths=there.lengths)
        groups = batch.inputs["groups"]
        parts = torch.split(there.lengths, [len(one.lengths) for one in groups])  # so they need no copies
        inputs["groups"] = [replace(one, lengths=part, _orders={}) for one, part in zip(groups, parts, strict=True)]
    else:
        there = Rows(put(layout.mask), layout.lengths_on_host)
    ids = put(batch.ids)
    return replace(batch, inputs=inputs, targets=targets, layout=there, group=group, twin=batch, copied_ids=ids)


def texts_of(table: TokenTable, rows: np.ndarray) -> tuple[TokenTable, np.ndarray]:
    """The sequences that the encoder reads: of blocks with several texts (full blocks) each text by itself."""
    texts = getattr(table, "texts", None)
    return (texts, texts.of(rows)) if texts is not None else (table, rows)


def in_order(table: TokenTable, batcher: MicroBatcher, task: str, batch_size: int = 64) -> Sequence[Batch]:
    """All rows of a table for evaluation: sorted by length, so that little is padded; answers are keyed by id."""
    table, rows = texts_of(table, np.arange(len(table)))
    order = rows[np.argsort(-np.asarray(table.lengths[rows]), kind="stable")]
    if table.group is not None:
        order = order[np.sort(np.unique(table.group[order], return_index=True)[1])]  # each group's longest
    chunks = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    return [batch for rows in chunks for batch in batcher.split(table, table.whole_groups(rows), task, 0)]


def describe(batches: Sequence[Batch]) -> Mapping[str, int]:
    """Sequences, real tokens and cells of the micro-batches of a step, for the throughput line."""
    cells = sum(int(b.inputs["input_ids"].numel()) for b in batches)
    return {
        "sequences": sum(map(len, batches)),
        "tokens": sum(int(b.layout.host_lengths.sum()) for b in batches),
        "cells": cells,
    }
