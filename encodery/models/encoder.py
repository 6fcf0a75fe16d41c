"""The encoder: loaded or new, in float32, with one door through which every objective enters it."""

import inspect
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.utils import logging as transformers_logging

from encodery.config.schema import SIZES, ModelOptions, NewModel, Pooling
from encodery.core.text import first_line
from encodery.data.batches import Batch, InputForm
from encodery.errors import UserError
from encodery.models import packed
from encodery.models.amos import AmosModel
from encodery.models.kernels import dropout
from encodery.models.perturb import Shift, Site, Words, embedding_norm, site_module
from encodery.models.pretrained import from_config, from_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# How new weights begin: as transformers makes them, or as Google's ELECTRA did.


Init = Literal["hf", "google"]
GLOROT = ("embeddings_project", "dense_prediction")  # layers that Google's code gave no initialiser: Glorot uniform


def start(module: nn.Module, how: Init, deviation: float = 0.02) -> None:
    """google: truncated normal (cut at two deviations), projections and the last layer Glorot uniform, biases 0.

    hf leaves the weights as transformers made them.
    """
    if how == "hf":
        return
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            if name.rpartition(".")[2] in GLOROT:
                nn.init.xavier_uniform_(part.weight)
            else:
                nn.init.trunc_normal_(part.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)


# Sizes of new encoders, in the words of each architecture's config class.


FACTORISED = {"electra": "embedding_size", "albert": "embedding_size"}
DISTILBERT = {
    "num_hidden_layers": "n_layers", "hidden_size": "dim", "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}  # fmt: skip


def new_config(new: NewModel, tokenizer: "PreTrainedTokenizerBase") -> Any:
    """A transformers config of the asked architecture and size, for this tokenizer."""
    layers, width, heads, inner, embedding = SIZES[new.size]
    fields: dict[str, Any] = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": inner,
    }
    if new.kind in FACTORISED:
        fields[FACTORISED[new.kind]] = 128 if new.kind == "albert" else embedding
    if new.kind == "distilbert":
        fields = {DISTILBERT[k]: v for k, v in fields.items()}
    fields |= {"vocab_size": highest_id(tokenizer) + 1, "pad_token_id": tokenizer.pad_token_id}
    if new.kind == "modernbert":  # its special ids default to positions in its own vocabulary
        fields |= {
            "cls_token_id": tokenizer.cls_token_id,
            "sep_token_id": tokenizer.sep_token_id,
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
        }
    if new.kind == "deberta-v2":  # as v3: relative positions, shared key
        fields |= {
            "relative_attention": True, "position_buckets": 256, "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
        }  # fmt: skip
    config = AutoConfig.for_model(new.kind)
    unknown = [name for name in new.config if not hasattr(config, name)]
    if unknown:
        raise UserError(f"model.new.config: {type(config).__name__} has no field {', '.join(unknown)}")
    return AutoConfig.for_model(new.kind, **fields | new.config)


def highest_id(tokenizer: "PreTrainedTokenizerBase") -> int:
    """The largest token id; a vocabulary with holes or doubles has fewer entries than that."""
    return int(max(len(tokenizer) - 1, *tokenizer.get_vocab().values()))


# Parts a checkpoint may have or lack besides the encoder's body: poolers and the heads of pretraining or fine-tuning.
HEADS = re.compile(
    r"(^|\.)(pooler|cls|lm_head|classifier|pre_classifier|head|decoder|qa_outputs|discriminator_predictions|"
    r"generator_predictions|generator_lm_head|vocab_transform|vocab_layer_norm|vocab_projector|predictions|"
    r"sop_classifier|lm_predictions|mask_predictions|position_ids|joint)(\.|$)"
)
NEWLY_MADE = "newly initialised: "
LEFT_OUT = "weights left out: "
WHY_LEFT_OUT = " (of an earlier head, such as that of pretraining, which is not used here)"
FIRST_POSITION_AFTER_PAD = frozenset(
    {
        "roberta", "xlm-roberta", "camembert", "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "xmod",
        "ibert", "luke", "lilt", "layoutlmv3", "longformer", "markuplm",
    }
)  # fmt: skip
DROPOUTS = ("hidden_dropout_prob", "dropout", "mlp_dropout", "embedding_dropout")
ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")


class Encoder(nn.Module):
    """A transformers encoder and what the house needs to know about it."""

    def __init__(self, net: PreTrainedModel, layout: str = "auto"):
        super().__init__()
        require_layers(net)
        dropout.cheaper(net)
        self.net = net
        self.adapters: list[Any] = []  # of LoRA; in a list, so that the net is not registered twice
        self.places: Any = None  # of its attention heads, once they were looked for
        self.pooler_of_head = False  # whether its pooler was made with a head, and is kept there
        self.special_ids: tuple[int, ...] = ()  # of the tokenizer: tokens that begin, part and end a sequence
        self.init: Init = "hf"  # how the new weights of its heads begin
        own = getattr(net.config, "classifier_pooling", "cls")  # ModernBERT's; EuroBERT's late is a mean of logits
        self.pooling: Pooling = "mean" if own in ("mean", "late") else "first"  # what its heads read by default
        self.delta: Shift | None = None
        self.compiled = False  # whether its layers are: they do not see hooks that come later
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
            if self.delta and self.delta.site == "word":
                inputs["inputs_embeds"] = self.delta.add(embeddings)
        with self.delta.hooked(self.net) if self.delta else nullcontext():
            hidden: Tensor = self.net(**inputs).last_hidden_state
        return hidden

    @contextmanager
    def perturbed(
        self, values: Tensor, site: Site = "word", detach: bool = False, words: Words | None = None
    ) -> Iterator[None]:
        """Inside, `values` (in the batch's layout) are added to the embeddings of whatever goes through the door.

        word: to the rows of the word embedding matrix; embedding_output: after positions, norm and dropout;
        normalised: before that norm, in units of each token's standard deviation. With `detach` no gradient goes into
        the embeddings, with `words` it waits there until they are settled. Other users of a shared embedding module
        are not hit.
        """
        self.require_site(site)
        before, self.delta = self.delta, Shift(values, site, detach, words)
        try:
            yield
        finally:
            self.delta = before

    def require_site(self, site: Site) -> None:
        """Refuse an encoder that cannot be perturbed there."""
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
        raise UserError(f"train.layout: packed is not verified for {kind}; use rows or auto")
    return wanted


