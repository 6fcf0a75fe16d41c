"""Vectors, dynamics, heads and selections carry what they were made from; what does not fit is refused."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from encodery.cli import main
from encodery.core import files
from encodery.core.cache import MANIFEST
from encodery.data.embeddings import Embeddings
from encodery.data.provenance import Provenance
from encodery.data.row_dynamics import Dynamics
from encodery.errors import UserError
from encodery.runs.directory import RunDir
from encodery.runs.head_matrices import Importance, compare
from encodery.tasks.base import Example
from tests.toolbox.runs import resolve, run, settings

ROWS = 96


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A task of 96 rows, and another one with the same ids and other texts."""
    folder = tmp_path_factory.mktemp("home")
    settings(folder)
    lines = (folder / "train.csv").read_text().splitlines()
    (folder / "other.csv").write_text("\n".join([lines[0], *(f"quite {line}" for line in lines[1:])]) + "\n")
    return folder


@pytest.fixture(scope="module")
def recorded(home) -> RunDir:
    return run(settings(home, train={"dynamics": "eval", "epochs": 1}), home / "recorded")


@pytest.fixture(scope="module")
def vectors(home, recorded) -> Path:
    folder = home / "vectors"
    assert main(["embed", str(recorded.path), "--on", "table/train:train", "-o", str(folder), "--quiet"]) == 0
    return folder


def pool_file(home: Path, train: str = "train.csv", **keys) -> Path:
    task = {**settings(home)["tasks"][0], "train": str(home / train)}
    path = home / f"pool-{Path(train).stem}.yaml"
    path.write_text(yaml.safe_dump({"pool": task, **keys}))
    return path


def select(home: Path, train: str, out: Path, *words: str) -> int:
    return main(["select", str(pool_file(home, train)), *words, "-o", str(out)])


def forget(path: Path) -> None:
    """As an older version wrote it."""
    meta = files.read_json(path)
    del meta["made_from"]
    path.write_text(json.dumps(meta))


CLUSTERS = ["--selector.kind", "clusters", "--selector.k", "3"]


@pytest.mark.slow
def test_D24_vectors_of_another_task_are_refused_with_both_names(home, vectors, tmp_path, capsys):
    assert Embeddings.open(vectors).made_from.rows == ROWS
    assert select(home, "train.csv", tmp_path / "fits", *CLUSTERS, "--embeddings", str(vectors)) == 0
    assert "WARNING" not in capsys.readouterr().err
    assert select(home, "other.csv", tmp_path / "not", *CLUSTERS, "--embeddings", str(vectors)) == 2
    said = capsys.readouterr().err
    assert "was made from table/train:train (96 rows), but it is used for table/other:train (96 rows)" in said


@pytest.mark.slow
def test_D24_vectors_of_older_texts_are_refused_and_moved_files_fit(home, vectors, tmp_path, capsys):
    lines = (home / "train.csv").read_text().splitlines()
    (home / "moved.csv").write_text("\n".join(lines) + "\n")
    assert select(home, "moved.csv", tmp_path / "moved", *CLUSTERS, "--embeddings", str(vectors)) == 0
    (tmp_path / "train.csv").write_text("\n".join([*lines[:-1], f"changed {lines[-1]}"]) + "\n")
    task = {**settings(home)["tasks"][0], "train": str(tmp_path / "train.csv")}
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump({"pool": task}))
    words = ["select", str(tmp_path / "pool.yaml"), *CLUSTERS, "--embeddings", str(vectors), "-o", str(tmp_path / "x")]
    assert main(words) == 2
    assert "was made from other rows: table/train:train" in capsys.readouterr().err


def test_D24_older_vectors_are_read_with_a_warning_and_still_know_their_task(home, vectors, tmp_path, capsys):
    old = tmp_path / "old"
    old.mkdir()
    for file in vectors.iterdir():
        if file.is_file() and file.name != MANIFEST:  # which older folders do not have
            (old / file.name).write_bytes(file.read_bytes())
    forget(old / "meta.json")
    assert select(home, "train.csv", tmp_path / "fits", *CLUSTERS, "--embeddings", str(old)) == 0
    assert "WARNING" in (said := capsys.readouterr().err)
    assert "has no digest of the texts it was made from" in said
    assert select(home, "other.csv", tmp_path / "not", *CLUSTERS, "--embeddings", str(old)) == 2
    assert "was made from table/train:train, but it is used for table/other:train" in capsys.readouterr().err


