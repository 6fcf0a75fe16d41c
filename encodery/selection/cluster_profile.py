"""What one cluster has that the rest of the pool has not: labels, words, columns, shared texts, difficulty."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from encodery.report import stats
from encodery.selectors.base import Numbers, Pool

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
WORDS = 12  # typical words of a cluster
PRIOR = 1000.0  # words that the pool's own frequencies count as
SURE = 1.96  # least z of a typical word
RAREST = 2  # a word that is in a cluster less often is typical of nothing


def label_mix(counts: Mapping[str, int], pool: Mapping[str, int]) -> dict[str, Any]:
    """Each label's share against the pool's: lift, z of the hypergeometric count; χ² of the whole mix, and its p.

    Members are drawn without replacement from the pool, so variances have the factor (N − n) / (N − 1).
    """
    rows, total = sum(counts.values()), sum(pool.values())
    if not rows or rows == total or len(pool) < 2:
        return {"mix": {}, "chi2": None, "df": None, "p": None}
    finite = (total - rows) / (total - 1)
    mix, chi2 = {}, 0.0
    for label, known in pool.items():
        expected, share = rows * known / total, known / total
        gap = counts.get(label, 0) - expected
        spread = (rows * share * (1 - share) * finite) ** 0.5
        chi2 += gap**2 / expected
        mix[label] = {"count": counts.get(label, 0), "lift": counts.get(label, 0) / expected, "z": gap / spread}
    df = len(pool) - 1
    return {"mix": mix, "chi2": chi2 / finite, "df": df, "p": stats.chi2_above(chi2 / finite, df)}


class Words:
    """The words of a pool, and which are typical of a part of it."""

    def __init__(self, pool: Pool):
        number: dict[str, int] = {}
        rows = []
        for example in pool.examples:
            each = (word for text in example.texts for word in WORD.findall(text.lower()))
            rows.append(np.array([number.setdefault(word, len(number)) for word in each], np.int64))
        self.names = list(number)
        self.rows = rows
        self.all = self._counts(range(len(rows)))

    def _counts(self, places: Sequence[int] | Numbers | range) -> Numbers:
        parts = [self.rows[place] for place in places]
        return np.bincount(np.concatenate([*parts, np.zeros(0, np.int64)]), minlength=len(self.names))

    def log_odds(self, members: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Log-odds with an informative Dirichlet prior (Monroe, Colaresi and Quinn 2008), members against the rest; z,
        which is that over its standard deviation; and how often each word is in the members.

        The prior are the pool's own frequencies, as if they had been seen in PRIOR more words on either side (of a
        small pool in a tenth of its words).
        """
        here = self._counts(members).astype(float)
        rest = self.all - here
        weight = min(PRIOR, float(self.all.sum()) / 10)
        prior = weight * self.all / self.all.sum()
        # 1e-9: a pool of one word has no others
        odds = [np.log((part + prior) / (part.sum() + weight - part - prior + 1e-9)) for part in (here, rest)]
        gap = odds[0] - odds[1]
        return gap, gap / np.sqrt(1 / (here + prior) + 1 / (rest + prior)), here

    def typical(self, members: Numbers) -> list[dict[str, Any]]:
        """Words with the highest z, so that rare words do not win by chance; none that is within it."""
        if not self.names:
            return []
        gap, z, here = self.log_odds(members)
        z = np.where(here < RAREST, -np.inf, z)
        best = [i for i in np.argsort(-z, kind="stable")[:WORDS] if z[i] > SURE]
        return [
            {"word": self.names[i], "log_odds": float(gap[i]), "z": float(z[i]), "count": int(here[i])} for i in best
        ]


def shared_texts(pool: Pool, members: Numbers) -> dict[str, int]:
    """Rows of pairs whose first text is in another row of the same cluster, or of the pool; empty for single texts."""
    firsts = pool.kept.get("first texts")
    if firsts is None:
        firsts = pool.kept["first texts"] = Counter(example.texts[0] for example in pool.examples)
    own = [pool.examples[i].texts for i in members]
    if not any(len(texts) > 1 for texts in own):
        return {}
    here = Counter(texts[0] for texts in own)
    return {
        "shared": sum(here[texts[0]] > 1 for texts in own),
        "shared_in_pool": sum(firsts[texts[0]] > 1 for texts in own),
    }


def column_counts(values: Mapping[str, str], pool: Pool, members: Numbers) -> dict[str, int]:
    """How often each value of a column is in a cluster, at most 20 values."""
    return dict(Counter(values[pool.ids[i]] for i in members).most_common(20))
