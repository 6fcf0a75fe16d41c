"""Rows with several candidates of which one is right: which one a row names, and what tells such a file from others."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, TypeGuard

from encodery.tasks.sources.readers import Bad, shown

Rows = Sequence[Mapping[str, Any]]
MOST = 0.9  # of the rows must name a candidate: one that does not is a bad row of a ranking, not another kind of file
LOOKED_AT = 1000  # rows whose texts are compared
WORDS = 4  # of the mean candidate that is a sentence


def right_one(value: Any, texts: list[str], column: str, letters: bool = True) -> str | None:
    """The right candidate's number as text, named by its text, its number from 0 or its letter; None where hidden."""
    if value is None:
        return None
    if isinstance(value, list):
        if len(value) == len(texts) and sorted(map(str, value)) == ["0"] * (len(texts) - 1) + ["1"]:
            return str([str(one) for one in value].index("1"))
    elif isinstance(value, str) and texts.count(value) == 1:
        return str(texts.index(value))
    elif letters and isinstance(value, str) and value.strip().upper() in [*ascii_uppercase[: len(texts)]]:
        return str(ascii_uppercase.index(value.strip().upper()))
    elif not isinstance(value, bool) and str(value).isdecimal() and int(value) < len(texts):
        return str(int(value))
    raise Bad(f"{shown(value)} does not name one of the {len(texts)} candidates", column)


def are_candidates(texts: Any) -> TypeGuard[list[str]]:
    """Two texts or more."""
    return isinstance(texts, list) and len(texts) > 1 and all(isinstance(text, str) for text in texts)


def names_one(rows: Rows, candidates: str, label: str, letters: bool = False) -> float:
    """The share of rows whose label names one of their candidates; `letters` may be classes such as grades."""
    return sum(_named(row.get(candidates), row.get(label), label, letters) for row in rows) / max(1, len(rows))


def _named(texts: Any, value: Any, label: str, letters: bool) -> bool:
    try:
        return are_candidates(texts) and right_one(value, texts, label, letters) is not None
    except Bad:
        return False


def look_like_candidates(rows: Rows, column: str) -> bool:
    """Whether the texts of such lists are answers rather than key words or tags: new ones in most rows, and as many
    everywhere or whole sentences."""
    lists = [row[column] for row in rows[:LOOKED_AT] if are_candidates(row.get(column))]
    texts = [text for one in lists for text in one]
    new = len(set(texts)) > len(texts) / 2
    return new and (len({len(one) for one in lists}) == 1 or sum(len(t.split()) for t in texts) >= WORDS * len(texts))


def are_pieces(rows: Rows, column: str) -> bool:
    """Whether the lists are the words of another column's text."""
    some = [row for row in rows[:LOOKED_AT] if are_candidates(row.get(column))]
    return bool(some) and all(_joined(row[column]) in {_joined([v]) for v in row.values()} for row in some)


def _joined(parts: Sequence[Any]) -> str:
    return "".join("".join(map(str, parts)).split()).casefold()
