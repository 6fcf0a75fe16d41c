"""Memory between processes: seen by those that find it, refused where there is none."""

from pathlib import Path

import pytest

from encodery import board


def test_what_one_writes_another_reads_and_nothing_else_is_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "PLACE", str(tmp_path))
    path = board.create(4096)
    assert path is not None
    assert Path(path).stat().st_mode & 0o777 == 0o600
    ours, theirs = board.show(path, 4096), board.show(path, 4096)
    assert ours is not None
    assert theirs is not None
    ours[7:9] = b"ab"
    assert theirs[7:9] == b"ab"
    assert board.show(path, 8192) is None  # another file of that name
    Path(path).unlink()
    assert board.show(path, 4096) is None  # another machine
    assert theirs[7:9] == b"ab"


def test_no_room_is_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "PLACE", str(tmp_path))
    assert board.create(1 << 60) is None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(board, "PLACE", str(tmp_path / "none"))
    assert (board.create(64), board.show(None, 64)) == (None, None)
