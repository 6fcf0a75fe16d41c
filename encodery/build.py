"""From a checked config to the things that train: tokenizer, encoder, tables, model, optimiser."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoTokenizer

from encodery import chosen, pretrain, world
from encodery.cards import about, card_of, foreign_card
from encodery.cards import longest_of as longest_of
from encodery.config import Resolved, find
from encodery.data import draws
from encodery.data.batches import Batches, Cutter
from encodery.data.blocks import Tick
from encodery.data.mixed import Mixed, Stream
from encodery.data.pieces import TokenizerPieces
from encodery.errors import UserError
from encodery.models import hub, lora, pooling, prove, sharding
from encodery.models.encoder import Encoder, freeze, load_encoder, new_encoder, without_taken
from encodery.models.model import Model, read_card
from encodery.models.pretrained import from_folder
from encodery.models.ready import make_ready
from encodery.models.sizes import highest_id
from encodery.models.tokenizer import load_tokenizer
from encodery.optim import Optimizer, Param
from encodery.own_code import imported
from encodery.probe import Probe
from encodery.schema import AnyPooling, Config, ModelOptions
from encodery.subject import Split, Subject, make_subject
from encodery.tasks.base import Task


@dataclass(frozen=True)
class Built:
    """Everything a run needs, ready."""

    subjects: Sequence[Subject]
    tokenizer: Any
    pieces: TokenizerPieces
    model: Model
    batches: Stream
    cutter: Cutter
    card: dict[str, Any]
    notes: list[str]
    probes: list[Probe]
    keep_at: Sequence[float]
    plain: Model | None = None  # of a sharded model: where its weights are gathered to be saved

    @property
    def task(self) -> Task:
        """The first task, which most runs have alone."""
        return self.subjects[0].task

    @property
    def choice(self) -> Split | None:
        """What the checkpoint of the first task is chosen on."""
        return self.subjects[0].choice

    @property
    def name(self) -> str:
        """All tasks."""
        return " + ".join(subject.name for subject in self.subjects)

    def split(self, name: str) -> Split:
        """Any split of the first task, tokenised."""
        return self.subjects[0].split(name)


PoolingSource = Literal["folder", "config", "first", "mean", "max"]  # where `auto` looks, or what it meant before


@dataclass(frozen=True)
class Inputs:
    """The folders that a config names, found, and the digests that stand for them in the run's identity."""

    model: hub.Folder | None
    init_from: hub.Folder | None
    tokenizer: hub.Folder | None
    digests: dict[str, str]
    generator: hub.Folder | None = None
    auto_pooling: PoolingSource = "folder"


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
        named = {"subset": entry.subset, "sample_by": entry.sample_by}
        digests |= {f"tasks.{i}.{key}": chosen.digest_of(path) for key, path in named.items() if path}
        if entry.teachers:
            digests[f"tasks.{i}.teacher"] = teacher_digest(entry.teachers, near)
    return Inputs(model, start, tokenizer, digests, generator)


def teacher_digest(names: Sequence[str], near: Path) -> str:
    """What stands for the teachers of a task."""
    each = [hub.resolve(name, None, near).digest() for name in names]
    return hashlib.sha256("\n".join(each).encode()).hexdigest()


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
    tasks = [task for task, _ in resolved.tasks]
    require_different(tasks, config.train.select_on)
    require_one_sampling(resolved)
    shares = pretrain.kept_shares(config, tasks)
    device = pick_device(config.device)
    toy = all(task.name.startswith("toy/") for task in tasks)
    tokenizer = load_tokenizer(config.model, inputs.tokenizer, inputs.model, toy=toy)
    pieces = TokenizerPieces(tokenizer)
    encoder, notes = make_encoder(config, inputs, tokenizer)
    followed = follow_pooling(encoder, config, inputs)
    subjects = [make_subject(task, entry, config, pieces, encoder, notes, tick) for task, entry in resolved.tasks]
    if any(subject.entry.teachers for subject in subjects):
        from encodery.teach import taught  # which opens models, and so imports this page

        subjects = [taught(subject, resolved.folder, config.device) for subject in subjects]
    model, card = make_model(encoder, subjects, resolved, tokenizer)
    notes += pooling.lines(card, config.model.pooling, followed)
    if inputs.model:
        start = (inputs.init_from or inputs.model).path
        generator = inputs.generator.path if inputs.generator else None
        notes += [line for task in tasks if not task.labelled for line in pretrain.go_on(model, task, start, generator)]
        notes += model.take_heads(start) if config.model.heads else []
        notes = without_taken(notes, {name for task in tasks for name in model.question(task.name).taken})
    elif config.model.heads:
        raise UserError("model.heads: a new encoder has no heads to take over")
    budget = pretrain.token_budget(config, tasks, device)
    cutter = Cutter(encoder.layout, encoder.form, budget, config.train.micro_batch, device)
    make_ready(model, config.train, device, pick_precision(config, device))
    probes = pretrain.make_probes(config, pieces, max(subject.max_length for subject in subjects))
    plain = None
    if config.train.shard and world.size() > 1:
        sharding.require_fit(config.method["kind"], len(tasks), config.model.tune, config.train.dynamics, probes)
        plain = sharding.shard(model, device)
    stream = mixed([subject.stream(config, cutter) for subject in subjects], resolved)
    return Built(subjects, tokenizer, pieces, model, stream, cutter, card, notes, probes, shares, plain)


