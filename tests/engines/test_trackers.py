"""Real trackers, offline: what they stored is read back and compared with metrics.jsonl and scores.json."""

import importlib.util
import json
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from encodery.runs.directory import RunDir
from encodery.track.base import event_of, final_values
from tests.engines.conftest import skip_without

Values = dict[tuple[str, int], float]  # (name, step) → value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A short training with an evaluation."""
    folder = tmp_path_factory.mktemp("tracked") / "run"
    words = ["train", "recipe:toy/nli", "--device=cpu", "--train.max_steps=12", "--train.log=4", "-o", str(folder)]
    subprocess.run([sys.executable, "-m", "encodery", *words, "--quiet"], check=True)
    return RunDir(folder)


def wanted(run: RunDir) -> Values:
    """What metrics.jsonl and scores.json hold."""
    records = run.metrics()
    found = {(name, e.step): v for e in map(event_of, records) for name, v in e.values.items()}
    last = max(int(record["step"]) for record in records)
    found |= {(name, last): value for name, value in final_values(run.read_scores()).items()}
    assert len(found) > 10
    return found


def track(run: RunDir, folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "encodery", "track", str(run.path), *words]
    env = {**os.environ, **variables, "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def sent(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(found: Values, run: RunDir, relative: float = 1e-12) -> None:
    expected = wanted(run)
    assert set(expected) <= set(found)
    assert {key: found[key] for key in expected} == {
        key: pytest.approx(value, rel=relative) for key, value in expected.items()
    }


def require(name: str) -> None:
    skip_without(name, f"package {name} not found" if importlib.util.find_spec(name) is None else None)


def test_tensorboard(run: RunDir, tmp_path: Path) -> None:
    require("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert "events sent" in sent(track(run, tmp_path, "--to=tensorboard"))
    read = EventAccumulator(str(tmp_path / "tensorboard" / "encodery" / "run"))
    read.Reload()
    found = {
        (tag, event.step): float(event.tensor_proto.float_val[0])
        for tag in read.Tags()["tensors"]
        for event in read.Tensors(tag)
    }
    check(found, run, 1e-6)  # event files hold float32


def test_mlflow_on_sqlite(run: RunDir, tmp_path: Path) -> None:
    require("mlflow")
    require("sqlalchemy")
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in "ab")
    told = sent(track(run, tmp_path, "--to=mlflow", "--where", first))
    assert "events sent" in told
    assert "has everything already" in sent(track(run, tmp_path, "--to=mlflow", "--where", first))
    assert sent(track(run, tmp_path, "--to=mlflow", "--where", second)) == told  # another place has nothing yet
    for name in "ab":
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            rows = database.execute("select key, step, value from metrics").fetchall()
        check({(key, int(step)): value for key, step, value in rows}, run)


def test_a_folder_as_a_store_of_mlflow_is_a_sentence(run: RunDir, tmp_path: Path) -> None:
    require("mlflow")
    done = track(run, tmp_path, "--to=mlflow", "--where", f"file://{tmp_path}/store")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "give --where sqlite:///mlflow.db" in done.stderr
    assert "bug" not in done.stderr


def test_trackio(run: RunDir, tmp_path: Path) -> None:
    require("trackio")
    assert "events sent" in sent(track(run, tmp_path, "--to=trackio", TRACKIO_DIR=str(tmp_path / "store")))
    (path,) = (tmp_path / "store").glob("*.db")
    with sqlite3.connect(path) as database:
        rows = database.execute("select step, metrics from metrics").fetchall()
    found = {(key, int(step)): value for step, text in rows for key, value in json.loads(text).items()}
    check(found, run)


def test_wandb_offline(run: RunDir, tmp_path: Path) -> None:
    require("wandb")
    quiet = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    assert "events sent" in sent(track(run, tmp_path, "--to=wandb", **quiet))
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    check(history(path), run)


def history(path: Path) -> Values:
    """The history rows of an offline run."""
    from wandb.proto import wandb_internal_pb2

    found: Values = {}
    for data in stored(path.read_bytes()):
        record: Any = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            found |= {(key, int(row["_step"])): value for key, value in row.items() if isinstance(value, int | float)}
    return found


def stored(content: bytes) -> Iterator[bytes]:
    """The records of W&B's file: LevelDB's log of blocks, after a head of 7 bytes; in pieces."""
    at, block, whole = 7, 32768, b""
    while at + 7 <= len(content):
        if block - at % block < 7:  # no room for a head: padding
            at += block - at % block
            continue
        size, kind = struct.unpack_from("<HB", content, at + 4)  # after a checksum
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # the only piece, or the last
            yield whole
            whole = b""
