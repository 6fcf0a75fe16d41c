"""An objective asks the encoder a question in tensors and marks the answer in named loss terms.

`Objective` is the frozen options; `build` gives the module with weights. Loss terms are SUMS over what they count, and
`counts` says beforehand how much that is, so that micro-batches and processes add up to one exact mean.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor, nn

from encodery.core.options import Options
from encodery.data.batches import Batch
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ObjectiveModule(nn.Module):
    """What `Objective.build` returns."""

    taken: frozenset[str] = frozenset()  # tensors of a checkpoint that became its head, by their names there

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """Named outputs for a micro-batch."""
        raise NotImplementedError

    prepare: Callable[[Batch], Batch] | None = None
    """The batch with what can be drawn before the pass; called once for a micro-batch of a step, in any thread."""

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Named terms, each a sum over what it counts."""
        raise NotImplementedError

    def counts(self, batch: Batch) -> dict[str, float]:
        """How much each term counts in this micro-batch, before any forward pass."""
        raise NotImplementedError

    def sizes(self, batch: Batch) -> Tensor:
        """What each sequence's own loss is divided by where every example should weigh the same, [n]: an example's
        sequences add up to 1 where they make one loss."""
        if batch.group is None:
            return torch.ones(len(batch))
        return (1 / torch.bincount(batch.group))[batch.group]

    def distance(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """How far two outputs are, per example: for methods that ask for consistency."""
        raise NotImplementedError

    def divergence(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """How far b is from a, per example, where that is not the same as how far a is from b: KL(a ‖ b).

        An objective whose distance has no sides keeps this: two equal sides make the distance.
        """
        return self.distance(a, b, batch) / 2

    def again(self, outputs: Outputs, batch: Batch) -> Batch:
        """The batch for another pass that is to be compared with these outputs: where a pass draws its own text, the
        same text."""
        return batch

    def last_layers(self) -> list[nn.Linear]:
        """The layers that give the answer, for methods that bound them; none where they are the word embeddings."""
        return [part for part in self.modules() if isinstance(part, nn.Linear)][-1:]

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """What the task's `decode` reads, one row per sequence; of a task without labels sums, to be added up."""
        raise NotImplementedError


class Objective(Options):
    """Options of an objective."""

    def fitted(self, targets: Mapping[str, np.ndarray]) -> Self:
        """The same objective with what must be learnt from the training targets (class weights) filled in."""
        return self

    def build(self, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> ObjectiveModule:
        """The module with weights, for this encoder."""
        raise NotImplementedError
