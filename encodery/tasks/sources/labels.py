"""How labels are spelled: which are the same but for case and blanks, and what a config calls them."""

import re
from collections.abc import Mapping, Sequence

_ZEROS = re.compile(r"([+-]?\d+)\.0+")


def folded(label: str) -> str:
    """A label without what people do not mean by it: case, blanks around and between its words, and the .0 of 2.0."""
    plain = " ".join(label.split()).casefold()
    number = _ZEROS.fullmatch(plain)
    return number[1] if number else plain


def matched(label: str, legal: Sequence[str]) -> str | None:
    """The legal label that is meant: the same one, else the only one that differs in case or blanks alone."""
    if label in legal:
        return label
    same = [name for name in legal if folded(name) == folded(label)]
    return same[0] if len(same) == 1 else None


def alike(labels: Sequence[str]) -> list[list[str]]:
    """Labels that differ in case or blanks alone, each such group in the given order."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(folded(label), []).append(label)
    return [group for group in groups.values() if len(group) > 1]


def spelling_warning(task: str, labels: Sequence[str], rows: Mapping[str, int] | None = None) -> str | None:
    """A sentence if several labels are probably one; by `rows` of each label the commonest spelling is kept."""
    groups = alike(labels)
    if not groups:
        return None
    listed = "; ".join(", ".join(f'"{name}"' for name in group) for group in groups[:5])
    groups = [sorted(group, key=lambda name: -(rows or {}).get(name, 0)) for group in groups]
    first = {group[0] for group in groups}
    merged = [name for name in labels if name in first or not any(name in group for group in groups)]
    advice = f"labels: [{', '.join(merged)}]" if len(merged) <= 10 else f"labels: {{{groups[0][1]}: {groups[0][0]}, …}}"
    return (
        f"WARNING {task}: labels that differ in case or blanks only are classes of their own: {listed}; "
        f"to merge them give `{advice}` (on the command line: --tasks.labels '{advice.removeprefix('labels: ')}')"
    )


_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)


def may_be_thousands(text: str) -> bool:
    """`1,250` is 1250 or 1.25, by whoever wrote it."""
    return bool(_THOUSANDS.fullmatch(text.strip(" ")))


def has_decimal_comma(text: str) -> bool:
    """Whether it is a number such as `3,8`, and nothing else."""
    return bool(_COMMA.fullmatch(text.strip(" "))) and not may_be_thousands(text)
