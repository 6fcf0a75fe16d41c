"""Scores from recorded logits: [epochs, n, labels] → one number for each example."""

import numpy as np

from encodery.errors import UserError
from encodery.selectors.base import Numbers, Pool, Selector
from encodery.tasks.forms.classification import softmax


class AfterEpoch(Selector):
    """A selector that looks at all rows with the weights of one moment."""

    needs = ("dynamics",)

    epoch: int = -1
    """Use the logits after this epoch, or after this record if dynamics were recorded every N steps. -1: the last."""
    during: bool = False
    """Also accept logits recorded during the epoch, with dropout (train.dynamics: true or train). Rows that came late
    in the epoch then look easier than they are."""

    @property
    def records_needed(self) -> int:
        return abs(self.epoch) or 1

    def logits(self, pool: Pool) -> list[Numbers]:
        """[n, labels] of each run after the epoch: 1 is the first, -1 the last."""
        early = next((one.path for one in pool.dynamics if one.record == "train"), None)
        if early is not None and not self.during:
            raise UserError(
                f"{early}: holds what the steps saw during each epoch, with dropout; this selector looks at all rows "
                "after an epoch: train with train.dynamics: eval, or set selector.during: true"
            )
        each, epoch = pool.logits, self.epoch
        fewest = min(len(one) for one in each)
        if epoch == 0 or epoch > fewest or -epoch > fewest:
            raise UserError(f"selector.epoch: {epoch}, but the runs have {fewest} whole epochs (1 is the first)")
        return [one[epoch - 1 if epoch > 0 else epoch] for one in each]


def error_norm(logits: Numbers, labels: Numbers) -> Numbers:
    """‖softmax(z) − onehot(y)‖₂: the norm of the loss's gradient at the logits."""
    gap = softmax(logits)
    gap[np.arange(len(labels)), labels] -= 1.0
    return np.asarray(np.linalg.norm(gap, axis=1))


def right(logits: Numbers, labels: Numbers) -> Numbers:
    """Whether each example's label was the likeliest: [epochs, n]."""
    return np.asarray(logits.argmax(-1) == labels)


def forgotten(correct: Numbers) -> Numbers:
    """How often each example went from right to wrong ([epochs, n]); never right: infinity."""
    falls = (correct[:-1] & ~correct[1:]).sum(0).astype(float)
    return np.where(correct.any(0), falls, np.inf)
