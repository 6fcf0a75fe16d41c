"""The promises of a whole run, with faults injected: kills, signals, full disks, changed settings, planted secrets."""

import json
import multiprocessing
import os
import random
import re
import shlex
import signal
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from encodery.cli import main
from encodery.config import load
from encodery.core.progress import Progress
from encodery.errors import RunFailed, UserError
from encodery.report.run_card import repeat_lines
from encodery.runs.directory import RunDir
from encodery.runs.identity import identity_of_config
from encodery.training import checkpoint
from encodery.training.best_checkpoint import majority_warning
from encodery.training.run import train_run
from encodery.training.session import score_remarks
from tests.toolbox.faults import kill_9, running, start_child

WORDS = ["red", "green", "blue", "gold", "pink", "grey"]
FORK = multiprocessing.get_context("fork")


def write_setup(tmp_path: Path) -> list[str]:
    """A small own task and a new tiny encoder: settings for a run of 24 steps with dropout."""
    rows = ["text,label"]
    draw = random.Random(0)
    for _ in range(96):
        words = draw.choices(WORDS, k=draw.randint(2, 9))
        rows.append(f"{' '.join(words)},{'yes' if words.count('red') > words.count('blue') else 'no'}")
    (tmp_path / "data.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    task = f"tasks={{kind: table, form: single, train: {tmp_path}/data.csv, text: text, label: label}}"
    model = (
        "model={new: {kind: bert, size: tiny, config: {num_hidden_layers: 1, hidden_size: 32, intermediate_size: 64}}}"
    )
    return [
        model, task, f"model.tokenizer={tmp_path}/vocab.txt", "train.epochs=4", "train.batch_size=16",
        "optim.lr=1e-3", "train.evaluate=5 steps", "train.save=3 steps", "train.log=1", "threads=1",
    ]  # fmt: skip


@pytest.fixture
def setup(tmp_path: Path) -> list[str]:
    return write_setup(tmp_path)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `setup` to which nothing happened; only read from."""
    folder = tmp_path_factory.mktemp("calm")
    return train_run(load.load(None, write_setup(folder)), folder / "run").path


def finished(out: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, object]], dict[str, object]]:
    """Weights, losses and scores of a finished run, without what a clock wrote."""
    run = RunDir.open(out)
    assert run.is_done
    records = [{k: v for k, v in r.items() if k not in ("time", "seconds")} for r in run.metrics()]
    return load_file(out / "model" / "model.safetensors"), records, run.read_scores()


def same(a: Path, b: Path) -> None:
    (weights_a, records_a, scores_a), (weights_b, records_b, scores_b) = finished(a), finished(b)
    assert weights_a.keys() == weights_b.keys()
    for name in weights_a:
        assert torch.equal(weights_a[name], weights_b[name]), name
    assert records_a == records_b
    assert scores_a == scores_b


def in_child(setup: list[str], out: Path, kill_after: float | None = None) -> int:
    """Run in a forked child, killed with SIGKILL after some seconds; its exit code."""

    def work() -> None:
        try:
            train_run(load.load(None, setup), out)
        except BaseException as error:
            os._exit(getattr(error, "exit_code", 99))
        os._exit(0)

    child = FORK.Process(target=work)
    child.start()
    if kill_after is not None:
        time.sleep(kill_after)
        if child.is_alive():
            os.kill(child.pid or 0, signal.SIGKILL)
    child.join(120)
    assert child.exitcode is not None
    return child.exitcode


@pytest.mark.slow
def test_R1_kill_at_random_instants_ends_in_the_same_bits(setup: list[str], tmp_path: Path) -> None:
    torch.set_num_threads(1)
    begin = time.monotonic()
    assert in_child(setup, tmp_path / "calm") == 0
    length = time.monotonic() - begin
    draw = random.Random(3)
    kills = 0
    while True:
        code = in_child(setup, tmp_path / "killed", kill_after=draw.uniform(0.1, length))
        kills += code == -signal.SIGKILL
        if code == 0 or kills >= 12:
            break
    assert in_child(setup, tmp_path / "killed") == 0
    assert kills >= 1
    same(tmp_path / "calm", tmp_path / "killed")


@pytest.mark.slow
def test_R1_R4_stop_in_mid_epoch_and_go_on_is_bit_identical(setup: list[str], tmp_path: Path, calm: Path) -> None:

    class Crash(Exception):
        pass

    for step in (4, 11, 17):  # none of them on a checkpoint

        def crash(report: object, step: int = step) -> None:
            if report.step == step:  # type: ignore[attr-defined]
                raise Crash

        with pytest.raises(Crash):
            train_run(load.load(None, setup), tmp_path / "crashed", watch=crash)
    train_run(load.load(None, setup), tmp_path / "crashed")
    same(calm, tmp_path / "crashed")


@pytest.mark.slow
def test_R3_damaged_checkpoint_is_named_and_the_one_before_used(setup: list[str], tmp_path: Path, calm: Path) -> None:
    out = tmp_path / "damaged"

    def stop(report: object) -> None:
        if report.step == 14:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(load.load(None, setup), out, watch=stop)
    steps = sorted(checkpoint.steps(out / "checkpoints"))
    assert len(steps) == 2
    file = out / "checkpoints" / f"step-{steps[-1]:08d}" / "optimizer.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    train_run(load.load(None, setup), out)
    log = (out / "log.txt").read_text()
    assert "optimizer.safetensors" in log
    assert f"resuming at step {steps[0]} " in log
    same(calm, out)


@pytest.mark.slow
def test_R5_full_disk_while_saving_says_so_and_goes_on_later(
    setup: list[str], tmp_path: Path, calm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "full"
    real = checkpoint.write_tensors

    def full(*args: object, **kwargs: object) -> object:
        if any("step-00000009" in str(a) for a in args):
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    with pytest.raises(RunFailed, match="No space left"):
        train_run(load.load(None, setup), out)
    monkeypatch.undo()
    found, skipped = checkpoint.newest_intact(out / "checkpoints")
    assert found is not None
    assert found.step == 6
    assert not skipped
    train_run(load.load(None, setup), out)
    same(calm, out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_R7_a_signal_finishes_the_step_saves_and_exits_3(
    setup: list[str], tmp_path: Path, calm: Path, number: int
) -> None:
    out = tmp_path / "stopped"

    def ask(report: object) -> None:
        if report.step == 10:  # type: ignore[attr-defined]
            os.kill(os.getpid(), number)

    from encodery.errors import Stopped

    with pytest.raises(Stopped) as stopped:
        train_run(load.load(None, setup), out, watch=ask)
    assert stopped.value.exit_code == 3
    found, _ = checkpoint.newest_intact(out / "checkpoints")
    assert found is not None
    assert found.step == 10  # zero steps lost
    train_run(load.load(None, setup), out)
    same(calm, out)


@pytest.mark.slow
def test_R7_exit_codes_of_the_command(setup: list[str], tmp_path: Path) -> None:
    child = start_command(tmp_path / "said.txt", "train", *setup, "train.epochs=4000", "-o", str(tmp_path / "run"))
    wait_for_steps(tmp_path / "run", child)
    begin = time.monotonic()
    os.kill(child, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = (tmp_path / "said.txt").read_text()
    assert code == 3, text
    assert time.monotonic() - begin < 30
    assert "checkpoint saved" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_R7_signal_during_an_evaluation_leaves_it_owed_and_loses_nothing(
    setup: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encodery.errors import Stopped
    from encodery.inference import outputs

    real = outputs.in_order
    calls: list[int] = []

    def in_order(*args: object, **kwargs: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(outputs, "in_order", in_order)
    out = tmp_path / "stopped"
    with pytest.raises(Stopped):
        train_run(load.load(None, [*setup, "train.select=best"]), out)
    found, _ = checkpoint.newest_intact(out / "checkpoints")
    assert found is not None
    assert found.step == 10
    assert found.state["train"]["owes_evaluation"]
    monkeypatch.undo()
    train_run(load.load(None, [*setup, "train.select=best"]), out)
    train_run(load.load(None, [*setup, "train.select=best"]), tmp_path / "calm")
    same(tmp_path / "calm", out)


def start_command(said: Path, *words: str) -> int:
    """`encodery WORDS` in a forked process, without the seconds of its imports; what it says goes to a file."""

    def work() -> None:
        with open(said, "w") as stream:
            os.dup2(stream.fileno(), 2)
            with redirect_stderr(stream):
                code = main(list(words))
        os._exit(code)

    return start_child(work)


def wait_for_steps(out: Path, child: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and running(child):
        file = out / "metrics.jsonl"
        if file.exists() and file.read_text().count("\n") > 3:
            return
        time.sleep(0.05)
    raise AssertionError("no steps were taken")


@pytest.mark.slow
def test_R8_second_command_is_refused_and_names_the_first(
    setup: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["train", *setup, "train.epochs=4000", "-o", str(out)]
    child = start_command(tmp_path / "said.txt", *words)
    try:
        wait_for_steps(out, child)
        assert main(words) == 2
        assert str(child) in capsys.readouterr().err
    finally:
        kill_9(child)


@pytest.mark.slow(0.5)
@pytest.mark.parametrize(
    ("change", "named"),
    [("seed=2", "seed.init"), ("optim.lr=2e-3", "optim.lr"), ("train.batch_size=8", "train.batch_size")],
)
def test_R9_changed_settings_are_refused_with_the_differences(
    setup: list[str], tmp_path: Path, change: str, named: str
) -> None:
    out = tmp_path / "run"
    stop_at(setup, out, 6)
    with pytest.raises(UserError, match=named):
        train_run(load.load(None, [*setup, change]), out)
    train_run(load.load(None, [*setup, change]), out, allow_change=True)
    notices = [n["text"] for n in RunDir.open(out).info()["notices"]]
    assert any(named in text for text in notices)
    assert RunDir.open(out).metrics()[-1]["step"] == (44 if "batch_size" in change else 24)  # as long as it is now


@pytest.mark.slow(0.5)
def test_F73_a_run_that_ended_before_its_first_step_does_not_lock_its_folder(
    setup: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each fix after a failure in the first step is another configuration, and none of them has anything to lose."""
    from encodery.training.session import Session

    def fail(*_: object) -> None:
        raise RunFailed("out of memory in the first step")

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Session, "loop", fail)
        for size in (16, 8):
            assert main(["train", *setup, f"train.batch_size={size}", "-o", str(out)]) == 1
            assert "out of memory" in capsys.readouterr().err
    assert main(["train", *setup, "train.batch_size=4", "train.max_steps=3", "-o", str(out)]) == 0
    assert "ended before its first step; this replaces it" in capsys.readouterr().err
    info = RunDir.open(out).info()
    assert (info["steps"], info.get("notices"), info.get("changes"), info["ended"]) == (3, None, None, None)
    train_run(load.load(None, [*setup, "train.batch_size=4", "train.max_steps=3"]), tmp_path / "calm")
    same(tmp_path / "calm", out)


