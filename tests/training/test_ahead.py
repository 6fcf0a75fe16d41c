"""The next step is prepared in a thread while this one runs: the same bits, and no step is made twice."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from encodery.objectives.parts import masking
from encodery.training import ahead, build, loop
from encodery.training.loop import train
from tests.pretend import jobs, waits
from tests.pretend.gpu import PretendGpu
from tests.toolbox.runs import resolve

WAYS = {"classification": "plain", "forms": "freelb", "mlm": "plain", "electra": "rdrop", "amos": "plain"}


def run(folder: Path, objective: str, thread: bool | None, **more: Any) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and weights after some steps."""
    case = {"method": WAYS[objective], "objective": objective, "precision": "fp32", "layout": "packed"}
    resolved = resolve(jobs.settings(str(folder), case, "cpu", **more))
    made = build.build(resolved, build.find_inputs(resolved))
    steps = train(
        made.model, made.method, made.batches, made.optimizer, made.schedule, made.state, rates=made.rates,
        weighting=made.weighting, ahead=thread,
    )  # fmt: skip
    losses = [report.loss for report in steps]
    return losses, {name: value.clone() for name, value in made.model.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("objective", WAYS)
def test_a_thread_changes_no_bit(tmp_path: Path, objective: str) -> None:
    losses, weights = run(tmp_path, objective, thread=False)
    with_thread, theirs = run(tmp_path, objective, thread=True)
    assert with_thread == losses
    assert len(losses) == 4
    assert all(torch.equal(weights[name], theirs[name]) for name in weights)
    assert not [one for one in threading.enumerate() if one.name.startswith("next-step")]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm", "electra", "amos"])
def test_masked_positions_and_what_picks_their_samples_are_drawn_by_the_thread(
    tmp_path: Path, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the step before runs, and once: no pass asks for them again."""
    drawn: list[tuple[int, str]] = []
    text_of = masking._text

    def seen(batch: Any) -> Any:
        drawn.append((batch.step, threading.current_thread().name.split("_")[0]))
        return text_of(batch)

    monkeypatch.setattr(masking, "_text", seen)
    run(tmp_path, objective, thread=True)
    assert drawn == [(0, "MainThread"), (1, "next-step"), (2, "next-step"), (3, "next-step")]


class Stream:
    """Counts what is made, and where."""

    def __init__(self, budget: int = 8):
        self.batcher = type("Batcher", (), {"budget": budget})
        self.made: list[tuple[int, bool]] = []  # step, whether by a thread

    def at(self, step: int) -> list[Any]:
        self.made.append((step, threading.current_thread() is not threading.main_thread()))
        if step == 3:
            raise ValueError("step 3 cannot be made")
        return []


def test_every_step_is_made_once_and_all_but_the_first_by_the_thread() -> None:
    stream, coming = Stream(), ahead.Ahead(None, 3)  # type: ignore[arg-type]
    for step in range(3):
        coming.at(stream, step)  # type: ignore[arg-type]
    coming.close()
    assert stream.made == [(0, False), (1, True), (2, True)]


def test_another_budget_or_step_than_the_expected_one_is_made_in_time() -> None:
    stream, coming = Stream(), ahead.Ahead(None, 9)  # type: ignore[arg-type]
    coming.at(stream, 0)  # type: ignore[arg-type]
    smaller = Stream(4)
    coming.at(smaller, 1)  # type: ignore[arg-type]
    coming.at(smaller, 6)  # type: ignore[arg-type]
    coming.close()
    assert (1, False) in smaller.made
    assert (6, False) in smaller.made


def test_what_goes_wrong_in_the_thread_is_raised_at_its_step() -> None:
    stream, coming = Stream(), ahead.Ahead(None, 9)  # type: ignore[arg-type]
    coming.at(stream, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step 3 cannot be made"):
        coming.at(stream, 3)  # type: ignore[arg-type]
    coming.close()


@pytest.mark.slow
def test_there_is_no_thread_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    monkeypatch.setattr(loop, "Ahead", lambda model, total: begun.append(total) or ahead.Ahead(model, total))
    run(tmp_path, "classification", thread=None)
    assert not begun
    run(tmp_path, "classification", thread=True)
    assert begun == [4]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["classification", "mlm", "electra", "amos", "forms"])
def test_copies_to_a_device_come_out_of_pinned_memory(tmp_path: Path, pretend_gpu: PretendGpu, way: str) -> None:
    case = {"method": "plain", "objective": way, "precision": "bf16", "layout": "packed"}
    found = pretend_gpu.call(waits.per_step, jobs.settings(str(tmp_path), case, max_steps=3))
    assert found["steps"] == [{}, {}, {}]
    assert found["unpinned"] == [{}, {}, {}]
