"""The encoder: loaded or new, in float32, with one door through which every objective enters it."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.utils import logging as transformers_logging

from encodery.data.batches import Batch, InputForm
from encodery.errors import UserError
from encodery.models import dropout, packed
from encodery.models.amos import AmosModel
from encodery.models.init import Init, start
from encodery.models.pretrained import from_config, from_folder
from encodery.models.shift import Shift, Site, Words, embedding_norm, site_module
from encodery.models.sizes import new_config
from encodery.schema import ModelOptions, Pooling

# Parts a checkpoint may have or lack besides the encoder's body: poolers and the heads of pretraining or fine-tuning.
HEADS = re.compile(
    r"(^|\.)(pooler|cls|lm_head|classifier|pre_classifier|head|decoder|qa_outputs|discriminator_predictions|"
    r"generator_predictions|generator_lm_head|vocab_transform|vocab_layer_norm|vocab_projector|predictions|"
    r"sop_classifier|lm_predictions|mask_predictions|position_ids|joint)(\.|$)"
)
LEFT_OUT = "left out: "
FIRST_POSITION_AFTER_PAD = frozenset({"roberta", "xlm-roberta", "camembert"})
DROPOUTS = ("hidden_dropout_prob", "dropout", "mlp_dropout", "embedding_dropout")
ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")


class Encoder(nn.Module):
    """A transformers encoder and what the house needs to know about it."""

    def __init__(self, net: PreTrainedModel, layout: str = "auto"):
        super().__init__()
        dropout.cheaper(net)
        self.net = net
        self.adapters: list[Any] = []  # of LoRA; in a list, so that the net is not registered twice
        self.special_ids: tuple[int, ...] = ()  # of the tokenizer: tokens that begin, part and end a sequence
        self.init: Init = "hf"  # how the new weights of its heads begin
        own = getattr(net.config, "classifier_pooling", "cls")  # ModernBERT's
        self.pooling: Pooling = "mean" if own == "mean" else "first"  # what its heads read where they do not say
        self.shift: Shift | None = None
        self.kind: str = net.config.model_type
        self.layers: int = net.config.num_hidden_layers
        self.width: int = net.config.hidden_size
        self.form = input_form(net.config)
        self.layout = choose_layout(self.kind, layout)
        if self.layout == "packed":
            net.set_attn_implementation(packed.NAME)

    def begin(self, module: nn.Module) -> None:
        """Give a new module its first weights: those of this encoder's initialisation, as wide as its config says."""
        start(module, self.init, getattr(self.net.config, "initializer_range", 0.02))
        if isinstance(module, AmosModel):
            module.begin_places()

    def forward(self, batch: Batch, ids: Tensor | None = None, embeddings: Tensor | None = None) -> Tensor:
        """Hidden states of the last layer, in the batch's layout: the one door."""
        inputs = dict(batch.inputs)
        if ids is not None:
            inputs["input_ids"] = ids
        if embeddings is not None:
            inputs["inputs_embeds"] = embeddings
            del inputs["input_ids"]
            if self.shift and self.shift.site == "word":
                inputs["inputs_embeds"] = self.shift.add(embeddings)
        with self.shift.hooked(self.net) if self.shift else nullcontext():
            hidden: Tensor = self.net(**inputs).last_hidden_state
        return hidden

    @contextmanager
    def shifted(
        self, values: Tensor, site: Site = "word", detach: bool = False, words: Words | None = None
    ) -> Iterator[None]:
        """Inside, `values` (in the batch's layout) are added to the embeddings of whatever goes through the door.

        word: to the rows of the word embedding matrix; embedding_output: after positions, norm and dropout;
        normalised: before that norm, in units of each token's standard deviation. With `detach` no gradient goes into
        the embeddings, with `words` it waits there until they are settled. Other users of a shared embedding module
        are not hit.
        """
        self.require_site(site)
        before, self.shift = self.shift, Shift(values, site, detach, words)
        try:
            yield
        finally:
            self.shift = before

    def require_site(self, site: Site) -> None:
        """Refuse an encoder that cannot be perturbed there."""
        if getattr(self.net, "_compiled_call_impl", None) is not None:
            raise UserError("train.compile: a compiled encoder does not see perturbations; set it to false")
        embedding_norm(self.net) if site == "normalised" else site_module(self.net, site)

    def site_width(self, site: Site) -> int:
        """How many numbers a token has where perturbations are added."""
        if site == "normalised":
            return int(embedding_norm(self.net).weight.shape[0])
        words: int = self.net.get_input_embeddings().weight.shape[1]
        inner = getattr(self.net, "encoder", None)
        projected = hasattr(self.net, "embeddings_project") or hasattr(inner, "embedding_hidden_mapping_in")
        return words if site == "word" or projected else self.width

    def depth(self, name: str) -> int | None:
        """Layer of a parameter of `net`: 0 embeddings, j + 1 block j, None a pooler (which belongs to the head)."""
        if "pooler" in name:
            return None
        if "albert_layer_groups" in name:  # one block shared by all layers: it is the top one too
            return self.layers
        block = re.search(r"(?:^|\.)layers?\.(\d+)\.", name)
        if block:
            return int(block.group(1)) + 1
        return self.layers if name.startswith("final_norm") else 0

    def named_depths(self) -> Iterator[tuple[str, nn.Parameter, int | None]]:
        """All parameters with name and depth."""
        for name, parameter in self.net.named_parameters():
            yield name, parameter, self.depth(name)