def require_different(tasks: Sequence[Task], decides: str | None) -> None:
    """Heads, scores and files go by the names of tasks."""
    names = [task.name for task in tasks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"tasks: {twice[0]} is there twice; own files can be given a name of their own")
    if decides is not None and decides not in names:
        raise UserError(f"train.select_on: {decides} is none of this run's tasks: {', '.join(names)}")


def require_one_sampling(resolved: Resolved) -> None:
    """Rows are drawn by one thing at a time."""
    if not any(entry.sample_by for _, entry in resolved.tasks):
        return
    if any(entry.sample_by and entry.sampling == "balanced" for _, entry in resolved.tasks):
        raise UserError("tasks.sample_by: sampling balanced draws rows by their class; use one of the two")
    if resolved.config.method["kind"] == "importance":
        raise UserError("tasks.sample_by: method importance draws rows itself; use one of the two")
    if len(resolved.tasks) > 1 and getattr(resolved.mix, "neighbours", False):
        raise UserError("tasks.sample_by: this mix takes neighbours of the file; set mix.legacy_batches: false")


def mixed(streams: Sequence[Batches], resolved: Resolved) -> Stream:
    """The training stream: of several tasks as the mix says, or all in every step if the weighting needs that."""
    if len(streams) == 1:
        return streams[0]
    mix: Any = resolved.mix
    if mix.neighbours and any(stream.balance for stream in streams):
        kind = resolved.config.mix["kind"]
        raise UserError(f"tasks.sampling: mix {kind} keeps batches of neighbouring rows; balanced needs another mix")
    weighting: Any = resolved.weighting
    if weighting.together and mix.in_step(len(streams)) < 2:
        kind = resolved.config.weighting["kind"]
        raise UserError(f"weighting.kind: {kind} needs several tasks in a step; leave mix away or set it to together")
    method: Any = resolved.method
    if method.updates and mix.in_step(len(streams)) > 1:
        kind = resolved.config.method["kind"]
        raise UserError(
            f"method.kind: {kind} updates within a step, which can hold one task only; take a mix with one batch a "
            "step, such as shuffled with per_step: 1, and constant or uncertainty weighting"
        )
    options = resolved.config.train
    return Mixed.of(streams, mix, resolved.config.seed.data, options.epochs, options.max_steps)


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
        if inputs.tokenizer or config.model.tokenizer == "toy":
            notes += require_same_pieces(folder.path, tokenizer)
    named = (getattr(tokenizer, f"{name}_token_id", None) for name in ("cls", "sep", "bos", "eos"))
    encoder.special_ids = tuple(sorted({one for one in named if one is not None}))
    if encoder.layout == "packed":
        prove.require_equal(encoder)
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


def require_vocabulary(encoder: Encoder, tokenizer: Any) -> None:
    """A tokenizer of another model would name rows that the embedding does not have."""
    rows, highest = encoder.net.config.vocab_size, highest_id(tokenizer)
    if highest >= rows:
        raise UserError(
            f"model.tokenizer: its ids go up to {highest:,}, but the encoder has embeddings for {rows:,} tokens; "
            "use the model's own tokenizer"
        )


def require_same_pieces(folder: Path, tokenizer: Any) -> list[str]:
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
            f"model.tokenizer: it does not fit {folder}: {share:.0%} of its ids mean other pieces there (such as "
            f"{ours!r} for {theirs!r}); leave it away to use the model's own tokenizer"
        )
    return [f"model.tokenizer: {len(other):,} of its ids mean other pieces in {folder}"] if other else []