@pytest.mark.slow
def test_F75_the_end_of_a_run_shows_the_majority_baseline_and_warns_below_it(setup: list[str], tmp_path: Path) -> None:
    run = train_run(load.load(None, [*setup, "train.max_steps=1", "optim.lr=1e-9"]), tmp_path / "run")
    scores = run.read_scores()
    (key, easy), log = next(iter(scores["majority"].items())), run.log_file.read_text()
    assert f"(majority baseline: accuracy {easy['accuracy']:.4f})" in log
    assert ("is not better than" in log) == (scores["scores"][key]["accuracy"] <= easy["accuracy"])
    result = {"main": {"a:dev": "accuracy"}, "majority": {"a:dev": {"accuracy": 0.6}}}
    for score, warned in ((0.5, True), (0.6, True), (0.7, False)):
        found = majority_warning({**result, "scores": {"a:dev": {"accuracy": score}}}, "a:dev")
        assert (found is not None) == warned
    perfect = {"accuracy": 1.0}  # rows so easy that the baseline has them all right, too
    assert majority_warning({**result, "scores": {"a:dev": perfect}, "majority": {"a:dev": perfect}}, "a:dev") is None


def test_a_perfect_score_that_needs_no_model_says_so() -> None:
    result: dict[str, Any] = {"main": {"a:dev": "f1"}, "majority": {"a:dev": {"f1": 1.0}}, "chosen": {}}
    same = score_remarks({**result, "scores": {"a:dev": {"f1": 1.0}}}, "a:dev", "tagging")
    assert same == " (majority baseline, the commonest tag of each word: f1 1.0000; not better than the baseline)"
    result["majority"] = {"a:dev": {"f1": 0.9}}
    assert score_remarks({**result, "scores": {"a:dev": {"f1": 1.0}}}, "a:dev") == " (majority baseline: f1 0.9000)"


