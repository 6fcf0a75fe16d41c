"""S13: a command that is stopped before it trains says so with exit code 3. S14: an unclosed generator ends quietly."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from encodery.core.signals import StopRequest
from encodery.errors import Stopped
from encodery.runs.directory import RunDir
from tests.toolbox.faults import command
from tests.toolbox.runs import resolve, settings


@pytest.mark.parametrize("wait", [0.3, 1.5, 4.0])
def test_S13_two_early_signals_end_with_code_3_and_a_sentence(wait: float, tmp_path: Path) -> None:
    """Into imports, into reading, into building: wherever they come."""
    words = [sys.executable, "-c", "import sys; from encodery.cli import main; sys.exit(main())",
             "train", "recipe:toy/nli", "--device", "cpu", "-o", "out"]  # fmt: skip
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not handles_sigterm(process.pid) and process.poll() is None:
        time.sleep(0.005)
    time.sleep(wait)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    _, output = process.communicate(timeout=120)
    assert process.returncode == 3, output
    assert "stopped" in output
    assert "Traceback" not in output


def handles_sigterm(pid: int) -> bool:
    """Whether Python's own handler is installed there."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_S13_the_first_early_signal_stops_at_once_and_the_second_changes_nothing() -> None:
    with StopRequest(early=True) as stop:
        with pytest.raises(Stopped, match="before training began"):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested


def test_S13_nothing_is_left_behind_and_the_same_command_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encodery.training import build
    from encodery.training.run import train_run

    tree, inner = settings(tmp_path, train={"max_steps": 2}), build.build

    def slow(*given: object) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return inner(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "build", slow)
    with pytest.raises(Stopped, match="before training began"):
        train_run(resolve(tree), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(build, "build", inner)
    assert train_run(resolve(tree), tmp_path / "out").is_done


def test_S13_any_other_verb_says_so_too(tmp_path: Path) -> None:
    def stop() -> None:
        import encodery.cli.tasks as verb

        verb.run = lambda *_: os.kill(os.getpid(), signal.SIGTERM)  # type: ignore[assignment]

    ended = command(["tasks"], tmp_path, before=stop)
    assert ended.code == 3
    assert "stopped by SIGTERM" in ended.output


SCRIPT = """
import json, sys
import encodery as en
steps = en.steps(json.loads(sys.argv[1]), sys.argv[2])
print(next(steps).step)
"""


def test_S14_a_generator_that_is_not_closed_saves_and_ends_quietly(tmp_path: Path) -> None:
    tree = settings(tmp_path)
    words = [sys.executable, "-c", SCRIPT, json.dumps(tree), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert "Exception ignored" not in done.stderr
    assert "ftruncate" not in done.stderr
    run = RunDir(tmp_path / "out")
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-00000001"]
    assert run.holder() is None
    assert not (run.path / ".lock").exists()
