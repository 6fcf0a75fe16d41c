"""Masked language modelling: guess the tokens at some positions from all others (BERT, RoBERTa, ModernBERT).

loss = Σ over the asked positions of -log softmax(W·t + b)[truth], over their number; W is the word-embedding matrix.
Only the asked positions meet the vocabulary, a few rows at a time.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs
from encodery.objectives.base import Objective, ObjectiveModule
from encodery.objectives.parts.masking import BertMasking, count, mask, prepared, vocabulary
from encodery.objectives.parts.vocabulary_head import VocabularyHead
from encodery.objectives.parts.vocabulary_loss import divergence, read_vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Mlm(Objective):
    """Masked language modelling: predicts masked tokens."""

    masking: BertMasking = BertMasking()
    """Which positions are predicted, and what the input shows there. Default: 15 % and 80/10/10, as in BERT."""

    def build(self, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> "MaskedLM":
        """The architecture's own head, tied to the word embeddings."""
        return MaskedLM(self, encoder, tokenizer)


class MaskedLM(ObjectiveModule):
    """The head and its loss."""

    def __init__(self, options: Mlm, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase"):
        super().__init__()
        self.options = options
        self.vocabulary = vocabulary(tokenizer, encoder.net.config.vocab_size)
        self.head = VocabularyHead(encoder)

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """The summed loss, and what was guessed at each asked position."""
        masked = mask(batch, self.options.masking, self.vocabulary)
        vectors = self.head(masked.gather(encoder(batch, ids=masked.ids)))
        weights = None if batch.weights is None else batch.weights[masked.sequence]
        found = read_vocabulary(vectors, self.head.weight, self.head.bias, masked.truth, weights)
        right = found.best == masked.truth
        said = {"loss": found.loss, "vectors": vectors, "nll": found.nll, "right": right}
        return said | {"sequence": masked.sequence, "hidden": masked.hidden}

    def prepare(self, batch: Batch) -> Batch:
        """With its masked positions."""
        return prepared(batch, self.options.masking, self.vocabulary)

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """One term, the sum over the asked positions."""
        return {"mlm": outputs["loss"]}

    def counts(self, batch: Batch) -> dict[str, float]:
        """Positions that are asked about."""
        return {"mlm": float(count(batch, self.options.masking, self.vocabulary))}

    def distance(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Symmetric Kullback-Leibler divergence of the guesses, mean over the asked positions of a sequence."""
        each = divergence(a["vectors"], b["vectors"], self.head.weight, self.head.bias)
        total = each.new_zeros(len(batch)).index_add(0, a["sequence"], each)
        asked = each.new_zeros(len(batch)).index_add(0, a["sequence"], torch.ones_like(each))
        return total / asked.clamp(min=1)

    def last_layers(self) -> list[nn.Linear]:
        """None: the last layer is the word embeddings."""
        return []

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Sums over each sequence: positions, loss, right guesses; and those of positions that show the mask."""
        nll, right, hidden = outputs["nll"].double(), outputs["right"].double(), outputs["hidden"]
        parts = {"asked": torch.ones_like(nll), "mlm_loss": nll, "mlm_right": right}
        parts |= {f"masked_{name}": values * hidden for name, values in parts.items()}
        empty = nll.new_zeros(len(batch))
        return {name: empty.index_add(0, outputs["sequence"], values) for name, values in parts.items()}

    def load_heads(self, encoder: Encoder, folder: Path, generator: Path | None = None) -> list[str]:
        """Take over the head of the folder that the encoder came from; says what is new."""
        self.taken = self.head.load(folder)
        return [] if self.taken else [f"{folder.name}: no masked-language head there; it is new"]