@pytest.mark.slow(0.5)
def test_F74_the_card_tells_a_change_on_the_way_and_how_to_repeat_it(setup: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    stop_at(setup, out, 6)
    train_run(load.load(None, [*setup, "optim.lr=2e-3"]), out, allow_change=True)
    card = (out / "README.md").read_text()
    assert re.search(r"- after step [1-6]: optim.lr: .* there, 0.002 now", card)
    first, last = re.findall(r"^encodery train .*", card, re.MULTILINE)[-2:]
    config, *words = shlex.split(first, comments=True)[2:-3]
    assert config == "run/config.yaml"
    stop_at(words, tmp_path / "again", 6, str(out / "config.yaml"))
    assert last == "encodery train run/config.yaml -o another-folder --allow-change"
    train_run(load.load(str(out / "config.yaml")), tmp_path / "again", allow_change=True)
    same(out, tmp_path / "again")
    train_run(load.load(None, [*setup, "train.max_steps=2"]), tmp_path / "calm")
    assert "changed while" not in (tmp_path / "calm" / "README.md").read_text()


@pytest.mark.slow(0.5)
def test_the_card_of_a_run_that_went_on_with_another_method_has_commands_that_run(
    setup: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stop_at([*setup, "method=freelb", "method.adv_lr=0.05"], out, 6)
    reach = RunDir.open(out).info()["perturbation"]
    train_run(load.load(None, [*setup, "train.max_steps=8", "method=fgm"]), out, allow_change=True)
    card = (out / "README.md").read_text()
    assert re.search(r"- after step \d: .*method.kind: 'freelb' there, 'fgm' now", card)
    first = re.findall(r"^encodery train .*", card, re.MULTILINE)[-2]
    words = shlex.split(first, comments=True)[3:-3]
    method = load.load(str(out / "config.yaml"), words).config.to_dict()["method"]
    assert (method["kind"], method["adv_lr"], "epsilon" in method) == ("freelb", 0.05, False)
    assert RunDir.open(out).info()["perturbation"] != reach


def test_commands_of_a_card_bring_back_each_method_with_its_own_keys_alone() -> None:
    info = {"changes": [
        {"step": 2, "text": "to fgm", "before": {"method.kind": "freelb", "method.adv_lr": 0.05, "optim.lr": 1}},
        {"step": 4, "text": "to pgd", "before": {"method.kind": "fgm", "method.epsilon": 2.0}},
    ]}  # fmt: skip
    first, second, _ = [line for line in repeat_lines(info, "config.yaml") if line.startswith("encodery")]
    assert "'method.kind=\"freelb\"' method.adv_lr=0.05 optim.lr=1 -o" in first
    assert "epsilon" not in first
    assert "'method.kind=\"fgm\"' method.epsilon=2.0 -o" in second


@pytest.mark.slow
def test_R9_changed_data_are_refused(setup: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    stop_at(setup, out, 6)
    with open(tmp_path / "data.csv", "a") as file:
        file.write("red red,yes\n")
    with pytest.raises(UserError, match="data"):
        train_run(load.load(None, setup), out)


@pytest.mark.slow(0.5)
def test_R9_other_thread_count_goes_on_with_a_notice(setup: list[str], tmp_path: Path) -> None:
    out, short = tmp_path / "run", [*setup, "train.max_steps=8"]
    stop_at(short, out, 6)
    try:
        train_run(load.load(None, [*short, "threads=2"]), out)
    finally:
        torch.set_num_threads(1)
    assert any("threads was 1, is now 2" in n["text"] for n in RunDir.open(out).info()["notices"])


@pytest.mark.slow
def test_other_threads_are_no_news_of_a_run_that_is_done(
    setup: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_run(load.load(None, [*setup, "train.max_steps=1"]), tmp_path / "run")
    try:
        train_run(load.load(None, [*setup, "train.max_steps=1", "threads=2"]), tmp_path / "run", progress=Progress())
    finally:
        torch.set_num_threads(1)
    said = capsys.readouterr().err
    assert "is done already" in said
    assert "threads was" not in said


def stop_at(setup: list[str], out: Path, step: int, config: str | None = None) -> None:
    def stop(report: object) -> None:
        if report.step == step:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(load.load(config, setup), out, watch=stop)


@pytest.mark.slow(0.5)
def test_R10_resume_reads_no_row_before_its_position(
    setup: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encodery.data.batches import Batches

    out = tmp_path / "run"
    stop_at(setup, out, 16)
    asked: list[int] = []
    real = Batches.rows_at
    monkeypatch.setattr(Batches, "rows_at", lambda self, step: asked.append(step) or real(self, step))
    train_run(load.load(None, setup), out)
    assert asked[0] == 15
    assert asked == sorted(set(asked))


@pytest.mark.slow(0.5)
def test_a_finished_run_is_left_alone_and_restart_moves_it_aside(setup: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_run(load.load(None, setup), out)
    before = (out / "DONE").stat().st_mtime_ns
    train_run(load.load(None, setup), out)
    assert (out / "DONE").stat().st_mtime_ns == before
    train_run(load.load(None, setup), out, restart=True)
    same(out, tmp_path / "run.old-1")


@pytest.mark.slow(0.5)
def test_S6_planted_token_is_in_no_output_file(
    setup: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ012345"
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr(sys, "argv", ["encodery", "train", f"--token={token}"])
    out = tmp_path / "run"
    train_run(load.load(None, setup), out)
    for file in out.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes(), file


@pytest.mark.slow(0.5)
def test_run_directory_is_as_decided(setup: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_run(load.load(None, setup), out)
    names = {p.name for p in out.iterdir() if not p.name.startswith(".")}
    wanted = {"config.yaml", "run.json", "metrics.jsonl", "log.txt", "predictions", "scores.json", "README.md", "DONE"}
    assert names == wanted | {"model"}
    again = load.load(out / "config.yaml")
    assert again.config == load.load(None, setup).config
    info = json.loads((out / "run.json").read_text())
    assert info["hardware"]["threads"] == 1
    assert info["environment"]["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]


def test_moving_the_data_does_not_change_a_run_s_identity(setup: list[str], tmp_path: Path) -> None:
    from encodery.training.build import find_inputs

    def identity(settings: list[str]) -> str:
        resolved = load.load(None, settings)
        return identity_of_config(resolved, find_inputs(resolved).digests)

    before = identity(setup)
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "data.csv").rename(tmp_path / "elsewhere" / "data.csv")
    after = [text.replace(f"{tmp_path}/data.csv", str(moved)) for text in setup]
    assert identity(after) == before


@pytest.mark.parametrize("method", ["plain", "freelb"])
def test_renaming_the_data_does_not_change_a_run(method: str, setup: list[str], tmp_path: Path) -> None:
    """Own files count by their content, so neither the new head nor the noise may go by their name."""
    words = [*setup, f"method={method}", "train.max_steps=3"]
    train_run(load.load(None, words), tmp_path / "one")
    (tmp_path / "data.csv").rename(tmp_path / "other.csv")
    renamed = [text.replace("data.csv", "other.csv") for text in words]
    train_run(load.load(None, renamed), tmp_path / "two")
    one, two = (RunDir.open(tmp_path / name) for name in ("one", "two"))
    assert (one.task_names(), two.task_names()) == (["table/data"], ["table/other"])
    assert one.info()["identity"] == two.info()["identity"]
    weights = [load_file(run.model / "model.safetensors") for run in (one, two)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_R11_skipped_rows_are_counted_and_kept_in_a_file(
    setup: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(tmp_path / "data.csv", "a") as file:
        file.write("only one cell\nred red,yes,too many\n")
    command = ["train", *setup, "train.max_steps=2", "-o", str(tmp_path / "run")]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "line 98" in said
    assert "line 99" in said
    assert not (tmp_path / "run" / "model").exists()
    assert main([*command, "--skip-bad-rows"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "bad_rows.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rows] == [98, 99]
    assert "2" in json.dumps(json.loads((tmp_path / "run" / "run.json").read_text())["data"]["train"]["note"])
