"""Model = encoder + one objective per task; saved as transformers folders."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from encodery.config.schema import TrainOptions
from encodery.core import environment, files
from encodery.core.files import file_name
from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models import packed
from encodery.models.compiled import compile_layers
from encodery.models.encoder import Encoder, quiet

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Outputs = dict[str, Tensor]
Terms = dict[tuple[str, str], Tensor]  # (task, term) -> sum

CARD = "encodery.json"
Precision = Literal["fp32", "bf16", "fp16"]
LOWERED: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Model(nn.Module):
    """The encoder that travels and the objectives of this run, by task name."""

    def __init__(
        self, encoder: Encoder, objectives: Mapping[str, nn.Module], weights: Mapping[str, float] | None = None
    ):
        super().__init__()
        self.encoder = encoder
        self.names = {task: module_name(task) for task in objectives}
        # The attribute's name is part of the names of weights in every checkpoint.
        self.questions = nn.ModuleDict({self.names[task]: module for task, module in objectives.items()})
        self.weights = dict(weights or {})
        self.sharded = False  # whether its parameters are spread over processes (fsdp)
        self.autocast_to: torch.dtype | None = None  # set for bf16 and fp16
        self.watch: Callable[[Batch, Outputs], None] | None = None  # sees the outputs of each training pass

    def objective(self, task: str) -> Any:
        """The module that answers for a task."""
        return self.questions[self.names[task]]

    def outputs(self, batch: Batch) -> Outputs:
        """Named outputs, without a loss."""
        outputs: Outputs = self(batch, with_terms=False)[0]  # by the one door where a sharded model is gathered
        return outputs

    def _outputs(self, batch: Batch) -> Outputs:
        with self.precision(batch):
            result: Outputs = self.objective(batch.task)(self.encoder, batch)
        if self.watch and self.training:
            self.watch(batch, result)
        return result

    def forward(self, batch: Batch, with_terms: bool = True) -> tuple[Outputs, Terms]:
        """Outputs and loss terms (sums) of a micro-batch."""
        outputs = self._outputs(batch)
        return outputs, self.terms(outputs, batch) if with_terms else {}

    def terms(self, outputs: Outputs, batch: Batch) -> Terms:
        """Loss terms of outputs that are at hand."""
        weight = self.weights.get(batch.task, 1.0)
        losses = self.objective(batch.task).losses(outputs, batch)
        return {(batch.task, name): value if weight == 1.0 else value * weight for name, value in losses.items()}

    def precision(self, batch: Batch) -> contextlib.AbstractContextManager[Any]:
        """Autocast, if this run uses it."""
        if self.autocast_to is None:
            return contextlib.nullcontext()
        return torch.autocast(batch.inputs["input_ids"].device.type, dtype=self.autocast_to)

    @contextlib.contextmanager
    def at_precision(self, name: Precision) -> Iterator[None]:
        """Inside, matrices are multiplied at this precision."""
        before, self.autocast_to = self.autocast_to, LOWERED.get(name)
        try:
            yield
        finally:
            self.autocast_to = before

    def save(self, folder: Path, tokenizer: "PreTrainedTokenizerBase", card: Mapping[str, Any]) -> None:
        """A folder that transformers opens; heads it has no class for lie beside it in heads/."""
        folder.mkdir(parents=True, exist_ok=True)
        objectives: list[Any] = list(self.questions.values())
        alone = objectives if len(objectives) == 1 else []
        saved = [getattr(q.head, "saved", None) for q in alone if hasattr(q, "head")]
        with quiet():
            if len(objectives) == 1 and hasattr(objectives[0], "save"):  # it knows folders of its own
                folder = objectives[0].save(folder, self.encoder, tokenizer)
            elif saved and saved[0] is not None:
                saved[0].save_pretrained(folder)
            else:
                self.encoder.net.save_pretrained(folder)
                self._save_heads(folder / "heads")
            tokenizer.save_pretrained(folder)
        (folder / CARD).write_text(json.dumps(card, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def _save_heads(self, folder: Path) -> None:
        folder.mkdir()
        for name, objective in self.questions.items():
            state = {k: v.detach().cpu().contiguous() for k, v in untied(objective).items()}
            save_file(state, folder / f"{name}.safetensors")

    def take_heads(self, folder: Path) -> list[str]:
        """The heads of a saved folder that are of these tasks, by name; says which ones are new."""
        known = (read_card(folder) or {"tasks": {}})["tasks"]
        old = {name: name in known for name in self.names}
        own = {name: self.objective(name) for name, there in old.items() if there}
        if own:
            try:
                Model(self.encoder, own).load_heads(folder)
            except RuntimeError as error:
                raise UserError(
                    f"model.heads: a head of {folder} does not fit ({str(error).splitlines()[-1].strip()})"
                ) from None
        fresh = [name for name, there in old.items() if not there]
        taken = [f"heads taken over: {', '.join(own)}"] if own else []
        return [*taken, f"new heads: {', '.join(fresh)}"] if fresh else taken

    def load_heads(self, folder: Path) -> None:
        """Put the heads of a saved folder into the objectives; anything missing or left over is an error."""
        objective: Any
        for name, objective in self.questions.items():
            head: Any = getattr(objective, "head", None)
            stock = getattr(head, "stock", None)
            file = folder / "heads" / f"{name}.safetensors"
            if file.exists():
                load_untied(objective, file)
            elif hasattr(objective, "load_heads"):
                if lacking := objective.load_heads(self.encoder, folder):
                    raise UserError(f"{folder}: {'; '.join(lacking)}")
            elif stock is not None:
                _load_stock_head(head, folder)
                objective.taken = frozenset(head.state_dict())
            else:
                raise UserError(f"{folder}: no head for {name}")


def _load_stock_head(head: nn.Module, folder: Path) -> None:
    state: dict[str, Tensor] = {}
    parts = {name for name, _ in head.named_children()}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            first, _, rest = name.partition(".")
            if first in parts:
                state[name] = tensor
            elif rest.startswith("pooler.") and "pooler" in parts:  # one that the bare encoder lacks
                state[rest] = tensor
    try:
        head.load_state_dict({k: v.float() for k, v in state.items()})
    except RuntimeError as error:
        detail = " ".join(str(error).split("\n")[1:3]).strip()
        raise UserError(f"{folder}: has no head that fits this task ({detail})") from None


def untied(objective: nn.Module) -> dict[str, Tensor]:
    """The weights of an objective, tied ones under their first name only."""
    found: dict[int, str] = {}
    state: dict[str, Tensor] = objective.state_dict()
    return {name: value for name, value in state.items() if found.setdefault(value.data_ptr(), name) == name}


def load_untied(objective: nn.Module, file: Path) -> None:
    """What `untied` gave; nothing may be missing or left over."""
    stored, wanted = load_file(file), untied(objective)
    if odd := sorted(stored.keys() ^ wanted.keys()):
        raise UserError(f"{file}: {'lacks' if odd[0] in wanted else 'has a foreign'} {odd[0]}")
    objective.load_state_dict(stored, strict=False)  # tied ones follow


def module_name(task: str) -> str:
    """A task's name as that of a module, which may hold no dot, and of its file."""
    return file_name(task).replace(".", "_")


