"""ELECTRA's two folders, `discriminator` and `generator`: written, and taken over to go on from."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import ElectraForMaskedLM, ElectraForPreTraining

from encodery.errors import UserError
from encodery.models.amos import AmosForMaskedLM, AmosForPreTraining
from encodery.models.encoder import Encoder
from encodery.models.pretrained import from_folder
from encodery.objectives._generator import Generator, electra_config

if TYPE_CHECKING:
    from encodery.objectives.electra import Detector

HEAD = "discriminator_predictions."
ELECTRA = ("electra.", (ElectraForPreTraining, ElectraForMaskedLM))  # of BERT encoders too
FAMILIES = {"amos": ("amos.", (AmosForPreTraining, AmosForMaskedLM))}


def save_detector(question: "Detector", folder: Path, encoder: Encoder, tokenizer: Any) -> Path:
    """Stock ElectraForPreTraining and ElectraForMaskedLM; a BERT encoder has the same weights under the same names."""
    prefix, (detector, guesser) = FAMILIES.get(encoder.kind, ELECTRA)
    with whole_words(question, encoder):
        state = prefixed(prefix, encoder.net.state_dict()) | prefixed(HEAD, question.detect.state_dict())
        stock(detector, encoder.net.config, state).save_pretrained(folder / "discriminator")
    tokenizer.save_pretrained(folder / "discriminator")
    if question.generator is not None:
        net, head = question.generator.encoder.net, question.generator.head
        state = prefixed(prefix, net.state_dict()) | head.state_dict()
        stock(guesser, net.config, state).save_pretrained(folder / "generator")
        tokenizer.save_pretrained(folder / "generator")
    return folder / "discriminator"


@contextmanager
def whole_words(question: "Detector", encoder: Encoder) -> Iterator[None]:
    """Inside, disentangled words are added up; outside they are as they were, to the bit."""
    words, generator = encoder.net.get_input_embeddings().weight, question.generator
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
        model = kind(config if config.model_type == "amos" else electra_config(config))
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    return model


def load_detector(question: "Detector", encoder: Encoder, folder: Path, generator: Path | None) -> list[str]:
    """The head and the generator of a saved pair; says what was not there and is new."""
    notes = []
    head = {k.removeprefix(HEAD): v for k, v in tensors(folder).items() if k.startswith(HEAD)}
    if head:
        question.detect.load_state_dict({k: v.float() for k, v in head.items()})
        question.taken = frozenset(HEAD + name for name in head)
    else:
        notes.append(f"{folder.name}: no head for replaced tokens there; it is new")
    if question.generator is None:
        return notes
    if generator is None and folder.name == "discriminator":
        generator = folder.parent / "generator"
    if generator is not None and generator.is_dir():
        load_generator(question.generator, encoder, generator)
    else:
        notes.append("the generator is new: its loss begins at ln V (model.generator names one to go on from)")
    return notes


def load_generator(generator: Generator, encoder: Encoder, folder: Path) -> None:
    """Weights of a saved generator. Tied embeddings stay the encoder's; disentangled ones keep the encoder's sum."""
    prefix, (_, guesser) = FAMILIES.get(encoder.kind, ELECTRA)
    known = from_folder(guesser, folder, dtype=torch.float32, use_safetensors=True)
    own, given = generator.encoder.net.config, known.config
    for name in ("hidden_size", "num_hidden_layers", "embedding_size", "intermediate_size"):
        if getattr(own, name) != getattr(given, name):
            raise UserError(
                f"{folder}: the generator has {name} {getattr(given, name)}, this run's {getattr(own, name)}; "
                "set objective.generator_size to what it was made with"
            )
    body, before = known.base_model.state_dict(), generator.words.detach().clone()
    shared = {tensor.data_ptr() for tensor in encoder.net.state_dict().values()}
    kept = {k: v for k, v in generator.encoder.net.state_dict().items() if v.data_ptr() in shared}
    own_words = generator.words.data_ptr() not in shared
    generator.encoder.net.load_state_dict(body | kept)
    head = {k: v for k, v in known.state_dict().items() if not k.startswith(prefix)}
    generator.head.load_state_dict(head | ({} if own_words else {"generator_lm_head.weight": before}))
    if generator.disentangled:
        with torch.no_grad():
            encoder.net.get_input_embeddings().weight.add_(before - generator.words)


def tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found
