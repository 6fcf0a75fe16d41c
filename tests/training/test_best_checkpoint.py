"""Weights that were scored on the way are not asked again at the end, and what comes out is the same to the byte."""

from pathlib import Path
from typing import Any

import pytest

from encodery.inference import outputs
from encodery.runs.directory import RunDir
from encodery.training.best_checkpoint import PredictionCache, scale_warning, stuck
from encodery.training.loop import TrainState
from tests.toolbox.runs import run, settings
from tests.training.test_multitask import NLI, SIMILARITY
from tests.training.test_multitask import tree as several
from tests.training.test_session import scripted, stop_at

SHORT = {"max_steps": 6, "evaluate": "2 steps"}
SCORES = [0.5, 0.9, 0.6]


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (0.60, None),
        (0.69, "0.6900 over the last 21 steps is near ln 2 = 0.6931, the loss of guessing"),
        (0.70, "0.7000 over the last 21 steps is near ln 2"),
        (0.8876, "training loss 0.8876 over the last 21 steps is above ln 2 = 0.6931, the loss of guessing"),
    ],
)
def test_R15_a_loss_is_called_near_that_of_guessing_only_where_it_is(loss: float, said: str | None) -> None:
    found = stuck([loss] * 21, 2)
    assert (found is None) == (said is None)
    assert said is None or said in str(found)
    assert stuck([loss] * 19, 2) is None


@pytest.mark.parametrize(
    ("rmse", "main", "said"), [(7.0, "spearman", True), (5.0, "spearman", False), (7.0, "rmse", False)]
)
def test_numbers_farther_off_than_their_mean_are_told_even_in_a_good_order(rmse: float, main: str, said: bool) -> None:
    key = "table/prices:dev"
    result = {"main": {key: main}, "scores": {key: {"spearman": 0.3, "rmse": rmse}}, "majority": {key: {"rmse": 6.0}}}
    sentence = scale_warning(result, key)
    assert (sentence is not None) == said
    assert not said or "whatever their order (spearman 0.3000)" in str(sentence)


def count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The task of every pass over a split from here on."""
    passes: list[str] = []
    real = outputs.answer

    def watched(model: Any, task: Any, *more: Any) -> Any:
        passes.append(task.name)
        return real(model, task, *more)

    monkeypatch.setattr(outputs, "answer", watched)
    return passes


def outcome(done: RunDir) -> dict[str, bytes]:
    """The bytes of scores and predictions."""
    return {str(p.relative_to(done.path)): p.read_bytes() for p in (done.scores, *done.path.glob("predictions/*"))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "more", "passes"),
    [
        ({"select": "last"}, {}, 3),
        ({"select": "best"}, {}, 3),  # the best is not the last: its answers were held
        ({"select": "last", "evaluate": "never"}, {}, 1),
        ({"select": "best", "holdout": 0.25}, {}, 4),  # chosen on other rows than the dev set
        ({"select": "best", "patience": 1, "evaluate": "1 step"}, {}, 3),
        ({"select": "last"}, {"model": {"tune": "lora"}}, 4),  # merging rounds
    ],
    ids=str,
)
def test_the_chosen_weights_are_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: dict[str, Any], more: dict[str, Any], passes: int
) -> None:
    scripted(monkeypatch, SCORES)
    seen = count(monkeypatch)
    run(settings(tmp_path, rows=48, dev=16, train=SHORT | train, **more), tmp_path / "run")
    assert len(seen) == passes


@pytest.mark.slow
@pytest.mark.parametrize("select", ["last", "best", "each"])
def test_what_was_said_is_what_would_be_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: str
) -> None:
    tree = several(tmp_path, [NLI, SIMILARITY], train={"evaluate": "2 steps", "select": select})
    seen = count(monkeypatch)
    once = run(tree, tmp_path / "once")
    assert len(seen) == 3 * 2
    monkeypatch.setattr(PredictionCache, "get", lambda *_: None)
    assert outcome(once) == outcome(run(tree, tmp_path / "twice"))


@pytest.mark.slow(0.5)
def test_a_resumed_run_asks_anew_what_it_did_not_hear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = settings(tmp_path, train={**SHORT, "select": "best", "save": "1 step"}, rows=48, dev=16)
    scripted(monkeypatch, SCORES)
    straight = run(tree, tmp_path / "straight")
    scripted(monkeypatch, SCORES)
    with pytest.raises(KeyboardInterrupt):
        run(tree, tmp_path / "killed", watch=stop_at(5))
    seen = count(monkeypatch)
    assert outcome(run(tree, tmp_path / "killed")) == outcome(straight)
    assert len(seen) == 2, "the evaluation at step 6, and the best weights of step 4"


def test_answers_to_batches_of_another_size_are_not_recalled() -> None:
    state = TrainState(total=8, step=8, budget=64)
    said = PredictionCache("last", merged=False)
    said.add({("a", "dev"): {"1": {"prediction": "x"}}})
    said.commit(state)
    assert said.get(state, "a", "dev") == {"1": {"prediction": "x"}}
    assert said.get(state, "a", "dev_mismatched") is None
    state.budget = 32
    assert said.get(state, "a", "dev") is None
