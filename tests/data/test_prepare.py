"""Preparing a corpus: the same bytes for any number of workers, and it goes on after whatever happened."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from encodery.data.corpus import shards
from encodery.data.corpus.blocks import BlockTable
from encodery.data.corpus.prepare import cached, corpus_table, loss_lines, prepare
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import RunFailed, Stopped, UserError
from encodery.models.tokenizer import toy_tokenizer
from encodery.tasks.corpus import Corpus
from encodery.tasks.toy_grammar.corpus import documents
from encodery.training.prepare import report_lines
from tests.toolbox.faults import in_child, kill_9, running, start_child


@pytest.fixture(scope="module")
def pieces() -> TokenizerPieces:
    return TokenizerPieces(toy_tokenizer())


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents(0, 120)))
    return path


def corpus(path: Path, **options) -> Corpus:
    return Corpus.model_validate({"files": str(path), "shard_size": 3000, "held_out": 0.1, **options})


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def tokens(table: BlockTable, row: int) -> list[int]:
    return table.ids[table.starts[row] : table.starts[row + 1]].tolist()


@pytest.mark.slow
def test_P21_the_bytes_do_not_depend_on_the_run(tmp_path, text, pieces):
    for name in "ab":
        prepare(tmp_path / name, corpus(text), pieces, 32, workers=1)
    assert content(tmp_path / "a") == content(tmp_path / "b")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"blocks": "full", "deduplicate": "both"}], ids=["electra", "full"])
def test_P21_the_bytes_do_not_depend_on_workers_or_runs(tmp_path, text, pieces, options):
    made = []
    for name, workers in (("a", 1), ("b", 1), ("c", 2), ("d", 3)):
        prepare(tmp_path / name, corpus(text, **options), pieces, 32, workers=workers)
        made.append(content(tmp_path / name))
    assert made[0] == made[1] == made[2] == made[3]
    assert len([name for name in made[0] if name.startswith("shards/")]) > 5


@pytest.mark.slow
def test_P20_no_example_has_tokens_of_two_documents(tmp_path, text, pieces):
    prepare(tmp_path / "out", corpus(text, keep_overflow=True), pieces, 24, workers=1)
    whole = [pieces.many(["\n".join(one.split("\n"))])[0] for one in documents(0, 120)]
    for split in ("train", "dev"):
        table = BlockTable(tmp_path / "out", split)
        found: dict[int, list[int]] = {}
        for row in range(len(table)):
            ids = [i for i in tokens(table, row) if i not in (2, 3)]
            found.setdefault(int(table.example[row]), []).extend(ids)
            assert table.lengths[row] <= 24
        assert {number: sorted(ids) for number, ids in found.items()} == {n: sorted(whole[n]) for n in found}


@pytest.mark.slow
def test_P22_the_report_counts_what_was_kept(tmp_path, text, pieces):
    faithful = prepare(tmp_path / "a", corpus(text, keep_overflow=False), pieces, 24, workers=1)["made"]["train"]
    keeping = prepare(tmp_path / "b", corpus(text, keep_overflow=True), pieces, 24, workers=1)["made"]["train"]
    assert faithful["text_tokens_kept"] < faithful["text_tokens_read"] == keeping["text_tokens_read"]
    assert keeping["text_tokens_kept"] == keeping["text_tokens_read"]


def test_P38_own_text_under_a_corpus_with_a_name_is_neither_cleaned_nor_cut(tmp_path, text, pieces):
    own, plain = corpus(text, part="wikipedia"), corpus(text)
    assert own.recipe() | {"part": "files"} == plain.recipe()
    report = prepare(tmp_path / "out", own, pieces, 24, workers=1)
    assert report["left_out"]["short_lines"] == 0
    for made in report["made"].values():
        assert made["text_tokens_kept"] == made["text_tokens_read"] > 0
    assert not list(loss_lines(report))
    itself = Corpus.model_validate({"part": "wikipedia"})  # as published
    assert (itself.shortest_line, itself.without_brackets, itself.keep_overflow) == (80, True, False)
    assert Corpus.model_validate({"part": "toy"}).keep_overflow is False


@pytest.mark.parametrize("deduplicate", ["no", "lines"])
def test_P38_every_loss_is_counted_and_printed(tmp_path, pieces, deduplicate):
    path = tmp_path / "one.txt"
    path.write_text("short ()\n" + "The old teacher () is here. " * 8 + "\nnot so long\n")
    options = {"min_line": 80, "drop_brackets": True, "keep_overflow": False, "deduplicate": deduplicate}
    report = prepare(tmp_path / "out", corpus(path, held_out=0, **options), pieces, 24, workers=1)
    left = report["left_out"]
    assert (left["short_lines"], left["short_characters"], left["bracket_characters"]) == (2, 5 + 11, 18)
    made = report["made"]["train"]
    assert made["text_tokens_kept"] == 22 < made["text_tokens_read"]
    lines = "\n".join(report_lines(report))
    assert "2 lines shorter than min_line were left out" in lines
    assert "() was removed 9 times" in lines
    assert f"{made['text_tokens_read'] - 22:,} tokens" in lines


def test_the_table_reads_across_shards(tmp_path, text, pieces):
    prepare(tmp_path / "out", corpus(text), pieces, 32, workers=1)
    table = BlockTable(tmp_path / "out", "train")
    whole = np.concatenate([shards.mapped(p)["train.ids"] for p in sorted((tmp_path / "out/shards").iterdir())])
    assert len(table.ids) == len(whole) == table.starts[-1] == table.meta["tokens"]
    assert (table.ids[:] == whole).all()
    places = np.array([[0, len(whole) - 1], [len(whole) // 2, 5]])
    assert (table.ids[places] == whole[places]).all()
    with pytest.raises(IndexError):
        table.ids[np.array([len(whole)])]
    assert np.diff(table.starts).tolist() == list(table.lengths)
    for row in range(0, len(table), 7):
        ids = tokens(table, row)
        types = table.types[table.starts[row] : table.starts[row + 1]].tolist()
        second = ids[: len(ids) - 1].index(3) + 1 if 3 in ids[:-1] else len(ids)
        assert types == [0] * second + [1] * (len(ids) - second)
    assert table.example_ids[0] == "document-0"
    assert len(table.example_ids) == 120


def test_tokens_are_those_of_the_tokenizer(tmp_path, pieces):
    path = tmp_path / "one.txt"
    path.write_text("The teacher is old.\n")
    prepare(tmp_path / "out", Corpus(files=str(path)), pieces, 32)
    table = BlockTable(tmp_path / "out", "train")
    assert tokens(table, 0) == pieces.tokenizer("The teacher is old.")["input_ids"]


def test_full_blocks_tell_their_texts(tmp_path, text, pieces):
    prepare(tmp_path / "out", corpus(text, blocks="full"), pieces, 48, workers=1)
    table = BlockTable(tmp_path / "out", "train")
    assert table.has_pieces
    texts = table.texts.of(np.arange(len(table)))
    begins, lengths = table.texts.starts[texts], table.texts.lengths[texts]
    assert lengths.sum() == len(table.ids)
    assert (begins[1:] == begins[:-1] + lengths[:-1]).all()
    assert (table.ids[begins] == pieces.tokenizer.cls_token_id).all()
    assert table.texts.starts[table.texts.of(np.array([3]))][0] == table.starts[3]


@pytest.mark.slow
def test_it_goes_on_at_the_missing_shard(tmp_path, text, pieces):
    whole, again = tmp_path / "whole", tmp_path / "again"
    prepare(whole, corpus(text), pieces, 32, workers=1)
    prepare(again, corpus(text), pieces, 32, workers=1)
    kept = again / "shards" / shards.name(1)
    before = kept.stat().st_mtime_ns
    for name in ("meta.json", f"shards/{shards.name(2)}", f"shards/{shards.name(5)}"):
        (again / name).unlink()
    said: list[int] = []
    prepare(again, corpus(text), pieces, 32, on_progress=lambda share, characters: said.append(characters), workers=1)
    assert content(again) == content(whole)
    assert kept.stat().st_mtime_ns == before
    assert sum(map(bool, said)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_R1_kill_9_in_preparation(tmp_path, pieces, workers):
    """Killed again and again at some moment, it ends with the same bytes; workers end with their parent."""
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents(0, 1500)))
    options = {"files": str(path), "shard_size": 3000, "held_out": 0.1, "deduplicate": "documents"}
    prepare(tmp_path / "whole", Corpus.model_validate(options), pieces, 32, workers=1)
    folder, kills = tmp_path / "killed", 0

    def work():
        prepare(folder, Corpus.model_validate(options), pieces, 32, workers=workers)

    for wanted in (1, 20, 60):
        child = start_child(work)
        while (alive := running(child)) and len(list(folder.glob("shards/*.safetensors"))) < wanted:
            time.sleep(0.005)
        if alive:
            kill_9(child)
            kills += 1
    assert kills >= 2
    assert in_child(work) == 0
    assert content(folder) == content(tmp_path / "whole")


@pytest.mark.slow
def test_a_signal_stops_after_the_shard(tmp_path, text, pieces):
    def on_progress(share, characters):
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        prepare(tmp_path / "out", corpus(text), pieces, 32, on_progress=on_progress, workers=1)
    assert len(list((tmp_path / "out/shards").iterdir())) == 1
    prepare(tmp_path / "out", corpus(text), pieces, 32, workers=1)
    prepare(tmp_path / "other", corpus(text), pieces, 32, workers=1)
    assert content(tmp_path / "out") == content(tmp_path / "other")


@pytest.mark.slow
def test_a_worker_that_dies_is_named(tmp_path, text, pieces, monkeypatch):
    from encodery.data.corpus import workers as corpus_workers

    real = corpus_workers._start

    def doomed(job):
        process = real(job)
        process.kill()
        return process

    monkeypatch.setattr(corpus_workers, "_start", doomed)
    with pytest.raises(RunFailed, match=r"a worker died while it made shard \d+"):
        prepare(tmp_path / "out", corpus(text), pieces, 32, workers=2)


def test_a_folder_goes_on_only_as_it_was_begun(tmp_path, text, pieces):
    prepare(tmp_path / "out", corpus(text), pieces, 32, workers=1)
    with pytest.raises(UserError, match="started with another max_length, seed"):
        prepare(tmp_path / "out", corpus(text, seed=1), pieces, 64)
    text.write_text("changed")
    with pytest.raises(UserError, match="started with another source"):
        prepare(tmp_path / "out", corpus(text), pieces, 32)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(UserError, match="holds other files"):
        prepare(tmp_path / "full", corpus(text), pieces, 32)


def test_prepared_folders_must_fit_the_run(tmp_path, text, pieces):
    prepare(tmp_path / "out", corpus(text), pieces, 32, workers=1)
    ready = Corpus(prepared=str(tmp_path / "out"))
    assert ready.splits() == ("train", "dev")
    assert ready.origin("train").rows == len(corpus_table(ready, "train", pieces, 32))
    with pytest.raises(UserError, match=r"set train\.max_length=32"):
        corpus_table(ready, "train", pieces, 64)
    other = toy_tokenizer()
    other.add_tokens(["something"])
    with pytest.raises(UserError, match="another tokenizer"):
        corpus_table(ready, "train", TokenizerPieces(other), 32)
    (tmp_path / "out" / "meta.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        Corpus(prepared=str(tmp_path / "out")).splits()
    with pytest.raises(UserError, match="holds no prepared corpus"):
        Corpus(prepared=str(tmp_path / "none")).splits()


@pytest.mark.slow
def test_the_cache_is_used_and_filled(text, pieces):
    one = corpus_table(corpus(text), "train", pieces, 40)
    before = (one.folder / "meta.json").stat().st_mtime_ns
    assert corpus_table(corpus(text), "dev", pieces, 40).folder == one.folder
    assert (one.folder / "meta.json").stat().st_mtime_ns == before
    assert cached(corpus(text, seed=5), pieces, 40) != one.folder


def test_a_damaged_shard_is_named(tmp_path, text, pieces):
    prepare(tmp_path / "out", corpus(text), pieces, 32, workers=1)
    path = tmp_path / "out/shards" / shards.name(1)
    path.write_bytes(path.read_bytes()[:-3])
    table = BlockTable(tmp_path / "out", "train")
    (tmp_path / "out" / "manifest.json").rename(tmp_path / "manifest.json")  # as of earlier versions
    with pytest.raises(UserError, match=r"00001\.safetensors: the shard is truncated"):
        table.ids[:]


def test_empty_files_and_empty_documents(tmp_path, pieces):
    (tmp_path / "a.txt").write_text("\n \n\n")
    with pytest.raises(UserError, match="no document"):
        prepare(tmp_path / "out", Corpus(files=str(tmp_path / "a.txt")), pieces, 32)
    rows = [{"text": ""}, {"text": " \n"}, {"text": "the teacher"}]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = prepare(tmp_path / "two", Corpus(files=str(tmp_path / "b.jsonl")), pieces, 32)
    assert report["left_out"]["empty_documents"] == 2
    assert report["made"]["train"]["blocks"] == 1
    assert len(BlockTable(tmp_path / "two", "dev")) == 0


def test_R11_bad_rows_refuse_or_are_kept_aside(tmp_path, pieces):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "the teacher"}\n{"text": 1}\n')
    with pytest.raises(UserError, match=r"a\.jsonl, line 2"):
        prepare(tmp_path / "out", Corpus(files=str(path)), pieces, 32)
    report = prepare(tmp_path / "two", Corpus(files=str(path), skip_bad_rows=True), pieces, 32)
    assert report["read"]["bad_rows"] == 1
    assert json.loads((tmp_path / "two/bad_rows.jsonl").read_text())["line"] == 2


@pytest.mark.slow(0.5)
def test_duplicates_are_left_out(tmp_path, pieces):
    path = tmp_path / "a.txt"
    path.write_text("same\nlines\n\nother\nlines\n\nsame\nlines\n\n" * 3)
    report = prepare(tmp_path / "d", Corpus(files=str(path), deduplicate="documents", shard_size=20), pieces, 32)
    assert report["left_out"]["duplicate_documents"] == 7
    assert report["made"]["train"]["documents"] == 2
    report = prepare(tmp_path / "l", Corpus(files=str(path), deduplicate="lines", shard_size=20), pieces, 32)
    assert report["left_out"]["duplicate_lines"] == 18 - 3
    assert report["left_out"]["empty_documents"] == 7


def test_benchmark_sentences_are_found(tmp_path, pieces):
    from encodery.tasks.toy import Toy

    example = next(e for e in Toy(part="nli").examples("dev") if len(e.texts[0].split()) > 8)
    marked = example.texts[0].upper().replace(" ", "  ")
    path = tmp_path / "a.txt"
    path.write_text(f"Something clean.\n\nBefore. {marked} After.\n\nClean too.\n")
    options = {"files": str(path), "decontaminate": ["toy/nli:dev"]}
    report = prepare(tmp_path / "out", Corpus.model_validate(options), pieces, 32)
    assert report["left_out"]["contaminated_documents"] == {"toy/nli:dev": 1}
    assert report["left_out"]["first_contaminated"][0]["document"] == 1
    assert report["made"]["train"]["documents"] == 2
    with pytest.raises(UserError, match="there is no task toy/nothing"):
        prepare(tmp_path / "x", Corpus(files=str(path), decontaminate=["toy/nothing"]), pieces, 32)


@pytest.mark.slow
def test_R8_a_second_command_on_the_folder_is_refused(tmp_path, text, pieces):
    """Another holder is another open file, so a second lock of this process stands for it."""
    from encodery.core.lock import RunLock

    folder = tmp_path / "out"
    folder.mkdir()
    with RunLock(folder), pytest.raises(UserError, match="is in use by process"):
        prepare(folder, corpus(text), pieces, 32, workers=1)
    prepare(folder, corpus(text), pieces, 32, workers=1)
