"""Files elsewhere: fetched once per version, copied whole, DONE last; with fsspec's local and memory file systems."""

from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from encodery.cli import main
from encodery.core import remote_files
from encodery.errors import RunFailed, UserError
from encodery.tasks.corpus import Corpus


@pytest.fixture
def memory() -> fsspec.AbstractFileSystem:
    system = fsspec.filesystem("memory")
    system.store.clear()
    return system


def texts(corpus: Corpus) -> list[str]:
    return [document.text for document in corpus.good()]


def test_a_corpus_of_addresses_is_the_same_as_its_files(
    tmp_path: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENCODERY_CACHE", str(tmp_path / "cache"))
    for name, text in {"b.txt": "three\n", "a.txt": "one\n\ntwo\n", "c.jsonl": '{"text": "four"}\n'}.items():
        (tmp_path / name).write_text(text)
        memory.pipe(f"/corpus/{name}", text.encode())
    here = Corpus.model_validate({"files": [str(tmp_path / "*.txt"), str(tmp_path / "c.jsonl")]})
    for begin in ("memory://corpus", f"file://{tmp_path}"):
        there = Corpus.model_validate({"files": [f"{begin}/*.txt", f"{begin}/c.jsonl"]})
        assert texts(there) == texts(here) == ["one", "two", "three", "four"]
        assert there.source() == here.source()
    fetched = {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.txt")}
    assert len(fetched) == 4
    texts(there)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.txt")} == fetched  # not again
    memory.pipe("/corpus/a.txt", b"one\n\nanother\n")  # a new version is another file
    assert "another" in texts(Corpus.model_validate({"files": "memory://corpus/a.txt"}))


def test_what_is_wrong_with_an_address_is_said(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"memory://nothing/.* does not exist or holds no file"):
        remote_files.fetched(["memory://nothing/*.txt"], tmp_path)
    with pytest.raises(UserError, match="nosuch"):
        remote_files.check("nosuch://bucket/x")
    with pytest.raises(UserError, match="not an address"):
        remote_files.check("runs/x")
    assert not remote_files.is_remote("C:\\text")
    assert remote_files.is_remote("hf://datasets/a/b.parquet")


def test_a_finished_run_is_copied_with_its_mark_last(
    tmp_path: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DONE", "model/w.bin", "checkpoints/step-1/x", ".lock", "zzz.json"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text(name)
    order: list[str] = []
    put = memory.put_file
    monkeypatch.setattr(type(memory), "put_file", lambda self, a, b, **k: (order.append(b), put(a, b, **k)))
    assert remote_files.put(tmp_path / "run", "memory://away/run", ["checkpoints"]) == 3
    assert order == ["/away/run/model/w.bin", "/away/run/zzz.json", "/away/run/DONE"]
    assert memory.cat("/away/run/model/w.bin") == b"model/w.bin"
    monkeypatch.setattr(type(memory), "put_file", lambda self, a, b, **k: self.pipe(b, b"short"))
    with pytest.raises(RunFailed, match="not as long as"):
        remote_files.put(tmp_path / "run", "memory://other/run")


@pytest.mark.slow
def test_train_and_export_copy_what_they_made(
    tmp_path: Path, memory: fsspec.AbstractFileSystem, trained, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("single")
    assert main(["train", str(run / "config.yaml"), "-o", str(run), "--copy-to", "memory://runs/one", "--quiet"]) == 0
    assert memory.exists("/runs/one/DONE")
    assert memory.size("/runs/one/model/model.safetensors") == (run / "model/model.safetensors").stat().st_size
    assert main(["export", str(run), "memory://models/one"]) == 0
    assert "memory://models/one: the model; opens with transformers" in capsys.readouterr().out
    assert memory.exists("/models/one/config.json")


def test_an_older_mark_goes_before_a_new_copy_begins(
    tmp_path: Path, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DONE", "model.bin", "seed-1/DONE"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text(name)
    assert remote_files.put(tmp_path / "run", "memory://away/run") == 3
    put = memory.put_file

    def broken(self: fsspec.AbstractFileSystem, here: str, there: str, **options: object) -> None:
        if there.endswith("seed-1/DONE"):
            raise ConnectionError("cut off")
        put(here, there, **options)

    monkeypatch.setattr(type(memory), "put_file", broken)
    with pytest.raises(RunFailed, match=r"memory://away/run: ConnectionError: cut off; run the same command again"):
        remote_files.put(tmp_path / "run", "memory://away/run")
    assert not memory.exists("/away/run/DONE")
    assert memory.exists("/away/run/model.bin")


@pytest.mark.parametrize(
    "words", [["train", "recipe:toy/nli"], ["prepare", "x.yaml"], ["embed", "runs/x", "--on=toy/nli:train"]]
)
def test_results_are_not_written_to_an_address(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "-o", "s3://bucket/run"]) == 2
    assert "-o s3://bucket/run: results are written to a local or shared disk" in capsys.readouterr().err
    assert not Path("s3:").exists()


class Bucketed(MemoryFileSystem):
    """As object stores: paths begin with a bucket, and `makedirs` would make one."""

    protocol = "s3"
    cachable = False

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        raise AssertionError("a bucket is made unasked")

    def put_file(self, here: str, there: str, **_: object) -> None:
        self.pipe_file(there, Path(here).read_bytes())


def test_a_bucket_is_not_made_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "w.bin").write_text("w")
    system = Bucketed()
    monkeypatch.setattr(system, "store", {})
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda address: (system, address.removeprefix("s3://")))
    with pytest.raises(UserError, match="there is no bucket none; create it first"):
        remote_files.check("s3://none/model")
    assert remote_files.put(tmp_path / "model", "s3://none/model") == 1
    remote_files.check("s3://none/model")  # now it is there
    monkeypatch.setattr(system, "info", lambda path: (_ for _ in ()).throw(PermissionError(path)))
    remote_files.check("s3://none/model")  # who may write need not be allowed to look
