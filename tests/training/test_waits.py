"""A host that runs ahead of its device: no step waits for one, and a step that is not finite still changes nothing."""

from pathlib import Path
from typing import Any

import pytest

from tests.pretend import jobs, waits
from tests.pretend.gpu import PretendGpu

pytestmark = pytest.mark.slow

WAYS: dict[str, tuple[str, str]] = {
    "plain": ("plain", "classification"),
    "FreeLB": ("freelb", "classification"),
    "SMART": ("smart", "classification"),
    "R-Drop": ("rdrop", "classification"),
    "several tasks": ("plain", "forms"),
    "FreeLB on several tasks": ("freelb", "forms"),
    "MLM": ("plain", "mlm"),
    "ELECTRA": ("plain", "electra"),
    "AMOS": ("plain", "amos"),
    "tagging": ("plain", "tagging"),
    "spans": ("plain", "spans"),
}
PASSES = {"plain": 1, "FreeLB": 3, "MLM": 1, "tagging": 1}


def tree_of(folder: Path, way: str, layout: str = "packed", **train: Any) -> dict[str, Any]:
    method, objective = WAYS[way]
    case = {"method": method, "objective": objective, "precision": "bf16", "layout": layout}
    tree = jobs.settings(str(folder), case, **train)
    if method in ("freelb", "smart"):
        tree["method"]["log_attack"] = 0  # what it looks at is read
    return tree


@pytest.mark.parametrize("way", WAYS)
def test_no_step_waits_for_the_device(tmp_path: Path, pretend_gpu: PretendGpu, way: str) -> None:
    found = pretend_gpu.call(waits.per_step, tree_of(tmp_path, way, max_steps=3))
    assert found["steps"] == [{}, {}, {}]
    assert sum(found["look"].values()) == 1  # all steps in one copy
    assert found["losses"] == found["remembered"]
    assert len(found["losses"]) == 3


@pytest.mark.parametrize(
    ("kind", "precision", "dropout", "kernels"),
    [
        ("bert", "bf16", 0.1, ["flash"]),  # of jagged tensors
        ("bert", "bf16", 0.0, ["varlen"]),
        ("bert", "fp32", 0.1, ["efficient"]),
        ("modernbert", "bf16", 0.0, ["varlen"]),
        ("modernbert", "bf16", 0.1, ["flash"]),  # and groups, for layers with a window
    ],
)
def test_attention_takes_the_kernel_that_can_and_does_not_wait(
    tmp_path: Path, pretend_gpu: PretendGpu, kind: str, precision: str, dropout: float, kernels: list[str]
) -> None:
    tree = tree_of(tmp_path, "plain", max_steps=2)
    config = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    if kind == "modernbert":
        config |= {"local_attention": 6, "layer_types": ["full_attention", "sliding_attention"]}
    tree["model"] |= {"new": {"kind": kind, "config": config}, "attention_dropout": dropout}
    tree["train"]["precision"] = precision
    found = pretend_gpu.call(waits.kernels_of, tree)
    assert found["kernels"] == kernels
    assert found["steps"] == [{}, {}]


@pytest.mark.parametrize("way", PASSES)
def test_rows_wait_once_a_pass_for_the_mask_of_transformers(tmp_path: Path, pretend_gpu: PretendGpu, way: str) -> None:
    found = pretend_gpu.call(waits.per_step, tree_of(tmp_path, way, "rows", max_steps=2))
    assert found["steps"] == [{"_local_scalar_dense": PASSES[way]}] * 2


def test_a_session_waits_where_it_logs(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    tree = tree_of(tmp_path, "plain", max_steps=9, log=3, evaluate="never", save="end")
    found = pretend_gpu.call(waits.in_session, tree, str(tmp_path / "run"))
    # Before step 1 the run is built; what follows a step (the log) is counted with the step after it.
    assert found[2:] == [0, 1, 0, 0, 1, 0, 0]


def test_R6_what_is_not_finite_changes_nothing_until_somebody_looks(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    found = pretend_gpu.call(waits.poisoned, tree_of(tmp_path, "plain", max_steps=5, batch_size=4), 3)
    assert found["same"] == [False, True, True, True, True]
    assert "step 3: loss toy/nli/loss" in found["message"]
    assert "is not finite" in found["message"]
    assert all(one in found["message"] for one in found["ids"])


@pytest.mark.parametrize("look", [{"log": 5}, {"save": "5 steps"}, {"evaluate": "5 steps"}], ids=str)
def test_R6_a_session_looks_before_it_logs_saves_or_evaluates(
    tmp_path: Path, pretend_gpu: PretendGpu, look: dict[str, Any]
) -> None:
    rarely = {"max_steps": 9, "log": 100, "evaluate": "never", "save": "end"}
    tree = tree_of(tmp_path, "plain", **rarely | look)
    found = pretend_gpu.call(waits.poisoned_session, tree, str(tmp_path / "run"), 3)
    assert "step 3: loss toy/nli/loss is not finite" in found["message"]
    assert (found["steps"], found["saved"]) == (5, [])


# Two processes, one device each


@pytest.mark.parametrize("way", ["plain", "FreeLB", "several tasks", "MLM", "ELECTRA"])
def test_no_step_of_two_processes_waits_for_a_device(tmp_path: Path, pretend_gpu: PretendGpu, way: str) -> None:
    tree = tree_of(tmp_path, way, max_steps=3, precision="fp32")
    tree["model"] |= {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
    both = pretend_gpu.call_together(waits.with_tables, tree)
    alone = pretend_gpu.call(waits.per_step, tree)
    for found in both:
        assert found["steps"] == [{}, {}, {}]
        assert sum(found["look"].values()) == 1  # all steps in one copy; their losses are added up by the hosts
        assert found["losses"] == found["remembered"] == both[0]["losses"]
        assert found["losses"] == pytest.approx(alone["losses"], rel=1e-5)


def test_a_session_of_two_processes_waits_where_it_logs(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    tree = tree_of(tmp_path, "plain", max_steps=6, log=3, evaluate="never", save="end")
    for found in pretend_gpu.call_together(waits.in_session, tree, str(tmp_path / "run")):
        assert found[2:] == [0, 1, 0, 0]


def test_two_processes_save_by_the_clock_of_the_first(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    """Who saves reads the numbers of the steps, which all processes must do together."""
    tree = tree_of(tmp_path, "plain", max_steps=6, log=100, evaluate="never", save="1 min")
    saving, other = pretend_gpu.call_together(waits.by_the_clock, tree, str(tmp_path / "run"), [4, 3])
    assert saving[2:4] == other[2:4] == [0, 0]
    assert saving[4] > 1  # the weights, too
    assert other[4:] == [1, 0]


def test_R6_what_is_not_finite_in_one_process_changes_nothing_in_any(tmp_path: Path, pretend_gpu: PretendGpu) -> None:
    tree = tree_of(tmp_path, "plain", max_steps=4, batch_size=4)
    both = pretend_gpu.call_together(waits.poisoned, tree, 3, 1)
    for found in both:
        assert found["same"] == [False, True, True, True]
        assert "step 3: loss toy/nli/loss is not finite" in found["message"]
        assert all(one in found["message"] for each in both for one in each["ids"])
