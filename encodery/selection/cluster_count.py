"""How many clusters: for several k the spread inside, the silhouette, and whether other seeds find the same."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from encodery.errors import UserError
from encodery.selectors._clustering import Algorithm, found_by
from encodery.selectors.base import Numbers

SEEDS = 3
ROWS = 5000  # rows that are clustered again and again
SILHOUETTE = 2000  # rows of each silhouette, which compares all with all
USUAL = (1 / 8, 1 / 4, 1 / 2, 1, 2)  # of the k that was asked for


def usual_counts(k: int, rows: int) -> list[int]:
    """From an eighth of k to twice as many, as far as the rows allow."""
    return sorted({n for n in (round(k * part) for part in USUAL) if 2 <= n <= rows // 2})


def parse_counts(text: str) -> list[int]:
    """`5,10,20`."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 2:
        raise UserError(f"--try-k: expected whole numbers from 2 on, such as 5,10,20, not {text!r}")
    return found


def compared(
    points: Numbers, rows: Numbers, counts: Sequence[int], algorithm: Algorithm, seed: int
) -> list[dict[str, Any]]:
    """A line for each k; `rows` are drawn rows, of which the first are used.

    inertia: mean squared distance to the centre; stability: adjusted Rand index of the clusters of two seeds, mean over
    all pairs of seeds; 1: the same clusters, 0: as alike as by chance.
    """
    from sklearn.metrics import adjusted_rand_score, silhouette_score

    some = points[rows[:ROWS]]
    lines = []
    for k in counts:
        if k > len(some) // 2:
            raise UserError(f"--try-k: {k} clusters of {len(some):,} rows; ask for fewer")
        each = [found_by(some, algorithm, k, seed + 1000 * draw, 1.0, 1, 4096) for draw in range(SEEDS)]
        alike = [float(adjusted_rand_score(a.labels, b.labels)) for a, b in combinations(each, 2)]
        shapes = [
            float(silhouette_score(some[:SILHOUETTE], one.labels[:SILHOUETTE]))
            for one in each
            if 1 < len(set(one.labels[:SILHOUETTE].tolist())) < len(some[:SILHOUETTE])
        ]
        lines.append({
            "k": k, "inertia": float(np.mean([np.mean(one.distances**2) for one in each])),
            "silhouette": float(np.mean(shapes)) if shapes else None,
            "stability": float(np.mean(alike)), "stability_sd": float(np.std(alike, ddof=1)), "seeds": SEEDS,
        })  # fmt: skip
    return lines


def count_lines(tried: Sequence[Mapping[str, Any]], rows: int) -> Iterator[str]:
    """What `compared` gives, for people; of new clusterings, so these are not the figures of the stored one."""
    if tried:
        yield f"to choose k, {min(rows, ROWS):,} rows clustered again with {SEEDS} seeds for each k:"
    for line in tried:
        shape = "" if line["silhouette"] is None else f", mean silhouette {line['silhouette']:.3f}"
        yield f"k {line['k']}: stability {line['stability']:.3f}{shape}, mean inertia {line['inertia']:.4g}"
