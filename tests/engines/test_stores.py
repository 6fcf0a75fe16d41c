"""Emulators of S3 and GS: corpora, prepared blocks, copies of runs, exports, uploads that break off."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from encodery.cli import main
from tests.engines import store_servers
from tests.engines.conftest import skip_without
from tests.engines.store_servers import BUCKET, Store
from tests.engines.test_slurm import content

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module", params=["s3", "gs"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    skip_without(request.param, store_servers.missing(request.param))
    with Store(request.param) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.variables().items():
            patch.setenv(name, value)
        server.system().mkdir(BUCKET)
        if server.kind == "gs":  # its client's pauses between attempts add up to half a minute
            patch.setattr("gcsfs.retry.min", lambda *_: 0.05, raising=False)
        yield server


def encodery(store: Store, *words: object) -> int:
    """A command whose client has not seen the store yet, as in a new process."""
    type(store.system()).clear_instance_cache()
    return main([str(word) for word in words])


def files_of(run: Path) -> dict[str, bytes]:
    """What a copy of a run holds."""
    found = {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if not name.startswith((".", "checkpoints"))}


def test_a_corpus_in_a_bucket_gives_the_blocks_of_its_files(store: Store, tmp_path: Path, trained) -> None:
    texts = {f"{name}.txt": f"{name} is a word.\n\nSo is {name * 2}.\n" * 40 for name in ("one", "two", "three")}
    (tmp_path / "text").mkdir()
    for name, text in texts.items():
        (tmp_path / "text" / name).write_text(text)
        store.system().pipe(f"{BUCKET}/text/{name}", text.encode())
    model = {"new": {"kind": "electra"}, "tokenizer": str(trained("single") / "model")}
    places = {"here": f"{tmp_path}/text/*.txt", "there": f"{store.kind}://{BUCKET}/text/*.txt"}
    for name, files in places.items():
        tasks = {"name": "corpus", "files": [files], "shard_size": 2000}
        (tmp_path / f"{name}.yaml").write_text(
            yaml.safe_dump({"model": model, "tasks": tasks, "train": {"max_length": 32}})
        )
        assert encodery(store, "prepare", tmp_path / f"{name}.yaml", "-o", tmp_path / name) == 0
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert encodery(store, "prepare", tmp_path / "there.yaml", "-o", f"{store.kind}://{BUCKET}/blocks") == 2
    assert not store.content("blocks")


def test_a_run_whose_copy_broke_off_is_copied_by_the_same_command(store: Store, trained, capsys) -> None:
    run = trained("single")
    words = ["train", run / "config.yaml", "-o", run, "--quiet", "--copy-to", f"{store.kind}://{BUCKET}/runs/one"]
    assert encodery(store, *words) == 0
    assert store.content("runs/one") == files_of(run)
    store.cable.cut_after(4)
    assert encodery(store, *words) == 1
    store.cable.cut_after(float("inf"))
    said = capsys.readouterr().err
    assert f"{store.kind}://{BUCKET}/runs/one" in said
    assert "run the same command again" in said
    assert "bug" not in said
    assert "DONE" not in store.content("runs/one")  # nobody takes it for whole
    assert encodery(store, *words) == 0
    assert store.content("runs/one") == files_of(run)


def test_an_export_is_whole_and_creates_no_bucket(store: Store, trained, tmp_path: Path, capsys) -> None:
    run = trained("single")
    assert encodery(store, "export", run, tmp_path / "model") == 0
    assert encodery(store, "export", run, f"{store.kind}://{BUCKET}/model") == 0
    assert store.content("model") == files_of(tmp_path / "model")
    for words in (["export", run], ["train", run / "config.yaml", "-o", run, "--copy-to"]):
        assert encodery(store, *words, f"{store.kind}://nobodys/model") == 2
        assert "there is no bucket nobodys; create it first" in capsys.readouterr().err
    assert store.buckets() == {BUCKET}