# The card, which lies beside the weights and says what the heads are.


# What each task's entry holds; keys beyond these belong to particular heads, which check them.
CARD_KEYS: dict[str, tuple[tuple[type, ...], str]] = {
    "objective": ((dict,), "a mapping"),
    "max_length": ((int,), "a whole number"),
    "task": ((dict, type(None)), "a mapping or null"),
    "labels": ((list,), "a list"),
    "texts": ((int, type(None)), "a whole number or null"),
    "scale": ((int, float), "a number"),
    "shift": ((int, float), "a number"),
    "thresholds": ((dict, type(None)), "a mapping or null"),
}
CARD_NEEDS = ("objective",)  # to load a head; to answer with it, ANSWERING_NEEDS too
ANSWERING_NEEDS = ("max_length", "task", "labels")


def read_card(folder: Path) -> dict[str, Any] | None:
    """What encodery wrote beside the weights: tasks, labels, head, lengths; None for foreign folders."""
    file = folder / CARD
    if not file.exists():
        return None
    card = files.read_json(file)
    tasks = card.get("tasks") if isinstance(card, dict) else None
    if not isinstance(tasks, dict) or not tasks:
        raise damaged(file, "it does not say which tasks the model has")
    for name, about in tasks.items():
        _require_entry(file, name, about, CARD_NEEDS)
    result: dict[str, Any] = card
    return result


