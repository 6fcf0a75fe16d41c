"""Packed, rows and padded are three ways to lie in memory and one answer to every question."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.data.batches import InputForm, MicroBatcher
from encodery.data.layouts import Packed, Rows, attention_groups, fill_cuts, groups_of, row_cuts
from tests.toolbox.layouts import spread
from tests.toolbox.models import batcher_for, random_table, small_encoder

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=24)
FORM = InputForm(types=True, pad_id=1, first_position=2)


def both(lengths: list[int], width: int = 3) -> tuple[Packed, torch.Tensor, Rows, torch.Tensor]:
    """The same values in both layouts; cells of padding hold garbage."""
    values = torch.randn(sum(lengths), width, dtype=torch.float64)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    cells = torch.full((*mask.shape, width), 1e9, dtype=torch.float64)
    cells[mask] = values
    return Packed(torch.tensor(lengths)), values[None], Rows(mask), cells


@pytest.mark.slow
@given(LENGTHS)
def test_layouts_answer_alike(lengths: list[int]) -> None:
    packed, flat, rows, cells = both(lengths)
    assert torch.equal(packed.lengths, rows.lengths)
    assert torch.equal(packed.sequence_of_token, rows.sequence_of_token)
    assert torch.equal(packed.first(flat), rows.first(cells))
    assert torch.equal(packed.tokens(flat), rows.tokens(cells))
    (a, mask_a), (b, mask_b) = packed.rows(flat), rows.rows(cells)
    assert torch.equal(mask_a, mask_b)
    assert torch.equal(a[mask_a], b[mask_b])
    for how in ("sum", "mean", "max"):
        torch.testing.assert_close(packed.per_sequence(flat, how), rows.per_sequence(cells, how), rtol=0, atol=1e-12)
    torch.testing.assert_close(packed.per_sequence(flat[..., 0], "sum"), rows.per_sequence(cells[..., 0], "sum"))


@pytest.mark.slow
@given(LENGTHS)
def test_gradients_of_sums_means_and_maxima_are_alike(lengths: list[int]) -> None:
    packed, flat, rows, cells = both(lengths)
    flat.requires_grad_()
    cells.requires_grad_()
    for how in ("sum", "mean", "max"):
        (a,) = torch.autograd.grad(packed.per_sequence(flat, how).square().sum(), flat)
        (b,) = torch.autograd.grad(rows.per_sequence(cells, how).square().sum(), cells)
        torch.testing.assert_close(packed.tokens(a), rows.tokens(b))
        assert not b[~rows.mask].any()


@pytest.mark.slow
@given(LENGTHS, st.booleans())
def test_attention_groups_cover_every_token_once(lengths: list[int], longest_first: bool) -> None:
    ordered = np.array(sorted(lengths, reverse=longest_first))
    sizes = attention_groups(ordered)
    assert sum(sizes) == len(ordered)
    assert min(sizes) >= 1
    groups = groups_of(ordered, sizes, torch.device("cpu"))
    assert sum(group.tokens for group in groups) == sum(lengths)
    values = torch.arange(1.0, sum(lengths) * 3 * 2 + 1).view(-1, 2)  # three heads of size 2
    for group, part in zip(groups, values.split([3 * group.tokens for group in groups]), strict=True):
        cells = group.cells(part, 3)
        assert cells.shape == (len(group.lengths), 3, group.longest, 2)
        assert torch.equal(group.real(cells), part.view(-1, 6))  # in order, so that the outputs need no scatter


@given(LENGTHS)
def test_the_gradient_of_cells_is_that_of_indexing(lengths: list[int]) -> None:
    (group,) = groups_of(np.array(lengths), [len(lengths)], torch.device("cpu"))
    values = torch.randn(group.tokens * 3, 2, dtype=torch.float64, requires_grad=True)
    cells = group.cells(values, 3)
    weight = torch.randn_like(cells)
    if group.mask is not None:  # padded cells take part in nothing
        weight = weight * group.mask.transpose(2, 3)
    (grad,) = torch.autograd.grad((cells.square() * weight).sum(), values)
    torch.testing.assert_close(grad, 2 * values.detach() * group.real(weight).view(-1, 2))


def test_equal_lengths_are_one_group_without_a_gather() -> None:
    (group,) = groups_of(np.full(8, 16), attention_groups(np.full(8, 16)), torch.device("cpu"))
    assert group.mask is None
    values = torch.randn(8 * 16 * 3, 2)
    assert group.cells(values, 3).data_ptr() == values.data_ptr()


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["packed", "rows", "padded"])
@given(LENGTHS, st.integers(16, 200), st.one_of(st.none(), st.integers(1, 9)))
def test_cuts_respect_budget_and_most(layout: str, lengths: list[int], budget: int, most: int | None) -> None:
    table = random_table(lengths)
    micro = MicroBatcher(layout, FORM, budget, most).split(table, np.arange(len(table)), "t", 0)  # type: ignore[arg-type]
    assert sorted(row for batch in micro for row in batch.ids.tolist()) == list(range(len(lengths)))
    for batch in micro:
        assert most is None or len(batch) <= most
        assert len(batch) == 1 or batch.inputs["input_ids"].numel() <= budget


def test_no_cut_is_made_without_need() -> None:
    lengths = np.full(32, 10)
    assert fill_cuts(lengths, 320, None, padded=False) == fill_cuts(lengths, 320, None, padded=True) == [32]
    assert row_cuts(lengths, 320, None) == [32]


@pytest.mark.slow
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_row_cuts_are_the_cheapest_there_are(lengths: list[int]) -> None:
    ordered, budget, one_pass = np.array(sorted(lengths, reverse=True)), 100, 30.0

    def cost(sizes: list[int]) -> float:
        places = np.cumsum([0, *sizes])
        return sum((b - a) * int(ordered[a]) + one_pass for a, b in itertools.pairwise(places))

    def ways(n: int) -> list[list[int]]:
        return [[]] if n == 0 else [[*rest, k] for k in range(1, n + 1) for rest in ways(n - k)]

    def legal(sizes: list[int]) -> bool:
        places = np.cumsum([0, *sizes])
        return all(b - a == 1 or (b - a) * ordered[a] <= budget for a, b in itertools.pairwise(places))

    assert cost(row_cuts(ordered, budget, None, one_pass)) == min(cost(s) for s in ways(len(ordered)) if legal(s))


@pytest.mark.slow
@given(LENGTHS, st.integers(16, 300))
def test_every_layout_gives_the_encoder_the_same_tokens(lengths: list[int], budget: int) -> None:
    table = random_table(lengths)
    found = {}
    for layout in ("packed", "rows", "padded"):
        micro = MicroBatcher(layout, FORM, budget).split(table, np.arange(len(table)), "t", 0)  # type: ignore[arg-type]
        found[layout] = {}
        for batch in micro:
            of = batch.layout.sequence_of_token
            for name in ("input_ids", "token_type_ids"):
                tokens = batch.tokens(batch.inputs[name])
                for place, row in enumerate(batch.ids.tolist()):
                    found[layout][row, name] = tokens[of == place].tolist()
            for place, row in enumerate(batch.ids.tolist()):
                found[layout][row, "label"] = int(batch.targets["label"][place])
    assert found["packed"] == found["rows"] == found["padded"]
    for row, n in enumerate(lengths):
        begin = table.starts[row]
        assert found["packed"][row, "input_ids"] == table.ids[begin : begin + n].tolist()


def test_packed_positions_begin_anew_with_every_sequence() -> None:
    batch = MicroBatcher("packed", FORM, 99).batch(random_table([3, 2]), np.arange(2), "t", 0)
    assert batch.inputs["position_ids"].tolist() == [[2, 3, 4, 2, 3]]


def test_padding_has_the_pad_id_type_0_and_no_attention() -> None:
    batch = MicroBatcher("rows", FORM, 99).batch(random_table([3, 1]), np.arange(2), "t", 0)
    assert batch.inputs["input_ids"][1, 1:].tolist() == [1, 1]
    assert batch.inputs["token_type_ids"][1, 1:].tolist() == [0, 0]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize("layout", ["packed", "rows", "padded"])
def test_F21_batch_size_and_padding_do_not_change_the_hidden_states(layout: str) -> None:
    encoder = small_encoder("bert", layout).eval()
    table = random_table([5, 30, 2, 17, 9])
    alone = [encoder(batcher_for(encoder).batch(table, np.array([i]), "t", 0)) for i in range(5)]
    together = batcher_for(encoder).batch(table, np.arange(5), "t", 0)
    firsts = together.first(encoder(together))
    for i, hidden in enumerate(alone):
        torch.testing.assert_close(hidden[0, 0], firsts[i], rtol=0, atol=1e-5)


@given(LENGTHS)
def test_spread_gives_each_token_the_value_of_its_sequence(lengths: list[int]) -> None:
    packed, _, rows, _ = both(lengths)
    value = torch.randn(len(lengths), 2)
    assert torch.equal(packed.tokens(spread(packed, value)), rows.tokens(spread(rows, value)))
    assert not spread(rows, value)[~rows.mask].any()
