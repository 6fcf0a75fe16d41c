"""Trackers get each event once, under the same id, whenever they are asked to look again."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from encodery.cli import main
from encodery.runs.directory import RunDir
from encodery.track.base import Feed, Memory, event_of, group_of
from encodery.track.follow import DEFAULTS, destination_of, track
from tests.report import runs


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two runs of a sweep, one of them not finished."""
    folder = tmp_path / "lrs"
    runs.run(folder / "one", 0.75)
    half = RunDir(runs.run(folder / "two", None, seed=2))
    half.record(10, loss=0.5, lr=1e-5, tokens=100, seconds=0.1)
    half.record(10, split="dev", **{"eval.accuracy": 0.6, "eval.f1": None})
    (folder / "plan.json").write_text(json.dumps({"runs": []}))
    return folder


class Recorder:
    """Stands for a client; calls are kept."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []


def test_names_of_events():
    record = {"step": 3, "time": 1.5, "loss": 0.5, "loss.toy/nli/mlm": 0.1, "method.norm": 2.0, "skipped": None}
    found = event_of(record)
    assert (found.step, found.time) == (3, 1.5)
    assert dict(found.values) == {"train/loss": 0.5, "loss/toy/nli/mlm": 0.1, "method/norm": 2.0}
    assert dict(event_of({"step": 3, "split": "dev", "eval.f1": 0.1}).values) == {"dev/f1": 0.1}
    several = {"step": 3, "split": "dev", "task": "glue/rte", "eval.f1": 0.1}
    assert dict(event_of(several).values) == {"glue-rte-dev/f1": 0.1}


@pytest.mark.slow
def test_tensorboard_for_real(sweep, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def scalars(name: str) -> dict[str, list[tuple[int, float]]]:
        found = EventAccumulator(str(tmp_path / "tb" / "encodery" / "lrs" / name))
        found.Reload()
        return {
            tag: [(e.step, float(e.tensor_proto.float_val[0])) for e in found.Tensors(tag)]
            for tag in found.Tags()["tensors"]
        }

    words = ["track", str(sweep), "--to", "tensorboard", "--where", str(tmp_path / "tb")]
    assert main(words) == 0
    assert scalars("one")["train/loss"] == [(10, 1.0), (20, 1.0)]
    assert scalars("one")["final/toy-nli-dev/accuracy"] == [(20, 0.75)]
    assert scalars("two")["dev/accuracy"] == [(10, pytest.approx(0.6))]
    RunDir(sweep / "two").record(20, loss=0.25, seconds=0.1)
    assert track([sweep], "tensorboard", "encodery", str(tmp_path / "tb")) == 1
    assert scalars("two")["train/loss"] == [(10, 0.5), (20, 0.25)]
    assert track([sweep], "tensorboard", "encodery", str(tmp_path / "tb")) == 0


@pytest.fixture
def wandb(monkeypatch) -> Recorder:
    """A W&B of a few lines, with the names and keywords of 0.31."""
    kept = Recorder()

    class Run:
        def __init__(self, **options):
            self.options = options

        def log(self, data, step=None, commit=None):
            kept.calls.append(("log", self.options["id"], step, data))

        def finish(self, exit_code=None):
            kept.calls.append(("finish", self.options["name"], exit_code))

    def init(entity=None, project=None, id=None, name=None, config=None, group=None, reinit=None, resume=None):
        kept.calls.append(("init", project, entity, id, name, group, resume, reinit, config["optim.lr"]))
        return Run(id=id, name=name)

    module = ModuleType("wandb")
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return kept


def test_wandb_groups_by_sweep_and_resumes_the_same_id(sweep, wandb):
    assert track([sweep], "wandb", "p", "team") == 5
    starts = [call for call in wandb.calls if call[0] == "init"]
    assert [call[4:9] for call in starts] == [(n, "lrs", "allow", "create_new", 2e-5) for n in ("one", "two")]
    assert starts[0][1:3] == ("p", "team")
    ids = {call[4]: call[3] for call in starts}
    assert ids["one"] != ids["two"]
    wandb.calls.clear()
    RunDir(sweep / "two").record(20, loss=0.25)
    assert track([sweep], "wandb", "p", "team") == 1
    assert [call[0] for call in wandb.calls] == ["init", "log", "finish"]
    assert wandb.calls[0][3] == ids["two"]
    assert wandb.calls[1] == ("log", ids["two"], 20, {"train/loss": 0.25})
    RunDir(sweep / "two").update_info(ended={"state": "failed", "error": "NaN"})
    RunDir(sweep / "two").record(30, loss=0.2)
    track([sweep], "wandb", "p", "team")
    assert wandb.calls[-1] == ("finish", "two", 1)


def test_a_run_that_begins_anew_is_a_new_one_there(sweep, wandb):
    track([sweep / "one"], "wandb", "p")
    first = wandb.calls[0][3]
    RunDir(sweep / "one").move_aside()
    runs.run(sweep / "one", 0.5)
    wandb.calls.clear()
    track([sweep / "one"], "wandb", "p")
    assert wandb.calls[0][3] != first


def test_a_resumed_run_sends_nothing_twice(sweep, wandb):
    track([sweep / "two"], "wandb", "p")
    run = RunDir(sweep / "two")
    run.rewind_metrics(5)  # killed, and begun again at an older checkpoint
    assert track([sweep / "two"], "wandb", "p") == 0
    run.record(10, loss=0.5)
    run.record(10, split="dev", **{"eval.accuracy": 0.6})
    run.record(20, loss=0.4)
    wandb.calls.clear()
    assert track([sweep / "two"], "wandb", "p") == 1
    assert [call[2] for call in wandb.calls if call[0] == "log"] == [20]


def test_following_keeps_one_connection_while_a_run_works(sweep, wandb, monkeypatch):
    run = RunDir(sweep / "two")
    lock = run.lock()
    lock.acquire()

    def sleep(_: float) -> None:
        if len(run.metrics()) < 4:
            run.record(20 + len(run.metrics()), loss=0.1)
        else:
            lock.release()

    monkeypatch.setattr("time.sleep", sleep)
    assert track([sweep / "two"], "wandb", "p", every=1.0) == 4
    assert [call[0] for call in wandb.calls] == ["init", *["log"] * 4, "finish"]


def test_mlflow_keeps_its_own_id(sweep, monkeypatch):
    kept = Recorder()

    class Client:  # the names and keywords of 3.17
        def __init__(self, tracking_uri=None):
            kept.calls.append(("client", tracking_uri))

        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return f"experiment-{name}"

        def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
            kept.calls.append(("run", experiment_id, tags, run_name))
            info = type("Info", (), {"run_id": f"their-{run_name}"})
            return type("Run", (), {"info": info})

        def log_batch(self, run_id, metrics=(), params=(), tags=()):
            kept.calls.append(("batch", run_id, [m.__dict__ for m in metrics], len(params)))

        def set_terminated(self, run_id, status=None):
            kept.calls.append(("end", run_id, status))

    def entity(*names):
        return type(
            "Entity", (), {"__init__": lambda self, *values: self.__dict__.update(zip(names, values, strict=True))}
        )

    module, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    module.MlflowClient = Client  # type: ignore[attr-defined]
    entities.Metric, entities.Param = entity("key", "value", "timestamp", "step"), entity("key", "value")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    assert track([sweep / "one"], "mlflow", "p", "sqlite:///x.db") == 3
    assert kept.calls[:2] == [("client", "sqlite:///x.db"), ("run", "experiment-p", {"group": "lrs"}, "one")]
    metrics = [metric for call in kept.calls if call[0] == "batch" for metric in call[2]]
    assert {k: metrics[0][k] for k in ("key", "value", "step")} == {"key": "train/loss", "value": 1.0, "step": 10}
    assert metrics[0]["timestamp"] > 1e12  # milliseconds
    assert kept.calls[-1] == ("end", "their-one", "FINISHED")
    assert Feed(RunDir(sweep / "one"), "mlflow", "p @ sqlite:///x.db").memory.id == "their-one"


def test_trackio_goes_on_with_the_same_name(sweep, monkeypatch):
    kept = Recorder()

    class Run:
        def log(self, metrics, step=None):
            kept.calls.append(("log", step))

        def finish(self):
            kept.calls.append(("finish",))

    def init(project, name=None, group=None, space_id=None, config=None, resume="never", embed=True, auto_log_gpu=None, auto_log_cpu=None):  # fmt: skip  # noqa: E501
        kept.calls.append(("init", project, name, group, space_id, resume))
        return Run()

    module = ModuleType("trackio")
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", module)
    track([sweep / "two"], "trackio", "p")
    RunDir(sweep / "two").record(20, loss=0.1)
    track([sweep / "two"], "trackio", "p")
    starts = [call for call in kept.calls if call[0] == "init"]
    assert starts[0] == starts[1]
    assert starts[0][2].startswith("two-")
    assert [call[1] for call in kept.calls if call[0] == "log"] == [10, 10, 20]


@pytest.mark.parametrize("tracker", DEFAULTS)
def test_a_missing_extra_is_one_sentence(sweep, tracker, monkeypatch, capsys):
    for name in (tracker, f"{tracker}.summary"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["track", str(sweep), "--to", tracker]) == 2
    assert f"pip install 'encodery[{tracker}]'" in capsys.readouterr().err
    assert not list(sweep.rglob(".track-*"))


def test_groups_and_nothing_to_track(sweep, tmp_path):
    assert group_of(sweep / "one") == "lrs"
    assert group_of(tmp_path) is None
    (tmp_path / "empty").mkdir()
    assert main(["track", str(tmp_path / "empty"), "--to", "tensorboard"]) == 2


@pytest.mark.slow
def test_each_place_of_a_tracker_gets_everything(sweep, tmp_path):
    pytest.importorskip("tensorboard")
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    count = track([sweep], "tensorboard", "p", first)
    assert count > 2
    assert track([sweep], "tensorboard", "p", first) == 0
    assert track([sweep], "tensorboard", "p", second) == count
    assert track([sweep], "tensorboard", "q", second) == count
    assert track([sweep], "tensorboard", "p", f"{first}/../a") == 0  # the same folder by another name


def test_what_an_earlier_version_has_sent_counts_for_the_place_that_is_asked_first(sweep):
    hidden = sweep / "one" / ".track-wandb.json"
    hidden.write_text(json.dumps({"id": "theirs", "sent": 2, "final": True}))
    assert Feed(RunDir(sweep / "one"), "wandb", "p").memory.id == "theirs"
    feed = Feed(RunDir(sweep / "one"), "wandb", "p")
    feed.remember(replace(feed.memory, sent=3))
    assert Feed(RunDir(sweep / "one"), "wandb", "p").memory == Memory("theirs", 3, True)
    assert not Feed(RunDir(sweep / "one"), "wandb", "q").is_known


def test_a_place_is_named_without_its_password(monkeypatch):
    assert destination_of("mlflow", "p", "https://me:secret@host/x") == "p @ https://***@host/x"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert destination_of("mlflow", "p", None) == "p @ http://127.0.0.1:5000"
    assert destination_of("wandb", "p", None) == "p"
