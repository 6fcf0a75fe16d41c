"""A finished run: what is written into it later is one step, and what was damaged since is refused."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import encodery as en
from encodery.cli import main
from encodery.core import files
from encodery.errors import UserError
from encodery.inference.classifier import open_classifier
from encodery.inference.evaluate import evaluate, keep_in_run
from encodery.inference.task_argument import resolve_split
from encodery.models import locate
from encodery.runs.directory import RunDir, find_runs
from tests.toolbox.faults import CALLS, at_call, dies_at, disk_full
from tests.toolbox.runs import run, settings


@pytest.fixture
def finished(trained: Callable[..., Path], tmp_path: Path) -> RunDir:
    """A copy of a finished run, to be damaged."""
    return RunDir(shutil.copytree(trained("single"), tmp_path / "run"))


def dev_of(one: RunDir) -> str:
    """The dev split of its task, as `--on` takes it."""
    return f"{one.task_names()[0]}:dev"


def flip(path: Path, place: float = 0.7) -> None:
    """Turn one bit of a file round, somewhere in the middle."""
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)


def state(one: RunDir) -> dict[str, bytes]:
    """All files but those that say when; hidden ones too, so that nothing is left behind."""
    paths = [path for path in one.path.rglob("*") if path.is_file() and path.name not in ("DONE", "log.txt", ".lock")]
    return {str(path.relative_to(one.path)): path.read_bytes() for path in paths}


def test_R20_an_evaluation_that_is_killed_anywhere_leaves_a_sound_run(finished: RunDir, tmp_path: Path) -> None:
    """Kill it at each call to the system while it writes: the run is whole, and the same command completes it."""
    model = open_classifier(finished.path, "cpu")
    found = evaluate([model], resolve_split(dev_of(finished), None, [finished])[0])
    whole = RunDir(shutil.copytree(finished.path, tmp_path / "whole"))
    keep_in_run(whole, found)
    before, after = finished.read_scores(), whole.read_scores()
    assert "evaluations" in after
    assert "evaluations" not in before
    seen = []
    for number in itertools.count():
        copy = RunDir(shutil.copytree(finished.path, tmp_path / f"copy-{number}"))
        died = dies_at(number, lambda copy=copy: keep_in_run(copy, found))
        assert copy.problem() is None, number
        assert copy.read_scores() in (before, after), number
        locate.resolve(str(copy.path))
        seen.append("evaluations" in copy.read_scores())
        keep_in_run(copy, found)
        assert state(copy) == state(whole), number
        assert set(copy.done.read()) == {"time", "scores_sha256", "files"}
        shutil.rmtree(copy.path)
        if not died:
            break
    assert number > 20
    assert (seen[0], seen[-1]) == (False, True)


def test_R20_a_disk_that_is_full_leaves_a_sound_run(finished: RunDir, tmp_path: Path) -> None:
    before = state(finished)
    found = evaluate([open_classifier(finished.path, "cpu")], resolve_split(dev_of(finished), None, [finished])[0])
    for number in itertools.count():
        copy = RunDir(shutil.copytree(finished.path, tmp_path / f"copy-{number}"))
        try:
            with at_call(number, disk_full, CALLS - {"close"}):
                keep_in_run(copy, found)
        except Exception:  # whatever it says here is another test's
            assert copy.problem() is None
        else:
            break
    assert number > 10
    assert state(finished) == before


def test_R20_several_files_change_together(finished: RunDir) -> None:
    def half() -> None:
        with finished.lock(), finished.change():
            finished.write_scores({"scores": {}})
            assert finished.read_scores() == {"scores": {}}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert finished.read_scores() != {"scores": {}}
    assert finished.problem() is None


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../b"])
def test_R20_a_list_of_files_that_leads_elsewhere_is_refused(finished: RunDir, name: str) -> None:
    """Somebody's run directory must not make us rename files of our own."""
    done = json.loads(finished.done.path.read_text())
    new = ".x.tmp-1-00000000-00000000"
    for told in ({name: {"new": new}}, {"scores.json": {"new": name}}, {"scores.json": 3}, [1]):
        hostile = {**{key: value for key, value in done.items() if key != "sha256"}, "pending": told}
        finished.done.path.write_text(json.dumps({**hostile, "sha256": files.digest(hostile)}))
        assert "DONE is damaged" in (finished.problem() or "")
        with pytest.raises(UserError, match="DONE is damaged"):
            finished.clean()


