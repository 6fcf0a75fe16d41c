"""From a checked config to everything that a session needs: data, model, method, weighting, optimizer, state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import AutoTokenizer

from encodery.config.load import Resolved
from encodery.config.own_code import of_class
from encodery.config.schema import DEFAULT_MODEL, DEFAULT_MODEL_SETTINGS, TOKEN_BUDGET, TOKEN_BUDGET_OF_TEXT, Config
from encodery.data import rng, subset
from encodery.data.batches import Batches, MicroBatcher
from encodery.data.mixes import Mix
from encodery.data.task_mixing import Mixed, Stream
from encodery.data.tokenizer import TokenizerPieces
from encodery.distributed import comm
from encodery.errors import UserError
from encodery.inference import task_argument
from encodery.inference.model_card import about, card_of
from encodery.inference.open_model import (
    make_objective,
    objective_modules,
    pick_device,
    pick_precision,
    require_vocabulary,
    seed_weights,
)
from encodery.methods.base import ActiveMethod, Method
from encodery.models import fsdp, locate, lora, packed_check, pooling
from encodery.models.encoder import Encoder, freeze, load_encoder, new_encoder, without_taken, without_unused
from encodery.models.model import Model, Precision, attention_of, make_ready
from encodery.models.pretrained import from_folder
from encodery.models.tokenizer import load_tokenizer
from encodery.objectives.base import Objective
from encodery.runs.identity import content_of
from encodery.tasks.base import Task
from encodery.training import linear_probe, optim
from encodery.training.linear_probe import Probe
from encodery.training.loop import LossScale, TrainState, steps_in_all
from encodery.training.optim import Optimizer, Param
from encodery.training.task_data import Split, TaskData, drawn_names, make_task_data
from encodery.training.teacher import taught
from encodery.weighting.base import ActiveWeighting, Weighting

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from encodery.data.corpus.blocks import OnProgress

KEPT = (6.25, 12.5, 25.0, 50.0)  # percent of the steps of a pretraining whose models are kept; 100 is model/


def token_budget(config: Config, tasks: Sequence[Task], device: torch.device) -> int:
    """Most tokens of a micro-batch: as asked, else by what is trained where. The gradient is the same."""
    on_text = device.type == "cpu" and not any(task.labelled for task in tasks)
    usual = TOKEN_BUDGET_OF_TEXT if on_text else TOKEN_BUDGET
    return usual if config.train.token_budget is None else config.train.token_budget


def kept_shares(config: Config, tasks: Sequence[Task]) -> Sequence[float]:
    """At which percent of the steps models are kept: as asked; if nobody asked, ELECTRA's for plain text, none else."""
    asked = config.train.keep_at
    shares = asked if asked is not None else () if any(task.labelled for task in tasks) else KEPT
    if shares and config.model.tune == "lora":
        raise UserError("train.keep_at: adapters are merged at the end only; with model.tune: lora set it to []")
    return shares


def load_heads(model: Model, task: Task, folder: Path, generator: Path | None) -> list[str]:
    """Pretraining that goes on from a checkpoint takes its heads over too; says what is new."""
    notes: list[str] = model.objective(task.name).load_heads(model.encoder, folder, generator)
    return notes


def make_probes(config: Config, pieces: TokenizerPieces, length: int) -> list[Probe]:
    """The tasks that the encoder is probed on, tokenised."""
    if config.probe is None:
        return []
    longest, rows = min(length, config.probe.max_length), config.probe.train_rows
    return [
        linear_probe.prepare(
            task_argument.named(name, config.data), pieces, longest, rows, config.probe.pairs == "apart"
        )
        for name in config.probe.tasks
    ]


