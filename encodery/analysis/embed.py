"""Model + task → one vector for each example: a memory-mapped matrix whose rows are keyed by example id.

A folder holds vectors.npy [n, width], ids.json, manifest.json (their digests) and meta.json (last). While it is made,
shards/ holds fixed-size pieces and plan.json what they are pieces of; a killed command goes on at the first piece that
is missing.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from encodery.config.schema import TOKEN_BUDGET
from encodery.core import cache, files, shard_folder
from encodery.data.batches import Batch, MicroBatcher
from encodery.data.embeddings import Embeddings, EmbedOptions
from encodery.data.provenance import Provenance
from encodery.data.token_table import TokenTable, token_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.inference import open_model
from encodery.inference.answer_head import no_such_head
from encodery.inference.model_card import longest_of
from encodery.inference.task_argument import TaskSplit
from encodery.inference.task_argument import resolve_split as find_asked
from encodery.models import locate
from encodery.models.encoder import Encoder
from encodery.models.model import read_card, require_openable
from encodery.runs.directory import RunDir
from encodery.tasks.base import Example

SHARD = 4096  # examples in a piece
VERSION = 1  # raise it when equal inputs give other vectors
INT8_VERSION = 2  # the same for quantised weights alone


@dataclass(frozen=True)
class Source:
    """An encoder that is asked for vectors, and what stands for it in a plan."""

    encoder: Encoder
    pieces: TokenizerPieces
    digest: str
    name: str
    max_length: int
    new_pooler: bool  # its weights are random: the checkpoint has none


def open_source(
    name: str, device: str = "auto", near: Path | None = None, layout: str = "auto", head: str | None = None
) -> Source:
    """The encoder of a run, a model folder or a hub name.

    `head`: of a run with several tasks, the one whose length counts, and whose weights where it kept the best of each.
    """
    folder = locate.resolve(name, near=near, head=head)
    tasks = (read_card(folder.path) or {"tasks": {}})["tasks"]
    if head is not None and head not in tasks:
        raise UserError(no_such_head(name, head, list(tasks)) if tasks else f"{name}: has no heads that can be named")
    require_openable(folder.path, tasks)
    encoder, tokenizer, notes = open_model.open_encoder(folder.path, layout)
    open_model.make_ready(encoder, encoder, device)
    length = tasks[head or next(iter(tasks))]["max_length"] if tasks else 128
    length = min(length, longest_of(encoder))
    new = any(note.startswith("newly") and "pooler" in note for note in notes)
    return Source(encoder, TokenizerPieces(tokenizer), folder.digest(), name, length, new)


def plan_of(source: Source, asked: TaskSplit, options: EmbedOptions) -> dict[str, Any]:
    """Everything that the vectors depend on (the batch size does not change them beyond rounding)."""
    layer = layer_of(source.encoder, options.layer)
    if options.site == "pooler" and (source.new_pooler or getattr(source.encoder.net, "pooler", None) is None):
        raise UserError(f"embed: {source.name} has no trained pooler; use site cls or mean")
    if options.site == "pooler" and layer != source.encoder.layers:
        raise UserError("embed: a pooler reads the last layer; remove layer")
    if not asked.task.labelled:
        raise UserError(f"embed: {asked.task.name} is plain text without examples")
    length = min(options.max_length or source.max_length, longest_of(source.encoder))
    return {
        "version": VERSION, "model": source.digest, "tokenizer": source.pieces.digest, "max_length": length,
        "task": asked.task.name, "split": asked.split, "rows": asked.task.origin(asked.split).digest,
        "reading": asked.task.reading(), "site": options.site, "layer": layer, "int8": options.int8, "shard": SHARD,
        **({"int8_version": INT8_VERSION} if options.int8 else {}),
    }  # fmt: skip


def layer_of(encoder: Encoder, layer: int) -> int:
    """The number of a layer, counted from the embeddings."""
    number = encoder.layers + 1 + layer if layer < 0 else layer
    if not 0 <= number <= encoder.layers:
        raise UserError(f"embed: layer {layer}, but this encoder has layers 0 (embeddings) to {encoder.layers}")
    return number


def embed(
    source: Source,
    asked: TaskSplit,
    options: EmbedOptions,
    folder: Path | None = None,
    on_progress: Callable[[int], None] | None = None,
    elsewhere: "Elsewhere | None" = None,
) -> Embeddings:
    """The vectors of a split, from the folder or made now."""
    plan = plan_of(source, asked, options)
    folder = folder or shard_folder.in_cache("embeddings", plan)
    with shard_folder.locked(folder, plan, "embeddings") as unfinished:
        if unfinished:
            _make(source, asked, options, plan, folder, on_progress, elsewhere)
    return Embeddings(folder)


def _make(
    source: Source,
    asked: TaskSplit,
    options: EmbedOptions,
    plan: dict[str, Any],
    folder: Path,
    on_progress: Callable[[int], None] | None,
    elsewhere: "Elsewhere | None",
) -> None:
    examples = asked.task.examples(asked.split)
    every = range(-(-len(examples) // SHARD))
    todo = shard_folder.missing(folder, len(every))
    maker = elsewhere or (lambda _, todo: map(piece_maker(source, asked, options, plan, folder), todo))
    for number in chain(set(every) - set(todo), maker(folder, todo)):
        if on_progress:
            on_progress(min(SHARD, len(examples) - number * SHARD))
    _join(folder, examples, plan)


def piece_maker(
    source: Source, asked: TaskSplit, options: EmbedOptions, plan: dict[str, Any], folder: Path
) -> Callable[[int], int]:
    """What makes the pieces of a folder, one at a time: called here or on another machine, the bytes are the same."""
    examples = asked.task.examples(asked.split)
    table = token_table(asked.task, asked.split, source.pieces, plan["max_length"], examples)
    give = _giver(source, options, plan)

    def make(number: int) -> int:
        begin = number * plan["shard"]
        count = min(plan["shard"], len(examples) - begin)
        found = shard(table, begin, count, give, options.batch_size, source.encoder)
        cache.save_array(shard_folder.shard_path(folder, number), found)
        return number

    return make


Elsewhere = Callable[[Path, Sequence[int]], Iterable[int]]  # makes pieces of a folder; yields each when it is there


def remote_job(
    model: str,
    on: str,
    data: str | None,
    options: EmbedOptions,
    device: str,
    allow_code: bool = False,
    columns: Mapping[str, str | None] | None = None,
    head: str | None = None,
) -> dict[str, Any]:
    """All that another machine must know; the number of threads too, since rounding depends on it."""
    place = str(Path(model).resolve()) if Path(model).exists() else model
    on = str(Path(on).resolve()) if Path(on).is_file() else on
    about = {"model": place, "on": on, "data": data and str(Path(data).resolve()), "device": device}
    return {
        **about,
        "allow_code": allow_code,
        "columns": dict(columns or {}),
        "head": head,
        "options": options.to_dict(),
        "threads": torch.get_num_threads(),
        "shard": SHARD,
    }


def remote_embedder(job: dict[str, Any]) -> Callable[[int], int]:
    """Makes pieces as a job says; refused where this machine sees another model or other rows."""
    torch.set_num_threads(job["threads"])
    options, folder = EmbedOptions(**job["options"]), Path(job["folder"])
    reading: dict[str, Any] = {name: job[name] for name in ("allow_code", "columns", "head")}
    source, asked = open_all(job["model"], job["on"], job["data"], job["device"], options.int8, **reading)
    plan = {**plan_of(source, asked, options), "shard": job["shard"]}
    files.require_same_plan(folder, plan, "embeddings")
    return piece_maker(source, asked, options, plan, folder)


def open_all(
    model: str,
    on: str,
    data: str | None,
    device: str,
    int8: bool,
    *,
    allow_code: bool = False,
    columns: Mapping[str, str | None] | None = None,
    head: str | None = None,
) -> tuple[Source, TaskSplit]:
    """The encoder and the rows that a command line names."""
    runs = [RunDir.open(model)] if files.is_run(model) else []
    meant = find_asked(on, data, runs, allow_code=allow_code, columns=columns, labelled=False, head=head)
    if len(meant) != 1:
        raise UserError(f"--on {on}: which split? " + ", ".join(one.key for one in meant))
    return open_source(model, "cpu" if int8 else device, layout="rows" if int8 else "auto", head=head), meant[0]


def _join(folder: Path, examples: Sequence[Example], plan: dict[str, Any]) -> None:
    """All pieces in one file; meta.json is the sign that everything is there."""
    width = np.load(shard_folder.shard_path(folder, 0), mmap_mode="r", allow_pickle=False).shape[1]
    for _ in shard_folder.join(folder, "vectors.npy", (len(examples), width)):
        pass
    files.write_atomic(folder / "ids.json", json.dumps([example.id for example in examples]))
    made_from = Provenance.of(plan["task"], plan["split"], examples).to_dict()
    about = {**plan, **made_from, "width": width, "count": len(examples)}
    shard_folder.finish(folder, ["vectors.npy", "ids.json"], about)


Giver = Callable[[Batch], Tensor]  # a vector for each sequence of a micro-batch


def _giver(source: Source, options: EmbedOptions, plan: dict[str, Any]) -> Giver:
    if options.int8:
        from encodery.models.onnx.int8 import quantised

        small = quantised(source.encoder, plan["layer"])
        return lambda batch: at_site(source.encoder, batch, small(batch), options.site)
    return lambda batch: vectors_of(source.encoder, batch, options.site, plan["layer"])


@torch.no_grad()
def shard(table: TokenTable, begin: int, count: int, give: Giver, batch_size: int, encoder: Encoder) -> np.ndarray:
    """The vectors of some examples in their order; an example with several sequences gets their mean."""
    first, last = np.searchsorted(table.example, [begin, begin + count])
    rows = np.arange(first, last)
    order = rows[np.argsort(-np.asarray(table.lengths[rows]), kind="stable")]
    device = next(encoder.parameters()).device
    batcher = MicroBatcher(encoder.layout, encoder.form, TOKEN_BUDGET, max_sequences=batch_size, device=device)
    means: np.ndarray = np.zeros((count, 0), np.float32)
    for i in range(0, len(order), batch_size):
        for batch in batcher.split(table, order[i : i + batch_size], "embed", 0):
            vectors = give(batch).float().cpu().numpy()
            if not means.shape[1]:
                means = np.zeros((count, vectors.shape[1]), np.float32)
            np.add.at(means, table.example[batch.ids.numpy()] - begin, vectors)
    sequences = np.bincount(table.example[first:last] - begin, minlength=count)
    means = means / np.maximum(sequences, 1)[:, None].astype(np.float32)
    if not np.isfinite(means).all():
        bad = table.example_ids[begin + int(np.flatnonzero(~np.isfinite(means).all(1))[0])]
        raise UserError(f"embed: the vector of example {bad} is not finite")
    return means


def vectors_of(encoder: Encoder, batch: Batch, site: str, layer: int) -> Tensor:
    """One vector for each sequence."""
    if layer == encoder.layers:
        hidden = encoder(batch)
    else:
        hidden = encoder.net(**batch.inputs, output_hidden_states=True).hidden_states[layer]
    return at_site(encoder, batch, hidden, site)


def at_site(encoder: Encoder, batch: Batch, hidden: Tensor, site: str) -> Tensor:
    """From hidden states to one vector for each sequence."""
    if site == "mean":
        return batch.per_sequence(hidden, "mean")
    return batch.first(hidden) if site == "cls" else pooled(encoder, batch.first(hidden))


def pooled(encoder: Encoder, first: Tensor) -> Tensor:
    """The architecture's own pooler on first tokens."""
    net: Any = encoder.net
    albert = encoder.kind == "albert"
    found: Tensor = net.pooler_activation(net.pooler(first)) if albert else net.pooler(first[:, None])
    return found
