"""Write the table of docs/encoders.md: what works with each encoder family of transformers, tried on tiny models.

`make encoders` runs it, in about two minutes. tests/models/test_families.py makes the same walk and compares the page.
"""

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)
from transformers.modeling_layers import GenericForSequenceClassification
from transformers.models.auto import modeling_auto as auto

from encodery.config.schema import Lora, ModelOptions
from encodery.data.batches import Batch, MicroBatcher
from encodery.data.token_table import TokenTable
from encodery.errors import EncoderyError
from encodery.exchange.export_onnx import TOLERANCE as ONNX_TOLERANCE
from encodery.models import attention_heads, lora, packed_check
from encodery.models.encoder import Encoder, highest_id, load_encoder, quiet, require_text_encoder
from encodery.models.model import Model
from encodery.models.onnx import file as onnx_file
from encodery.models.tokenizer import toy_tokenizer
from encodery.objectives.classification import Classification
from encodery.objectives.electra import Electra
from encodery.objectives.mlm import Mlm

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "encoders.md"
BEGIN, END = "<!-- made by docs/fill_encoders.py -->", "<!-- end -->"
COLUMNS = ("fine-tune", "packed", "MLM", "RTD", "heads", "LoRA", "ONNX")
YES, NO = "✓", "–"
COMMON = {"packed": "packed is not verified", "RTD": "electra works on"}  # reasons that the page gives once
TOLERANCE = 1e-4  # between our logits and those of transformers' own class on the saved folder
LENGTHS = (17, 9, 4)
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "head_dim": 16,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "embedding_size": 32, "pad_token_id": 0,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
# What a config needs beside these to be tiny, or to take texts.
MORE: dict[str, dict[str, Any]] = {
    "canine": {"num_hash_buckets": 64, "local_transformer_stride": 8, "downsampling_rate": 2},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "esm": {"position_embedding_type": "rotary", "mask_token_id": 4},
    "flaubert": {"emb_dim": 32, "n_layers": 2, "n_heads": 2},
    "funnel": {"num_hidden_layers": ..., "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64,
               "block_sizes": [1, 1], "block_repeats": [1, 1], "architectures": ["FunnelModel"]},
    "layoutlmv3": {"coordinate_size": 5, "shape_size": 6, "visual_embed": False},
    "lilt": {"hidden_size": 48},
    "longformer": {"attention_window": 8},
    "luke": {"entity_vocab_size": 8, "entity_emb_size": 8},
    "markuplm": {"xpath_unit_hidden_size": 4, "max_depth": 4},
    "mistral4": {"n_routed_experts": 2, "q_lora_rank": 8, "kv_lora_rank": 8, "moe_intermediate_size": 16,
                 "num_experts_per_tok": 1, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16},
    "mobilebert": {"true_hidden_size": 32, "intra_bottleneck_size": 32, "num_feedforward_networks": 1},
    "modernbert": {"local_attention": 8},
    "neomme": {"sliding_window": 8, "embedding_rank": 8, "embedding_dim": 16, "num_key_value_heads": 1},
    "nystromformer": {"conv_kernel_size": 3},
    "perceiver": {"d_latents": 32, "d_model": 32, "num_latents": 4, "num_self_attends_per_block": 2,
                  "num_self_attention_heads": 2, "num_cross_attention_heads": 2},
    "reformer": {"axial_pos_embds": False, "attention_head_size": 16, "feed_forward_size": 64, "attn_layers":
                 ["local", "lsh"], "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8, "num_buckets": 2},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 24},
    "roc_bert": {"pronunciation_embed_dim": 8, "pronunciation_vocab_size": 16, "shape_embed_dim": 8,
                 "shape_vocab_size": 16},
    "tapas": {"type_vocab_sizes": [3, 8, 8, 2, 8, 8, 4]},
    "ultrabert": {"sliding_window": 8, "prediction_head_size": 24},
    "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 2},
    "xmod": {"default_language": "en_XX"},
}  # fmt: skip


@dataclass
class Family:
    """What was found out about a family: a reason where something does not work."""

    name: str
    reasons: dict[str, str] = field(default_factory=dict)

    def works(self, column: str) -> bool:
        """Whether it was seen to work."""
        return column not in self.reasons


class Cannot(Exception):
    """The reason why something does not work."""


@contextmanager
def failing(reason: str) -> Iterator[None]:
    """Whatever another library raises here has this reason."""
    try:
        yield
    except Exception as error:
        raise Cannot(f"{reason} ({type(error).__name__}: {error})") from None


def families() -> list[str]:
    """Encoders that have a class for masked language modelling or for labels of texts, by their names."""
    masked, labels = auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    decoders = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    names = [name for name in {*masked, *labels} if name in masked or name not in decoders]
    return sorted(name for name in names if not CONFIG_MAPPING[name]().is_encoder_decoder and not reads_last(name))


def reads_last(name: str) -> bool:
    """Whether its classifier reads the last token, as those of decoders do."""
    return issubclass(getattr(transformers, labels_class(name), object), GenericForSequenceClassification)


def labels_class(name: str) -> str:
    """The name of the class for labels of texts, or nothing."""
    return str(auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.get(name, ""))


def tiny_config(name: str) -> Any:
    """A config of a few thousand weights; nothing is dropped."""
    default = CONFIG_MAPPING[name]()
    fields = {key: value for key, value in SIZES.items() if hasattr(default, key)}
    fields |= {"vocab_size": highest_id(toy_tokenizer()) + 1} | MORE.get(name, {})
    config = AutoConfig.for_model(name, **{key: value for key, value in fields.items() if value is not ...})
    for key in vars(config):
        if "dropout" in key and isinstance(getattr(config, key), float):
            setattr(config, key, 0.0)
    return config


def tiny_net(name: str) -> Any:
    """The bare encoder with random weights, biases and norms too: nothing is hidden by a zero."""
    torch.manual_seed(0)
    config = tiny_config(name)
    require_text_encoder(config, "encoder")
    net = AutoModel.from_config(config)
    with torch.no_grad():
        for key, parameter in net.named_parameters():
            scale = 0.2 if parameter.ndim > 1 else 0.05
            parameter.copy_(torch.randn_like(parameter) * scale + ("norm" in key.lower() and "weight" in key))
    return net


def encoder_of(name: str, layout: str = "rows") -> Encoder:
    """The encoder as encodery holds it."""
    return Encoder(tiny_net(name), layout)


def rows(size: int) -> TokenTable:
    """Made-up sequences with labels, in memory."""
    rng = np.random.default_rng(0)
    return TokenTable.in_memory(
        ids=np.concatenate([rng.integers(5, size, n) for n in LENGTHS]).astype(np.int32),
        types=np.zeros(sum(LENGTHS), np.uint8),
        starts=np.cumsum([0, *LENGTHS]),
        targets={"label": np.arange(len(LENGTHS)) % 2},
        token_targets={}, marks={}, group=None,
    )  # fmt: skip


def batch_of(encoder: Encoder) -> Batch:
    """All the sequences as one batch in the encoder's layout."""
    batcher = MicroBatcher(encoder.layout, encoder.form, 1 << 20)
    return batcher.batch(rows(encoder.net.config.vocab_size), np.arange(len(LENGTHS)), "t", 0)


def learn(model: Model, steps: int = 4) -> None:
    """A few steps on one batch; the loss must fall."""
    batch, optimizer = (
        batch_of(model.encoder),
        torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2),
    )
    losses = []
    for _ in range(steps):
        loss = sum(model(batch)[1].values())
        losses.append(float(loss))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()
    if not losses[-1] < losses[0]:
        raise Cannot(f"the loss does not fall: {losses[0]:.3f} to {losses[-1]:.3f}")