@dataclass(frozen=True)
class Parts:
    """Data and model of a run, without what trains them."""

    tasks_data: Sequence[TaskData]
    tokenizer: "PreTrainedTokenizerBase"
    pieces: TokenizerPieces
    model: Model
    batches: Stream
    batcher: MicroBatcher
    card: dict[str, Any]
    notes: list[str]
    probes: list[Probe]
    keep_at: Sequence[float]
    precision: Precision
    attention: dict[str, str]  # back ends, see models/packed.py
    plain: Model | None = None  # of a sharded model: where its weights are gathered to be saved

    @property
    def task(self) -> Task:
        """The first task, which most runs have alone."""
        return self.tasks_data[0].task

    @property
    def choice(self) -> Split | None:
        """What the checkpoint of the first task is chosen on."""
        return self.tasks_data[0].choice

    @property
    def name(self) -> str:
        """The names of all tasks, as tables and pages show them."""
        return " + ".join(task_data.name for task_data in self.tasks_data)

    def split(self, name: str) -> Split:
        """Any split of the first task, tokenised."""
        return self.tasks_data[0].split(name)


@dataclass(frozen=True, kw_only=True)
class Built(Parts):
    """Everything that a session needs, ready for the first step."""

    method_options: Method
    method: ActiveMethod
    weighting: ActiveWeighting
    optimizer: Optimizer
    schedule: Callable[[int], float]  # steps done -> factor of the learning rate
    rates: Mapping[str, float]  # task -> factor of its learning rate, where it is not 1
    state: TrainState


PoolingSource = Literal["folder", "config", "first", "mean", "max"]  # where `auto` looks, or what it meant before


@dataclass(frozen=True)
class Inputs:
    """The folders that a config names, found, and the digests that stand for them in the run's identity."""

    model: locate.Folder | None
    init_from: locate.Folder | None
    tokenizer: locate.Folder | None
    digests: dict[str, str]
    generator: locate.Folder | None = None
    auto_pooling: PoolingSource = "folder"


def find_inputs(resolved: Resolved) -> Inputs:
    """Resolve model, init_from and data to content, without loading anything large."""
    options = resolved.config.model
    if (options.name is None) == (options.new is None):
        raise UserError("model: give either a name or new")
    near, pieces = resolved.folder, options.tokenizer
    model = locate.resolve(options.name, options.revision, near) if options.name else None
    start = locate.resolve(options.init_from, None, near) if options.init_from else None
    tokenizer = locate.resolve_tokenizer(pieces, near) if pieces and pieces != "toy" else None
    generator = locate.resolve(options.generator, None, near) if options.generator else None
    found = {
        "model.name": model, "model.init_from": start, "model.tokenizer": tokenizer, "model.generator": generator,
    }  # fmt: skip
    digests = {key: folder.digest() for key, folder in found.items() if folder}
    for i, (task, entry) in enumerate(resolved.tasks):
        digests[f"tasks.{i}.data"] = content_of(task)
        named = {"subset": entry.subset, "sample_by": entry.sample_by}
        digests |= {f"tasks.{i}.{key}": subset.digest_of(path) for key, path in named.items() if path}
        if entry.teachers:
            digests[f"tasks.{i}.teacher"] = locate.digest_of_all(entry.teachers, near)
    return Inputs(model, start, tokenizer, digests, generator)


def build(resolved: Resolved, inputs: Inputs, on_progress: "OnProgress | None" = None) -> Built:
    """Everything that a session needs; `on_progress` hears of a corpus that is prepared on the way."""
    parts, config = build_parts(resolved, inputs, on_progress), resolved.config
    model = parts.model
    total = steps_in_all(parts.batches, config.train.epochs, config.train.max_steps)
    options = of_class(resolved.method, Method, "method")
    method = options.start(model)
    weighting = of_class(resolved.weighting, Weighting, "weighting").start(model, list(model.names), config.seed.data)
    rates = {data.name: data.entry.lr_scale for data in parts.tasks_data if data.entry.lr_scale != 1.0}
    return Built(
        **vars(parts),
        method_options=options,
        method=method,
        weighting=weighting,
        optimizer=make_optimizer(model, config, rates, learnt_by(weighting, config.optim.lr)),
        schedule=optim.schedule(config.optim, total),
        rates=rates,
        state=TrainState(total, budget=parts.batcher.budget, scaler=LossScale() if parts.precision == "fp16" else None),
    )


