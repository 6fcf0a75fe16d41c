"""A model that is spread over two processes takes the steps of one that is not, and its runs go on with one."""

import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from encodery.errors import Stopped, UserError
from encodery.models import fsdp
from encodery.runs.directory import RunDir
from tests.distributed.test_comm import STILL, apart, cases
from tests.toolbox.processes import end, start, together
from tests.toolbox.runs import settings, weights_of
from tests.toolbox.world_jobs import NOTHING, measure, run_until


@pytest.mark.slow
def test_P1_R14_two_processes_with_a_part_of_the_model_each_take_the_steps_of_one(tmp_path: Path) -> None:
    trees = {name: tree for name, tree in cases(tmp_path).items() if name in ("classification", "electra")}
    trees = {name: {**tree, "train": {**tree["train"], "shard": True}} for name, tree in trees.items()}
    alone, pair = tmp_path / "alone", tmp_path / "pair"
    alone.mkdir(), pair.mkdir()
    measure(trees, str(alone))
    together(tmp_path, measure, trees, str(pair))
    for name in trees:
        one, two = (load_file(folder / f"{name}-0.safetensors") for folder in (alone, pair))
        assert apart(one, two, "grad") < 1e-6, name
        assert apart(one, two, "weight") < 5e-6, name
        torch.testing.assert_close(two["report"], one["report"], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.slow
def test_R9_a_sharded_run_stops_and_goes_on_in_one_process_and_back(tmp_path: Path) -> None:
    train = {"max_steps": 8, "save": "3 steps", "evaluate": "4 steps", "select": "best", "shard": True}
    tree = settings(tmp_path, rows=40, model=STILL, train=train)
    runs = {name: RunDir(tmp_path / name) for name in ("alone", "down", "whole")}
    assert run_until(tree, str(runs["alone"].path), 0, 0, NOTHING) == 0
    assert (
        end(start(tmp_path, run_until, tree, str(runs["down"].path), 5, 1, signal.SIGTERM)) == [Stopped.exit_code] * 2
    )
    assert run_until(tree, str(runs["down"].path), 0, 0, NOTHING) == 0
    assert run_until(tree, str(runs["whole"].path), 5, 0, signal.SIGTERM) == Stopped.exit_code
    together(tmp_path, run_until, tree, str(runs["whole"].path), 0, 0, NOTHING)
    ours = weights_of(runs["alone"])
    for run in (runs["down"], runs["whole"]):
        theirs = weights_of(run)
        assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 5e-6
        assert run.read_scores()["chosen"]["step"] == runs["alone"].read_scores()["chosen"]["step"]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("method freelb", ("freelb", 1, "full", False, [])),
        ("several tasks", ("plain", 2, "full", False, [])),
        ("model.tune lora", ("plain", 1, "lora", False, [])),
        ("train.dynamics", ("plain", 1, "full", "eval", [])),
    ],
)
def test_what_was_not_proven_under_sharding_is_refused(words: str, given: tuple[str, int, str, object, object]) -> None:
    with pytest.raises(UserError, match=words):
        fsdp.require_fit(*given)
