"""How much a task's loss hangs on each attention head, example by example, from one backward pass for many examples.

mask                 |∂loss/∂ξ| of a gate ξ = 1 on the head's output (Michel et al. 2019), which is
                     |⟨output, ∂loss/∂output⟩|: no gate is needed, and no weight gets a gradient
kv_weight            mean |∂loss/∂W| over the head's rows of the key and of the value matrix, added
kv_weight_released   the same over columns, as the GradTS release cuts it: slices of what goes in, not heads

An example's loss is its own (of tags the mean over its words), so one backward pass of their sum holds every example's
gradient: no example's loss depends on the heads of another one.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from encodery.analysis.attack import labelled, require_labels
from encodery.config import load
from encodery.core import cache, environment, files, shard_folder
from encodery.core.options import Options
from encodery.data import rng
from encodery.data.batches import Batch, MicroBatcher, in_order
from encodery.data.provenance import Provenance
from encodery.data.token_table import TokenTable, memory_table
from encodery.errors import UserError
from encodery.inference.answer_head import Head
from encodery.inference.classifier import Classifier as Trained
from encodery.inference.evaluate import with_head_for
from encodery.inference.task_argument import TaskSplit
from encodery.methods.base import seed_dropout
from encodery.models import attention_heads, locate
from encodery.models.attention_heads import cut, heads_of, hooked, places_of, rows_of
from encodery.models.encoder import Encoder
from encodery.models.kernels.first_token import first_only
from encodery.models.kernels.joined_attention import joined
from encodery.models.model import Model
from encodery.objectives.classification import Classifier
from encodery.objectives.parts.heads import ends_with_first
from encodery.objectives.ranking import Ranker
from encodery.runs.directory import RunDir
from encodery.runs.head_matrices import IDS, INSTANCES, TASK, Importance
from encodery.tasks.base import Example, Task
from encodery.training.task_data import trained_on

Estimator = Literal["mask", "kv_weight", "kv_weight_released"]
SHARD = 2048  # examples in a piece
BUDGET = 2048  # tokens of a micro-batch
MOST = 32  # sequences of a micro-batch: kv_weight holds a matrix for each of them
VERSION = 1  # raise it when equal inputs give other numbers


class HeadOptions(Options):
    """How the importance of attention heads is measured."""

    estimator: Estimator = "mask"
    """Which gradient measures a head. mask: that of a gate on the head; kv_weight: that of the head's rows of the key
    and value matrices; kv_weight_released: that of their columns, which is what the released GradTS code computes."""
    dropout: bool = False
    """Keep dropout on, as the released code does. This adds noise."""
    max_rows: int | None = Field(default=None, ge=1)
    """Maximum number of examples, a random sample that depends on the seed only. Default: all."""
    seed: int = Field(default=1, ge=0)
    """Seed for that sample and for dropout."""


# One micro-batch


@contextmanager
def frozen(model: Model) -> Iterator[None]:
    """Inside, no weight asks for a gradient; what lies in .grad is not touched."""
    asking = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in asking:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asking:
            parameter.requires_grad_(True)


def total_loss(model: Model, batch: Batch) -> Tensor:
    """The sum of the losses of all examples: with a mean every gradient would depend on the size of the batch."""
    losses = model.objective(batch.task).losses(model.outputs(batch), batch)
    return torch.stack(list(losses.values())).sum()


def leaf(value: Tensor) -> Tensor:
    """Where a graph may begin: below the first heads nothing asks for a gradient."""
    return value if value.requires_grad else value.detach().requires_grad_()


def of_gates(model: Model, batch: Batch) -> Tensor:
    """∂loss/∂ξ of each sequence's gates, with its sign: [sequences, layers, heads]."""
    encoder, contexts = model.encoder, list[Tensor]()

    def seen(_layer: int, context: Tensor) -> Tensor:
        contexts.append(leaf(context))
        return contexts[-1]

    with torch.enable_grad(), frozen(model), hooked(encoder, places_of(encoder).output, seen):
        first = reads_first(model.objective(batch.task), encoder)  # inside: it depends on checkpointing, which is off
        with joined(encoder, batch, first):
            slopes = torch.autograd.grad(total_loss(model, batch), contexts)
    last = first_only(batch) if first else batch
    per_layer = [
        seen_in.per_sequence(cut(context.detach() * slope, heads_of(encoder), -1).sum(-1), "sum")
        for context, slope, seen_in in zip(contexts, slopes, [*[batch] * (len(contexts) - 1), last], strict=True)
    ]
    return torch.stack(per_layer, 1)


def reads_first(objective: Any, encoder: Encoder) -> bool:
    """Whether the last layer's heads were seen at first tokens alone."""
    return isinstance(objective, Classifier | Ranker) and ends_with_first(objective.head, encoder)


