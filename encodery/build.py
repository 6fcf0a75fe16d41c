"""From a checked config to the things that train: tokenizer, encoder, tables, model, optimiser."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from encodery import chosen, predict, pretrain, world
from encodery.config import Resolved, find
from encodery.data import draws
from encodery.data.batches import AllRows, Batches, Cutter
from encodery.data.blocks import Tick, corpus_table
from encodery.data.pieces import TokenizerPieces
from encodery.data.share import Share
from encodery.data.tokens import TokenTable, token_table
from encodery.errors import UserError
from encodery.models import hub, lora, prove, sharding
from encodery.models.encoder import Encoder, freeze, load_encoder, new_encoder
from encodery.models.model import Model, read_card
from encodery.models.ready import make_ready
from encodery.models.sizes import highest_id
from encodery.models.tokenizer import load_tokenizer
from encodery.optim import Optimizer, Param
from encodery.probe import Probe
from encodery.schema import Config, Entry, ModelOptions
from encodery.tasks.base import Example, Task
from encodery.tasks.classify import Classification, double_unordered
from encodery.tasks.split import set_aside


@dataclass(frozen=True)
class Split:
    """The rows of a split and their tokens."""

    name: str
    examples: Sequence[Example]
    table: TokenTable


@dataclass(frozen=True)
class Built:
    """Everything a run needs, ready."""

    task: Task
    entry: Entry
    tokenizer: Any
    pieces: TokenizerPieces
    model: Model
    batches: Batches
    choice: Split | None  # what the checkpoint is chosen on: dev, or a part of train that was held out
    cutter: Cutter
    card: dict[str, Any]
    notes: list[str]
    probes: list[Probe]
    keep_at: Sequence[float]

    @property
    def max_length(self) -> int:
        """Longest sequence."""
        length: int = self.card["tasks"][self.task.name]["max_length"]
        return length

    def split(self, name: str) -> Split:
        """Any split of the task, tokenised."""
        return named_split(self.task, name, self.pieces, self.max_length)


@dataclass(frozen=True)
class Inputs:
    """The folders that a config names, found, and the digests that stand for them in the run's identity."""

    model: hub.Folder | None
    init_from: hub.Folder | None
    tokenizer: hub.Folder | None
    digests: dict[str, str]
    generator: hub.Folder | None = None


def find_inputs(resolved: Resolved) -> Inputs:
    """Resolve model, init_from and data to content, without loading anything large."""
    options = resolved.config.model
    if (options.name is None) == (options.new is None):
        raise UserError("model: give either a name or new")
    near, pieces = resolved.folder, options.tokenizer
    model = hub.resolve(options.name, options.revision, near) if options.name else None
    start = hub.resolve(options.init_from, None, near) if options.init_from else None
    tokenizer = hub.resolve_tokenizer(pieces, near) if pieces and pieces != "toy" else None
    generator = hub.resolve(options.generator, None, near) if options.generator else None
    found = {
        "model.name": model, "model.init_from": start, "model.tokenizer": tokenizer, "model.generator": generator,
    }  # fmt: skip
    digests = {key: folder.digest() for key, folder in found.items() if folder}
    for i, (task, entry) in enumerate(resolved.tasks):
        digests[f"tasks.{i}.data"] = content_of(task)
        digests |= {f"tasks.{i}.subset": chosen.digest_of(entry.subset)} if entry.subset else {}
    return Inputs(model, start, tokenizer, digests, generator)


