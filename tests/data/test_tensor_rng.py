"""Draws as tensor operations are those of numpy: to the bit, normal numbers to 1e-6."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encodery.data import rng, tensor_rng
from encodery.methods import base
from tests.pretend import jobs, waits
from tests.pretend.gpu import PretendGpu
from tests.toolbox.models import batcher_for, random_table, small_encoder

KEYS = st.integers(0, 2**64 - 1)
IDS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20)


@pytest.mark.slow
@given(KEYS, IDS, st.integers(0, 9))
def test_bits_and_uniform_numbers_are_those_of_numpy(key: int, ids: list[int], size: int) -> None:
    there, here = torch.tensor(ids), np.array(ids)
    kept = there.clone()
    assert np.array_equal(tensor_rng.bits(key, there, size).numpy().view(np.uint64), rng.bits(key, here, size))
    assert np.array_equal(tensor_rng.uniform(key, there, size).numpy(), rng.uniform(key, here, size))
    assert torch.equal(there, kept)


@given(KEYS, st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(1, 9)), min_size=1, max_size=8))
def test_numbers_of_tokens_are_those_of_numpy(key: int, rows: list[tuple[int, int]]) -> None:
    ids, lengths = (np.array(column) for column in zip(*rows, strict=True))
    sequence = torch.from_numpy(np.repeat(np.arange(len(rows)), lengths))
    found = tensor_rng.per_token(key, torch.from_numpy(ids), torch.from_numpy(lengths), sequence, 5)
    assert np.array_equal(found.numpy(), rng.per_token(key, ids, lengths, 5))


def test_normal_numbers_are_those_of_numpy_but_for_rounding() -> None:
    first, second = (rng.uniform(rng.key(1, name), np.arange(20_000), 4) for name in ("radius", "angle"))
    wanted = rng.normal(first, second)
    found = tensor_rng.normal(torch.from_numpy(first), torch.from_numpy(second)).numpy()
    assert np.abs(found - wanted).max() < 1e-6
    assert abs(wanted.mean()) < 0.02
    assert abs(wanted.std() - 1) < 0.02


@pytest.mark.parametrize("layout", ["packed", "rows"])
def test_both_ways_of_a_batch_agree(layout: str) -> None:
    encoder = small_encoder("bert", layout)
    batch = batcher_for(encoder).batch(random_table([9, 5, 2]), np.arange(3), "t", 0)
    assert torch.equal(base._drawn_there(batch, 7, "shift"), base.per_token(batch, 7, "shift"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["freelb", "smart", "r3f"])  # uniform, normal, either
def test_perturbations_are_drawn_on_the_device(tmp_path, pretend_gpu: PretendGpu, method: str) -> None:  # type: ignore[no-untyped-def]
    """The same losses as on a CPU, and no copy of draws to the device."""
    case = {"method": method, "objective": "classification", "precision": "fp32", "layout": "packed"}
    found = {}
    for device in ("cpu", "cuda"):
        tree = jobs.settings(str(tmp_path), case, device, max_steps=3)
        tree["model"] |= {"dropout": 0.0, "attention_dropout": 0.0}
        if method != "r3f":
            tree["method"]["log_attack"] = 0
        found[device] = pretend_gpu.call(waits.per_step, tree)
    assert found["cuda"]["losses"] == pytest.approx(found["cpu"]["losses"], rel=1e-5)
    assert found["cuda"]["unpinned"] == [{}, {}, {}]
