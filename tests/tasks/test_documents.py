"""Documents of text files, jsonl and Parquet: every legal one arrives, a bad line is named by file and line."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from encodery.errors import UserError
from encodery.tasks.corpus import Corpus
from encodery.tasks.sources.documents import Document
from encodery.tasks.sources.readers import BadRow

ODD = ["a\u2028b", "naïve café", "日本語", "🙂 emoji", "tab\tin", "a \x00 b", 'stray " quote', "N/A", "a\rb"]


def texts(**options) -> list[str]:
    return [item.text for item in Corpus.model_validate(options).good()]


def test_blank_lines_end_documents(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\ntwo  \r\n\r\n \n\nthree\n\n\nfour".encode())
    assert texts(files=str(path)) == ["one\ntwo", "three", "four"]
    assert texts(files=str(path), format="document") == ["one\ntwo\nthree\nfour"]
    assert texts(files=str(path), documents=2) == ["one\ntwo", "three"]


def test_odd_characters_stay(tmp_path):
    (tmp_path / "a.txt").write_bytes("\n\n".join(ODD).encode())
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in ODD))
    assert texts(files=str(tmp_path / "a.txt")) == ODD
    assert texts(files=str(tmp_path / "b.jsonl")) == ODD


@pytest.mark.slow
@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r")), max_size=4)))
def test_lines_round_trip(tmp_path_factory, documents):
    path = tmp_path_factory.mktemp("t") / "x.txt"
    path.write_bytes("\n\n".join("\n".join(lines) for lines in documents).encode())
    stripped = [one for lines in documents for line in lines if (one := line.strip())]
    expected = [one.removeprefix("\ufeff").strip() if i == 0 else one for i, one in enumerate(stripped)]
    found = [line for text in texts(files=str(path)) for line in text.split("\n")]
    if not any(line.startswith("\ufeff") for lines in documents for line in lines):
        assert found == expected


def test_gz_parquet_folders_and_patterns(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "b.txt.gz").write_bytes(gzip.compress(b"zipped\n"))
    (folder / "a.txt").write_text("plain\n")
    pq.write_table(pa.table({"text": ["p1", "p2\nline"]}), folder / "c.parquet")
    assert texts(files=str(folder)) == ["plain", "zipped", "p1", "p2\nline"]
    assert texts(files="in/*.txt*", root=str(tmp_path)) == ["plain", "zipped"]
    assert texts(files=[str(folder / "c.parquet"), str(folder / "a.txt")]) == ["p1", "p2\nline", "plain"]


def test_the_share_behind_a_document_grows_to_one(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("word word\n\n" * 500)
    shares = [item.done for item in Corpus(files=str(tmp_path)).good()]
    assert shares == sorted(shares)
    assert 0.95 < shares[-1] <= 1


def test_R11_every_bad_line_is_named(tmp_path):
    lines = tmp_path / "a.txt"
    lines.write_bytes(b"good\nbad \xff here\nalso good\n")
    rows = tmp_path / "b.jsonl"
    rows.write_text('{"text": "fine"}\n{"text": 3}\n{broken\n{"other": "x"}\n{"text": "\\ud800"}\n')
    with pytest.raises(UserError) as caught:
        texts(files=[str(lines), str(rows)])
    message = str(caught.value)
    assert "5 bad rows" in message
    for place in (f"{lines}, line 2", *(f'{rows}, line {n}, column "text"' for n in (2, 4, 5)), f"{rows}, line 3"):
        assert place in message
    corpus = Corpus(files=[str(lines), str(rows)], skip_bad_rows=True)
    assert [item.text for item in corpus.good()] == ["good\nalso good", "fine"]
    assert [bad.line for bad in corpus.bad_rows("train")] == [2, 2, 3, 4, 5]
    assert all(isinstance(item, Document | BadRow) for item in corpus.read())


def test_parquet_names_the_row_and_the_missing_column(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a", None]}), path)
    with pytest.raises(UserError, match=r"x\.parquet, row 2"):
        texts(files=str(path))
    with pytest.raises(UserError, match='no column "body"; it has text'):
        texts(files=str(path), text="body")
    path.write_bytes(b"nonsense")
    with pytest.raises(UserError, match="not a readable Parquet"):
        texts(files=str(path))


def test_missing_files_and_unknown_endings(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.txt does not exist"):
        texts(files=str(tmp_path / "nowhere.txt"))
    (tmp_path / "x.doc").write_text("a")
    with pytest.raises(UserError, match="set format: lines"):
        texts(files=str(tmp_path / "x.doc"))
    (tmp_path / "y.txt").write_bytes("a".encode("utf-16"))
    with pytest.raises(UserError, match="UTF-16"):
        texts(files=str(tmp_path / "y.txt"))
    (tmp_path / "z.txt.gz").write_bytes(b"no gzip at all")
    with pytest.raises(UserError, match="cannot be read"):
        texts(files=str(tmp_path / "z.txt.gz"))


def test_options_that_contradict_each_other():
    for options in ({}, {"files": "a", "hub": "b"}, {"part": "toy", "files": "a"}, {"files": "a", "streaming": True}):
        with pytest.raises(ValidationError):
            Corpus.model_validate(options)


def test_wikipedia_drops_short_lines_and_empty_brackets(tmp_path):
    path = tmp_path / "w.txt"
    long = "A town () in the north " + "that is long enough to be a line of text that counts, as it should " * 2
    path.write_text(f"Title\n{long}\nshort\n")
    corpus = Corpus(part="wikipedia", files=str(path), min_line=80, drop_brackets=True)  # a dump, cleaned as the hub's
    (example,) = corpus.examples("train")
    assert example.texts == (long.replace("()", "").strip(),)
    assert corpus.name == "corpus/wikipedia"


def test_equal_documents_are_never_on_both_sides(tmp_path):
    path = tmp_path / "w.txt"
    path.write_text("\n\n".join(f"document {i % 50}" for i in range(200)))
    corpus = Corpus(files=str(path), held_out=0.3)
    train, dev = ({e.texts for e in corpus.examples(split)} for split in ("train", "dev"))
    assert train.isdisjoint(dev)
    assert len(train) + len(dev) == 50
    assert 5 <= len(dev) <= 25
    with pytest.raises(UserError, match="set held_out to have one"):
        Corpus(files=str(path)).examples("dev")


def test_the_hub_that_cannot_be_reached_is_one_sentence():
    with pytest.raises(UserError, match="put its files on this disk"):
        Corpus(part="wikipedia").origin("train")


class FakeSet(list):
    """What `datasets.load_dataset` gives, as far as it is used."""

    class info:
        splits = None


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [False, True])
def test_sets_of_the_hub_are_read_at_a_commit(monkeypatch, streaming):
    import datasets
    import huggingface_hub

    asked = []

    def load_dataset(*names, **options):
        asked.append((names, options))
        return FakeSet([{"text": "one\ntwo"}, {"text": None}, {"text": "three"}])

    class Api:
        def dataset_info(self, repository, revision=None, timeout=None):
            return type("Info", (), {"sha": f"commit-of-{revision}"})()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    options = {"hub": "owner/name", "hub_config": "en", "revision": "v1", "streaming": streaming}
    corpus = Corpus.model_validate({**options, "skip_bad_rows": True})
    assert [item.text for item in corpus.good()] == ["one\ntwo", "three"]
    expected = {"split": "train", "revision": "commit-of-v1", "streaming": streaming}
    assert asked == [(("owner/name", "en"), expected)]
    assert corpus.origin("train").revision == "commit-of-v1"
    with pytest.raises(UserError, match=r"hub:owner/name/en:train, row 2"):
        list(Corpus.model_validate(options).good())
    with pytest.raises(UserError, match='no column "body"; it has text'):
        list(Corpus.model_validate({**options, "text": "body"}).good())


def test_a_download_that_breaks_is_one_sentence(monkeypatch):
    import datasets

    from encodery.tasks.sources.documents import from_hub

    def broken(*names, **options):
        raise ConnectionError("gone\nwith details")

    monkeypatch.setattr(datasets, "load_dataset", broken)
    with pytest.raises(UserError, match=r"the hub could not provide it \(ConnectionError: gone\)"):
        list(from_hub("a/b", None, "train", "c", "text", stream=True))
