"""Gradients that travel during the backward pass are the sums that are made after it, to the bit."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from encodery.distributed import comm, overlap
from tests.distributed.test_comm import cases
from tests.toolbox import world_jobs
from tests.toolbox.processes import together

NAMES = ("classification", "balanced", "electra", "mixed", "freelb")
PIECES = "in pieces"  # a step of several micro-batches: what was sent before the last of them would lack its gradient


WAYS = {"after": (False, True), "during": (True, True), "during, tables whole": (True, False)}


def measure(trees: dict[str, dict[str, Any]], out: str, during: bool, rows: bool, bucket: int) -> None:
    """The steps of each config; how many buckets were sent before the end of their pass."""
    overlap.WHERE = {"cpu"} if during else set()
    comm.ROWS_WHERE = {"cpu"} if rows else set()
    comm.BUCKET = bucket
    early: list[int] = []
    send = overlap.Overlap.send

    def counted(self: overlap.Overlap) -> None:
        early.append(torch._C._current_graph_task_id() != -1)  # inside a backward pass
        send(self)

    overlap.Overlap.send = counted  # type: ignore[method-assign]
    comm.join()
    for name, tree in trees.items():
        comm.TABLE = 8
        early.clear()
        found = world_jobs.steps_of(tree, wide=False)
        found["sent"] = torch.tensor([sum(early), len(early)])
        save_file(found, Path(out) / f"{name}-{comm.rank()}.safetensors")
    comm.end_run()


@pytest.mark.slow
def test_sums_are_the_same_whenever_they_are_made(tmp_path: Path) -> None:
    """49 rows in batches of 24: in each third step one of the two processes has no row at all."""
    trees = {name: tree for name, tree in cases(tmp_path).items() if name in NAMES}
    plain = trees["classification"]
    trees[PIECES] = {**plain, "train": {**plain["train"], "max_steps": 6, "token_budget": 48}}
    found: dict[str, dict[str, list[dict[str, torch.Tensor]]]] = {}
    for way, (during, rows) in WAYS.items():
        folder = tmp_path / way
        folder.mkdir()
        together(tmp_path, measure, trees, str(folder), during, rows, 4096)
        found[way] = {n: [load_file(folder / f"{n}-{rank}.safetensors") for rank in range(2)] for n in trees}
    after = found.pop("after")
    for name, way in itertools.product(trees, found):
        for before, now in zip(after[name], found[way][name], strict=True):
            assert before["sent"].tolist() == [0, 0]
            early, sent = now["sent"].tolist()
            if name == "freelb":  # several passes: after them, as before
                assert sent == 0
            elif name != "mixed":  # whose steps hold one task here and there
                assert early > sent / 2 > 0
            assert before.keys() == now.keys()
            for key in before.keys() - {"sent"}:
                assert torch.equal(before[key], now[key]), (name, way, key)


def test_there_is_none_with_one_process_or_on_a_cpu() -> None:
    assert overlap.Overlap.of(torch.device("cuda")) is None
    assert {"cuda"} == overlap.WHERE
    assert {"cpu"} == comm.ROWS_WHERE