def of_weights(model: Model, batch: Batch, by_column: bool) -> Tensor:
    """Mean |∂loss/∂W| of each sequence over the parts of the key matrix plus that of the value matrix."""
    encoder = model.encoder
    places, heads = places_of(encoder), heads_of(encoder)
    if getattr(encoder.net.config, "share_att_key", False):
        raise UserError(
            f"heads: this {encoder.kind} uses its key matrix for positions too, whose gradient belongs to no single "
            "example; use mask"
        )
    seen_by: dict[str, list[tuple[Tensor, Tensor]]] = {part.module: [] for part in places.parts}

    def watcher(module: str) -> attention_heads.Seen:
        def seen(_layer: int, both: tuple[Tensor, Tensor]) -> Tensor:
            seen_by[module].append((both[0].detach(), leaf(both[1])))
            return seen_by[module][-1][1]

        return seen

    with torch.enable_grad(), frozen(model), ExitStack() as stack:
        for module in seen_by:
            stack.enter_context(hooked(encoder, module, watcher(module), output=True))
        loss = total_loss(model, batch)
        results = [result for module in seen_by for _, result in seen_by[module]]
        slopes = iter(torch.autograd.grad(loss, results))
    behind = {module: [next(slopes) for _ in seen_by[module]] for module in seen_by}
    layers = []
    for layer in range(rows_of(encoder)):
        parts = [
            sizes_of_blocks(batch, seen_by[p.module][layer][0], rows_of_part(behind[p.module][layer], p, heads), heads,
                            by_column)
            for p in places.parts
        ]  # fmt: skip
        layers.append(torch.stack(parts).sum(0))
    return torch.stack(layers, 1)


def rows_of_part(slope: Tensor, part: attention_heads.Part, heads: int) -> Tensor:
    """Keys or values of what a linear layer gives out: [..., heads · size]."""
    if part.cut == "whole":
        return slope
    if part.cut == "qkv":
        return cut(slope, 3, heads, -1)[..., part.number, :, :].flatten(-2)
    return cut(slope, heads, 3, -1)[..., part.number, :].flatten(-2)


def sizes_of_blocks(batch: Batch, given: Tensor, slope: Tensor, heads: int, by_column: bool) -> Tensor:
    """Each sequence's own |∂loss/∂W|, in blocks of rows or columns: [sequences, heads]."""
    x, mask = batch.rows(given)
    delta = batch.rows(slope)[0] * mask[..., None]
    own = torch.matmul(delta.transpose(1, 2), x * mask[..., None]).abs()
    return cut(own.mean(1 if by_column else 2), heads, -1).mean(-1)


def of_batch(model: Model, batch: Batch, options: HeadOptions) -> Tensor:
    """The estimator's numbers for each sequence, before the absolute value where that comes last."""
    if options.dropout:
        seed_dropout(batch)
    if options.estimator == "mask":
        return of_gates(model, batch)
    return of_weights(model, batch, options.estimator == "kv_weight_released")


def importances(
    model: Model, table: TokenTable, batcher: MicroBatcher, task: str, options: HeadOptions, batch_size: int = MOST
) -> np.ndarray:
    """|gradient| of each example of a table, in its order: [examples, layers, heads] in float32."""
    encoder, examples = model.encoder, len(table.example_ids)
    sums = np.zeros((examples, rows_of(encoder), heads_of(encoder)), np.float64)
    sizes = np.zeros(examples)
    was_training = model.training
    model.train(options.dropout)
    try:
        for batch in in_order(table, batcher, task, batch_size):
            batch = replace(batch, seed=rng.key(options.seed, "heads", int(batch.ids[0])))
            each = of_batch(model, batch, options).double().cpu().numpy()
            owner = np.asarray(table.example[batch.ids.numpy()])
            if options.estimator != "mask" and len(set(owner.tolist())) < len(owner):
                raise UserError(f"heads: {options.estimator} needs examples of one sequence each; use mask")
            np.add.at(sums, owner, each)
            np.add.at(sizes, owner, model.objective(task).sizes(batch).double().cpu().numpy())
    finally:
        model.train(was_training)
    return np.abs(sums / np.maximum(sizes, 1e-12)[:, None, None]).astype(np.float32)


# A whole split


@dataclass(frozen=True)
class Request:
    """A model, what it is asked on, and everything that the numbers depend on."""

    model: Trained
    asked: TaskSplit
    options: HeadOptions
    plan: dict[str, Any]
    examples: Sequence[Example]  # from which max_rows are drawn

    @property
    def folder(self) -> Path:
        """In the cache, named by a hash of everything that the numbers depend on."""
        return shard_folder.in_cache("heads", self.plan)