def learnt_by(weighting: ActiveWeighting, lr: float) -> list[Param]:
    """What a weighting learns, for the optimizer: no weight decay, and rates of its own."""
    learnt = weighting.learnt().items()
    return [Param(f"weighting.{name}", each.tensor, None, each.lr / lr, True, decays=False) for name, each in learnt]


def build_parts(resolved: Resolved, inputs: Inputs, on_progress: "OnProgress | None" = None) -> Parts:
    """Data and model of a run; `on_progress` hears of a corpus that is prepared on the way."""
    config = resolved.config
    tasks = [task for task, _ in resolved.tasks]
    require_different(tasks, config.train.select_on)
    require_one_sampling(resolved)
    shares = kept_shares(config, tasks)
    device = pick_device(config.device)
    toy = all(task.name.startswith("toy/") for task in tasks)
    tokenizer = load_tokenizer(config.model, inputs.tokenizer, inputs.model, toy=toy)
    pieces = TokenizerPieces(tokenizer)
    encoder, notes = make_encoder(config, inputs, tokenizer)
    followed = follow_pooling(encoder, config, inputs)
    tasks_data = [
        make_task_data(task, entry, config, pieces, encoder, notes, on_progress) for task, entry in resolved.tasks
    ]
    if any(task_data.entry.teachers for task_data in tasks_data):
        tasks_data = [taught(task_data, resolved.folder, config.device) for task_data in tasks_data]
    model, card = make_model(encoder, tasks_data, resolved, tokenizer)
    notes = without_unused(notes, encoder.net)
    notes += pooling.lines(card, config.model.pooling, followed)
    notes = with_heads(model, inputs, tasks, config.model.heads, notes)
    notes += settings_of_shipped(resolved, inputs)
    budget = token_budget(config, tasks, device)
    batcher = MicroBatcher(encoder.layout, encoder.form, budget, config.train.micro_batch, device)
    precision = pick_precision(config, device)
    make_ready(model, config.train, device, precision)
    attention = attention_of(model, device, precision)
    if "why" in attention:
        notes.append(f"attention: {attention['why']}, so sequences are padded in groups of similar length")
    probes = make_probes(config, pieces, max(task_data.max_length for task_data in tasks_data))
    plain = None
    if config.train.shard and comm.size() > 1:
        fsdp.require_fit(config.method["kind"], len(tasks), config.model.tune, config.train.dynamics, probes)
        plain, model.sharded = fsdp.shard(model, device), True
    drawn = drawn_names(tasks)
    stream = mixed([task_data.stream(config, batcher, drawn[task_data.name]) for task_data in tasks_data], resolved)
    return Parts(
        tasks_data, tokenizer, pieces, model, stream, batcher, card, notes, probes, shares, precision, attention, plain
    )  # fmt: skip


def settings_of_shipped(resolved: Resolved, inputs: Inputs) -> list[str]:
    """A line where a model that continues petit gets the general rate and epochs, which teach it little.

    The name `petit` alone brings its settings: what a config means must not depend on what a folder holds.
    """
    given, config = resolved.given, resolved.config
    asked = {f"{part}.{key}" for part in ("optim", "train") for key in given.get(part) or {}}
    own = {f"{part}.{key}": value for part, each in DEFAULT_MODEL_SETTINGS.items() for key, value in each.items()}
    if inputs.model is None or asked & {*own, "train.max_steps"} or not locate.is_like_shipped(inputs.model.path):
        return []
    wanted = " ".join(f"--{key} {value:g}" for key, value in own.items())
    return [
        f"model {inputs.model.name}: has the size and the vocabulary of {DEFAULT_MODEL}, whose own settings are "
        f"{wanted}; as neither is given, this run has the general {config.optim.lr:g} and {config.train.epochs:g}"
    ]


