"""Publishing to and training from a stand-in hub on loopback, through the real client."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from encodery.runs.directory import RunDir
from tests.engines.hub_server import TOKEN, Hub, Repository

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        yield server


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "run"
    words = ["train", "recipe:toy/nli", "--device=cpu", "--train.max_steps=2", "-o", str(folder), "--quiet"]
    subprocess.run([sys.executable, "-m", "encodery", *words], check=True)
    return folder


def encodery(hub: Hub, folder: Path, *words: str, token: str | None = TOKEN) -> "subprocess.CompletedProcess[str]":
    """A command of somebody whose hub is ours, with a cache of its own."""
    env = {key: value for key, value in os.environ.items() if key not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    env |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_XET": "1"}
    env |= {"HF_TOKEN": token} if token else {}
    command = [sys.executable, "-m", "encodery", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_published_model_comes_back_by_its_revision(hub: Hub, run: Path, tmp_path: Path) -> None:
    publish = ["publish", str(run), "--to=me/toy", "--license=apache-2.0", "--yes"]
    refused = encodery(hub, tmp_path, *publish, token="hf_wrong")
    assert refused.returncode in (1, 2), refused.stderr
    assert "bug" not in refused.stderr
    assert not hub.repositories
    sent = encodery(hub, tmp_path, *publish)
    assert sent.returncode == 0, sent.stderr + "\n".join(hub.unknown)
    repository = hub.repositories["me/toy"]
    assert repository.private
    assert repository.files["model.safetensors"] == (run / "model" / "model.safetensors").read_bytes()
    train = ["train", "--model=me/toy", "--tasks=toy/nli", "--device=cpu", "--train.max_steps=1", "-o"]
    stranger = encodery(hub, tmp_path, *train, "stranger", token=None)  # it is private
    assert stranger.returncode == 2
    assert "me/toy" in stranger.stderr
    assert "bug" not in stranger.stderr
    hub.broken = 1
    done = encodery(hub, tmp_path, *train, "back")
    assert done.returncode == 0, done.stderr + "\n".join(hub.unknown)
    assert hub.broken == 0  # it was tried again
    hub.broken = 100
    other = tmp_path / "another-cache"
    other.mkdir()
    failed = encodery(hub, other, *train, "never")
    assert failed.returncode == 1
    assert "run the same command later" in failed.stderr
    assert repository.commit in RunDir(tmp_path / "back").path.joinpath("run.json").read_text()


def test_a_model_that_is_not_there_is_a_sentence(hub: Hub, tmp_path: Path) -> None:
    done = encodery(hub, tmp_path, "train", "--model=me/none", "--tasks=toy/nli", "-o", "x")
    assert done.returncode == 2
    assert "me/none" in done.stderr
    assert "bug" not in done.stderr


def test_a_pinned_revision_stays_what_it_was(hub: Hub, run: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in (run / "model").iterdir() if path.is_file()}
    hub.repositories["me/toy"] = repository = Repository(private=False)
    repository.take(files)
    first = repository.commit
    repository.take({"config.json": b"not even JSON"})
    train = ["train", "--model.name=me/toy", "--tasks=toy/nli", "--device=cpu", "--train.max_steps=1"]
    done = encodery(hub, tmp_path, *train, f"--model.revision={first}", "-o", "first", token=None)
    assert done.returncode == 0, done.stderr + "\n".join(hub.unknown)
    assert first in (tmp_path / "first" / "run.json").read_text()
    wrong = encodery(hub, tmp_path, *train, f"--model.revision={'f' * 40}", "-o", "wrong", token=None)
    assert wrong.returncode == 2
    assert "me/toy" in wrong.stderr
    assert "bug" not in wrong.stderr


RTE = """\
---
configs:
- config_name: rte
  data_files:
  - {split: train, path: rte/train-*}
  - {split: validation, path: rte/validation-*}
  - {split: test, path: rte/test-*}
---
"""


def rte(word: str) -> dict[str, bytes]:
    """The files of a small copy of the data set."""
    columns = {"sentence1": [f"A {word}."] * 4, "sentence2": ["A thing."] * 4, "label": [0, 1, 0, 1], "idx": range(4)}
    data = io.BytesIO()
    pq.write_table(pa.table({key: list(values) for key, values in columns.items()}), data)
    names = [f"rte/{split}-00000-of-00001.parquet" for split in ("train", "validation", "test")]
    return {"README.md": RTE.encode(), **dict.fromkeys(names, data.getvalue())}


def test_data_get(hub: Hub, tmp_path: Path) -> None:
    get = ["data", "get", "glue/rte", "--to"]
    none = encodery(hub, tmp_path, *get, "none", token=None)  # 404
    assert none.returncode == 2
    assert "nyu-mll/glue" in none.stderr
    assert "bug" not in none.stderr
    hub.repositories["nyu-mll/glue"] = repository = Repository(private=False)
    repository.take(rte("cat"))
    refused = encodery(hub, tmp_path, *get, "refused", token="hf_wrong")
    assert refused.returncode == 2
    assert "401" in refused.stderr
    assert "bug" not in refused.stderr
    hub.broken = 1
    done = encodery(hub, tmp_path, *get, "data", token=None)
    assert done.returncode == 0, done.stderr + "\n".join(hub.unknown)
    assert hub.broken == 0  # it was tried again
    table = pq.read_table(tmp_path / "data" / "glue" / "rte_train.parquet")
    assert table.column("sentence1").to_pylist() == ["A cat."] * 4
    assert table.schema.metadata[b"revision"].decode() == repository.commit
    hub.broken = 1000
    failed = encodery(hub, tmp_path, *get, "never", token=None)
    assert failed.returncode == 1, failed.stderr
    assert "run the same command later" in failed.stderr
    assert not list((tmp_path / "never").rglob("*.parquet"))