def request(
    model: Trained,
    asked: TaskSplit,
    options: HeadOptions,
    head: str | None = None,
    rows: Sequence[Example] | None = None,
) -> Request:
    """What would be done, on these rows or on the whole split; what cannot be done is refused."""
    split_rows = asked.task.examples(asked.split)
    examples = split_rows if rows is None else rows
    require_labels(asked, examples)
    fitting = with_head_for(model, asked.task, head)
    encoder = fitting.model.encoder
    attention_heads.modules_of(encoder, places_of(encoder).output)
    weights = locate.resolve(model.source, head=fitting.head.name)
    plan = {
        "version": VERSION, "model": weights.digest(), "base": base_of(model.source),
        "tokenizer": fitting.pieces.digest, "max_length": fitting.head.max_length, "head": fitting.head.name,
        "task": asked.task.name, "split": asked.split, "rows": asked.task.origin(asked.split).digest,
        "part": part_of(split_rows, examples),
        "reading": asked.task.reading(), "layers": rows_of(encoder), "heads": heads_of(encoder), "shard": SHARD,
        **options.to_dict(),
    }  # fmt: skip
    return Request(fitting, asked, options, plan, examples)


def part_of(whole: Sequence[Example], examples: Sequence[Example]) -> str | None:
    """What stands for some rows of a split; None: all of them."""
    ids = [example.id for example in examples]
    if ids == [example.id for example in whole]:
        return None
    return files.digest_text("\n".join(ids))[:32]


def rows_of_run(run: RunDir, asked: TaskSplit, allow_code: bool = False) -> list[Example] | None:
    """The training rows of a run's own task that it was trained on; None where another split or task is asked."""
    if asked.split != "train":
        return None
    resolved = load.load(run.path, allow_code=allow_code)
    entry = next((entry for task, entry in resolved.tasks if task.name == asked.task.name), None)
    return trained_on(asked.task, entry, resolved.config) if entry else None


def base_of(source: str) -> str:
    """What stands for the weights that fine-tuning began with: heads of another start are other heads."""
    path = Path(source.partition("@")[0])
    if not files.is_run(path):
        return locate.resolve(source).digest()
    info = RunDir(path).info()
    inputs = info.get("inputs", {})
    found = inputs.get("model.init_from") or inputs.get("model.name")
    return str(found or "new-" + files.digest([info.get("model"), info.get("seed", {}).get("init")]))


def measure(given: Request, folder: Path | None = None, on_progress: Callable[[int], None] | None = None) -> Importance:
    """Head importance of a split, from the folder or made now; a killed command goes on at the first missing piece."""
    folder = folder or given.folder
    with shard_folder.locked(folder, given.plan, "importances of heads") as unfinished:
        if unfinished:
            _make(given, folder, on_progress)
    return Importance(folder)


def chosen(given: Request) -> list[Example]:
    """The examples that are looked at, in the order of the file."""
    examples, most = given.examples, given.options.max_rows
    if most is None or most >= len(examples):
        return list(examples)
    return [examples[i] for i in np.sort(rng.choose(given.options.seed, "heads", len(examples), most))]


def table_of(model: Trained, task: Task, examples: Sequence[Example]) -> TokenTable:
    """Tokens and targets, in the order of the head's outputs."""
    if isinstance(model.head, Head):
        return labelled(model, task, examples)
    if tuple(model.head.labels) != tuple(task.labels):
        raise UserError(f"{model.source}: was trained on tags in another order than {task.name} has them")
    return memory_table(task.encode(examples, model.pieces, model.head.max_length), [e.id for e in examples])


def _make(given: Request, folder: Path, on_progress: Callable[[int], None] | None) -> None:
    model, examples = given.model, chosen(given)
    if model.batcher.device.type == "cpu":
        environment.keep()
    batcher = replace(model.batcher, budget=BUDGET, max_sequences=MOST)
    count, spent = -(-len(examples) // SHARD), 0.0
    todo = set(shard_folder.missing(folder, count))
    for number in range(count):
        part = examples[number * SHARD : (number + 1) * SHARD]
        if number in todo:
            start = time.perf_counter()
            table = table_of(model, given.asked.task, part)
            values = importances(model.model, table, batcher, model.head.name, given.options)
            if not np.isfinite(values).all():
                bad = part[int(np.flatnonzero(~np.isfinite(values).all((1, 2)))[0])].id
                raise UserError(f"heads: the gradient of example {bad} is not finite")
            cache.save_array(shard_folder.shard_path(folder, number), values)
            spent += time.perf_counter() - start
        if on_progress:
            on_progress(len(part))
    _join(folder, examples, given.plan, spent)


def _join(folder: Path, examples: Sequence[Example], plan: dict[str, Any], spent: float) -> None:
    """All pieces in one file; meta.json is the sign that everything is there."""
    total = np.zeros((plan["layers"], plan["heads"]))
    for values in shard_folder.join(folder, INSTANCES, (len(examples), *total.shape)):
        total += values.sum(0, dtype=np.float64)
    with files.atomic(folder / TASK) as stream:
        np.save(stream, total / max(len(examples), 1), allow_pickle=False)
    files.write_atomic(folder / IDS, json.dumps([example.id for example in examples]))
    halves = Importance(folder).halves()
    made_from = Provenance.of(plan["task"], plan["split"], examples).to_dict()
    about = {"count": len(examples), "seconds": round(spent, 3), "halves": halves}
    shard_folder.finish(folder, [INSTANCES, TASK, IDS], {**plan, **made_from, **about})