def with_heads(model: Model, inputs: Inputs, tasks: Sequence[Task], heads: bool, notes: list[str]) -> list[str]:
    """Take over the heads that the encoder's folder has, as far as they are wanted; the notes after that."""
    if not inputs.model:
        if heads:
            raise UserError("model.heads: a new encoder has no heads to take over")
        return notes
    start = (inputs.init_from or inputs.model).path
    generator = inputs.generator.path if inputs.generator else None
    notes += [line for task in tasks if not task.labelled for line in load_heads(model, task, start, generator)]
    notes += model.take_heads(start) if heads else []
    return without_taken(notes, {name for task in tasks for name in model.objective(task.name).taken})


def require_different(tasks: Sequence[Task], decides: str | None) -> None:
    """Heads, scores and files go by the names of tasks."""
    names = [task.name for task in tasks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"tasks: {twice[0]} is listed twice; give your own files different names")
    if decides is not None and decides not in names:
        raise UserError(f"train.select_on: {decides} is not a task of this run; it has {', '.join(names)}")


def require_one_sampling(resolved: Resolved) -> None:
    """Rows are drawn by one thing at a time."""
    drawn = {
        "sample_by": any(entry.sample_by for _, entry in resolved.tasks),
        "sampling": any(entry.sampling == "balanced" for _, entry in resolved.tasks),
        "shares": any(getattr(task, "shares", None) for task, _ in resolved.tasks),
    }
    asked = [key for key, value in drawn.items() if value]
    if asked and of_class(resolved.method, Method, "method").draws_rows:
        kind = resolved.config.method["kind"]
        raise UserError(f"tasks.{asked[0]}: method {kind} draws rows itself; use one of the two")
    if any(entry.sample_by and entry.sampling == "balanced" for _, entry in resolved.tasks):
        raise UserError("tasks.sample_by: sampling balanced draws rows by their class; use one of the two")
    if drawn["sample_by"] and len(resolved.tasks) > 1 and getattr(resolved.mix, "neighbours", False):
        raise UserError("tasks.sample_by: this mix takes neighbours of the file; set mix.legacy_batches: false")


def mixed(streams: Sequence[Batches], resolved: Resolved) -> Stream:
    """The training stream: of several tasks as the mix says, or all in every step if the weighting needs that."""
    if len(streams) == 1:
        return streams[0]
    mix = of_class(resolved.mix, Mix, "mix")
    if mix.neighbours and any(stream.balance for stream in streams):
        kind = resolved.config.mix["kind"]
        raise UserError(
            f"tasks.sampling: mix {kind} keeps batches of neighbouring rows; balanced (or shares) needs another mix"
        )
    if of_class(resolved.weighting, Weighting, "weighting").together and mix.in_step(len(streams)) < 2:
        kind = resolved.config.weighting["kind"]
        raise UserError(f"weighting.kind: {kind} needs several tasks in a step; remove mix or set it to together")
    if of_class(resolved.method, Method, "method").updates and mix.in_step(len(streams)) > 1:
        kind = resolved.config.method["kind"]
        raise UserError(
            f"method.kind: {kind} updates within a step, which can hold one task only; use a mix with one batch per "
            "step, such as shuffled with per_step: 1, and constant or uncertainty weighting"
        )
    options = resolved.config.train
    return Mixed.of(streams, mix, resolved.config.seed.data, options.epochs, options.max_steps)


def make_encoder(config: Config, inputs: Inputs, tokenizer: "PreTrainedTokenizerBase") -> tuple[Encoder, list[str]]:
    """The encoder with its starting weights; `init_from` brings a run's encoder, never its head."""
    seed_weights(config.seed.init, "encoder")
    folder = inputs.init_from or inputs.model
    notes: list[str] = []
    if folder is None:
        encoder = new_encoder(config.model, tokenizer, config.train.layout)
    else:
        encoder, notes = load_encoder(folder.path, config.model, config.train.layout)
        require_vocabulary(encoder, tokenizer)
        if inputs.tokenizer or config.model.tokenizer == "toy":
            notes += require_same_pieces(folder.path, tokenizer)
    named = (getattr(tokenizer, f"{name}_token_id", None) for name in ("cls", "sep", "bos", "eos"))
    encoder.special_ids = tuple(sorted({one for one in named if one is not None}))
    if encoder.layout == "packed":
        packed_check.require_equal(encoder)
    return encoder, notes


