"""Several sequences an example, numbers per token, and groups that are never cut apart."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.data.batches import Batches, InputForm, MicroBatcher, in_order
from encodery.data.layouts import group_cuts
from encodery.data.token_table import TokenTable, memory_table, token_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.tasks.base import HIDDEN, Example, Features, Origin, Task
from tests.toolbox.tokenizers import word_tokenizer

LAYOUTS = ("packed", "rows", "padded")


class Several(Task):
    """Each example gives as many sequences as its text has words."""

    together: bool = True

    @property
    def name(self) -> str:
        return "own/several"

    def examples(self, split: str) -> list[Example]:
        return [Example(f"e{i}", (" ".join(f"w{j}" for j in range(1 + i % 4)),)) for i in range(11)]

    def origin(self, split: str) -> Origin:
        return Origin("own", "", 11)

    def objective(self) -> dict[str, Any]:
        return {"kind": "none", "together": self.together}

    def encode(self, examples: Sequence[Example], pieces: Any, max_length: int) -> Iterator[Features]:
        for row, example in enumerate(examples):
            for number in range(len(example.texts[0].split())):
                ids = list(range(3, 6 + row % 5 + number))
                yield Features(
                    row, ids, [0] * len(ids), {"place": number}, {"tag": ids[::-1]}, {"word": [i * 2 for i in ids]},
                    group=row if self.together else None,
                )  # fmt: skip


def table_of(together: bool = True) -> TokenTable:
    return token_table(Several(together=together), "train", TokenizerPieces(word_tokenizer()), 32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCODERY_CACHE", str(tmp_path))


def batcher(layout: str, budget: int = 30) -> MicroBatcher:
    return MicroBatcher(layout, InputForm(True, 0), budget)  # type: ignore[arg-type]


def test_numbers_per_token_come_out_as_they_went_in() -> None:
    table = table_of()
    assert len(table) > len(table.example_ids)
    for row in range(len(table)):
        here = slice(table.starts[row], table.starts[row + 1])
        assert table.token_targets["tag"][here].tolist() == table.ids[here][::-1].tolist()
        assert table.marks["word"][here].tolist() == (table.ids[here] * 2).tolist()
    task = Several()
    memory = memory_table(task.encode(task.examples("train"), None, 32), table.example_ids)
    assert np.array_equal(memory.token_targets["tag"], table.token_targets["tag"])
    assert np.array_equal(memory.marks["word"], table.marks["word"])
    assert np.array_equal(memory.group, table.group)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_token_targets_lie_as_the_tokens_do(layout: str) -> None:
    table = table_of()
    batch = batcher(layout).batch(table, np.array([4, 0, 7]), "t", 0)
    ids, tags = batch.rows(batch.inputs["input_ids"])[0], batch.rows(batch.targets["tag"])[0]
    for row, length in enumerate(batch.layout.lengths.tolist()):
        assert tags[row, :length].tolist() == ids[row, :length].tolist()[::-1]
    if layout != "packed":
        assert (batch.targets["tag"][~batch.layout.mask] == HIDDEN).all()  # type: ignore[union-attr]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("budget", [1, 30, 1000])
def test_a_group_is_never_cut_apart(layout: str, budget: int) -> None:
    table = table_of()
    batches = Batches("t", table, table.rows_of(np.arange(11)), 4, 1, 1, batcher(layout, budget))
    assert batches.steps_per_epoch == 3
    seen: list[int] = []
    for step in range(3):
        for batch in batches.at(step):
            rows = batch.ids.numpy()
            assert set(table.whole_groups(rows).tolist()) == set(rows.tolist())
            assert batch.examples == len(set(table.group[rows].tolist()))  # type: ignore[index]
            seen += rows.tolist()
    assert sorted(seen) == list(range(len(table)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_evaluation_sees_every_row_once_and_groups_whole(layout: str) -> None:
    for together in (True, False):
        table = table_of(together)
        batches = in_order(table, batcher(layout), "t", batch_size=3)
        assert sorted(row for batch in batches for row in batch.ids.tolist()) == list(range(len(table)))
        for batch in batches:
            assert (batch.group is not None) == together
            assert set(table.whole_groups(batch.ids.numpy()).tolist()) == set(batch.ids.tolist())


def test_without_groups_a_row_is_an_example() -> None:
    table = table_of(together=False)
    rows = table.rows_of(np.array([1, 3]))
    assert table.example[rows].tolist() == [1, 1, 3, 3, 3, 3]
    batch = batcher("packed").batch(table, rows, "t", 0)
    assert batch.examples == len(batch) == 6
    assert batch.example_of_sequence.tolist() == list(range(6))


def test_what_changes_the_windows_is_in_the_name_of_the_table() -> None:
    from encodery.tasks.table import Table
    from encodery.tasks.toy import ToyQa, ToyTags

    pieces = TokenizerPieces(word_tokenizer())
    few = {"train_rows": 4, "dev_rows": 2, "test_rows": 2}
    pairs: list[tuple[Task, Task]] = [
        (ToyQa(part="qa", stride=3, **few), ToyQa(part="qa", stride=4, **few)),
        (ToyQa(part="qa", max_question=2, **few), ToyQa(part="qa", max_question=3, **few)),
        (ToyTags(part="ner", stride=3, **few), ToyTags(part="ner", stride=4, **few)),
        (ToyTags(part="ner", **few), ToyTags(part="ner", train_on_special_labels=True, **few)),
    ]
    for one, other in pairs:
        assert token_table(one, "dev", pieces, 12).folder != token_table(other, "dev", pieces, 12).folder
    assert Table(train="a.csv", window_stride=3).reading() != Table(train="a.csv", window_stride=4).reading()


def test_per_example_reduces_over_the_sequences_of_an_example() -> None:
    table = table_of()
    batch = batcher("packed").batch(table, table.whole_groups(np.array([1, 6])), "t", 0)
    values = torch.arange(float(len(batch)))[:, None] * torch.ones(2)
    for how, by_hand in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)):
        got = batch.per_example(values, how)  # type: ignore[arg-type]
        for number in range(batch.examples):
            assert torch.equal(got[number], by_hand(values[batch.example_of_sequence == number], 0))


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), max_size=12), st.integers(1, 60), st.booleans())
def test_group_cuts_hold_the_budget_where_they_can(groups: list[list[int]], budget: int, padded: bool) -> None:
    sizes = group_cuts([np.array(group) for group in groups], budget, None, padded)
    assert sum(sizes) == len(groups)
    place = 0
    for size in sizes:
        inside = [length for group in groups[place : place + size] for length in group]
        tokens = max(inside) * len(inside) if padded else sum(inside)
        assert size == 1 or tokens <= budget
        place += size
