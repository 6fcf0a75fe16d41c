"""Which rows of the training set are used."""

import numpy as np

from encodery.data import draws


def training_rows(rows: np.ndarray, fraction: float, count: int | None, seed: int) -> np.ndarray:
    """A random part of the rows, in table order; a smaller part lies within a larger one of the same seed."""
    wanted = min(count, len(rows)) if count is not None else max(round(len(rows) * fraction), 1)
    if wanted >= len(rows):
        return rows
    return rows[np.sort(draws.choose(seed, "fraction", len(rows), wanted))]