def content_of(task: Task) -> str:
    """Digest of the splits that training can see; one that is needed and not here is an error of the task's own."""
    for split in task.needed:
        if not task.has(split):
            task.origin(split)
    splits = [s for s in task.splits() if not s.startswith("test") and task.has(s)]
    found = {split: task.origin(split).digest for split in splits}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def build(resolved: Resolved, inputs: Inputs, tick: Tick | None = None) -> Built:
    """All parts of a training run; `tick` hears of a corpus that is prepared on the way."""
    config = resolved.config
    if len(resolved.tasks) != 1:
        raise UserError(f"tasks: {len(resolved.tasks)} tasks given; this version trains one at a time")
    task, entry = resolved.tasks[0]
    shares = pretrain.kept_shares(config, task)
    device = pick_device(config.device)
    tokenizer = load_tokenizer(config.model, inputs.tokenizer, inputs.model, toy=task.name.startswith("toy/"))
    pieces = TokenizerPieces(tokenizer)
    encoder, notes = make_encoder(config, inputs, tokenizer)
    wanted = entry.max_length or config.train.max_length
    length = min(wanted, longest_of(encoder))
    if length < wanted:
        notes.append(f"max_length {wanted} is more than this encoder has positions for: {length} it is")
    train, choice, rows = training_data(task, entry, config, pieces, length, tick)
    check_evaluation(task, entry, config, train, choice)
    model, objective = make_model(encoder, task, entry, resolved, tokenizer, train.table, rows)
    if not task.labelled and inputs.model:
        start = (inputs.init_from or inputs.model).path
        notes += pretrain.go_on(model, task, start, inputs.generator.path if inputs.generator else None)
    budget = pretrain.token_budget(config, task, device)
    cutter = Cutter(encoder.layout, encoder.form, budget, config.train.micro_batch, device)
    options = task.name, train.table, rows, config.train.batch_size, config.seed.data, config.seed.init, cutter
    share = Share(world.rank(), world.size())
    batches = Batches(*options, chosen.weights(task, entry, train.table) if entry.subset else None, share)
    card = card_of(task, entry, objective, config, length, pieces)
    make_ready(model, config.train, device, pick_precision(config, device))
    probes = pretrain.make_probes(config, pieces, length)
    if config.train.shard and world.size() > 1:
        options_of = config.method["kind"], len(resolved.tasks), config.model.tune, config.train.dynamics, probes
        sharding.require_fit(*options_of)
        sharding.shard(model, device)
    return Built(task, entry, tokenizer, pieces, model, batches, choice, cutter, card, notes, probes, shares)


def make_encoder(config: Config, inputs: Inputs, tokenizer: Any) -> tuple[Encoder, list[str]]:
    """The encoder with its starting weights; `init_from` brings a run's encoder, never its head."""
    seed_weights(config.seed.init, "encoder")
    folder = inputs.init_from or inputs.model
    notes: list[str] = []
    if folder is None:
        encoder = new_encoder(config.model, tokenizer, config.train.layout)
    else:
        encoder, notes = load_encoder(folder.path, config.model, config.train.layout)
        require_vocabulary(encoder, tokenizer)
    named = (getattr(tokenizer, f"{name}_token_id", None) for name in ("cls", "sep", "bos", "eos"))
    encoder.special_ids = tuple(sorted({one for one in named if one is not None}))
    if encoder.layout == "packed":
        prove.require_equal(encoder)
    return encoder, notes


def require_vocabulary(encoder: Encoder, tokenizer: Any) -> None:
    """A tokenizer of another model would name rows that the embedding does not have."""
    rows, highest = encoder.net.config.vocab_size, highest_id(tokenizer)
    if highest >= rows:
        raise UserError(
            f"model.tokenizer: its ids go up to {highest:,}, but the encoder has embeddings for {rows:,} tokens; "
            "use the model's own tokenizer"
        )


def corpus_data(
    task: Task, entry: Entry, config: Config, pieces: TokenizerPieces, length: int, tick: Tick | None
) -> tuple[Split, Split | None, np.ndarray | AllRows]:
    """The blocks of a corpus; what needs labels or single examples is refused."""
    if config.train.holdout or entry.double_unordered:
        raise UserError(
            f"{task.name}: plain text has no examples to hold out or to turn round; use held_out of the task"
        )
    train = named_split(task, "train", pieces, length, tick)
    dev = first_dev(task) if config.train.evaluate != "never" else None
    choice = named_split(task, dev, pieces, length) if dev else None
    rows = pretrain.training_blocks(task, entry, train.table, config.seed.data)
    return train, choice if choice and len(choice.table) else None, rows


def training_data(
    task: Task, entry: Entry, config: Config, pieces: TokenizerPieces, length: int, tick: Tick | None = None
) -> tuple[Split, Split | None, np.ndarray | AllRows]:
    """The training table, what the checkpoint is chosen on, and the table rows to train on."""
    if not task.labelled:
        return corpus_data(task, entry, config, pieces, length, tick)
    examples, choice = task.examples("train"), None
    if not examples:
        raise UserError(f"{task.name}: the training set is empty")
    if config.train.holdout:
        examples, aside = set_aside(examples, config.train.holdout, config.seed.data)
        choice = Split("holdout", aside, token_table(task, "holdout", pieces, length, aside))
    elif config.train.evaluate != "never" and (dev := first_dev(task)):
        choice = named_split(task, dev, pieces, length)
    if entry.double_unordered:  # after the hold-out, so that no pair is on both sides
        if not isinstance(task, Classification):
            raise UserError(f"tasks.double_unordered: {task.name} asks for no label of a pair")
        examples = double_unordered(examples)
    train = Split("train", examples, token_table(task, "train", pieces, length, examples))
    return train, choice, train.table.rows_of(chosen.rows(task, entry, examples, config.seed.data))


