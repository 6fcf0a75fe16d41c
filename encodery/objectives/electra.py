"""ELECTRA: a small generator fills masked positions, and the encoder tells for every token whether it was replaced.

loss = Σ -log G(truth) / asked positions + 50 · Σ BCE(D, replaced) / tokens. Nothing flows from D into G: samples are
hard. A sample that happens to be the truth counts as original. 1 = replaced.
"""

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs
from encodery.objectives.base import Objective, ObjectiveModule
from encodery.objectives.parts.electra_generator import (
    Generator,
    detector_head,
    load_discriminator,
    save_discriminator,
    summed_embeddings,
)
from encodery.objectives.parts.masking import Masked, Masking, count, mask, prepared, vocabulary
from encodery.objectives.parts.vocabulary_loss import Reading, Sampler, read_vocabulary, upcast_dtype

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Whose embeddings are a table of words, positions and types with one norm. Amos encoders (relative positions) have no
# projection from words to a narrower network: their generator is as wide and has fewer layers, as Microsoft's are.
TRUNKS = ("electra", "bert", "amos", "modernbert")
BINS, REACH = 2000, 10.0  # of the histogram of logits that the AUC is read from
DRAWN = "drawn"  # among a batch's targets: what an earlier pass drew, where a pass is to be compared with it


