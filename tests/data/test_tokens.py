"""Token tables: what was put in comes out, once built they are reused, and everything that made them is in the name."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodery.data import token_table as data_token_table
from encodery.data.token_table import token_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.tasks.base import Example, Features
from encodery.tasks.table import Table
from tests.toolbox.tasks import write_rows
from tests.toolbox.tokenizers import save_tokenizer, word_tokenizer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENCODERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def task(tmp_path: Path) -> Table:
    write_rows(tmp_path / "train.csv", 20, 1)
    write_rows(tmp_path / "dev.csv", 8, 2)
    return Table(train="train.csv", dev="dev.csv", root=str(tmp_path))


def pieces() -> TokenizerPieces:
    return TokenizerPieces(word_tokenizer())


def test_what_was_put_in_comes_out(task: Table) -> None:
    table, rows = token_table(task, "train", pieces(), 6), task.examples("train")
    assert len(table) == len(rows) == table.meta["rows"] == table.meta["examples"]
    expected = list(task.encode(rows, pieces(), 6))
    for i, features in enumerate(expected):
        part = slice(table.starts[i], table.starts[i + 1])
        assert table.ids[part].tolist() == list(features.ids)
        assert table.types[part].tolist() == list(features.types)
        assert table.targets["label"][i] == features.targets["label"]
        assert table.example[i] == i
    assert table.lengths.tolist() == [len(f.ids) for f in expected]
    assert table.example_ids == [row.id for row in rows]
    assert table.meta["longest"] == 6
    assert table.meta["full"] == sum(len(f.ids) == 6 for f in expected)
    assert table.meta["tokens"] == len(table.ids)


def test_chunks_do_not_show(task: Table, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    whole = token_table(task, "train", pieces(), 16)
    ids, examples = np.array(whole.ids), np.array(whole.example)
    monkeypatch.setenv("ENCODERY_CACHE", str(cache / "other"))
    monkeypatch.setattr(data_token_table, "CHUNK", 3)
    again = token_table(task, "train", pieces(), 16)
    assert again.folder != whole.folder
    assert np.array_equal(again.ids, ids)
    assert np.array_equal(again.example, examples)


def test_arrays_are_mapped_not_read(task: Table) -> None:
    table = token_table(task, "train", pieces(), 16)
    for array in (table.ids, table.types, table.starts, table.example, table.targets["label"]):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def test_a_table_is_built_once(task: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first = token_table(task, "train", pieces(), 16)
    monkeypatch.setattr(data_token_table, "_build", lambda *_: pytest.fail("built again"))
    assert token_table(task, "train", pieces(), 16).folder == first.folder


def test_every_input_is_in_the_name(task: Table, tmp_path: Path) -> None:
    names = [token_table(task, "train", pieces(), 16).folder.name]
    names.append(token_table(task, "dev", pieces(), 16).folder.name)
    names.append(token_table(task, "train", pieces(), 17).folder.name)
    other = word_tokenizer()
    other.add_tokens(["w16w17"])
    names.append(token_table(task, "train", TokenizerPieces(other), 16).folder.name)
    relabelled = Table(train="train.csv", dev="dev.csv", root=str(tmp_path), labels=["good", "bad"])
    names.append(token_table(relabelled, "train", pieces(), 16).folder.name)
    rows = list(task.examples("train"))
    names.append(token_table(task, "train", pieces(), 16, rows[1:]).folder.name)
    names.append(token_table(task, "train", pieces(), 16, rows[::-1]).folder.name)
    swapped = [Example(r.id, r.texts, "good" if r.label == "bad" else "bad") for r in rows]
    names.append(token_table(task, "train", pieces(), 16, swapped).folder.name)
    assert len(set(names)) == len(names)


def test_a_split_without_rows_has_an_empty_table(task: Table) -> None:
    table = token_table(task, "dev", pieces(), 16, [])
    assert len(table) == 0
    assert len(table.ids) == len(table.lengths) == 0


def test_a_table_torn_by_a_kill_is_not_used(task: Table, cache: Path) -> None:
    table = token_table(task, "train", pieces(), 16)
    name = table.folder.name
    torn = cache / "tokens" / f".{name}.tmp"
    table.folder.rename(torn)
    (torn / "meta.json").unlink()
    assert len(token_table(task, "train", pieces(), 16)) == 20


class Broken(Table):
    """Fails in the middle."""

    def encode(self, examples: Sequence[Example], pieces: Any, max_length: int) -> Iterator[Features]:
        yield from list(super().encode(examples, pieces, max_length))[:3]
        raise ValueError("in the middle")


def test_a_failed_build_leaves_nothing(task: Table, tmp_path: Path, cache: Path) -> None:
    broken = Broken(train="train.csv", root=str(tmp_path))
    with pytest.raises(ValueError, match="in the middle"):
        token_table(broken, "train", pieces(), 16)
    assert list((cache / "tokens").iterdir()) == []


class Silent(Table):
    """Gives a sequence without a token."""

    def encode(self, examples: Sequence[Example], pieces: Any, max_length: int) -> Iterator[Features]:
        yield Features(0, [], [], {"label": 0})


def test_a_sequence_without_tokens_is_refused(tmp_path: Path, task: Table) -> None:
    with pytest.raises(UserError, match=r"example 0 .*no tokens"):
        token_table(Silent(train="train.csv", root=str(tmp_path)), "train", pieces(), 16)


BUILD = """
import sys
from pathlib import Path
from encodery.tasks.table import Table
from encodery.data.tokenizer import TokenizerPieces
from encodery.data.token_table import token_table
from transformers import PreTrainedTokenizerFast
task = Table(train="train.csv", root={folder!r})
pieces = TokenizerPieces(PreTrainedTokenizerFast(tokenizer_file={tokenizer!r}))
task.examples("train"), pieces.digest
print("ready", flush=True)
sys.stdin.readline()
print(token_table(task, "train", pieces, 16).folder)
"""


@pytest.mark.slow
def test_two_processes_may_build_the_same_table(tmp_path: Path, cache: Path) -> None:
    write_rows(tmp_path / "train.csv", 3000, 1)
    tokenizer = str(save_tokenizer(tmp_path / "tokenizer") / "tokenizer.json")
    code = BUILD.format(folder=str(tmp_path), tokenizer=tokenizer)
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for one in both:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
    for one in both:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    said = {one.communicate(timeout=60)[0].strip() for one in both}
    assert [one.returncode for one in both] == [0, 0]
    assert len(said) == 1
    assert [p.name for p in (cache / "tokens").iterdir()] == [Path(said.pop()).name]


def test_a_second_builder_that_comes_late_takes_the_first_ones_table(
    task: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = token_table(task, "train", pieces(), 16)
    before = (first.folder / "meta.json").stat().st_mtime_ns
    data_token_table._build(first.folder, task, task.examples("train"), pieces(), 16)
    assert (first.folder / "meta.json").stat().st_mtime_ns == before
    assert json.loads((first.folder / "meta.json").read_text())["rows"] == 20
    assert len(list(first.folder.parent.iterdir())) == 1