def load_encoder(folder: Path, options: ModelOptions, layout: str = "auto") -> tuple[Encoder, list[str]]:
    """An encoder from a transformers folder, with notes on what was newly made or left out."""
    try:
        config = adapt(encoder_config(folder), options)
        require_text_encoder(config, str(folder))
        with quiet():
            net, report = from_folder(
                AutoModel, folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True,
                ignore_mismatched_sizes=True,
            )  # fmt: skip
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: cannot be read as an encoder ({first_line(error)})") from None
    notes = check_loaded(folder, report, config)
    return Encoder(net, layout), notes


def require_text_encoder(config: Any, source: str) -> None:
    """Refuse what has a decoder, and what reads more than text."""
    if config.is_encoder_decoder:
        raise UserError(f"{source}: {config.model_type} is not an encoder")
    if getattr(config, "vision_config", None) is not None:
        raise UserError(f"{source}: {config.model_type} also reads images; encodery supports text only")


def require_layers(net: PreTrainedModel) -> None:
    """Refuse what is not a stack of layers over tokens, and what cannot be told where padding is."""
    lacking = [name for name in ("num_hidden_layers", "hidden_size", "vocab_size") if not hasattr(net.config, name)]
    if lacking:
        raise UserError(
            f"{net.config.model_type} is not a stack of layers over tokens: no {', '.join(lacking)} in its config"
        )
    if "attention_mask" not in inspect.signature(net.forward).parameters:
        raise UserError(f"{net.config.model_type} takes no attention mask: padding would change its output")


def encoder_config(folder: Path) -> Any:
    """The config of the encoder in a transformers folder; one of ours may stand around it."""
    return inner_config(from_folder(AutoConfig, folder))


def inner_config(config: Any) -> Any:
    """The encoder's own config, where one of our classes stands around it."""
    return getattr(config, "encoder_config", config)


def check_loaded(folder: Path, report: dict[str, Any], config: Any = None) -> list[str]:
    """A hole in the body is an error (R16); poolers and old heads are a note."""
    wrong, notes = [], []
    heads = head_parts(config) if any(not HEADS.search(n) for n in report["unexpected_keys"]) else frozenset()
    for what, key in (("missing", "missing_keys"), ("unexpected", "unexpected_keys")):
        names = sorted(report[key])
        body = [n for n in names if not HEADS.search(n) and n.partition(".")[0] not in heads]
        wrong += [f"{what} {n}" for n in body]
        others = sorted({n.rsplit(".", 1)[0] for n in names if n not in body})
        if others:
            listed = ", ".join(others)
            notes.append(NEWLY_MADE + listed if what == "missing" else LEFT_OUT + listed + WHY_LEFT_OUT)
    wrong += [f"wrong shape {n}" for n, *_ in sorted(report["mismatched_keys"])]
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise UserError(f"{folder}: the weights do not fit the architecture: {', '.join(wrong[:5])}{more}")
    return notes


def head_parts(config: Any) -> frozenset[str]:
    """What the class that a checkpoint was saved with has beside its encoder, by name."""
    kind = getattr(transformers, (getattr(config, "architectures", None) or [""])[0], None)
    if not (isinstance(kind, type) and issubclass(kind, PreTrainedModel)):
        return frozenset()
    with torch.device("meta"):
        stock = kind(config)
    parts = frozenset(name for name, _ in stock.named_children())
    return parts - {stock.base_model_prefix} if stock.base_model_prefix in parts else frozenset()


def without_taken(notes: list[str], taken: Iterable[str]) -> list[str]:
    """The notes of `load_encoder`, where heads whose tensors an objective took over are not called left out."""
    parts = {name.rsplit(".", 1)[0] for name in taken}
    kept = []
    for note in notes:
        if note.startswith(LEFT_OUT):
            names = note.removeprefix(LEFT_OUT).removesuffix(WHY_LEFT_OUT).split(", ")
            left = [name for name in names if name not in parts]
            kept += [LEFT_OUT + ", ".join(left) + WHY_LEFT_OUT] if left else []
        else:
            kept.append(note)
    return kept


def without_unused(notes: list[str], net: torch.nn.Module) -> list[str]:
    """The notes of `load_encoder`, where parts that the heads have taken out of `net` are not called newly made."""
    parts = [name for name, _ in net.named_modules()]
    kept = []
    for note in notes:
        if note.startswith(NEWLY_MADE):
            names = note.removeprefix(NEWLY_MADE).split(", ")
            used = [name for name in names if any(part.endswith(name) for part in parts)]
            kept += [NEWLY_MADE + ", ".join(used)] if used else []
        else:
            kept.append(note)
    return kept


def new_encoder(options: ModelOptions, tokenizer: "PreTrainedTokenizerBase", layout: str = "auto") -> Encoder:
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