class Electra(Objective):
    """ELECTRA: the encoder detects tokens that a generator has replaced."""

    masking: Masking = Masking()
    """Which positions the generator predicts, and what its input shows there. Default: 15 %, 85 % of them masked."""
    generator_size: float = Field(default=0.25, gt=0, le=1)
    """Hidden size, heads and feed-forward size of the generator, as a fraction of the encoder's."""
    generator_layers: float = Field(default=1.0, gt=0, le=1)
    """Number of layers of the generator, as a fraction of the encoder's."""
    embedding_sharing: Literal["tied", "none", "gdes"] = "tied"
    """tied: generator and encoder share one embedding; none: each has its own; gdes: gradient-disentangled sharing as
    in DeBERTaV3, where the encoder adds its own embedding to a detached copy of the generator's."""
    one_network: bool = False
    """Use one network with two heads as generator and encoder."""
    uniform_generator: bool = False
    """Draw replacements uniformly, without a generator."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of the softmax that replacements are sampled from."""
    disallow_correct: bool = False
    """Never sample the original token."""
    generator_weight: float = Field(default=1.0, ge=0)
    """Weight of the generator's loss."""
    discriminator_weight: float = Field(default=50.0, gt=0)
    """Weight of the discriminator's (the encoder's) loss."""

    def build(self, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> "Discriminator":
        """Generator and heads for this encoder."""
        if encoder.kind not in TRUNKS:
            raise UserError(
                f"objective: electra works on {', '.join(TRUNKS)} encoders, not on {encoder.kind}, whose embeddings "
                "a smaller generator cannot share; use mlm, or model.new.kind: electra"
            )
        if self.uniform_generator and (self.one_network or self.embedding_sharing != "tied"):
            raise UserError("objective: a uniform generator has no weights: remove one_network and embedding_sharing")
        if self.one_network and (self.embedding_sharing != "tied" or encoder.kind != "electra"):
            raise UserError("tasks.objective.one_network: needs an ELECTRA encoder with tied embeddings")
        return Discriminator(self, encoder, tokenizer)


class Discriminator(ObjectiveModule):
    """The generator, the head that finds replaced tokens, and their losses."""

    def __init__(self, options: Electra, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase"):
        super().__init__()
        self.options = options
        self.vocabulary = vocabulary(tokenizer, encoder.net.config.vocab_size)
        self.detect = detector_head(encoder)
        self.generator = None if options.uniform_generator else Generator(options, encoder)

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """Logits of all tokens, and what the generator said at the asked positions."""
        masked = mask(batch, self.options.masking, self.vocabulary)
        guess = self.guess(batch, masked)
        sample = batch.targets.get(DRAWN, guess.sample)
        fake = written(batch, masked, sample)
        hidden = self.enter(encoder, batch, fake)
        replaced = batch.tokens(fake) != batch.tokens(batch.inputs["input_ids"])
        return {
            "logits": self.detect(batch.tokens(hidden)),
            "replaced": replaced,
            "generator": guess.loss,
            "nll": guess.nll,
            "right": guess.best == masked.truth,
            "lucky": sample == masked.truth,
            "sequence": masked.sequence,
            "hidden": masked.hidden,
            "sample": sample,
        }

    def guess(self, batch: Batch, masked: Masked) -> Reading:
        """What the generator thinks of the asked positions, and one sample for each."""
        options = self.options
        if self.generator is None:
            ordinary = torch.from_numpy(self.vocabulary.ordinary).to(masked.truth.device)
            place = (masked.uniform * len(ordinary)).long().clamp(max=len(ordinary) - 1)
            nothing = torch.zeros_like(masked.uniform)
            return Reading(nothing.sum(), nothing, torch.full_like(masked.truth, -1), ordinary[place])
        vectors = self.generator(batch, masked)
        weights = None if batch.weights is None else batch.weights[masked.sequence]
        sampler = Sampler(masked.uniform, self.vocabulary.mask_id, options.temperature, options.disallow_correct)
        return read_vocabulary(vectors, self.generator.weight, self.generator.bias, masked.truth, weights, sampler)

    def enter(self, encoder: Encoder, batch: Batch, fake: Tensor) -> Tensor:
        """Through the one door of the main encoder; its words alone carry its gradient (gdes)."""
        if self.generator is None or not self.generator.disentangled:
            return encoder(batch, ids=fake)  # type: ignore[no-any-return]
        own = encoder.net.get_input_embeddings()(fake)
        return encoder(batch, embeddings=F.embedding(fake, self.generator.words).detach() + own)  # type: ignore[no-any-return]

    def prepare(self, batch: Batch) -> Batch:
        """With its masked positions."""
        return prepared(batch, self.options.masking, self.vocabulary)

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Two sums, each with its weight."""
        found = self.detector_loss(outputs, batch)
        if self.generator is not None:
            found["generator"] = self.options.generator_weight * outputs["generator"]
        return found

    def detector_loss(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The encoder's sum, with its weight."""
        each = self.per_token(outputs)
        if batch.weights is not None:
            each = each * batch.weights[batch.layout.sequence_of_token]
        return {"discriminator": self.options.discriminator_weight * each.sum()}

    def per_token(self, outputs: Outputs) -> Tensor:
        """Loss of the encoder at each token."""
        logits = outputs["logits"].to(upcast_dtype(outputs["logits"].dtype))
        return F.binary_cross_entropy_with_logits(logits, outputs["replaced"].to(logits), reduction="none")

    def counts(self, batch: Batch) -> dict[str, float]:
        """Tokens, special ones included, and positions that the generator is asked about."""
        found = {"discriminator": float(batch.layout.host_lengths.sum())}
        if self.generator is not None:
            found["generator"] = float(count(batch, self.options.masking, self.vocabulary))
        return found

    def distance(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Symmetric Kullback-Leibler divergence of the encoder's answers, mean over the tokens of a sequence."""
        x, y = (outputs["logits"].to(upcast_dtype(outputs["logits"].dtype)) for outputs in (a, b))
        each = (x.sigmoid() - y.sigmoid()) * (x - y)
        return per_sequence(each, batch) / batch.layout.lengths

    def again(self, outputs: Outputs, batch: Batch) -> Batch:
        """The same text: with other dropout or weights the generator would draw another, and no answer to that one can
        be compared with these."""
        return replace(batch, targets=batch.targets | {DRAWN: outputs["sample"]})

    def last_layers(self) -> list[nn.Linear]:
        """The layer that tells replaced tokens; the generator's is the word embeddings."""
        return [part for part in self.detect.modules() if isinstance(part, nn.Linear)][-1:]

    def detected(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """What the encoder found, as sums over each sequence."""
        logits, replaced = outputs["logits"], outputs["replaced"]
        said, loss = logits > 0, self.per_token(outputs).double()
        tokens = {
            "tokens": torch.ones_like(loss),
            "replaced": replaced,
            "discriminator_loss": loss,
            "weighted_loss": loss * self.options.discriminator_weight,
            "discriminator_right": said == replaced,
            "flagged": said,
            "found": said & replaced,
        }
        found = {name: per_sequence(values.double(), batch) for name, values in tokens.items()}
        return found | {"histogram": histogram(logits, replaced, batch)}

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Sums over each sequence, from which the scores of a held-out set are made."""
        detected, nll = self.detected(outputs, batch), outputs["nll"].double()
        empty = nll.new_zeros(len(batch))
        asked = {"asked": torch.ones_like(nll), "sampled_right": outputs["lucky"]}
        if self.generator is not None:
            weighted = nll * self.options.generator_weight
            asked |= {"generator_loss": nll, "weighted_generator_loss": weighted, "generator_right": outputs["right"]}
            asked |= of_masks(outputs)
        return detected | {name: empty.index_add(0, outputs["sequence"], v.double()) for name, v in asked.items()}

    def as_saved(self, encoder: Encoder) -> AbstractContextManager[None]:
        """Inside, the encoder alone is what will be saved: disentangled words are added up."""
        return summed_embeddings(self, encoder)

    def save(self, folder: Path, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> Path:
        """Two transformers folders, `discriminator` and `generator`; gives the one that travels."""
        return save_discriminator(self, folder, encoder, tokenizer)

    def load_heads(self, encoder: Encoder, folder: Path, generator: Path | None = None) -> list[str]:
        """Take over the head of the folder that the encoder came from, and the generator; says what is new."""
        return load_discriminator(self, encoder, folder, generator)


def written(batch: Batch, masked: Masked, sample: Tensor) -> Tensor:
    """The true ids with the samples written in; where one position has several, their integer mean (Google's code)."""
    ids = batch.inputs["input_ids"]
    times = torch.zeros_like(ids.flatten()).index_add_(0, masked.cells, torch.ones_like(sample))
    total = torch.zeros_like(times).index_add_(0, masked.cells, sample)
    return torch.where(times > 0, total // times.clamp(min=1), ids.flatten()).view_as(ids)


def of_masks(outputs: Outputs) -> Outputs:
    """What the generator made of the positions that show the mask; others it need only copy."""
    hidden, right = outputs["hidden"], outputs["right"]
    return {"masked_asked": hidden, "masked_loss": outputs["nll"] * hidden, "masked_right": right & hidden}


def per_sequence(values: Tensor, batch: Batch) -> Tensor:
    """Sums over the tokens of each sequence, of values that lie sequence by sequence."""
    return values.new_zeros(len(batch)).index_add(0, batch.layout.sequence_of_token, values)


def histogram(logits: Tensor, replaced: Tensor, batch: Batch) -> Tensor:
    """How many original and replaced tokens of each sequence have their logit in each bin: [n, 2, BINS]."""
    place = ((logits.double() / REACH + 1) / 2 * BINS).long().clamp(0, BINS - 1)
    cell = (batch.layout.sequence_of_token * 2 + replaced.long()) * BINS + place
    counts = torch.bincount(cell, minlength=len(batch) * 2 * BINS)
    return counts.view(len(batch), 2, BINS).double()
