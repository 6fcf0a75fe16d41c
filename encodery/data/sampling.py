"""Rows drawn by saved scores: a row with a high score is drawn more often and weighs less each time.

chance  p_i = (s_i + smoothing · mean s) / Σ, drawn with replacement, for each step anew
weight  w_i = 1 / (n · p_i): the expected gradient is that of uniform rows
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from encodery.data import rng


@dataclass(frozen=True)
class Sampler:
    """The chance of each row in use."""

    chances: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, smoothing: float) -> "Sampler":
        """From scores that are not negative; not all of them may be zero."""
        smooth = scores + smoothing * scores.mean()
        return cls(smooth / smooth.sum())

    @cached_property
    def ends(self) -> np.ndarray:
        """Where each row's part of [0, 1) ends."""
        return np.asarray(np.cumsum(self.chances) / self.chances.sum())

    @property
    def weights(self) -> np.ndarray:
        """What a row weighs each time it is drawn."""
        return np.asarray(1.0 / (len(self.chances) * self.chances))

    def draw(self, key: int, count: int) -> np.ndarray:
        """Positions among the rows in use, with repetition."""
        numbers = rng.uniform(key, np.arange(count), 1)[:, 0]
        return np.asarray(np.minimum(np.searchsorted(self.ends, numbers, side="right"), len(self.ends) - 1))

    def __str__(self) -> str:
        tau = float(np.sqrt(len(self.chances) * np.square(self.chances).sum()))
        return f"weights {self.weights.min():.2f} to {self.weights.max():.2f}, τ {tau:.2f}"
