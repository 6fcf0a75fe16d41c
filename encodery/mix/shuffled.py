"""Every batch of every task once in an epoch, in random order: proportional, without replacement (MT-DNN's default)."""

from collections.abc import Sequence

from encodery.mix.base import Numbers, Size, Stepped, one_pass, shuffled


class Shuffled(Stepped):
    """All batches of all tasks, each once in an epoch, in random order."""

    def order(self, sizes: Sequence[Size], epoch: int, epochs: float, seed: int) -> Numbers:
        """Another order in each epoch."""
        return shuffled(one_pass(sizes), seed, epoch)