def files_of(one: Path) -> list[str]:
    return [str(path.relative_to(one)) for path in sorted((one / "model").rglob("*")) if path.is_file()]


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_R21_damage_in_any_file_of_the_model_is_named(finished: RunDir, harm: str, tmp_path: Path) -> None:
    names = [name for name in files_of(finished.path) if not name.endswith("README.md")]
    assert {"model/model.safetensors", "model/tokenizer.json", "model/config.json"} <= set(names)
    for name in names:
        copy = RunDir(shutil.copytree(finished.path, tmp_path / f"{harm}-{Path(name).name}"))
        path = copy.path / name
        if harm == "flip":
            flip(path)
        elif harm == "cut":
            path.write_bytes(path.read_bytes()[:-1])
        else:
            path.unlink()
        with pytest.raises(UserError, match=r"model.*\b(is damaged|is missing|no model/|no such folder)"):
            en.load(copy.path, "cpu")


def test_R21_every_verb_that_opens_a_model_checks_it(finished: RunDir, tmp_path: Path, capfd) -> None:
    weights = finished.model / "model.safetensors"
    flip(weights)
    done = finished.done.path.read_bytes()
    one = str(finished.path)
    short = ["train", "--tasks", "toy/nli", "--train.max_steps", "1", "--device", "cpu"]
    for words in (
        ["predict", one, "--text", "w1"],
        ["predict", f"{one}/model", "--text", "w1"],
        ["evaluate", one, "--on", dev_of(finished)],
        ["embed", one, "--on", dev_of(finished)],
        ["export", one, str(tmp_path / "export")],
        ["heads", one, "--on", dev_of(finished)],
        ["publish", one, "--to", "me/model"],
        [*short, "--model", one, "-o", str(tmp_path / "a")],
        [*short, "--model.new.kind", "bert", "--model.init_from", one, "-o", str(tmp_path / "b")],
    ):  # fmt: skip
        assert main(words) == 2, words
        said = capfd.readouterr().err
        assert f"{weights} is damaged: its sha256 is not the one in DONE" in said, (words, said)
    assert finished.done.path.read_bytes() == done  # nobody renewed it
    assert not (tmp_path / "export").exists()


def test_R21_no_verify_compares_sizes_alone(finished: RunDir, capfd) -> None:
    one = str(finished.path)
    weights = finished.model / "model.safetensors"
    flip(weights, place=0.99)
    assert main(["predict", one, "--text", "w1", "--no-verify"]) == 0
    assert en.load(one, "cpu", verify=False).labels
    assert main(["predict", one, "--text", "w1"]) == 2  # the next one is checked again
    weights.write_bytes(weights.read_bytes()[:-1])
    capfd.readouterr()
    assert main(["predict", one, "--text", "w1", "--no-verify"]) == 2
    assert "bytes instead of" in capfd.readouterr().err


def test_R21_a_later_write_does_not_renew_the_digest_of_another_file(finished: RunDir) -> None:
    flip(finished.model / "model.safetensors")
    with finished.lock():
        finished.write_scores(finished.read_scores() | {"evaluations": {}})
        finished.update_info(note="later")
    assert finished.problem() is None
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        locate.resolve(str(finished.path))


@pytest.mark.parametrize("name", ["config.yaml", "run.json", "scores.json"])
def test_R21_a_changed_file_that_tables_read_is_named(finished: RunDir, name: str) -> None:
    path = finished.path / name
    path.write_text(path.read_text().replace("1", "7", 1))
    assert f"{name} is damaged" in (find_runs(finished.path)[0].problem or "")


def test_R21_what_is_deleted_to_save_room_is_no_damage_for_tables(finished: RunDir) -> None:
    shutil.rmtree(finished.model)
    shutil.rmtree(finished.predictions)
    assert finished.problem() is None


def test_R21_runs_of_earlier_versions_are_read_as_before(finished: RunDir) -> None:
    """They have the digest of the scores alone."""
    done = json.loads(finished.done.path.read_text())
    finished.done.path.write_text(json.dumps({key: done[key] for key in ("time", "scores_sha256")}))
    assert finished.problem() is None
    assert en.load(finished.path, "cpu").labels
    with finished.lock():
        finished.write_scores(finished.read_scores() | {"evaluations": {}})
    assert finished.problem() is None
    finished.scores.write_text("{}")
    assert "changed after" in (finished.problem() or "")


def test_R21_kept_models_and_dynamics_are_checked_too(tmp_path: Path) -> None:
    tree = settings(tmp_path, train={"dynamics": True, "keep_at": [50]})
    one = run(tree, tmp_path / "run")
    assert {"dynamics/logits.npy", "kept/50/model.safetensors", "metrics.jsonl"} <= set(one.done.read()["files"])
    flip(one.kept / "50" / "model.safetensors")
    with pytest.raises(UserError, match=r"kept/50/model\.safetensors is damaged"):
        locate.resolve(f"{one.path}@50%")
    flip(one.path / "dynamics" / "logits.npy")
    from encodery.data.row_dynamics import Dynamics

    with pytest.raises(UserError, match=r"logits\.npy is damaged"):
        Dynamics.open(one.path)
