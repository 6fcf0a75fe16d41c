"""Long texts in windows: which pieces each one holds, and in which window a piece is seen with the most around it."""

from typing import NamedTuple


class Window(NamedTuple):
    """Pieces from `begin` to `end` of a text."""

    begin: int
    end: int


def windows(length: int, room: int, stride: int) -> list[Window]:
    """Windows of at most `room` pieces, each beginning `stride` after the one before; the last ends with the text."""
    room = max(room, 1)
    found: list[Window] = []
    begin = 0
    while True:
        end = min(begin + room, length)
        found.append(Window(begin, end))
        if end == length:
            return found
        begin += min(end - begin, stride)


def best_window(found: list[Window], length: int) -> list[int]:
    """For each piece the window with the largest min(left, right context) + 0.01 · window length; ties: the first."""
    best = [0] * length
    score = [float("-inf")] * length
    for number, (begin, end) in enumerate(found):
        for piece in range(begin, end):
            here = min(piece - begin, end - 1 - piece) + 0.01 * (end - begin)
            if here > score[piece]:
                best[piece], score[piece] = number, here
    return best
