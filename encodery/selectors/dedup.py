"""Near-duplicates: of rows that nearly say the same only one is kept (MinHash over word shingles, Broder 1997).

score = similarity to the row that is kept instead, or to the row of the other split; 0: nothing is like it
"""

from collections import defaultdict

import numpy as np
from pydantic import Field

from encodery.core.near_duplicates import pairs
from encodery.selectors.base import Numbers, Pool, Ranked, Selector


class Dedup(Selector):
    """Removes near-duplicates; the order is random."""

    threshold: float = Field(default=0.8, gt=0, le=1)
    """Minimum Jaccard similarity of word shingles for two rows to be duplicates. In text pairs, both texts must reach
    it. 1: the same words."""
    words: int = Field(default=2, ge=1)
    """Words per shingle. The larger it is, the more a single changed word lowers the similarity."""
    against: str | None = None
    """A split of the same task, such as dev. Rows that duplicate one of its rows are left out too."""
    drop: bool = True
    """Leave out duplicates. false: put them last."""

    def __call__(self, pool: Pool, count: int) -> Ranked:
        """The rows that are kept, or all of them with repeated ones at the end."""
        texts = [example.texts for example in pool.examples]
        scores, notes = np.zeros(len(pool)), []
        leaked: set[int] = set()
        if self.against is not None:
            for place, _, alike in pairs(texts, self._others(pool), self.threshold, self.words):
                scores[place] = max(scores[place], alike)
                leaked.add(place)
            leaked |= self._copies(pool, leaked, scores)
            notes.append(f"{len(leaked):,} of {len(pool):,} rows resemble a row of {self.against}")
        kept_for = one_of_each(self._pairs(pool), np.argsort(pool.draws, kind="stable"), leaked)
        for place, (_, alike) in kept_for.items():
            scores[place] = max(scores[place], alike)
        labels = [example.label for example in pool.examples]
        unequal = sum(labels[place] != labels[kept] for place, (kept, _) in kept_for.items())
        notes.append(f"{len(kept_for):,} of {len(pool):,} rows repeat another one, {unequal:,} with another label")
        gone = np.array([place in leaked or place in kept_for for place in range(len(pool))], bool)
        order = pool.sorted(gone.astype(float), highest=False)
        return Ranked(order[~gone[order]] if self.drop else order, scores, notes=tuple(notes))

    def _pairs(self, pool: Pool) -> list[tuple[int, int, float]]:
        key = "pairs", self.threshold, self.words
        if key not in pool.kept:
            pool.kept[key] = pairs([example.texts for example in pool.examples], None, self.threshold, self.words)
        found: list[tuple[int, int, float]] = pool.kept[key]
        return found

    def _others(self, pool: Pool) -> list[tuple[str, ...]]:
        return [example.texts for example in pool.split(str(self.against))]

    def _copies(self, pool: Pool, leaked: set[int], scores: Numbers) -> set[int]:
        """Of equal rows only the first is compared with the other split; the rest are like it too."""
        found = {b: a for a, b, alike in self._pairs(pool) if alike == 1 and a in leaked}
        for place, first in found.items():
            scores[place] = scores[first]
        return set(found)


def one_of_each(
    alike_pairs: list[tuple[int, int, float]], order: Numbers, gone: set[int] | frozenset[int] = frozenset()
) -> dict[int, tuple[int, float]]:
    """Rows that are like a row that is kept: row → (that row, similarity). Rows are kept in the given order.

    Equal rows count as one. A row is dropped only for one that is kept and as like it as the pair says, so a chain of
    rows, each like the next, does not vanish behind its first.
    """
    first = {b: a for a, b, alike in alike_pairs if alike == 1}  # of equal rows
    near: dict[int, dict[int, float]] = defaultdict(dict)
    for a, b, alike in alike_pairs:
        if alike < 1:
            near[a][b] = near[b][a] = alike
    kept: dict[int, int] = {}  # class of equal rows → the row that is kept of it
    dropped: dict[int, tuple[int, float]] = {}
    for row in order.tolist():
        if row in gone:
            continue
        own = first.get(row, row)
        if own in kept:
            dropped[row] = kept[own], 1.0
            continue
        known = [(similarity, kept[other]) for other, similarity in near[own].items() if other in kept]
        if known:
            similarity, instead = max(known)
            dropped[row] = instead, similarity
        else:
            kept[own] = row
    return dropped
