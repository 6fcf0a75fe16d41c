"""One bit of one file is wrong, in every file of a finished run, of a half one and of a token cache, in turn."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encodery.runs.directory import RunDir
from encodery.training.loop import StepReport
from tests.toolbox.fault_counts import Tally
from tests.toolbox.faults import Ended, command, in_child
from tests.toolbox.runs import run, settings, weights_of

PLACES = (0.0, 0.35, 0.7, 1.0)
BITS = (1, 2, 4, 8, 16, 32, 64)
VERBS = {
    "predict": ["predict", "run", "--text", "w1 w9 w3", "--device", "cpu"],
    "evaluate": ["evaluate", "run", "--on", "table/train:dev", "--device", "cpu"],
    "table": ["table", "run", "--format", "json"],
    "export": ["export", "run", "out"],
    "resume": ["train", "run", "-o", "run"],
    "report": ["report", "run", "-o", "out.html"],
}


def flip(path: Path, place: float, bit: int = 1) -> None:
    """Turn one bit round; place 0 is the first byte and 1 the last."""
    data = bytearray(path.read_bytes())
    data[round(place * (len(data) - 1))] ^= bit
    path.write_bytes(data)


def files_of(folder: Path) -> list[str]:
    """Every file with something in it."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(str(path.relative_to(folder)) for path in found)


def outcome(verb: str, room: Path) -> tuple[Ended, object]:
    """How a verb ends on the run, and what it leaves: all but times and the durations of its work."""
    ended = command(VERBS[verb], room)
    left: object = None
    if (room / "out").is_dir():
        names = [name for name in files_of(room / "out") if name != "README.md"]  # only people read it
        left = {name: (room / "out" / name).read_bytes() for name in names}
        shutil.rmtree(room / "out")
    if (room / "out.html").exists():
        left = re.sub(r"\d\d:\d\d(:\d\d)?|\d+(\.\d+)? (s|seconds)\b", "", (room / "out.html").read_text())
        (room / "out.html").unlink()
    return Ended(ended.code, re.sub(r"\d+(\.\d+)? (ms|s|seconds)\b|[\d.,]+ \w+/s", "", ended.output)), left


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finished run and its copy."""
    monkeypatch.setenv("ENCODERY_CACHE", str(tmp_path / "cache"))
    run(settings(tmp_path, rows=24, dev=8, train={"max_steps": 2, "batch_size": 8}), tmp_path / "sound")
    return tmp_path


def fresh(room: Path) -> Path:
    """The run as it was."""
    shutil.rmtree(room / "run", ignore_errors=True)
    return Path(shutil.copytree(room / "sound", room / "run"))


@pytest.mark.timeout(900)
def test_a_flipped_bit_in_any_file_of_a_finished_run_is_named_or_has_no_effect(room: Path, tally: Tally) -> None:
    """Each verb that reads runs either names the file, or does exactly what it does with the sound run."""
    wanted = {}
    for verb in VERBS:
        fresh(room)
        wanted[verb] = outcome(verb, room)
        assert wanted[verb][0].code == 0, wanted[verb]
    names = files_of(room / "sound")
    assert len(names) > 9
    for number, name in enumerate(names):
        for order, verb in enumerate(VERBS):
            for place, bit in flips_of(name, number + order):
                flip(fresh(room) / name, place, bit)
                ended, left = outcome(verb, room)
                shown = ended.output + (left if isinstance(left, str) else "")  # a page has a row with the reason
                refused = ended.code != 0 and Path(name).name in ended.output
                named = not ended.is_bug and (refused or f"{Path(name).name} is damaged" in shown)
                why = f"{verb}, {name} at {place}, bit {bit}: {ended}"
                tally.case("flipped bits in a finished run", named or (ended, left) == wanted[verb], why)


def flips_of(name: str, number: int) -> list[tuple[float, int]]:
    """Places and bits: one in a file of the model, which is compared whole, several in what is read by keys."""
    if name.startswith("model/"):
        return [(PLACES[number % len(PLACES)], 1)]
    return [((i + number % 5 / 5) / 6, BITS[(number + i) % len(BITS)]) for i in range(6)]


@pytest.mark.timeout(900)
def test_a_flipped_bit_in_any_file_of_a_token_cache_has_no_effect(room: Path, tally: Tally, capfd: Any) -> None:
    """The table is named and made again."""
    tree = settings(room, train={"max_steps": 2, "batch_size": 8})
    wanted = weights_of(RunDir(room / "sound"))
    tables = room / "cache" / "tokens"
    for name in files_of(tables):
        for place in PLACES:
            flip(tables / name, place, bit=16)
            capfd.readouterr()
            code = in_child(lambda: check_equal(tree, room / "again", wanted))
            named = Path(name).name in capfd.readouterr().err
            tally.case("flipped bits in a token cache", code == 0 and named, f"{name} at {place}")
            shutil.rmtree(room / "again")
            for moved in tables.glob("*.damaged-*"):
                shutil.rmtree(moved)


def check_equal(tree: dict[str, Any], out: Path, wanted: dict[str, Any]) -> None:
    found = weights_of(run(tree, out))
    assert all(found[name].equal(tensor) for name, tensor in wanted.items())


def cut(path: Path, place: float) -> None:
    """Keep a part of a file, as after a torn write."""
    path.write_bytes(path.read_bytes()[: int(place * (path.stat().st_size - 1))])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("harm", [flip, cut])
def test_damage_in_any_file_of_a_checkpoint_has_no_effect(
    room: Path, tally: Tally, harm: Callable[[Path, float], None]
) -> None:
    """The checkpoint is named, and the one before it is resumed."""
    tree = settings(room, train={"max_steps": 4, "batch_size": 8, "save": "1 steps"})
    wanted = weights_of(run(tree, room / "calm"))

    def die(report: StepReport) -> None:
        if report.step == 4:
            os._exit(9)

    assert in_child(lambda: run(tree, room / "half", watch=die)) == 9
    newest = max((room / "half" / "checkpoints").iterdir())
    for name in files_of(newest):
        for place in PLACES:
            out = room / "again"
            shutil.copytree(room / "half", out)
            harm(out / "checkpoints" / newest.name / name, place)
            code = in_child(lambda out=out: check_equal(tree, out, wanted))
            named = newest.name in (out / "log.txt").read_text()
            what = "flipped bits" if harm is flip else "cut files"
            tally.case(f"{what} in a checkpoint", code == 0 and named, f"{name} at {place}")
            shutil.rmtree(out)
