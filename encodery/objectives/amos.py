"""AMOS: the encoder finds the tokens that a mixture of generators replaced, and the mixture learns to deceive it.

loss = Σ over the readouts of Σ -log G(truth) / asked positions + 50 · Σ BCE(D, replaced) / tokens. One generator is
read out after several layers; a vector v weighs the readouts at each asked position, α = softmax(v·h), and one token
is drawn from Σ α·logits. The gradient of the encoder's loss flows through the sample (straight-through Gumbel) into v
alone, and into the features it weighs, multiplied by `reversal`: -1 makes v raise the loss. 1 = replaced.

The forward pass follows the authors' code; masking and the normalisation of the losses are reconstructed, since the
authors did not release them.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs
from encodery.objectives.base import Objective, ObjectiveModule
from encodery.objectives.electra import DRAWN, Discriminator, of_masks, written
from encodery.objectives.parts.amos_generator import Stages
from encodery.objectives.parts.amos_mixture import Draw, Mixed, noise_of, read_all, steer
from encodery.objectives.parts.electra_generator import detector_head, load_discriminator, save_discriminator
from encodery.objectives.parts.masking import FullMasking, Masked, count, mask, vocabulary
from encodery.objectives.parts.vocabulary_loss import upcast_dtype

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TRUNKS = ("amos", "electra", "bert", "modernbert")  # all but the first give stock classes of transformers
MIXTURE = "mixture.safetensors"  # beside the generator's weights


class Amos(Objective):
    """AMOS: the encoder detects tokens that an adversarial mixture of generators has replaced."""

    masking: FullMasking = FullMasking()
    """Which positions the generator predicts, and what its input shows there. Default: 15 %, all masked."""
    readouts: list[int] | None = None
    """Generator layers with a prediction head. Default: [4, 6, 8], or lower layers for encoders with fewer than 12
    layers."""
    stop_gradients: bool = True
    """Stop gradients below each readout, so that the layers between two readouts learn from the upper one only."""
    generator_dropout: bool = False
    """Use the encoder's dropout in the generator, instead of none."""
    mixture: Literal["learned", "fixed", "random"] = "learned"
    """How readouts are weighted. learned: by v·h at each position; fixed: equally; random: at random at each
    position."""
    reversal: float = -1.0
    """Factor on the encoder's gradient into v. -1: v works against the encoder; 0: v learns nothing; 1: v works with
    the encoder."""
    mixture_detach_features: bool = False
    """Pass that gradient to v only, not to the features that v weights."""
    temperature: float = Field(default=0.3, gt=0)
    """Temperature of the Gumbel-softmax relaxation used for the gradient. The sampled tokens do not depend on it."""
    mlm_weights: list[float] | None = None
    """Weight of the generator's loss at each readout. Default: 1."""
    discriminator_weight: float = Field(default=50.0, gt=0)
    """Weight of the discriminator's (the encoder's) loss."""

    def build(self, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> "Mixture":
        """Generator, mixture and heads for this encoder."""
        if encoder.kind not in TRUNKS:
            raise UserError(
                f"objective: amos works on {', '.join(TRUNKS)} encoders, not on {encoder.kind}, whose embeddings a "
                "generator cannot share; use mlm, or model.new.kind: amos"
            )
        return Mixture(self, encoder, tokenizer)


class Mixture(Discriminator):
    """The generator, the vector that weighs its readouts, the head that finds replaced tokens, and their losses."""

    options: Amos  # type: ignore[assignment]
    generator: Stages  # type: ignore[assignment]

    def __init__(self, options: Amos, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase"):
        ObjectiveModule.__init__(self)
        self.options = options
        self.vocabulary = vocabulary(tokenizer, encoder.net.config.vocab_size)
        self.detect = detector_head(encoder)
        self.generator = Stages(options, encoder)
        self.readouts = self.generator.readouts
        self.mlm_weights = options.mlm_weights or [1.0] * len(self.readouts)
        if len(self.mlm_weights) != len(self.readouts):
            raise UserError(
                f"tasks.objective.mlm_weights: {len(self.mlm_weights)} weights for {len(self.readouts)} readouts"
            )
        self.mixture = nn.Parameter(torch.empty(encoder.width)) if options.mixture == "learned" else None
        if self.mixture is not None:
            nn.init.normal_(self.mixture, std=encoder.net.config.initializer_range)

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """Logits of all tokens, and what the readouts said at the asked positions."""
        masked = mask(batch, self.options.masking, self.vocabulary)
        features = self.generator(batch, masked)
        shares = self.shares(features, batch, masked)
        readout = self.read(features, shares, batch, masked)
        sample = batch.targets.get(DRAWN, readout.sample)
        fake = written(batch, masked, sample)
        words = encoder.net.get_input_embeddings()(fake)
        if len(readout.slope):
            words = steer(words, shares, readout.slope, masked.cells, self.options.reversal)
        replaced = batch.tokens(fake) != batch.tokens(batch.inputs["input_ids"])
        return {
            "logits": self.detect(batch.tokens(encoder(batch, embeddings=words))),
            "replaced": replaced,
            "generator": readout.loss,
            "readout_nll": readout.nll.T,
            "readout_right": masked.truth[:, None] == readout.best.T,
            "nll": readout.mixture_nll,
            "right": readout.mixture_best == masked.truth,
            "lucky": sample == masked.truth,
            "sequence": masked.sequence,
            "hidden": masked.hidden,
            "sample": sample,
            "shares": shares.detach(),
        }

    def shares(self, features: Tensor, batch: Batch, masked: Masked) -> Tensor:
        """Weights of the readouts at each asked position: [R, K], each row sums to 1."""
        rows, kinds = features.shape[1], len(self.readouts)
        dtype = upcast_dtype(features.dtype)
        if self.options.mixture == "fixed":
            return features.new_full((rows, kinds), 1 / kinds, dtype=dtype)
        if self.mixture is None:  # evenly over all mixtures
            drawn = noise_of(batch, masked, "mixture").exponential(slice(None), kinds).to(dtype)
            return drawn / drawn.sum(1, keepdim=True)
        features = features.detach() if self.options.mixture_detach_features else features
        return (features.to(dtype) * self.mixture).sum(2).T.softmax(1)  # no product that autocast would narrow

    def read(self, features: Tensor, shares: Tensor, batch: Batch, masked: Masked) -> Mixed:
        """Losses of all readouts, and a sample of their mixture."""
        options, head = self.options, self.generator.head
        vectors = head(features.flatten(0, 1)).view(*features.shape[:2], -1)
        weights = None if batch.weights is None else batch.weights[masked.sequence]
        steered = shares.requires_grad and options.reversal != 0
        draw = Draw(noise_of(batch, masked), self.vocabulary.mask_id, options.temperature, steered)
        return read_all(vectors, shares, head.weight, head.bias, masked.truth, weights, draw)

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The encoder's sum and one for each readout, each with its weight."""
        weighted = zip(self.readouts, self.mlm_weights, outputs["generator"], strict=True)
        return self.detector_loss(outputs, batch) | {f"mlm_{depth}": weight * loss for depth, weight, loss in weighted}

    def counts(self, batch: Batch) -> dict[str, float]:
        """Tokens, special ones included, and positions that each readout is asked about."""
        asked = float(count(batch, self.options.masking, self.vocabulary))
        tokens = {"discriminator": float(batch.layout.host_lengths.sum())}
        return tokens | {f"mlm_{depth}": asked for depth in self.readouts}

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Sums over each sequence, from which the scores of a held-out set are made."""
        nll, shares = outputs["readout_nll"].double(), outputs["shares"].double()
        asked = {
            "asked": torch.ones_like(nll[:, 0]),
            "sampled_right": outputs["lucky"],
            "generator_loss": outputs["nll"],
            "generator_right": outputs["right"],
            "weighted_generator_loss": nll @ nll.new_tensor(self.mlm_weights),
            "mixture_entropy": torch.special.entr(shares).sum(1),
        } | of_masks(outputs)
        for k, depth in enumerate(self.readouts):
            asked |= {
                f"mlm_loss_{depth}": nll[:, k],
                f"mlm_accuracy_{depth}": outputs["readout_right"][:, k],
                f"replaced_{depth}": -torch.expm1(-nll[:, k]),
                f"share_{depth}": shares[:, k],
            }
        empty, sequence = nll.new_zeros(len(batch)), outputs["sequence"]
        sums = {name: empty.index_add(0, sequence, values.double()) for name, values in asked.items()}
        return self.detected(outputs, batch) | sums

    def save(self, folder: Path, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> Path:
        """Two transformers folders, `discriminator` and `generator`; gives the one that travels."""
        saved = save_discriminator(self, folder, encoder, tokenizer)
        if self.mixture is not None:
            save_file({"mixture": self.mixture.detach().cpu()}, folder / "generator" / MIXTURE)
        return saved

    def load_heads(self, encoder: Encoder, folder: Path, generator: Path | None = None) -> list[str]:
        """Take over the head of the folder that the encoder came from, the generator and the mixture."""
        notes = load_discriminator(self, encoder, folder, generator)
        file = (generator or folder.parent / "generator") / MIXTURE
        if self.mixture is None:
            return notes
        if not file.exists():
            return [*notes, "the mixture of the generator's readouts is new"]
        with torch.no_grad():
            self.mixture.copy_(load_file(file)["mixture"])
        return notes
