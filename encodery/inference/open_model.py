"""Open a saved model, and the device, precision and seed that every model is made with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import ValidationError
from transformers import AutoTokenizer

from encodery.config.load import find
from encodery.config.own_code import imported, of_class
from encodery.config.schema import AnyPooling, Config, ModelOptions
from encodery.core.text import first_line
from encodery.data import rng
from encodery.distributed import comm
from encodery.errors import UserError
from encodery.inference.answer_head import no_such_head
from encodery.inference.model_card import foreign_card
from encodery.models import packed_check
from encodery.models.encoder import Encoder, highest_id, load_encoder
from encodery.models.model import CARD, Model, Precision, damaged, read_card
from encodery.models.pretrained import from_folder
from encodery.objectives.base import Objective, ObjectiveModule

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def require_vocabulary(encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> None:
    """A tokenizer of another model would name rows that the embedding does not have."""
    rows, highest = encoder.net.config.vocab_size, highest_id(tokenizer)
    if highest >= rows:
        raise UserError(
            f"model.tokenizer: its ids go up to {highest:,}, but the encoder has embeddings for {rows:,} tokens; "
            "use the model's own tokenizer"
        )


def objective_modules(
    encoder: Encoder,
    objectives: Mapping[str, Objective],
    tokenizer: "PreTrainedTokenizerBase",
    seed: int | None = None,
    drawn_as: Mapping[str, str] | None = None,
) -> dict[str, ObjectiveModule]:
    """The modules of all objectives on one encoder, whose pooler stays if any of them uses it.

    With a seed their weights are drawn by the name of the task, or by what `drawn_as` says for it.
    """
    pooler, kept, modules = getattr(encoder.net, "pooler", None), False, {}
    for name, objective in objectives.items():
        if seed is not None:
            seed_weights(seed, "head", (drawn_as or {}).get(name, name))
        if pooler is not None:
            encoder.net.pooler = pooler
        modules[name] = objective.build(encoder, tokenizer)
        now = getattr(encoder.net, "pooler", None)  # some heads bring one
        pooler, kept = (pooler, kept) if now is None else (now, True)
    if pooler is not None:
        encoder.net.pooler = pooler if kept else None
    if len(modules) > 1:  # the config of the last one would pass for that of the model
        encoder.net.config.num_labels, encoder.net.config.problem_type = 2, None
    return modules


def make_objective(
    plain: Mapping[str, Any], code: Mapping[str, tuple[Path, str]] | None = None, model: ModelOptions | None = None
) -> Objective:
    """The options object of an objective that is given as plain data; own files must be among the checked ones.

    An objective with a head takes what it does not say itself from the model's options.
    """
    options = {k: v for k, v in plain.items() if k != "kind"}
    file = plain["kind"].rpartition(":")[0]
    if file and file not in (code or {}):
        raise UserError(f"objective: {plain['kind']} is custom code; load it with its run and --allow-code")
    cls = imported(plain["kind"], code) if code and file else find("objectives", plain["kind"])
    if model and "head" in cls.model_fields:
        options = {"head": model.head, "head_dropout": model.head_dropout, **options}
    if "pooling" in cls.model_fields and options.get("head") != "san":
        options = {"pooling": model.pooling if model else unsaid_pooling(options), **options}
    unknown = sorted(set(options) - set(cls.model_fields))
    if unknown:
        raise UserError(
            f"objective: {plain['kind']} has no option {', '.join(unknown)}; it has {', '.join(cls.model_fields)}"
        )
    return of_class(cls.model_validate_json(json.dumps(options)), Objective, "objective")


def load_model(
    folder: Path,
    layout: str = "auto",
    device: str = "auto",
    code: Mapping[str, tuple[Path, str]] | None = None,
    head: str | None = None,
) -> tuple[Model, "PreTrainedTokenizerBase", dict[str, Any]]:
    """A saved model (ours or any fine-tuned classifier of transformers), its tokenizer and its card.

    `head` leaves all other heads away. `code` holds the own Python files that may run (`Resolved.code`); a card alone
    never makes a file run.
    """
    encoder, tokenizer, _ = open_encoder(folder, layout)
    card = read_card(folder) or foreign_card(folder, encoder, tokenizer)
    if head is not None:
        if head not in card["tasks"]:
            raise UserError(no_such_head(folder, head, list(card["tasks"])))
        card = card | {"tasks": {head: card["tasks"][head]}}
    objectives = {name: _saved_objective(folder, name, about, code) for name, about in card["tasks"].items()}
    model = Model(encoder, objective_modules(encoder, objectives, tokenizer))
    model.load_heads(folder)
    make_ready(model, encoder, device)
    return model, tokenizer, card


def _saved_objective(
    folder: Path, name: str, about: Mapping[str, Any], code: Mapping[str, tuple[Path, str]] | None
) -> Objective:
    try:
        return make_objective(about["objective"], code)
    except ValidationError as error:
        first = error.errors()[0]
        raise damaged(
            folder / CARD, f"the objective of {name} has no valid {first['loc'][0]} ({first['msg']})"
        ) from None


def open_encoder(folder: Path, layout: str = "auto") -> tuple[Encoder, "PreTrainedTokenizerBase", list[str]]:
    """The encoder of a model folder, its tokenizer, and remarks about its weights."""
    encoder, notes = load_encoder(folder, ModelOptions(name=str(folder)), layout)
    tokenizer = from_folder(AutoTokenizer, folder)
    require_vocabulary(encoder, tokenizer)
    return encoder, tokenizer, notes


def make_ready(module: torch.nn.Module, encoder: Encoder, device: str) -> None:
    """For answers: proven equal if packed, on the device, without dropout."""
    if encoder.layout == "packed":
        packed_check.require_equal(encoder)
    module.to(pick_device(device)).eval()


def pick_device(name: str) -> torch.device:
    """auto: the accelerator if there is one."""
    if name != "auto":
        try:
            torch.zeros(1, device=name)
        except (RuntimeError, AssertionError) as error:
            raise UserError(f"device: {name} cannot be used here ({first_line(error)})") from None
        return comm.local_device(torch.device(name))
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return comm.local_device(accelerator or torch.device("cpu"))


def pick_precision(config: Config, device: torch.device) -> Precision:
    """auto: bf16 on GPUs that have it. CPUs differ, most are slower in it: fp32 there, and the same numbers on all."""
    wanted = config.train.precision
    if wanted != "auto":
        return wanted
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def cpu_multiplies_bf16() -> bool:
    """Whether this CPU has instructions for it (AVX512-BF16 or AMX); torch imitates them, slowly, where it has not."""
    found = torch.cpu.get_capabilities()
    return any(found.get(name) for name in ("avx512_bf16", "amx_bf16"))


def precision_tip(config: Config, device: torch.device) -> str:
    """What a long training on this CPU is told, if anything."""
    if device.type != "cpu" or config.train.precision != "auto" or not cpu_multiplies_bf16():
        return ""
    return "tip: this CPU multiplies bf16 itself; a new run with --train.precision bf16 may take half the time"


def seed_weights(seed: int, *purpose: str) -> None:
    """New weights follow from (seed, purpose) alone, not from what was made before them."""
    torch.manual_seed(rng.key(seed, "weights " + " ".join(purpose)) >> 1)


def unsaid_pooling(objective: Mapping[str, Any]) -> AnyPooling:
    """What the head of a card without this key reads: heads that are not the architecture's own read first tokens."""
    return "auto" if objective.get("head", "stock") == "stock" else "first"
