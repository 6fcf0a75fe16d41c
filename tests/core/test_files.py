"""Files are whole or not there, whatever happens to the writer."""

import errno
import hashlib
import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.core import files
from encodery.errors import RunFailed, UserError
from tests.toolbox.faults import at_call, dies_at, disk_full, fail_with


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_R2_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, seen = tmp_path / "a.json", set()
    for number in itertools.count():
        files.write_atomic(path, "old")
        died = dies_at(number, lambda: files.write_atomic(path, b"new"))
        seen.add(path.read_text())
        assert seen <= {"old", "new"}
        files.remove_leftovers(tmp_path)
        assert hidden(tmp_path) == []
        if not died:
            break
    assert number >= 5
    assert seen == {"old", "new"}


def test_R5_failed_write_says_why_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_atomic(path, "old")
    with pytest.raises(RunFailed, match=r"a\.json.*No space left.*MB free.*free some space"), at_call(0, disk_full):
        files.write_atomic(path, "new")
    assert (path.read_text(), hidden(tmp_path)) == ("old", [])
    with pytest.raises(RunFailed, match="Input/output error"), at_call(1, fail_with(errno.EIO)):
        files.write_atomic(path, "new")


def test_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for content in ("first", "second"):
        with files.atomic_folder(tmp_path / "model") as folder:
            (folder / "below").mkdir()
            (folder / "below" / content).write_text(content)
    assert [path.name for path in (tmp_path / "model" / "below").iterdir()] == ["second"]
    with pytest.raises(ZeroDivisionError), files.atomic_folder(tmp_path / "model"):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["model"]


def test_leftovers_of_the_living_stay(tmp_path: Path) -> None:
    mine = files.hidden_sibling(tmp_path / "a")
    mine.mkdir()
    pid, mark = mine.name.split("-")[1:3]
    reused = tmp_path / mine.name.replace(mark, "0" * 8)  # the same number, another process
    reused.touch()
    files.remove_leftovers(tmp_path)
    assert hidden(tmp_path) == [mine.name]
    assert pid == str(os.getpid())


def test_torn_line_is_ended_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    files.append_line(path, "one")
    path.write_text(path.read_text() + "tw")
    files.append_line(path, "three")
    assert path.read_text() == "one\ntw\nthree\n"


def test_R5_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.txt"
    files.append_line(path, "one")
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:2]))
    with pytest.raises(RunFailed, match="No space left"):
        files.append_line(path, "two")
    assert path.read_text() == "one\n"


def test_json_is_valid_for_every_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"nan": float("nan"), "all": [float("inf"), (1.5,)], "text": "\u2028é\ud800"})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(path.read_bytes(), parse_constant=refuse)["all"] == [None, [1.5]]
    assert path.read_bytes().isascii()
    assert files.read_json(path)["text"] == "\u2028é\ud800"


@pytest.mark.parametrize("content", [b"", b'{"a":', b"\xff\xfe", b"{} {}"])
def test_damaged_json_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        files.read_json(path)
    with pytest.raises(UserError, match=r"none\.json does not exist"):
        files.read_json(tmp_path / "none.json")


def test_digest_of_a_tree_sees_names_and_bytes_and_follows_links(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "a").write_text("x")
    (one / "b").write_text("y")
    (tmp_path / "blob").write_text("y")
    (two / "b").symlink_to(tmp_path / "blob")
    (two / "sub" / "loop").symlink_to(two)
    (two / ".git").mkdir()
    assert files.digest_tree(one) == files.digest_tree(two)
    (tmp_path / "blob").write_text("z")
    assert files.digest_tree(one) != files.digest_tree(two)
    (one / "b").rename(one / "c")
    assert len({files.digest_tree(one), files.digest_tree(two), files.digest_tree(one / "c")}) == 3


@given(before=st.binary(), tail=st.binary())
def test_cut_leaves_whole_lines_only(tmp_path_factory: pytest.TempPathFactory, before: bytes, tail: bytes) -> None:
    path = tmp_path_factory.mktemp("cut") / "lines"
    path.write_bytes(before + b"\n" + tail)
    files.cut_torn_line(path)
    assert path.read_bytes() == (before + b"\n" + tail)[: (before + b"\n" + tail).rfind(b"\n") + 1]


def test_digests_of_data_never_change() -> None:
    """Names of folders and identities of runs on people's disks depend on them."""
    by_hand = hashlib.sha256(b'{"a": [1.5, "\\u00e9", null], "b": {"c": true}}').hexdigest()
    assert files.digest({"b": {"c": True}, "a": [1.5, "é", None]}) == by_hand
    assert files.digest_text("é") == hashlib.sha256("é".encode()).hexdigest()


def test_rows_for_people_keep_their_letters_and_one_line():
    text = files.readable_json({"größe": "süß \u2028 \ud83d \x85 \n", "score": float("nan")})
    assert text.startswith('{"größe": "süß ')
    assert len(text.splitlines()) == 1
    assert json.loads(text.encode()) == {"größe": "süß \u2028 \ud83d \x85 \n", "score": None}