def test_D24_dynamics_of_another_task_are_refused_and_older_ones_warn(home, recorded, tmp_path, capsys):
    words = ["--selector", "el2n", "--runs", str(recorded.path)]
    assert select(home, "train.csv", tmp_path / "fits", *words) == 0
    assert "WARNING" not in capsys.readouterr().err
    assert select(home, "other.csv", tmp_path / "not", *words) == 2
    assert "was made from table/train:train (96 rows), but it is used for table/other" in capsys.readouterr().err
    meta = recorded.path / "dynamics" / "meta.json"
    before = meta.read_bytes()
    try:
        forget(meta)
        RunDir(recorded.path).mark_done()  # the digests of what was changed
        assert select(home, "train.csv", tmp_path / "old", *words) == 0
        assert "WARNING" in capsys.readouterr().err
        assert select(home, "other.csv", tmp_path / "old-not", *words) == 2
    finally:
        meta.write_bytes(before)
        RunDir(recorded.path).mark_done()


def test_D24_logits_of_other_labels_are_refused_and_another_order_is_put_right():
    logits = np.arange(12.0).reshape(1, 4, 3)
    found = Dynamics(logits, list("abcd"), ("x", "y", "z"), "eval", Path("run/dynamics"))
    with pytest.raises(UserError, match="for the labels x, y, z, but the pool has x, y"):
        found.aligned(list("abcd"), ("x", "y"))
    assert found.aligned(["b"], ("z", "x", "y")).tolist() == [[[5.0, 3.0, 4.0]]]


def test_D24_changed_labels_matter_to_dynamics_and_not_to_vectors():
    rows = [Example("1", ("a",), "x"), Example("2", ("b",), "y")]
    other = [Example("1", ("a",), "y"), Example("2", ("b",), "y")]
    before, now = (Provenance.of("t", "train", some) for some in (rows, other))
    assert before.require_fit("v", now, labels=False) is None
    with pytest.raises(UserError, match="the texts are the same, the labels are not"):
        before.require_fit("v", now)
    assert Provenance.of("t", "train", rows[::-1]) == before


@pytest.mark.slow
def test_D24_selections_name_both_sides_and_lists_without_meta_warn(home, tmp_path, capsys):
    assert select(home, "train.csv", tmp_path / "chosen", "--selector", "random") == 0
    other = {"train": str(home / "other.csv"), "subset": str(tmp_path / "chosen")}
    with pytest.raises(UserError, match=r"chosen from table/train:train .96 rows., but it is used for table/other"):
        run(settings(home, task=other), tmp_path / "run")
    (tmp_path / "mine.jsonl").write_text('{"id": "1"}\n{"id": "3"}\n{"id": "5"}\n')
    listed = run(settings(home, task={"subset": str(tmp_path / "mine.jsonl")}), tmp_path / "listed")
    said = (listed.path / "log.txt").read_text()
    assert "WARNING tasks.subset" in said
    assert "has no digest of the texts it was chosen from" in said


def head_folder(folder: Path, rows: str, **more) -> Importance:
    folder.mkdir()
    np.save(folder / "instances.npy", np.random.default_rng(1).random((3, 2, 2), np.float32))
    np.save(folder / "task.npy", np.random.default_rng(2).random((2, 2)))
    meta = {"task": "glue/rte", "split": "train", "rows": rows, **more}
    (folder / "meta.json").write_text(json.dumps(meta))
    return Importance.open(folder)


def test_D24_heads_of_changed_rows_are_not_compared(tmp_path):
    known = Provenance.of("glue/rte", "train", []).to_dict()
    one, same = head_folder(tmp_path / "one", "1" * 8, **known), head_folder(tmp_path / "same", "1" * 8)
    notes = compare([one, same]).notes
    assert len(notes) == 1
    assert str(tmp_path / "same") in notes[0]
    assert "has no digest" in notes[0]
    with pytest.raises(UserError, match=r"both are of glue/rte:train, but its rows have changed"):
        compare([one, head_folder(tmp_path / "later", "2" * 8, **known)])


HEAVY = """
import sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "sklearn", "scipy"}:
            raise AssertionError(name)

sys.meta_path.insert(0, Guard())
from encodery.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_D25_random_choice_imports_no_torch(tmp_path):
    words = ["select", "--pool", "toy/sentiment", "--selector", "random", "-o", str(tmp_path / "chosen")]
    done = subprocess.run([sys.executable, "-c", HEAVY, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("Error")) == (0, 0), done.stderr
    assert "2,000 of 2,000 rows by random" in done.stdout


def test_it_is_the_task_of_the_config_that_is_compared(home):
    assert resolve(settings(home)).tasks[0][0].name == "table/train"