def check_evaluation(task: Task, entry: Entry, config: Config, train: Split, choice: Split | None) -> None:
    """Refuse now what could not be done at the end."""
    options = config.train
    for key, asked in (("select: best", options.select == "best"), ("patience:", options.patience is not None)):
        if asked and (choice is None or options.evaluate == "never"):
            raise UserError(
                f"train.{key} needs scores on the way: set train.evaluate, and train.holdout where there is no dev set"
            )
    if choice and options.select_metric and task.labelled:
        known = predict.majority(task, train.examples, choice.examples)
        if options.select_metric not in known:
            raise UserError(
                f"train.select_metric: {task.name} has no {options.select_metric}; it has {', '.join(known)}"
            )
    for split in entry.evaluate_on or []:
        if split not in task.splits() or not task.has(split):
            there = ", ".join(s for s in task.splits() if task.has(s))
            raise UserError(f"tasks.evaluate_on: {task.name} has no {split} here; it has {there}")
        if task.labelled and any(example.label is None for example in task.examples(split)):
            raise UserError(f"tasks.evaluate_on: the labels of {task.name}:{split} are hidden, so it cannot be scored")


def first_dev(task: Task) -> str | None:
    """The dev split that scores during training are taken on."""
    return next((s for s in task.splits() if s.startswith("dev") and task.has(s)), None)


def named_split(task: Task, name: str, pieces: TokenizerPieces, length: int, tick: Tick | None = None) -> Split:
    """A split with its tokens; of plain text only the tokens."""
    if not task.labelled:
        return Split(name, (), corpus_table(task, name, pieces, length, tick))  # type: ignore[arg-type]
    rows = task.examples(name)
    return Split(name, rows, token_table(task, name, pieces, length, rows))


def make_model(
    encoder: Encoder, task: Task, entry: Entry, resolved: Resolved, tokenizer: Any, table: TokenTable, rows: Any
) -> tuple[Model, dict[str, Any]]:
    """Encoder and question, with what is frozen or adapted; also the objective as plain data."""
    config = resolved.config
    wanted = {**task.objective(), **entry.objective}
    objective = make_objective(wanted, resolved.code, config.model)
    objective = objective.fitted({name: values[rows] for name, values in table.targets.items()})
    seed_weights(config.seed.init, "head", task.name)
    question = objective.build(encoder, tokenizer)
    freeze(encoder, config.model.tune)
    if config.model.tune == "lora":
        lora.adapt(encoder, config.model.lora, draws.key(config.seed.init, "lora"))
    model = Model(encoder, {task.name: question}, {task.name: entry.weight})
    return model, {"kind": wanted["kind"], **objective.plain()}


def make_objective(
    plain: Mapping[str, Any], code: Mapping[str, tuple[Path, str]] | None = None, model: ModelOptions | None = None
) -> Any:
    """The options object of an objective that is given as plain data; own files must be among the checked ones.

    An objective with a head takes what it does not say itself from the model's options.
    """
    options = {k: v for k, v in plain.items() if k != "kind"}
    file, _, name = plain["kind"].rpartition(":")
    if file and file not in (code or {}):
        raise UserError(f"objective: {plain['kind']} is somebody's own code; load it with its run and --allow-code")
    cls = find("objectives", f"{code[file][0]}:{name}" if code and file else plain["kind"])
    if model and "head" in cls.model_fields:
        options = {"head": model.head, "head_dropout": model.head_dropout, **options}
    unknown = sorted(set(options) - set(cls.model_fields))
    if unknown:
        raise UserError(
            f"objective: {plain['kind']} has no option {', '.join(unknown)}; it has {', '.join(cls.model_fields)}"
        )
    return cls.model_validate_json(json.dumps(options))


def make_optimizer(model: Model, config: Config) -> Optimizer:
    """The optimiser over all parameters that are trained, each with its layer."""
    body = [Param(f"encoder.net.{n}", p, d) for n, p, d in model.encoder.named_depths()]
    heads = [Param(f"questions.{n}", p, None) for n, p in model.questions.named_parameters()]
    return Optimizer([*body, *heads], config.optim, model.encoder.layers)