def follow_pooling(encoder: Encoder, config: Config, inputs: Inputs) -> list[str]:
    """Let the heads read what the encoder's folder says where the settings do not; gives a line that says so."""
    folder = inputs.init_from or inputs.model
    source = inputs.auto_pooling
    if folder is None or config.model.pooling != "auto" or source == "config":
        return []
    found, lines = pooling.by_folder(folder.path) if source == "folder" else (source, [])
    encoder.pooling = found or encoder.pooling
    return lines


def require_same_pieces(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """A named tokenizer must mean by most ids what the weights learnt by them; a few others are a note."""
    try:
        own = from_folder(AutoTokenizer, folder).get_vocab()
    except (OSError, ValueError):  # weights without a tokenizer: nothing to compare with
        return []
    named = tokenizer.get_vocab()
    pieces = {id: piece for piece, id in own.items()}
    other = [(pieces[id], piece) for piece, id in named.items() if pieces.get(id, piece) != piece]
    if 2 * len(other) > len(named):
        (theirs, ours), share = other[0], len(other) / len(named)
        raise UserError(
            f"model.tokenizer: it does not fit {folder}: {share:.0%} of its ids mean other tokens there (such as "
            f"{ours!r} for {theirs!r}); omit it to use the model's own tokenizer"
        )
    return [f"model.tokenizer: {len(other):,} of its ids mean other tokens in {folder}"] if other else []


def make_model(
    encoder: Encoder, tasks_data: Sequence[TaskData], resolved: Resolved, tokenizer: "PreTrainedTokenizerBase"
) -> tuple[Model, dict[str, Any]]:
    """Encoder and objectives, with what is frozen or adapted; also the card."""
    config = resolved.config
    objectives, about_tasks = {}, {}
    for task_data in tasks_data:
        wanted = {**task_data.task.objective(), **task_data.entry.objective}
        options = settle_pooling(make_objective(wanted, resolved.code, config.model), encoder)
        rows: Any = task_data.rows
        targets = {name: values[rows] for name, values in task_data.train.table.targets.items()}
        objectives[task_data.name] = options.fitted(targets)
        plain = {"kind": wanted["kind"], **objectives[task_data.name].to_dict()}
        about_tasks[task_data.name] = about(task_data.task, plain, task_data.max_length)
    drawn = drawn_names([task_data.task for task_data in tasks_data])
    asked = objective_modules(encoder, objectives, tokenizer, config.seed.init, drawn)
    freeze(encoder, config.model.tune)
    if config.model.tune == "lora":
        lora.adapt(encoder, config.model.lora, rng.key(config.seed.init, "lora"))
    weights = {task_data.name: task_data.entry.weight for task_data in tasks_data}
    return Model(encoder, asked, weights), card_of(about_tasks, tasks_data[0].pieces)


def settle_pooling(objective: Objective, encoder: Encoder) -> Objective:
    """The objective with the pooling that `auto` means for this encoder, so that the card can say it."""
    if getattr(objective, "pooling", None) != "auto" or getattr(objective, "head", None) == "san":
        return objective
    return objective.model_copy(update={"pooling": encoder.pooling})


def make_optimizer(
    model: Model, config: Config, rates: Mapping[str, float] | None = None, more: Sequence[Param] = ()
) -> Optimizer:
    """The optimiser over all parameters that are trained, each with its layer; heads at the rates of their tasks."""
    body = [Param(f"encoder.net.{n}", p, d) for n, p, d in model.encoder.named_depths()]
    heads = [
        Param(f"questions.{safe}.{n}", p, None, (rates or {}).get(task, 1.0), bool(rates))
        for task, safe in model.names.items()
        for n, p in model.questions[safe].named_parameters()
    ]
    half = model.autocast_to is torch.bfloat16
    return Optimizer([*body, *heads, *more], config.optim, model.encoder.layers, half=half)