def input_form(config: Any) -> InputForm:
    """What this architecture wants to be given."""
    pad = config.pad_token_id if config.pad_token_id is not None else 0
    first = pad + 1 if config.model_type in FIRST_POSITION_AFTER_PAD else 0
    if config.model_type == "mpnet":  # counts like RoBERTa, but takes 1 for the pad id whatever the config says
        first = 2
    return InputForm(types=(getattr(config, "type_vocab_size", 0) or 0) > 1, pad_id=pad, first_position=first)


def choose_layout(kind: str, wanted: str) -> Any:
    """auto: packed where that was proven equal, else rows; asking for packed elsewhere is refused."""
    if wanted == "auto":
        return "packed" if kind in packed.PROVEN else "rows"
    if wanted == "packed" and kind not in packed.PROVEN:
        raise UserError(f"train.layout: packed was not proven for {kind}; use rows or auto")
    return wanted


def load_encoder(folder: Path, options: ModelOptions, layout: str = "auto") -> tuple[Encoder, list[str]]:
    """An encoder from a transformers folder, with notes on what was newly made or left out."""
    try:
        config = adapt(encoder_config(folder), options)
        if config.is_encoder_decoder:
            raise UserError(f"{folder}: {config.model_type} is not an encoder")
        with quiet():
            net, report = from_folder(
                AutoModel, folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True,
                ignore_mismatched_sizes=True,
            )  # fmt: skip
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: cannot be read as an encoder ({str(error).splitlines()[0]})") from None
    notes = check_loaded(folder, report)
    return Encoder(net, layout), notes


def encoder_config(folder: Path) -> Any:
    """The config of the encoder in a transformers folder; one of ours may stand around it."""
    return inner_config(from_folder(AutoConfig, folder))


def inner_config(config: Any) -> Any:
    """The encoder's own config, where one of our classes stands around it."""
    return getattr(config, "encoder_config", config)


def check_loaded(folder: Path, report: dict[str, Any]) -> list[str]:
    """A hole in the body is an error (R16); poolers and old heads are a note."""
    wrong, notes = [], []
    for what, key in (("missing", "missing_keys"), ("unexpected", "unexpected_keys")):
        names = sorted(report[key])
        body = [n for n in names if not HEADS.search(n)]
        wrong += [f"{what} {n}" for n in body]
        others = sorted({n.rsplit(".", 1)[0] for n in names if n not in body})
        if others:
            made = "newly initialised: " if what == "missing" else LEFT_OUT
            notes.append(made + ", ".join(others))
    wrong += [f"wrong shape {n}" for n, *_ in sorted(report["mismatched_keys"])]
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise UserError(f"{folder}: the weights do not fit the architecture: {', '.join(wrong[:5])}{more}")
    return notes


def without_taken(notes: list[str], taken: Iterable[str]) -> list[str]:
    """The notes of `load_encoder`, where heads whose tensors an objective took over are not called left out."""
    parts = {name.rsplit(".", 1)[0] for name in taken}
    found = []
    for note in notes:
        if note.startswith(LEFT_OUT):
            left = [name for name in note.removeprefix(LEFT_OUT).split(", ") if name not in parts]
            found += [LEFT_OUT + ", ".join(left)] if left else []
        else:
            found.append(note)
    return found


def new_encoder(options: ModelOptions, tokenizer: Any, layout: str = "auto") -> Encoder:
    """An encoder with fresh weights; seed torch before."""
    assert options.new is not None
    config = adapt(new_config(options.new, tokenizer), options)
    encoder = Encoder(from_config(AutoModel, config, dtype=torch.float32), layout)
    encoder.init = options.new.init
    encoder.begin(encoder.net)
    return encoder


def adapt(config: Any, options: ModelOptions) -> Any:
    """Put the dropouts that were asked for into a transformers config."""
    for value, names in ((options.dropout, DROPOUTS), (options.attention_dropout, ATTENTION_DROPOUTS)):
        for name in names:
            if value is not None and hasattr(config, name):
                setattr(config, name, value)
    return config


def freeze(encoder: Encoder, tune: str) -> None:
    """`head`: nothing of the body is trained; `top:N`: only its N upper layers. A pooler counts as head."""
    if tune in ("full", "lora"):
        return
    upper = 0 if tune == "head" else int(tune.removeprefix("top:"))
    if upper > encoder.layers:
        raise UserError(f"model.tune: {tune}, but this encoder has {encoder.layers} layers")
    for _, parameter, depth in encoder.named_depths():
        parameter.requires_grad_(depth is None or (upper > 0 and depth > encoder.layers - upper))


class quiet:
    """Silence transformers while it loads: what matters is in our notes and errors."""

    def __enter__(self) -> None:
        self.level = transformers_logging.get_verbosity()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        transformers_logging.set_verbosity(self.level)
