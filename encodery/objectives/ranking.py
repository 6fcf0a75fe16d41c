"""Which of several candidates is right: one logit per sequence, cross-entropy over the candidates of an example."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encodery.config.schema import AnyPooling
from encodery.data.batches import Batch
from encodery.data.layouts import upcast
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs
from encodery.objectives.base import Objective, ObjectiveModule
from encodery.objectives.parts.heads import HeadKind, answer, build_head

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Ranking(Objective):
    """Chooses the best of several candidates."""

    head: HeadKind = "stock"
    """Architecture of the head. Default: model.head."""
    pooling: AnyPooling = "auto"
    """Pooling. Default: model.pooling."""
    head_dropout: float | None = None
    """Dropout of the head. Default: model.head_dropout."""

    def build(self, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> "Ranker":
        """A head with fresh weights and one output."""
        config = encoder.net.config
        config.id2label, config.label2id = {0: "LABEL_0"}, {"LABEL_0": 0}
        return Ranker(self, encoder)


class Ranker(ObjectiveModule):
    """The head and its loss."""

    def __init__(self, options: Ranking, encoder: Encoder):
        super().__init__()
        self.head = build_head(options.head, encoder, 1, options.head_dropout, options.pooling)

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """One logit per candidate, [n, 1]."""
        return {"logits": answer(self.head, encoder, batch)}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The sum over the examples whose right candidate is known."""
        right = (batch.targets["right"] == 1).to(torch.float32)
        each = -shares(outputs["logits"], batch) * right
        if batch.weights is not None:
            each = each * batch.weights
        return {"loss": each.sum()}

    def counts(self, batch: Batch) -> dict[str, float]:
        """Examples whose right candidate is known."""
        return {"loss": float((batch.targets["right"] == 1).sum())}

    def distance(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Symmetric Kullback-Leibler divergence over the candidates, each candidate's own part."""
        return self.divergence(a, b, batch) + self.divergence(b, a, batch)

    def divergence(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Kullback-Leibler divergence KL(a ‖ b) over the candidates, each candidate's own part."""
        x, y = shares(a["logits"], batch), shares(b["logits"], batch)
        return x.exp() * (x - y)

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        return {"logits": upcast(outputs["logits"])}


def shares(logits: Tensor, batch: Batch) -> Tensor:
    """Logarithm of each candidate's share among those of its example: [n]."""
    values = upcast(logits)[:, 0]
    values = values - batch.per_example(values.detach(), "max")[batch.example_of_sequence]
    return values - batch.per_example(values.exp(), "sum").log()[batch.example_of_sequence]
