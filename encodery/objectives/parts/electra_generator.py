"""ELECTRA's generator: as deep as the encoder, narrower, on the same embeddings; and the head of the discriminator."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForTokenClassification,
    ModernBertModel,
)

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.amos import AmosForMaskedLM, AmosForPreTraining, AmosModel
from encodery.models.amos_config import AmosConfig
from encodery.models.encoder import Encoder
from encodery.models.pretrained import from_folder
from encodery.objectives.parts.heads import drop_pooler
from encodery.objectives.parts.masking import Masked
from encodery.objectives.parts.vocabulary_head import VocabularyHead

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from encodery.objectives.electra import Discriminator, Electra


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
        return self.head.bias


def encoder_beside(encoder: Encoder) -> Encoder:
    """The same network behind another door, so that perturbations of the first are not met there."""
    beside = copy.copy(encoder)
    beside.delta = None
    return beside


def generator_net(options: "Electra", encoder: Encoder) -> Any:
    """A network of the encoder's family with new weights."""
    config = encoder.net.config
    if encoder.kind not in ("amos", "modernbert"):
        return ElectraModel(generator_config(options, config))
    if options.generator_size != 1 and options.embedding_sharing != "none":
        raise UserError(
            f"tasks.objective.generator_size: {options.generator_size}, but {encoder.kind} encoders have no projection "
            "from words to a narrower generator; set it to 1, and generator_layers to a part such as 0.5, or let the "
            "generator have its own words with embedding_sharing: none"
        )
    changed = {name: value for name, value in generator_sizes(options, config).items() if name != "embedding_size"}
    if encoder.kind == "amos":
        return AmosModel(AmosConfig(**{**config.to_diff_dict(), **changed}))
    return modernbert_like(config, **changed)


def modernbert_like(config: Any, **changed: Any) -> ModernBertModel:
    """A new ModernBERT of other sizes; which of its layers see all tokens is as in the given one."""
    layers = changed["num_hidden_layers"]
    types = config.layer_types[:layers] if layers <= len(config.layer_types) else None  # None: by ModernBERT's own rule
    return ModernBertModel(ModernBertConfig(**{**config.to_dict(), **changed, "layer_types": types}))


def generator_config(options: "Electra", config: Any) -> ElectraConfig:
    """An ELECTRA config of the generator's sizes."""
    return electra_config(config, **generator_sizes(options, config))