def classifier(name: str, layout: str = "rows") -> Model:
    """An encoder with its stock head."""
    encoder = encoder_of(name, layout)
    return Model(encoder, {"t": Classification(labels=["a", "b"]).build(encoder, toy_tokenizer())})


@torch.no_grad()
def same_as_transformers(model: Model, ours: torch.Tensor, kind: Any, folder: Path) -> None:
    """The saved folder opens with transformers' own class, and gives the same."""
    with quiet():
        theirs = kind.from_pretrained(folder).eval()
    batch = batch_of(model.encoder) if model.encoder.layout == "rows" else None
    given = batch.inputs if batch else {}
    wanted = theirs(**{key: value for key, value in given.items() if key != "position_ids"}).logits
    far = float((ours - wanted).abs().max())
    if not far < TOLERANCE * max(1.0, float(wanted.abs().max())):
        raise Cannot(f"transformers opens the folder with other logits (by {far:.0e})")


def same_without_padding(model: Model, ours: torch.Tensor) -> None:
    """What is said of a sequence must not depend on its neighbours."""
    batcher, table = MicroBatcher("rows", model.encoder.form, 1 << 20), rows(model.encoder.net.config.vocab_size)
    alone = [model.outputs(batcher.batch(table, np.array([row]), "t", 0))["logits"][0] for row in range(len(LENGTHS))]
    far = float((torch.stack(alone) - ours).abs().max())
    if not far < TOLERANCE * max(1.0, float(ours.abs().max())):
        raise Cannot(f"padding changes what it says of a text (by {far:.0e})")


