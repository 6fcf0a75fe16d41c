"""A label for every token that is asked for: cross-entropy over all of them, whatever sentence they stand in.

Pieces that are not asked for (special tokens, the rest of a word) have the target HIDDEN.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from transformers import AutoModelForTokenClassification

from encodery.data.batches import Batch
from encodery.data.layouts import upcast
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs
from encodery.objectives.base import Objective, ObjectiveModule
from encodery.objectives.parts.heads import HeadKind, TokenHead
from encodery.tasks.base import HIDDEN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Tagging(Objective):
    """Predicts a label for every word, from its first token."""

    labels: list[str] = []
    """Label names in the order of the outputs."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of the target that is spread evenly over all labels."""
    head: HeadKind = "stock"
    """Architecture of the head. Only stock is available for tags."""
    head_dropout: float | None = None
    """Dropout of the head. Default: model.head_dropout."""

    def build(self, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> "Tagger":
        if self.head != "stock":
            raise UserError(f"model.head: {self.head} reads whole texts; tagging has only stock")
        config = encoder.net.config
        config.id2label = dict(enumerate(self.labels))
        config.label2id = {name: i for i, name in enumerate(self.labels)}
        return Tagger(self, encoder)


class Tagger(ObjectiveModule):
    """The head and its loss."""

    def __init__(self, options: Tagging, encoder: Encoder):
        super().__init__()
        self.options = options
        self.head = TokenHead(encoder, len(options.labels), options.head_dropout, AutoModelForTokenClassification)

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """Logits of every token, in the batch's layout."""
        return {"logits": self.head(encoder(batch))}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """One term, the sum over the tokens that are asked for."""
        logits, target = batch.tokens(upcast(outputs["logits"])), batch.tokens(batch.targets["tag"])
        smooth = self.options.label_smoothing
        each = F.cross_entropy(logits, target, ignore_index=HIDDEN, reduction="none", label_smoothing=smooth)
        if batch.weights is not None:
            each = each * batch.weights[batch.layout.sequence_of_token]
        return {"loss": each.sum()}

    def counts(self, batch: Batch) -> dict[str, float]:
        """Tokens that are asked for."""
        return {"loss": float((batch.tokens(batch.targets["tag"]) != HIDDEN).sum())}

    def sizes(self, batch: Batch) -> Tensor:
        """Tokens of each sequence that are asked for."""
        return batch.per_sequence((batch.targets["tag"] != HIDDEN).to(torch.float32), "sum")

    def distance(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Symmetric Kullback-Leibler divergence, as a mean over the sequence's tokens that are asked for."""
        return self.divergence(a, b, batch) + self.divergence(b, a, batch)

    def divergence(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Kullback-Leibler divergence KL(a ‖ b), as a mean over the sequence's tokens that are asked for."""
        x, y = (batch.tokens(upcast(one["logits"])).log_softmax(1) for one in (a, b))
        each = (x.exp() * (x - y)).sum(1)
        asked = (batch.tokens(batch.targets["tag"]) != HIDDEN).to(each.dtype)
        sequence = batch.layout.sequence_of_token
        total = each.new_zeros(len(batch)).index_add(0, sequence, each * asked)
        return total / each.new_zeros(len(batch)).index_add(0, sequence, asked).clamp(min=1)

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Logits, one row per sequence; what stands beyond its end means nothing."""
        return {"logits": batch.rows(upcast(outputs["logits"]))[0]}
