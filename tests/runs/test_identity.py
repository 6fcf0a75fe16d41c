"""Which settings make a run another run, and that runs of earlier versions are still known.

stored_runs/ was made by the version before keys began to be left out: a run that was stopped after step 4 of 8, and a
sweep of two finished runs that give train.epochs beside train.max_steps. It is never made again.
"""

import json
import shutil
from pathlib import Path

import pytest
from pydantic import Field

from encodery.cli import main
from encodery.config import load
from encodery.config.schema import Config, TrainOptions
from encodery.core import yaml
from encodery.errors import UserError
from encodery.methods.freelb import FreeLB
from encodery.report.records import split_seed
from encodery.runs import identity
from encodery.runs.directory import RunDir
from encodery.runs.identity import identity_of_config
from encodery.sweep import sweep_file
from encodery.sweep.plan import Planner
from encodery.training import build
from encodery.training.run import train_run

STORED = Path(__file__).parents[1] / "stored_runs"
NAME = "stopped-1f75ff45"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the stored runs in it."""
    shutil.copytree(STORED / NAME, tmp_path / "runs" / NAME)
    shutil.copytree(STORED / "sweep", tmp_path / "runs" / "sweep")
    shutil.copy(STORED / "stopped.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def losses(run: RunDir) -> list[float]:
    return [record["loss"] for record in run.metrics() if "loss" in record]


@pytest.mark.slow
def test_R17_a_run_of_an_earlier_version_is_resumed_under_its_name(here: Path) -> None:
    resumed = train_run(load.load("stopped.yaml"))
    assert resumed.path.name == NAME
    assert "resuming at step 4 of 8" in resumed.log_file.read_text()
    assert resumed.is_done
    whole = train_run(load.load("stopped.yaml"), here / "whole")
    assert losses(resumed) == pytest.approx(losses(whole), rel=1e-4)
    assert [r["step"] for r in resumed.metrics()] == [r["step"] for r in whole.metrics()]


def test_R17_the_hash_of_the_first_version_holds(here: Path) -> None:
    found = load.load("stopped.yaml")
    assert identity_of_config(found, build.find_inputs(found).digests) == RunDir(STORED / NAME).info()["identity"]


def test_R17_a_sweep_of_an_earlier_version_is_adopted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = here / "runs" / "sweep"
    names = {path.name for path in folder.iterdir() if path.is_dir()}
    before = {name: (folder / name / "scores.json").read_bytes() for name in names}
    file = sweep_file.read(str(folder / "sweep.yaml"))
    assert {spec.name for spec in Planner(file, folder).specs()} == names
    assert not {spec.name for spec in Planner(file, here / "new").specs()} & names  # the hash is another by now
    assert main(["sweep", "run", str(folder / "sweep.yaml"), "-o", str(folder), "--quiet"]) == 0
    assert "2 done" in capsys.readouterr().out
    assert {path.name for path in folder.iterdir() if path.is_dir() and path.name != ".sweep"} == names
    assert before == {name: (folder / name / "scores.json").read_bytes() for name in names}


@pytest.mark.slow
def test_R17_an_adopted_run_keeps_the_name_by_which_others_know_it(here: Path) -> None:
    folder = here / "runs" / "sweep"
    one = RunDir(next(path for path in folder.iterdir() if path.name.startswith("d271d80c")))
    old = one.info()["identity"]
    (one.path / "DONE").unlink()
    train_run(load.load(one.config), one.path)
    assert one.info()["identity"] == old
    assert one.path.name in {spec.name for spec in Planner(sweep_file.read(str(folder / "sweep.yaml")), folder).specs()}


def test_R17_only_what_matters_is_named_when_a_run_is_refused(here: Path) -> None:
    changed = load.load("stopped.yaml", ["optim.lr=2e-3", "train.log=1", "threads=1"])
    with pytest.raises(UserError) as caught:
        train_run(changed, here / "runs" / NAME)
    lines = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert lines == ["  optim.lr: 0.001 there, 0.002 now"]


class Later(TrainOptions):
    later: int = 3
    changed: str = Field(default="auto", json_schema_extra={"before": "first"})


class LaterConfig(Config):
    train: Later = Later()
    top: bool = False


class LaterFreeLB(FreeLB):
    adv_steps_of_a_later_version: float | None = None


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that has more keys."""
    find = identity.find
    monkeypatch.setattr(identity, "Config", LaterConfig)
    monkeypatch.setattr(identity, "find", lambda room, kind: LaterFreeLB if kind == "freelb" else find(room, kind))
    monkeypatch.setattr(identity, "_options_of", identity._options_of.__wrapped__)  # a cache would keep it


def test_W25_a_key_that_is_as_before_is_no_part_of_the_identity(here: Path, later: None) -> None:
    found = load.load("stopped.yaml")
    tasks, digests = [task for task, _ in found.tasks], build.find_inputs(found).digests

    def hashed(**changes: object) -> str:
        tree = found.config.to_dict()
        tree |= {"top": changes.get("top", False)}
        tree["train"] |= {"later": changes.get("later", 3), "changed": changes.get("changed", "first")}
        tree["method"] |= {"adv_steps_of_a_later_version": changes.get("method")}
        return identity.identity_of(tree, tasks, {}, digests)

    assert hashed() == RunDir(STORED / NAME).info()["identity"]
    others = [hashed(top=True), hashed(later=4), hashed(changed="auto"), hashed(method=1.5)]
    assert len({hashed(), *others}) == 5


def test_W25_a_key_that_is_as_before_is_not_named_on_resume(here: Path, later: None) -> None:
    found = load.load("stopped.yaml")
    tree, tasks = found.config.to_dict(), [task for task, _ in found.tasks]
    tree["train"] |= {"later": 3, "changed": "first"}
    old = yaml.read_text((STORED / NAME / "config.yaml").read_text(), "config.yaml").tree
    assert identity.changes(old, tree, tasks) == []
    tree["train"]["changed"] = "auto"
    assert identity.changes(old, tree, tasks) == [("train.changed", None, "auto")]


def test_W25_tables_put_seeds_of_two_versions_into_one_row(here: Path, later: None) -> None:
    old = yaml.read_text((STORED / NAME / "config.yaml").read_text(), "config.yaml").tree
    new = load.load("stopped.yaml", ["seed=2"]).config.to_dict()
    new["train"] |= {"later": 3, "changed": "first"}
    new["method"]["adv_steps_of_a_later_version"] = None
    assert split_seed(old)[0] == split_seed(new)[0]
    new["train"]["later"] = 4
    assert split_seed(new)[0]["train.later"] == 4


def test_W25_epochs_do_not_count_where_steps_do(here: Path) -> None:
    def hashed(*words: str) -> str:
        return identity_of_config(load.load("stopped.yaml", list(words)), {})

    assert hashed("train.max_steps=5", "train.epochs=2") == hashed("train.max_steps=5", "train.epochs=7")
    assert hashed("train.epochs=2") != hashed("train.epochs=7")
    assert hashed("train.max_steps=5") != hashed("train.max_steps=6")


def test_W25_every_key_of_the_first_version_is_still_one(here: Path) -> None:
    """A key that is taken away or renamed would make strangers of all runs: keep it, and give it another name too."""
    first = json.loads(Path(identity.__file__).with_name("first_defaults.json").read_text())
    train = set(Config.model_fields["train"].annotation.model_fields)  # type: ignore[union-attr]
    assert set(first["train"]) <= train
    assert set(first["method:freelb"]) <= set(FreeLB.model_fields)
