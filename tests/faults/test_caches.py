"""Damage in a cache: named, moved aside, made again, and never used."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encodery.analysis import embed, head_importance
from encodery.analysis.embed import Embeddings, EmbedOptions
from encodery.analysis.head_importance import HeadOptions
from encodery.cli import main
from encodery.core import cache, files
from encodery.errors import RunFailed, UserError
from encodery.inference.classifier import open_classifier
from encodery.inference.task_argument import resolve_split
from encodery.runs.directory import RunDir
from encodery.runs.head_matrices import Importance
from tests.toolbox.runs import run, settings, weights_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for each test, to be damaged."""
    monkeypatch.setenv("ENCODERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def harm(path: Path, how: str) -> None:
    """Flip a bit in the middle, cut the end, or remove it."""
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[len(data) * 7 // 10] ^= 4
    path.unlink() if how == "remove" else path.write_bytes(data[:-1] if how == "cut" else data)


def equal(a: RunDir, b: RunDir) -> bool:
    one, other = weights_of(a), weights_of(b)
    return all(torch.equal(one[name], other[name]) for name in one)


def moved(root: Path) -> list[Path]:
    return sorted(root.glob("*.damaged-*"))


FILES = [
    "ids.npy", "types.npy", "starts.npy", "example.npy", "target_label.npy", "examples.json", "meta.json",
    "manifest.json",
]  # fmt: skip


@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_R22_a_damaged_token_table_is_never_trained_on(tmp_path: Path, own_cache: Path, capfd: Any, how: str) -> None:
    """Every file of every table, one after the other: the same weights come out, and the damage is named."""
    tree = settings(tmp_path, rows=32, dev=16, train={"epochs": 1})
    whole = run(tree, tmp_path / "whole")
    tables = sorted(path for path in (own_cache / "tokens").iterdir() if path.is_dir())
    assert len(tables) == 2
    assert sorted(path.name for path in tables[0].iterdir()) == sorted(FILES)
    times = 0
    for number, name in enumerate(FILES if how != "remove" else FILES[:-2]):
        for table in tables:
            harm(table / name, how)
        capfd.readouterr()
        again = run(tree, tmp_path / f"{how}-{number}")
        said = capfd.readouterr().err
        assert all(f"{table / name} is " in said for table in tables), (name, said)
        assert "and rebuilt" in said
        assert equal(whole, again), name
        times += len(tables)
        assert len(moved(own_cache / "tokens")) == times


def test_R22_an_intact_table_is_hashed_once_in_a_process(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = settings(tmp_path, rows=32, dev=16, train={"epochs": 1})
    run(tree, tmp_path / "one")
    monkeypatch.setattr(files, "SETTLED", -1.0)
    counted: list[Path] = []
    real = files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: (counted.append(path), real(path))[1])
    for number in range(2):
        run(tree, tmp_path / f"again-{number}")
    hashed = [path for path in counted if own_cache in path.parents]
    assert len(hashed) == len(set(hashed)) > 10


@pytest.fixture
def finished(trained: Callable[..., Path]) -> RunDir:
    return RunDir(trained("single"))


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("name", ["vectors.npy", "ids.json", "meta.json", "manifest.json"])
def test_R22_damaged_embeddings_are_made_again(
    finished: RunDir, own_cache: Path, capfd: Any, name: str, how: str
) -> None:
    on = resolve_split(f"{finished.task_names()[0]}:dev", None, [finished])[0]
    source = embed.open_source(str(finished.path), "cpu")
    made = embed.embed(source, on, EmbedOptions())
    before = np.array(made.vectors)
    harm(made.folder / name, how)
    with pytest.raises(UserError, match=rf"{name} is damaged"):
        Embeddings.open(made.folder)
    again = embed.embed(source, on, EmbedOptions())
    assert again.folder == made.folder
    assert np.array_equal(again.vectors, before)
    assert f"{made.folder / name} is damaged" in capfd.readouterr().err
    assert (moved(own_cache / "embeddings")[0] / name).is_file()
    assert Embeddings.open(made.folder).ids == again.ids


def test_R22_a_damaged_piece_is_made_again_when_work_is_resumed(
    finished: RunDir, own_cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setattr(embed, "SHARD", 8)
    on = resolve_split(f"{finished.task_names()[0]}:dev", None, [finished])[0]
    source = embed.open_source(str(finished.path), "cpu")
    whole = np.array(embed.embed(source, on, EmbedOptions()).vectors)
    shutil.rmtree(own_cache / "embeddings")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(embed, "_join", stop)
        with pytest.raises(KeyboardInterrupt):
            embed.embed(source, on, EmbedOptions())
    pieces = sorted((own_cache / "embeddings").glob("*/shards/*.npy"))
    assert len(pieces) > 1
    harm(pieces[0], "flip")
    harm(pieces[1], "cut")
    again = embed.embed(source, on, EmbedOptions())
    assert np.array_equal(again.vectors, whole)
    said = capfd.readouterr().err
    assert all(f"{piece} is damaged" in said for piece in pieces[:2])


@pytest.mark.parametrize("name", ["instances.npy", "task.npy", "ids.json", "meta.json"])
def test_R22_damaged_head_importances_are_made_again(finished: RunDir, capfd: Any, name: str) -> None:
    on = resolve_split(f"{finished.task_names()[0]}:dev", None, [finished])[0]
    given = head_importance.request(open_classifier(finished.path, "cpu"), on, HeadOptions())
    made = head_importance.measure(given)
    before = np.array(made.raw)
    harm(made.folder / name, "flip")
    with pytest.raises(UserError, match=rf"{name} is damaged"):
        Importance.open(made.folder)
    again = head_importance.measure(given)
    assert np.array_equal(again.raw, before)
    assert f"{made.folder / name} is damaged" in capfd.readouterr().err


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_R22_damaged_logits_of_a_teacher_are_asked_again(tmp_path: Path, own_cache: Path, capfd: Any, how: str) -> None:
    teacher = run(settings(tmp_path, rows=32, dev=16, train={"epochs": 1}), tmp_path / "teacher")
    tree = settings(tmp_path, train={"epochs": 1}, task={"teacher": str(teacher.path)})
    whole = run(tree, tmp_path / "whole")
    (kept,) = (own_cache / "teachers").glob("*.npy")
    harm(kept, how)
    again = run(tree, tmp_path / "again")
    assert f"{kept} is damaged" in capfd.readouterr().err
    assert equal(whole, again)


def corpus(tmp_path: Path) -> dict[str, Any]:
    text = "\n\n".join(" ".join(f"w{(i * j) % 24 + 16}" for j in range(1, 9)) for i in range(1, 60))
    (tmp_path / "text.txt").write_text(text + "\n")
    tree = settings(tmp_path, train={"epochs": 1, "max_length": 16, "evaluate": "never"})
    about = {"kind": "corpus", "files": ["text.txt"], "root": str(tmp_path), "shard_size": 1000, "held_out": 0.2}
    tree["tasks"] = [about]
    return tree


PARTS = ["shards/00001.safetensors", "train/starts.npy", "train/lengths.npy", "meta.json", "manifest.json"]


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_R22_damage_in_a_prepared_corpus_is_made_again(tmp_path: Path, own_cache: Path, capfd: Any, how: str) -> None:
    tree = corpus(tmp_path)
    whole = run(tree, tmp_path / "whole")
    (folder,) = (own_cache / "corpora").iterdir()
    assert len(list((folder / "shards").iterdir())) == 2
    for number, name in enumerate(PARTS):
        untouched = (folder / "shards" / "00000.safetensors").stat().st_ino
        harm(folder / name, how)
        again = run(tree, tmp_path / f"again-{number}")
        assert f"{folder / name} is damaged" in capfd.readouterr().err, name
        assert equal(whole, again), name
        if name != "manifest.json":  # without it nobody knows which shard is sound
            assert (folder / "shards" / "00000.safetensors").stat().st_ino == untouched
    assert len(moved(own_cache / "corpora")) == len(PARTS)


def test_R22_of_a_very_large_corpus_each_shard_is_checked_when_it_is_read(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    tree = corpus(tmp_path)
    whole = run(tree, tmp_path / "whole")
    (folder,) = (own_cache / "corpora").iterdir()
    monkeypatch.setattr(cache, "LARGE", 1000)
    from encodery.data.corpus.blocks import open_shard

    open_shard.cache_clear()
    damaged = folder / "shards" / "00001.safetensors"
    harm(damaged, "flip")
    with pytest.raises(RunFailed, match=r"00001\.safetensors is damaged"):
        run(tree, tmp_path / "again")
    assert not damaged.exists()
    cache._listing.cache_clear()
    open_shard.cache_clear()
    assert equal(whole, run(tree, tmp_path / "again"))


def test_R22_a_prepared_folder_says_how_it_is_mended(tmp_path: Path, capfd: Any) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"w1 w2 w{i % 20 + 3} w4 w5" for i in range(40)) + "\n")
    settings(tmp_path)
    out = tmp_path / "prepared"
    words = ["prepare", "--tasks.kind", "corpus", "--tasks.files", str(text), "-o", str(out)]
    words += ["--model.tokenizer", str(tmp_path / "tokenizer"), "--train.max_length", "16"]
    assert main(words) == 0
    before = (out / "shards" / "00000.safetensors").read_bytes()
    harm(out / "shards" / "00000.safetensors", "flip")
    tree = settings(tmp_path, train={"epochs": 1, "max_length": 16})
    tree["tasks"] = [{"kind": "corpus", "prepared": str(out)}]
    with pytest.raises(UserError, match=r"00000\.safetensors is damaged: .*`encodery prepare`"):
        run(tree, tmp_path / "run")
    assert main(words) == 0
    assert (out / "shards" / "00000.safetensors").read_bytes() == before
    run(tree, tmp_path / "run")