def card_of(
    task: Task, entry: Entry, objective: Mapping[str, Any], config: Config, length: int, pieces: TokenizerPieces
) -> dict[str, Any]:
    """What is stored beside the weights, so that nobody has to guess later (F23)."""
    about = {
        "task": {**task.plain(), "name": task.name},
        "labels": list(task.labels),
        "objective": dict(objective),
        "head": objective.get("head"),
        "max_length": length,
        "texts": len(task.examples("train")[0].texts) if task.labelled else 1,
        "scale": getattr(task, "scale", 1.0),  # of a number that was learnt divided by it
    }
    return {"format": 1, "tasks": {task.name: about}, "tokenizer": pieces.digest}


def load_model(
    folder: Path,
    layout: str = "auto",
    device: str = "auto",
    code: Mapping[str, tuple[Path, str]] | None = None,
) -> tuple[Model, Any, dict[str, Any]]:
    """A saved model (ours or any fine-tuned classifier of transformers), its tokenizer and its card.

    `code` holds the own Python files that may run (`Resolved.code`); a card alone never makes a file run.
    """
    from transformers import AutoTokenizer

    encoder, _ = load_encoder(folder, ModelOptions(name=str(folder)), layout)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    require_vocabulary(encoder, tokenizer)
    card = read_card(folder) or foreign_card(folder, encoder, tokenizer)
    questions = {
        n: make_objective(about["objective"], code).build(encoder, tokenizer) for n, about in card["tasks"].items()
    }
    model = Model(encoder, questions)
    model.load_heads(folder)
    if encoder.layout == "packed":
        prove.require_equal(encoder)
    model.to(pick_device(device)).eval()
    return model, tokenizer, card


def foreign_card(folder: Path, encoder: Encoder, tokenizer: Any) -> dict[str, Any]:
    """A card for somebody else's fine-tuned model, from its config."""
    config = encoder.net.config
    architecture = (config.architectures or [""])[0]
    length = min(tokenizer.model_max_length, longest_of(encoder))
    if architecture.endswith("ForTokenClassification"):
        labels = [str(config.id2label[i]) for i in range(config.num_labels)]
        return foreign_about({"kind": "tagging", "labels": labels, "head": "stock"}, labels, length, tokenizer)
    if architecture.endswith("ForQuestionAnswering"):
        spans = {"kind": "span", "span_head": "simple", "impossible": True, "head": "stock"}
        return foreign_about(spans, [], length, tokenizer)
    if not architecture.endswith("ForSequenceClassification"):
        raise UserError(f"{folder}: {architecture or 'this'} is not a classifier; train it first")
    forms = {"multi_label_classification": "multilabel", "regression": "regression"}
    form = "regression" if config.num_labels == 1 else forms.get(config.problem_type or "", "single")
    labels = [] if form == "regression" else [str(config.id2label[i]) for i in range(config.num_labels)]
    objective = {"kind": "classification", "form": form, "labels": labels, "head": "stock"}
    return foreign_about(objective, labels, length, tokenizer)


def foreign_about(objective: dict[str, Any], labels: list[str], length: int, tokenizer: Any) -> dict[str, Any]:
    """A card with one head, whose task nobody knows."""
    about = {"task": None, "labels": labels, "objective": objective, "head": "stock", "max_length": length}
    return {"format": 1, "tasks": {"foreign": about}, "tokenizer": TokenizerPieces(tokenizer).digest}


def longest_of(encoder: Encoder) -> int:
    """How many tokens the encoder has positions for."""
    positions: int = encoder.net.config.max_position_embeddings
    return positions - encoder.form.first_position


def pick_device(name: str) -> torch.device:
    """auto: the accelerator if there is one."""
    if name != "auto":
        try:
            torch.zeros(1, device=name)
        except (RuntimeError, AssertionError) as error:
            raise UserError(f"device: {name} cannot be used here ({str(error).splitlines()[0]})") from None
        return world.own(torch.device(name))
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return world.own(accelerator or torch.device("cpu"))


def pick_precision(config: Config, device: torch.device) -> str:
    """auto: bf16 where the device is fast in it. On CPUs it is several times slower, so fp32 there."""
    wanted = config.train.precision
    if wanted != "auto":
        return wanted
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def seed_weights(seed: int, *purpose: str) -> None:
    """New weights follow from (seed, purpose) alone, not from what was made before them."""
    torch.manual_seed(draws.key(seed, "weights " + " ".join(purpose)) >> 1)