def make_model(
    encoder: Encoder, subjects: Sequence[Subject], resolved: Resolved, tokenizer: Any
) -> tuple[Model, dict[str, Any]]:
    """Encoder and questions, with what is frozen or adapted; also the card."""
    config = resolved.config
    objectives, known = {}, {}
    for subject in subjects:
        wanted = {**subject.task.objective(), **subject.entry.objective}
        options = settle_pooling(make_objective(wanted, resolved.code, config.model), encoder)
        rows: Any = subject.rows
        targets = {name: values[rows] for name, values in subject.train.table.targets.items()}
        objectives[subject.name] = options.fitted(targets)
        plain = {"kind": wanted["kind"], **objectives[subject.name].plain()}
        known[subject.name] = about(subject.task, plain, subject.max_length)
    asked = questions(encoder, objectives, tokenizer, config.seed.init)
    freeze(encoder, config.model.tune)
    if config.model.tune == "lora":
        lora.adapt(encoder, config.model.lora, draws.key(config.seed.init, "lora"))
    weights = {subject.name: subject.entry.weight for subject in subjects}
    return Model(encoder, asked, weights), card_of(known, subjects[0].pieces)


def questions(
    encoder: Encoder, objectives: Mapping[str, Any], tokenizer: Any, seed: int | None = None
) -> dict[str, Any]:
    """The modules of all objectives on one encoder, whose pooler stays if any of them uses it."""
    pooler, kept, found = getattr(encoder.net, "pooler", None), False, {}
    for name, objective in objectives.items():
        if seed is not None:
            seed_weights(seed, "head", name)
        if pooler is not None:
            encoder.net.pooler = pooler
        found[name] = objective.build(encoder, tokenizer)
        kept = kept or getattr(encoder.net, "pooler", None) is not None
    if pooler is not None:
        encoder.net.pooler = pooler if kept else None
    if len(found) > 1:  # the config of the last one would pass for that of the model
        encoder.net.config.num_labels, encoder.net.config.problem_type = 2, None
    return found


def make_objective(
    plain: Mapping[str, Any], code: Mapping[str, tuple[Path, str]] | None = None, model: ModelOptions | None = None
) -> Any:
    """The options object of an objective that is given as plain data; own files must be among the checked ones.

    An objective with a head takes what it does not say itself from the model's options.
    """
    options = {k: v for k, v in plain.items() if k != "kind"}
    file = plain["kind"].rpartition(":")[0]
    if file and file not in (code or {}):
        raise UserError(f"objective: {plain['kind']} is somebody's own code; load it with its run and --allow-code")
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
    return cls.model_validate_json(json.dumps(options))


def unsaid_pooling(objective: Mapping[str, Any]) -> AnyPooling:
    """What the head of a card without this key reads: heads that are not the architecture's own read first tokens."""
    return "auto" if objective.get("head", "stock") == "stock" else "first"


def settle_pooling(objective: Any, encoder: Encoder) -> Any:
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
    return Optimizer([*body, *heads, *more], config.optim, model.encoder.layers)


def load_model(
    folder: Path,
    layout: str = "auto",
    device: str = "auto",
    code: Mapping[str, tuple[Path, str]] | None = None,
    head: str | None = None,
) -> tuple[Model, Any, dict[str, Any]]:
    """A saved model (ours or any fine-tuned classifier of transformers), its tokenizer and its card.

    `head` leaves all other heads away. `code` holds the own Python files that may run (`Resolved.code`); a card alone
    never makes a file run.
    """
    encoder, _ = load_encoder(folder, ModelOptions(name=str(folder)), layout)
    tokenizer = from_folder(AutoTokenizer, folder)
    require_vocabulary(encoder, tokenizer)
    card = read_card(folder) or foreign_card(folder, encoder, tokenizer)
    if head is not None:
        if head not in card["tasks"]:
            raise UserError(f"{folder}: has no head {head}; it has {', '.join(card['tasks'])}")
        card = card | {"tasks": {head: card["tasks"][head]}}
    objectives = {name: make_objective(about["objective"], code) for name, about in card["tasks"].items()}
    model = Model(encoder, questions(encoder, objectives, tokenizer))
    model.load_heads(folder)
    if encoder.layout == "packed":
        prove.require_equal(encoder)
    model.to(pick_device(device)).eval()
    return model, tokenizer, card


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