def generator_sizes(options: "Electra", config: Any) -> dict[str, int]:
    """Width, heads and feed-forward shrink; the layers and the embeddings do not (unless nothing is shared)."""
    width = round(config.hidden_size * options.generator_size)
    heads = max(1, width * config.num_attention_heads // config.hidden_size)  # of the encoder's size
    if width < 1 or width % heads:
        raise UserError(
            f"tasks.objective.generator_size: {options.generator_size} of width {config.hidden_size} is {width}, which "
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


class TokenHead(nn.Module):
    """ModernBERT's own head for tokens, with one output."""

    def __init__(self, stock: Any):
        super().__init__()
        self.head, self.drop, self.classifier = stock.head, stock.drop, stock.classifier

    def forward(self, hidden: Tensor) -> Tensor:
        """A logit for each token: [T]."""
        logits: Tensor = self.classifier(self.drop(self.head(hidden)))
        return logits.squeeze(-1)


def detector_head(encoder: Encoder) -> nn.Module:
    """ELECTRA's own: w₂·gelu(W₁·h + b₁) + b₂ for every token; AMOS's is one linear layer."""
    drop_pooler(encoder, keep=False)
    with torch.device("meta"):
        stock = family(encoder).detector(detector_config(encoder.net.config))
    made = TokenHead(stock) if encoder.kind == "modernbert" else stock.discriminator_predictions
    head: nn.Module = made.to_empty(device="cpu")
    for part in head.modules():
        stock._init_weights(part)
    encoder.begin(head)
    return head


def detector_config(config: Any) -> Any:
    """The config of the folder that holds the encoder and the head for replaced tokens."""
    if config.model_type == "amos":
        return config
    if config.model_type == "modernbert":
        one = copy.deepcopy(config)
        one.num_labels = 1
        return one
    return electra_config(config)


# ELECTRA's two folders, `discriminator` and `generator`: written, and taken over to go on from.


@dataclass(frozen=True)
class Family:
    """The stock classes of both folders, and the names of their parts there."""

    encoder: str  # prefix of the encoder's tensors
    head: str  # prefix of the head for replaced tokens
    detector: Any
    guesser: Any


ELECTRA = Family("electra.", "discriminator_predictions.", ElectraForPreTraining, ElectraForMaskedLM)
FAMILIES = {
    "amos": Family("amos.", "discriminator_predictions.", AmosForPreTraining, AmosForMaskedLM),
    "modernbert": Family("model.", "", ModernBertForTokenClassification, ModernBertForMaskedLM),
}


def family(encoder: Encoder) -> Family:
    """ELECTRA's for BERT encoders too: the same weights under the same names."""
    return FAMILIES.get(encoder.kind, ELECTRA)


def save_discriminator(
    objective: "Discriminator", folder: Path, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase"
) -> Path:
    """Stock ElectraForPreTraining and ElectraForMaskedLM; of a ModernBERT a token classifier with one output."""
    kind = family(encoder)
    prefix, guesser = kind.encoder, kind.guesser
    with summed_embeddings(objective, encoder):
        state = prefixed(prefix, encoder.net.state_dict()) | prefixed(kind.head, objective.detect.state_dict())
        stock(kind.detector, detector_config(encoder.net.config), state).save_pretrained(folder / "discriminator")
    tokenizer.save_pretrained(folder / "discriminator")
    if objective.generator is not None:
        net, head = objective.generator.encoder.net, objective.generator.head
        state = prefixed(prefix, net.state_dict()) | head.state_dict()
        stock(guesser, net.config if encoder.kind in FAMILIES else electra_config(net.config), state).save_pretrained(
            folder / "generator"
        )
        tokenizer.save_pretrained(folder / "generator")
    return folder / "discriminator"


@contextmanager
def summed_embeddings(objective: "Discriminator", encoder: Encoder) -> Iterator[None]:
    """Inside, disentangled words are added up; outside they are as they were, to the bit."""
    words, generator = encoder.net.get_input_embeddings().weight, objective.generator
    own = words.data
    if generator is not None and generator.disentangled:
        words.data = own + generator.words.detach()
    try:
        yield
    finally:
        words.data = own


def prefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under longer names."""
    return {prefix + name: tensor for name, tensor in state.items()}


def stock(kind: Any, config: Any, state: Mapping[str, Tensor]) -> Any:
    """A transformers model around tensors that are at hand; a name too much or too few is an error."""
    with torch.device("meta"):
        model = kind(config)
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    return model


def load_discriminator(objective: "Discriminator", encoder: Encoder, folder: Path, generator: Path | None) -> list[str]:
    """The head and the generator of a saved pair; says what was not there and is new."""
    notes = []
    names, there = prefixed(family(encoder).head, objective.detect.state_dict()), tensors(folder)
    head = {name: there[name] for name in names if name in there}
    if len(head) == len(names) and all(head[name].shape == names[name].shape for name in head):
        plain = {name.removeprefix(family(encoder).head): value.float() for name, value in head.items()}
        objective.detect.load_state_dict(plain)
        objective.taken = frozenset(head)
    else:
        notes.append(f"{folder.name}: no head for replaced tokens there; it is new")
    if objective.generator is None:
        return notes
    if generator is None and folder.name == "discriminator":
        generator = folder.parent / "generator"
    if generator is not None and generator.is_dir():
        load_generator(objective.generator, encoder, generator)
    else:
        notes.append("the generator is new: its loss begins at ln V (model.generator names one to continue from)")
    return notes


def load_generator(generator: Generator, encoder: Encoder, folder: Path) -> None:
    """Weights of a saved generator. Tied embeddings stay the encoder's; disentangled ones keep the encoder's sum."""
    prefix = family(encoder).encoder
    loaded = from_folder(family(encoder).guesser, folder, dtype=torch.float32, use_safetensors=True)
    own, given = generator.encoder.net.config, loaded.config
    for name in ("hidden_size", "num_hidden_layers", "embedding_size", "intermediate_size"):
        if getattr(own, name, None) != getattr(given, name, None):
            raise UserError(
                f"{folder}: the generator has {name} {getattr(given, name)}, this run's {getattr(own, name)}; "
                "set tasks.objective.generator_size to what it was made with"
            )
    body, before = loaded.base_model.state_dict(), generator.words.detach().clone()
    shared = {tensor.data_ptr() for tensor in encoder.net.state_dict().values()}
    kept = {k: v for k, v in generator.encoder.net.state_dict().items() if v.data_ptr() in shared}
    own_words = generator.words.data_ptr() not in shared
    generator.encoder.net.load_state_dict(body | kept)
    head = {k: v for k, v in loaded.state_dict().items() if not k.startswith(prefix)}
    tied = [k for k, v in generator.head.state_dict().items() if v.data_ptr() == generator.words.data_ptr()]
    generator.head.load_state_dict(head | ({} if own_words else dict.fromkeys(tied, before)))
    if generator.disentangled:
        with torch.no_grad():
            encoder.net.get_input_embeddings().weight.add_(before - generator.words)


def tensors(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found