def fine_tune(name: str) -> None:
    """A stock head learns, is saved, and opens with transformers and with encodery."""
    model = classifier(name)
    learn(model)
    model.eval()
    with torch.no_grad():
        ours = model.outputs(batch_of(model.encoder))["logits"]
        same_without_padding(model, ours)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder), toy_tokenizer(), {"tasks": {}})
        same_as_transformers(model, ours, AutoModelForSequenceClassification, Path(folder))
        encoder, _ = load_encoder(Path(folder), ModelOptions(name=folder), "rows")
        again = Model(encoder, {"t": Classification(labels=["a", "b"]).build(encoder, toy_tokenizer())}).eval()
        again.load_heads(Path(folder))
        with torch.no_grad():
            far = float((again.outputs(batch_of(encoder))["logits"] - ours).abs().max())
    if not far < TOLERANCE:
        raise Cannot(f"the saved folder gives other logits (by {far:.0e})")


def pack(name: str) -> None:
    """The packed layout gives the padded one's hidden states, and learns."""
    learn(classifier(name, "packed"))
    packed_check.require_equal(encoder_of(name, "packed"))


def mask_model(name: str) -> None:
    """Masked language modelling learns, and opens with transformers."""
    encoder = encoder_of(name)
    model = Model(encoder, {"t": Mlm().build(encoder, toy_tokenizer())})
    learn(model)
    model.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        batch, head = batch_of(encoder), model.objective("t").head
        vectors = head(encoder(batch).flatten(0, 1))
        ours = (vectors @ head.weight.t() + head.bias).unflatten(0, batch.inputs["input_ids"].shape)
        model.save(Path(folder), toy_tokenizer(), {"tasks": {}})
        same_as_transformers(model, ours, AutoModelForMaskedLM, Path(folder))


def detect(name: str) -> None:
    """Replaced-token detection learns."""
    encoder = encoder_of(name)
    learn(Model(encoder, {"t": Electra(generator_size=1, generator_layers=0.5).build(encoder, toy_tokenizer())}))


@torch.no_grad()
def gate(name: str) -> None:
    """Gates of one change nothing, and a head can be taken away."""
    encoder = encoder_of(name).eval()
    batch = batch_of(encoder)
    plain = batch.tokens(encoder(batch))
    with attention_heads.hooked(encoder, attention_heads.places_of(encoder).output, lambda _, context: context * 1.0):
        same = batch.tokens(encoder(batch))
    with attention_heads.without(encoder, [(0, 1)]):
        other = batch.tokens(encoder(batch))
        again = batch.tokens(encoder(batch))
    if not torch.equal(other, again):
        raise Cannot("its attention is drawn at random, also in evaluation")
    if not torch.equal(plain, same) or torch.equal(plain, other):
        raise Cannot("gates do not act on its heads alone")