def require_openable(folder: Path, tasks: Mapping[str, Any]) -> None:
    """All that the heads answer by is there."""
    for name, about in tasks.items():
        _require_entry(folder / CARD, name, about, ANSWERING_NEEDS)


def damaged(file: Path, why: str) -> UserError:
    """What to say of a card that is JSON, but not as encodery wrote it."""
    return UserError(f"{file} is damaged, {why}: restore it from a copy, or export the model again")


def _require_entry(file: Path, name: str, about: Any, needed: Sequence[str]) -> None:
    if not isinstance(about, dict):
        raise damaged(file, f"the entry of {name} is not a mapping")
    for key, (kinds, expected) in CARD_KEYS.items():
        if key in about and (not isinstance(about[key], kinds) or isinstance(about[key], bool)):  # true is an int
            raise damaged(file, f"in {name}, {key} is not {expected}")
    if lost := [key for key in needed if key not in about]:
        raise damaged(file, f"{name} has no {' and no '.join(lost)}")
    if not isinstance(about["objective"].get("kind"), str):
        raise damaged(file, f"the objective of {name} has no kind")


# A model made ready to train: device, precision, gradient checkpointing, compilation.


def make_ready(model: Model, options: TrainOptions, device: torch.device, precision: Precision) -> None:
    """Put the model where it trains, in the way the options ask for."""
    if device.type == "cpu":
        environment.keep()
    model.to(device)
    model.autocast_to = LOWERED.get(precision)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if options.tf32 else "highest")
    if options.compile:
        compile_layers(model)
    for net in networks(model):
        if options.gradient_checkpointing and not net.supports_gradient_checkpointing:
            raise UserError(
                f"train.gradient_checkpointing: {net.config.model_type} has none; lower train.token_budget instead"
            )
        if options.gradient_checkpointing:
            net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def attention_of(model: Model, device: torch.device, precision: Precision) -> dict[str, str]:
    """Which back ends compute attention: {"training", "evaluation"}, and {"why"} where a GPU's kernels cannot."""
    if model.encoder.layout != "packed":
        return dict.fromkeys(("training", "evaluation"), str(model.encoder.net.config._attn_implementation))
    dtype = LOWERED.get(precision, torch.float32)
    each = [packed.describe(net.config, device, dtype) for net in networks(model)]
    found: dict[str, str] = {}
    for name in ("training", "evaluation", "why"):
        parts = dict.fromkeys(part for one in each for part in one.get(name, "").split(", ") if part)
        found |= {name: ", ".join(parts)} if parts else {}
    return found


def prepare(model: Model, micro: Sequence[Batch]) -> list[Batch]:
    """The micro-batches of a step, with what their objectives can draw before the pass."""
    asked = ((model.objective(batch.task).prepare, batch) for batch in micro)
    return [draw(batch) if draw else batch for draw, batch in asked]


def networks(model: nn.Module) -> Iterable[Any]:
    """The transformers networks of all encoders in a model: the main one, and the generator of an objective, once."""
    return {id(part.net): part.net for part in model.modules() if isinstance(part, Encoder)}.values()
