"""AMOS's generator: one network as wide as the encoder, read out after several layers through one head.

Each readout is a masked language model of its own depth: with stop-gradients the layers between two readouts learn
from the upper one alone. The word embeddings are the encoder's; positions, types and their norm are its own. Layers of
ModernBERT leave their output without a norm, so each readout goes through the network's final one.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import ElectraModel
from transformers.models.electra.modeling_electra import ElectraLayer
from transformers.models.modernbert.modeling_modernbert import ModernBertEncoderLayer

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.amos import AmosModel
from encodery.models.amos_config import AmosConfig
from encodery.models.encoder import ATTENTION_DROPOUTS, DROPOUTS, Encoder
from encodery.objectives.parts.electra_generator import electra_config, modernbert_like
from encodery.objectives.parts.masking import Masked
from encodery.objectives.parts.vocabulary_head import VocabularyHead

if TYPE_CHECKING:
    from encodery.objectives.amos import Amos

Tap = Callable[[Tensor], Tensor]
PUBLISHED, DEPTH = (4, 6, 8), 12  # readouts of an encoder with so many layers


class Tapped:
    """A layer whose output is looked at; not by a hook, which would stand inside what checkpointing computes again."""

    tap: Tap | None = None

    def __call__(self, *args: Any, **more: Any) -> Tensor:
        """As the layer, and past the tap."""
        output: Tensor = super().__call__(*args, **more)  # type: ignore[misc]
        return output if self.tap is None else self.tap(output)


class TappedElectra(Tapped, ElectraLayer):  # type: ignore[misc]
    """Of ELECTRA, BERT and AMOS encoders."""


class TappedModernBert(Tapped, ModernBertEncoderLayer):  # type: ignore[misc]
    """Of ModernBERT."""


class Stages(nn.Module):
    """A masked language model that is asked at several depths; it enters by its own door."""

    disentangled = False

    def __init__(self, options: "Amos", encoder: Encoder):
        super().__init__()
        self.readouts = readouts_of(options, encoder.layers)
        self.stop = options.stop_gradients
        net = stage_net(encoder, self.readouts[-1], options.generator_dropout)
        for depth in self.readouts:
            layer = layers_of(net)[depth - 1]
            layer.__class__ = TappedModernBert if encoder.kind == "modernbert" else TappedElectra
        self.encoder = Encoder(net, encoder.layout)
        encoder.begin(net)
        self.encoder.init = encoder.init
        net.set_input_embeddings(encoder.net.get_input_embeddings())
        self.head = VocabularyHead(self.encoder)

    def forward(self, batch: Batch, masked: Masked) -> Tensor:
        """Hidden states of the asked positions after each readout's layer: [K, R, h]."""
        states: list[Tensor] = []

        def tap(output: Tensor) -> Tensor:
            states.append(self.normed(masked.gather(output)))
            return output.detach() if self.stop else output

        try:
            self.set_tap(tap)
            self.encoder(batch, ids=masked.ids)
        finally:
            self.set_tap(None)
        return torch.stack(states)

    def set_tap(self, tap: Tap | None) -> None:
        """What looks at the output of each readout's layer."""
        for depth in self.readouts:
            layers_of(self.encoder.net)[depth - 1].tap = tap

    def normed(self, state: Tensor) -> Tensor:
        """What the head reads of a layer's output; ELECTRA's layers end with a norm of their own."""
        norm = getattr(self.encoder.net, "final_norm", None)
        return state if norm is None else norm(state)

    @property
    def words(self) -> Tensor:
        """The word embeddings [V, e], which are the encoder's."""
        words: Tensor = self.encoder.net.get_input_embeddings().weight
        return words


def layers_of(net: Any) -> Any:
    """The layers of a generator, from below."""
    return net.layers if net.config.model_type == "modernbert" else net.encoder.layer


def readouts_of(options: "Amos", layers: int) -> list[int]:
    """As asked; else 4, 6, 8 of an encoder with 12 layers or more, and as deep in proportion below that."""
    if options.readouts is None:
        return scaled(layers)
    if sorted(set(options.readouts)) != options.readouts or not options.readouts or options.readouts[0] < 1:
        raise UserError(f"tasks.objective.readouts: {options.readouts} are not layers from 1 in rising order")
    return options.readouts


def scaled(layers: int) -> list[int]:
    """4, 6, 8 of 12 layers, in proportion: 1, 2, 3 of 4; two readouts at least."""
    share = min(layers, DEPTH) / DEPTH
    found = sorted({max(1, round(depth * share)) for depth in PUBLISHED})
    return found if len(found) > 1 else [1, 2]


def stage_net(encoder: Encoder, layers: int, dropout: bool) -> Any:
    """As wide as the encoder, with its own number of layers, and without dropout unless asked."""
    config = encoder.net.config
    changed = {} if dropout else {n: 0.0 for n in (*DROPOUTS, *ATTENTION_DROPOUTS) if hasattr(config, n)}
    changed |= {"num_hidden_layers": layers}
    if encoder.kind == "modernbert":
        return modernbert_like(config, **changed)
    if encoder.kind != "amos":
        return ElectraModel(electra_config(config, **changed))
    return AmosModel(AmosConfig(**{**config.to_diff_dict(), **changed}))