def adapt(name: str) -> None:
    """Adapters learn, and the merged encoder gives the same."""
    model = classifier(name)
    with failing("peft finds no linear layers to adapt"):
        lora.adapt(model.encoder, Lora(rank=2), 1)
    learn(model)
    model.eval()
    with torch.no_grad():
        before = model.outputs(batch_of(model.encoder))["logits"]
        lora.merge(model.encoder)
        far = float((model.outputs(batch_of(model.encoder))["logits"] - before).abs().max())
    if not far < TOLERANCE:
        raise Cannot(f"merging changes the logits by {far:.0e}")


@torch.no_grad()
def to_onnx(name: str) -> None:
    """The classifier as ONNX gives the same for other shapes than those it was traced with."""
    model = classifier(name).eval()
    stock = model.objective("t").head.stock.eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        with failing("torch cannot export it"):
            onnx_file.write(onnx_file.Named(stock, ["logits"]), model.encoder.form.types, ["logits"], path)
        batch = batch_of(model.encoder)
        given = {key: batch.inputs[key] for key in onnx_file.input_names(model.encoder.form.types)}
        with failing("ONNX Runtime cannot run the exported file"):
            found = onnx_file.session(path).run(None, {key: value.numpy() for key, value in given.items()})[0]
        far = float(np.abs(found - stock(**given).logits.numpy()).max())
    if not far < ONNX_TOLERANCE:
        raise Cannot(f"the exported file gives other logits (by {far:.0e})")


CHECKS: dict[str, Callable[[str], None]] = dict(
    zip(COLUMNS, (fine_tune, pack, mask_model, detect, gate, adapt, to_onnx), strict=True)
)


def examine(name: str) -> Family:
    """Try everything."""
    found = Family(name)
    for column, check in CHECKS.items():
        if reason := outcome(check, name):
            found.reasons[column] = reason
    return found


@contextmanager
def silent() -> Iterator[None]:
    """What torch prints below Python when an export fails is not for people."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def outcome(check: Callable[[str], None], name: str) -> str:
    """Empty if it works, else a reason in one line."""
    try:
        with warnings.catch_warnings(), quiet(), silent():
            warnings.simplefilter("ignore")
            check(name)
    except (Cannot, EncoderyError) as error:
        return str(error)
    except ImportError as error:
        return f"needs a package beyond transformers ({error})"
    except Exception as error:  # whatever a foreign class does with inputs it was not made for is a finding here
        return f"its class fails on a batch of texts ({type(error).__name__}: {error})"
    return ""


def walk(names: Sequence[str] | None = None) -> list[Family]:
    """All families, one after the other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # nothing here is large enough for two
    try:
        return [examine(name) for name in (families() if names is None else names)]
    finally:
        torch.set_num_threads(threads)


def table(found: Sequence[Family]) -> str:
    """The table, and under it the reasons."""
    lines = ["| family | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    for family in found:
        marks = [YES if family.works(column) else NO for column in COLUMNS]
        lines.append(f"| `{family.name}` | " + " | ".join(marks) + " |")
    lines += ["", "What does not work, and why:", ""]
    for family in found:
        if said := "; ".join(sentence(columns, reason) for reason, columns in grouped(family).items()):
            lines.append(f"- `{family.name}`: {said}.")
    return "\n".join(lines) + "\n"


def grouped(family: Family) -> dict[str, list[str]]:
    """Columns by reason. What holds for most families is said once, above the table."""
    found: dict[str, list[str]] = {}
    for column, reason in family.reasons.items():
        if column not in COMMON or COMMON[column] not in reason:
            found.setdefault(short(reason), []).append(column)
    return found


def short(reason: str) -> str:
    """Without the key, and without what differs from machine to machine."""
    if " cannot be reached" in reason:
        return "they cannot be reached"
    found = reason.removeprefix("encoder: ").partition(" (")[0]
    for key in ("model.head: ", "objective: ", "heads: "):
        found = found.removeprefix(key)
    return found


def sentence(columns: Sequence[str], reason: str) -> str:
    """Which columns, unless it is all of them."""
    return reason if len(columns) == len(COLUMNS) else f"{', '.join(columns)}: {reason}"


def page(found: Sequence[Family], text: str) -> str:
    """The page with the table of these families."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(found)}\n{END}{after}"


def main() -> None:
    """Rewrite the table."""
    logging.disable(logging.WARNING)
    PAGE.write_text(page(walk(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
