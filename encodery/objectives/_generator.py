"""ELECTRA's generator: as deep as the encoder, narrower, on the same embeddings; and the head of the discriminator."""

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import ElectraConfig, ElectraForPreTraining, ElectraModel

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.amos import AmosForPreTraining, AmosModel
from encodery.models.amos_config import AmosConfig
from encodery.models.encoder import Encoder
from encodery.objectives._heads import drop_pooler
from encodery.objectives._masking import Masked
from encodery.objectives._vocabulary_head import VocabularyHead

if TYPE_CHECKING:
    from encodery.objectives.electra import Electra


class Generator(nn.Module):
    """A masked language model of its own, which enters by its own door: perturbations of the encoder do not hit it."""

    def __init__(self, options: "Electra", encoder: Encoder):
        super().__init__()
        self.disentangled = options.embedding_sharing == "gdes"
        if options.one_network:
            self.encoder = encoder_beside(encoder)
        else:
            self.encoder = Encoder(generator_net(options, encoder), encoder.layout)
            encoder.begin(self.encoder.net)
        self.encoder.init = encoder.init
        if options.embedding_sharing == "tied":
            self.encoder.net.embeddings = encoder.net.embeddings
        elif self.disentangled:
            self.disentangle(encoder)
        self.head = VocabularyHead(self.encoder)

    def disentangle(self, encoder: Encoder) -> None:
        """The generator takes over the words; the encoder learns what to add to them, zero at first."""
        self.encoder.net.embeddings = copy.deepcopy(encoder.net.embeddings)
        with torch.no_grad():
            encoder.net.get_input_embeddings().weight.zero_()

    def forward(self, batch: Batch, masked: Masked) -> Tensor:
        """Vectors of the asked positions, to be multiplied with the word embeddings."""
        vectors: Tensor = self.head(masked.gather(self.encoder(batch, ids=masked.ids)))
        return vectors

    @property
    def words(self) -> Tensor:
        """Its word embeddings [V, e]."""
        words: Tensor = self.encoder.net.get_input_embeddings().weight
        return words

    @property
    def weight(self) -> Tensor:
        """The output matrix: the word embeddings."""
        return self.head.weight

    @property
    def bias(self) -> Tensor:
        """The output bias."""
        return self.head.bias


def encoder_beside(encoder: Encoder) -> Encoder:
    """The same network behind another door, so that perturbations of the first are not met there."""
    beside = copy.copy(encoder)
    beside.shift = None
    return beside


def generator_net(options: "Electra", encoder: Encoder) -> Any:
    """A network of the encoder's family with new weights."""
    config = encoder.net.config
    if encoder.kind != "amos":
        return ElectraModel(generator_config(options, config))
    if options.generator_size != 1 and options.embedding_sharing != "none":
        raise UserError(
            f"objective.generator_size: {options.generator_size}, but amos encoders have no projection from words to a "
            "narrower generator; set it to 1, and generator_layers to a part such as 0.5"
        )
    changed = {name: value for name, value in generator_sizes(options, config).items() if name != "embedding_size"}
    return AmosModel(AmosConfig(**{**config.to_diff_dict(), **changed}))


def generator_config(options: "Electra", config: Any) -> ElectraConfig:
    """An ELECTRA config of the generator's sizes."""
    return electra_config(config, **generator_sizes(options, config))


def generator_sizes(options: "Electra", config: Any) -> dict[str, int]:
    """Width, heads and feed-forward shrink; the layers and the embeddings do not (unless nothing is shared)."""
    width = round(config.hidden_size * options.generator_size)
    heads = max(1, width * config.num_attention_heads // config.hidden_size)  # of the encoder's size
    if width < 1 or width % heads:
        raise UserError(
            f"objective.generator_size: {options.generator_size} of width {config.hidden_size} is {width}, which "
            f"{heads} heads cannot share"
        )
    return {
        "embedding_size": width if options.embedding_sharing == "none" else embedding_width(config),
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": round(config.intermediate_size * options.generator_size),
        "num_hidden_layers": max(1, round(config.num_hidden_layers * options.generator_layers)),
    }


def embedding_width(config: Any) -> int:
    """Width of the word embeddings."""
    width: int = getattr(config, "embedding_size", config.hidden_size)
    return width


SHARED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
    "initializer_range", "layer_norm_eps", "pad_token_id",
)  # fmt: skip


def electra_config(config: Any, **changed: Any) -> ElectraConfig:
    """An ELECTRA config like that of an ELECTRA or BERT encoder."""
    fields = {name: getattr(config, name) for name in SHARED} | {"embedding_size": embedding_width(config)}
    return ElectraConfig(**fields | changed)


def detector_head(encoder: Encoder) -> nn.Module:
    """ELECTRA's own: w₂·gelu(W₁·h + b₁) + b₂ for every token; AMOS's is one linear layer."""
    drop_pooler(encoder, keep=False)
    with torch.device("meta"):
        if encoder.kind == "amos":
            stock = AmosForPreTraining(encoder.net.config)
        else:
            stock = ElectraForPreTraining(electra_config(encoder.net.config))
    head: nn.Module = stock.discriminator_predictions.to_empty(device="cpu")
    for part in head.modules():
        stock._init_weights(part)
    encoder.begin(head)
    return head
