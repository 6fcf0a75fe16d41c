"""Folds for cross-validation: what belongs together stays in one fold, and every fold has its share of each label."""

import hashlib
from collections import Counter
from collections.abc import Sequence

from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks.base import Example, plain_texts

Strata = Sequence[tuple[str, ...]]  # of each row what should be spread evenly: its label, its labels, or nothing


def assign(examples: Sequence[Example], strata: Strata, count: int, seed: int) -> list[int]:
    """The fold of each row, from 0.

    Units (rows with one group, or with equal texts) are dealt out one after another, the largest and those with the
    rarest labels first, each to the fold that has the smallest share of its labels so far, then the fewest rows.
    """
    units = together(examples)
    if len(units) < count:
        raise UserError(f"{len(units)} groups of rows (equal groups or equal texts) are too few for {count} folds")
    total = Counter(name for names in strata for name in names)
    labels = [Counter(name for row in unit for name in strata[row]) for unit in units]

    def order(number: int) -> tuple[int, int, str]:
        rarest = min((total[name] for name in labels[number]), default=len(examples))
        return -len(units[number]), rarest, _draw(seed, examples[units[number][0]].id)

    have, rows, fold_of_row = [Counter[str]() for _ in range(count)], [0] * count, [0] * len(examples)
    for number in sorted(range(len(units)), key=order):
        wanted = labels[number]

        def share(fold: int, wanted: Counter[str] = wanted) -> tuple[float, int, int]:
            return sum(n * have[fold][name] / total[name] for name, n in wanted.items()), rows[fold], fold

        fold = min(range(count), key=share)
        have[fold] += wanted
        rows[fold] += len(units[number])
        for row in units[number]:
            fold_of_row[row] = fold
    return fold_of_row


def together(examples: Sequence[Example]) -> list[list[int]]:
    """Rows in units that no fold may cut: those with one group, those with equal texts, and what these connect."""
    parent = list(range(len(examples)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    first: dict[tuple[str, ...], int] = {}
    for row, example in enumerate(examples):
        texts = ("text", *plain_texts(example))
        keys = [texts] if example.group is None else [texts, ("group", example.group)]
        for key in keys:
            parent[root(row)] = root(first.setdefault(key, row))
    units: dict[int, list[int]] = {}
    for row in range(len(examples)):
        units.setdefault(root(row), []).append(row)
    return list(units.values())


def bins(values: Sequence[float], count: int) -> list[tuple[str, ...]]:
    """Numbers as strata: as many neighbours in a bin as there are folds."""
    order = sorted(range(len(values)), key=lambda row: values[row])
    rank = {row: place for place, row in enumerate(order)}
    return [(str(rank[row] // count),) for row in range(len(values))]


def require_enough(examples: Sequence[Example], strata: Strata, least: int, count: int) -> None:
    """Every label must be in enough units: else some fold is scored, or some model trained, without it."""
    rows, units = Counter(name for names in strata for name in names), Counter[str]()
    for unit in together(examples):
        units.update({name for row in unit for name in strata[row]})
    few = [name for name in sorted(rows) if units[name] < least]
    if few:
        shown = ", ".join(f"{name} ({counted(rows[name], 'row')}, {units[name]} groups)" for name in few[:5])
        raise UserError(
            f"{count} folds need each label in {least} groups of rows or more (rows with one group, or with equal "
            f"texts, are one); too few have: {shown}{', …' if len(few) > 5 else ''}. Use fewer folds, or merge or drop "
            "rare labels"
        )


def _draw(seed: int, key: str) -> str:
    """Looks random, from the seed and a name alone."""
    return hashlib.blake2b(f"{seed}:fold:{key}".encode(errors="surrogatepass"), digest_size=8).hexdigest()
