"""Several processes train as one does: the same rows, gradients and weights; one that dies or freezes ends the run."""

import json
import signal
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from encodery.data.batches import Share
from encodery.distributed import comm
from encodery.distributed.heartbeat import BEAT, MISSED, Heart
from encodery.distributed.launch import Failure, launch
from encodery.errors import ProcessLost, RunFailed, Stopped, UserError
from encodery.runs.directory import RunDir
from encodery.training import checkpoint
from tests.toolbox.models import MemoryTable
from tests.toolbox.processes import end, free_port, start, together
from tests.toolbox.runs import settings, weights_of
from tests.toolbox.world_jobs import NOTHING, STEPS, measure, run_all, run_until

STILL = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}


def table_of(lengths: list[int], group: list[int] | None = None) -> MemoryTable:
    table = MemoryTable([[1] * n for n in lengths], [[0] * n for n in lengths], {"label": [0] * len(lengths)})
    table.__dict__["group"] = None if group is None else np.asarray(group)
    return table


@pytest.mark.slow
@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 6), st.booleans())
def test_R14_processes_share_the_rows_of_a_step(lengths: list[int], size: int, grouped: bool) -> None:
    table = table_of(lengths, [i // 3 for i in range(len(lengths))] if grouped else None)
    rows = np.random.default_rng(0).permutation(len(lengths))
    rows = (
        table.whole_groups(rows[np.unique(table.group[rows], return_index=True)[1]])
        if table.group is not None
        else rows
    )
    parts = [Share(rank, size).of(table, rows) for rank in range(size)]
    assert sorted(np.concatenate(parts)) == sorted(rows)
    if table.group is not None:
        whose = [set(table.group[part].tolist()) for part in parts]
        assert sum(map(len, whose)) == len(set().union(*whose))
    else:
        tokens = [sum(lengths[row] for row in part) for part in parts]
        assert max(tokens) - min(tokens) <= max(lengths)


# Two processes on this machine


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    """One config for each way in which processes talk during a step. 49 rows: each third step has one row only."""
    plain = settings(folder, rows=49, model=STILL, optim={"clip": 0.0, "lr": 1e-3}, train={"max_steps": STEPS})
    plain["train"]["batch_size"] = 24
    methods = {
        "freelb": {"kind": "freelb", "log_attack": 1},
        "freeat": {"kind": "freeat"},
        "relative": {"kind": "freelb", "scale": "token_norm", "adv_lr": 0.3, "init_mag": 0.2, "max_norm": 0.5},
        "sam": {"kind": "sam"},
        "fgm": {"kind": "fgm", "target": "matrix"},
        "importance": {"kind": "importance", "threshold": 0.0},
    }
    fields = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    electra = {
        "model": {"new": {"kind": "electra", "config": {**fields, "embedding_size": 16}}, **STILL},
        "tasks": [{"name": "toy/corpus", "documents": 40, "objective": {"kind": "electra"}}],
        "optim": {"lr": 1e-3, "clip": 0.0},
        "train": {"max_steps": STEPS, "batch_size": 12, "max_length": 32, "evaluate": "never", "keep_at": []},
        "device": "cpu",
    }
    few = {"train_rows": 24, "dev_rows": 4, "test_rows": 4}
    toy = {"model": {**plain["model"], "tokenizer": "toy"}}
    toy["tasks"] = [{"name": "toy/nli", **few}, {"name": "toy/similarity", **few, "batch_size": 1}]
    several = {"mixed": {}, "pcgrad": {"weighting": "pcgrad"}, "gradnorm": {"weighting": "gradnorm"}}
    several["uncertainty"] = {"weighting": "uncertainty", "method": {"kind": "sam"}}
    balanced = {**plain, "tasks": [plain["tasks"][0] | {"sampling": "balanced"}]}
    found = {"classification": plain, "balanced": balanced, "electra": electra} | {
        n: {**plain, "method": m} for n, m in methods.items()
    }
    return found | {name: {**plain, **toy, **more} for name, more in several.items()}


def taught(folder: Path, mixed: dict[str, Any]) -> dict[str, Any]:
    """A SAN head that learns from a run."""
    nli = mixed["tasks"][0]
    run_all({"teacher": {**mixed, "tasks": [nli], "train": {"max_steps": 2, "batch_size": 8}}}, str(folder))
    objective = {"head": "san", "san_turn_dropout": 0.0, "distill": {"loss": "mse"}}
    return {**mixed, "tasks": [{**nli, "teacher": str(folder / "teacher"), "objective": objective}]}


def apart(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], kind: str) -> float:
    """The largest difference, as a share of max(1, largest number)."""
    names = [name for name in a if name.startswith(kind)]
    assert names == [name for name in b if name.startswith(kind)]
    largest = max(float(a[name].abs().max()) for name in names)
    return max(float((a[name] - b[name]).abs().max()) for name in names) / max(1.0, largest)


@pytest.mark.slow
@pytest.mark.parametrize("wide", [False, True])
def test_R14_two_processes_take_the_steps_of_one(tmp_path: Path, wide: bool) -> None:
    trees = cases(tmp_path)
    if wide:  # perturbations and masks are float32 by design; Adam moves a SAN head by its rounding (a shift of scores)
        trees = {name: trees[name] for name in ("classification", "sam")} | {"taught": taught(tmp_path, trees["mixed"])}
    alone, pair = tmp_path / "alone", tmp_path / "pair"
    alone.mkdir(), pair.mkdir()
    measure(trees, str(alone), wide)
    together(tmp_path, measure, trees, str(pair), wide)
    for name in trees:
        one = load_file(alone / f"{name}-0.safetensors")
        two = [load_file(pair / f"{name}-{rank}.safetensors") for rank in range(2)]
        for step in range(trees[name]["train"]["max_steps"]):  # the same rows, each in one process
            assert sorted(torch.cat([t[f"rows/{step}"] for t in two]).tolist()) == sorted(one[f"rows/{step}"].tolist())
        for key in one:  # both processes hold the same numbers, to the bit
            assert key.startswith("rows") or torch.equal(two[0][key], two[1][key]), (name, key)
        assert apart(one, two[0], "grad") < (1e-12 if wide else 1e-6), name
        assert apart(one, two[0], "weight") < (1e-12 if wide else 5e-6), name
        torch.testing.assert_close(two[0]["report"], one["report"], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.slow
def test_R14_two_processes_answer_as_one_does_to_the_byte(tmp_path: Path) -> None:
    """One step at rate 0 leaves the weights equal, so that all answers must be: each process gives a part of them."""
    mixed, electra = cases(tmp_path)["mixed"], cases(tmp_path)["electra"]
    train = {"max_steps": 1, "batch_size": 16, "token_budget": 32, "evaluate": "1 steps"}
    rate = {"lr": 1e-3, "warmup": 1}
    small = {"train_rows": 16, "dev_rows": 21, "test_rows": 4}
    table = settings(tmp_path, model=STILL, optim=rate)
    text = {**electra["tasks"][0], "documents": 60, "held_out": 0.4}
    pair_of = [{"name": "toy/nli", **small}, {"name": "toy/similarity", **small}]
    trees = {
        "table": {**table, "train": {**train, "select": "best", "dynamics": "eval"}},
        "seen": {**table, "train": {**train, "dynamics": True}},
        "each": {**mixed, "tasks": pair_of, "optim": rate, "train": {**train, "select": "each"}},
        "text": {**electra, "optim": rate, "tasks": [text], "train": {**train, "max_length": 32, "keep_at": []}},
        "windows": {**mixed, "optim": rate, "tasks": [{"name": "toy/qa", **small}], "train": train},
    }
    alone, pair = tmp_path / "alone", tmp_path / "pair"
    alone.mkdir(), pair.mkdir()
    run_all(trees, str(alone))
    together(tmp_path, run_all, trees, str(pair))
    passes = [json.loads((folder / f"passes-{n}").read_text()) for folder, n in ((alone, 0), (pair, 0), (pair, 1))]
    for name in trees:
        one, two = alone / name, pair / name
        assert passes[0][name] >= 8, passes
        assert max(made[name] for made in passes[1:]) < 0.75 * passes[0][name], name
        for file in ["scores.json", *(f"predictions/{path.name}" for path in (one / "predictions").glob("*"))]:
            assert (one / file).read_bytes() == (two / file).read_bytes(), (name, file)
    looks = [np.load(folder / run / "dynamics/logits.npy") for run in ("table", "seen") for folder in (alone, pair)]
    assert np.array_equal(looks[0], looks[1])
    assert np.isfinite(looks[2]).any(axis=2).sum() == 16  # the rows of the step
    np.testing.assert_allclose(looks[3], looks[2], atol=1e-6)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of 12 steps with a checkpoint after each fourth; an evaluation in between."""
    train = {"max_steps": 12, "save": "4 steps", "evaluate": "5 steps", "select": "best"}
    return settings(tmp_path_factory.mktemp("data"), rows=40, model=STILL, train=train)


@pytest.fixture(scope="module")
def alone(tree: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The run in one process, undisturbed."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert run_until(tree, str(folder), 0, 0, NOTHING) == 0
    return RunDir(folder)


def same(a: RunDir, b: RunDir) -> None:
    ours, theirs = weights_of(a), weights_of(b)
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 5e-6
    assert a.read_scores()["chosen"]["step"] == b.read_scores()["chosen"]["step"]
    assert [line["step"] for line in a.metrics()] == [line["step"] for line in b.metrics()]


@pytest.mark.slow
def test_R9_R14_a_run_goes_on_with_another_number_of_processes(
    tmp_path: Path, tree: dict[str, Any], alone: RunDir
) -> None:
    up, down = RunDir(tmp_path / "up"), RunDir(tmp_path / "down")
    assert run_until(tree, str(up.path), 6, 0, signal.SIGTERM) == Stopped.exit_code
    together(tmp_path, run_until, tree, str(up.path), 0, 0, NOTHING)
    # The signal reaches one process, which does not write; both stop after the same step, and owe its evaluation.
    assert end(start(tmp_path, run_until, tree, str(down.path), 5, 1, signal.SIGTERM)) == [Stopped.exit_code] * 2
    assert checkpoint.steps(down.checkpoints) == {4, 5}
    assert all("split" not in line for line in down.metrics())
    assert run_until(tree, str(down.path), 0, 0, NOTHING) == 0
    for run, words in ((up, "processes was 1, is now 2"), (down, "processes was 2, is now 1")):
        same(run, alone)
        assert any(words in notice["text"] for notice in run.info()["notices"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_R12_a_dead_or_frozen_process_ends_the_others(
    tmp_path: Path, tree: dict[str, Any], alone: RunDir, number: signal.Signals
) -> None:
    run = RunDir(tmp_path / "run")
    job = start(tmp_path, run_until, tree, str(run.path), 6, 1, number, ENCODERY_BEAT="0.5")
    assert end(job, 60) == [ProcessLost.exit_code, -signal.SIGKILL]  # the frozen one is killed by its neighbour
    said = (tmp_path / "said-0.txt").read_text()
    assert ("rank 1 has not answered" if number == signal.SIGSTOP else "rank 0 lost the other processes") in said
    assert checkpoint.steps(run.checkpoints) == {4, 5}
    together(tmp_path, run_until, tree, str(run.path), 0, 0, NOTHING)
    same(run, alone)


# Alone


def test_one_process_talks_to_nobody() -> None:
    before = comm.collectives()
    comm.join(), comm.wait(), comm.end_run(), comm.leave()
    with comm.one_by_one():
        comm.require_equal([("w", torch.ones(2))], "the weights")
    assert (comm.size(), comm.rank(), comm.is_main(), comm.gather({"a": 1})) == (1, 0, True, [{"a": 1}])
    assert comm.add_up({("t", "loss"): 2.5, ("", "n"): [1.0, 2.0]}) == {("t", "loss"): 2.5, ("", "n"): [1.0, 2.0]}
    assert comm.collectives() == before


def test_only_the_first_process_writes(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("of the first process")
    run = RunDir(tmp_path, writes=False)
    with run.lock():
        run.record(1, loss=2.0), run.log("a"), run.notice("b"), run.update_info(c=1), run.clean(), run.sync()
        run.write_config("seed: 1"), run.write_scores({"scores": {}}), run.write_card("# a"), run.mark_done()
        run.write_predictions("toy/nli", "dev", [{"id": "1"}])
        run.drop_checkpoints(), run.reopen(), run.forget()
        assert (run.rewind_metrics(3), run.drop_left_checkpoints()) == (0, False)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_R12_the_one_to_blame_is_named() -> None:
    killed = Failure({0: ProcessLost.exit_code, 1: -signal.SIGKILL})
    assert (killed.sentence, killed.again) == ("rank 1 was killed by SIGKILL", True)
    assert isinstance(killed.error(), ProcessLost)
    lost = Failure({0: ProcessLost.exit_code, 1: ProcessLost.exit_code})
    assert lost.again
    for kind in (UserError, Stopped, RunFailed):  # a sentence of its own: another attempt would end the same way
        for other in (ProcessLost.exit_code, -signal.SIGTERM):  # the launcher's own signal to those that are left
            wrong = Failure({0: other, 1: kind.exit_code})
            assert (type(wrong.error()), wrong.again) == (kind, False)
    assert Failure({0: ProcessLost.exit_code, 1: -signal.SIGTERM}).first[0] == 1


def test_processes_are_started_again_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [Failure({1: -signal.SIGKILL}), Failure({0: ProcessLost.exit_code}), None]
    said: list[str] = []
    monkeypatch.setattr("encodery.distributed.launch.attempt", lambda *_: ends.pop(0))
    launch(["train"], 2, 3, said.append)
    assert len(said) == 2
    ends[:] = [Failure({1: -signal.SIGKILL})]
    with pytest.raises(ProcessLost, match="rank 1 was killed by SIGKILL"):
        launch(["train"], 2, 0, said.append)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="omit it under torchrun"):
        launch(["train"], 2, 0, said.append)


@pytest.mark.slow
def test_accelerate_starts_processes_on_a_machine_without_gpus(tmp_path: Path) -> None:
    from accelerate.commands.launch import launch_command, launch_command_parser

    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what world.py goes by
    script = tmp_path / "say.py"
    script.write_text(
        f"import os\nsaid = [os.environ[n] for n in {names}]\nopen('{tmp_path}/' + said[0], 'w').write(str(said))"
    )
    port = str(free_port())
    words = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", port]
    launch_command(launch_command_parser().parse_args([*words, "--mixed_precision", "no", str(script)]))
    for rank in ("0", "1"):
        assert literal_eval((tmp_path / rank).read_text()) == [rank, rank, "2", "127.0.0.1", port]


class Store(dict[str, str]):
    """The store through which processes have met."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key].encode()


def test_R12_a_silent_neighbour_is_named_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, limit = [100.0], MISSED * BEAT
    monkeypatch.setattr("encodery.distributed.heartbeat.time.monotonic", lambda: clock[0])
    ended: list[str] = []
    store = Store()
    ours, theirs = Heart(store, 0, 1), Heart(store, 1, 0)
    monkeypatch.setattr(ours, "end", lambda sentence, said: ended.append(sentence))
    ours.listen()
    clock[0] += 2 * limit  # it has not begun
    theirs.beat(), ours.listen()
    clock[0] += limit - 1
    ours.listen(), theirs.beat(), ours.listen()
    clock[0] += limit - 1
    ours.listen()
    assert ended == []
    clock[0] += 2
    ours.listen()
    assert ended == [f"rank 1 has not answered for {limit:.0f} s: it is frozen"]
