"""Model + task → answers by example id, and their scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from encodery.data.batches import WHOLE, Batch, MicroBatcher, Share, in_order
from encodery.data.token_table import TokenTable
from encodery.distributed import comm
from encodery.models.model import Model
from encodery.tasks.base import Answer, Example, Task

OnProgress = Callable[[int], None]


@torch.no_grad()
def in_turns(
    model: Model,
    batches: Sequence[Batch],
    work: Callable[[Batch], Any],
    on_progress: OnProgress | None = None,
    share: Share = WHOLE,
) -> Iterator[Any]:
    """What `work` makes of each batch, in order. Of several processes each takes one, and all see what all have found.

    At the end some may be left over; they work all the same, because a model that is spread over the processes needs
    all of them in each pass. `tick` is called equally often by all of them.
    """
    was_training = model.training
    model.eval()
    try:
        for first in range(0, len(batches), share.size):
            turn = batches[first : first + share.size]
            found = work(turn[min(share.rank, len(turn) - 1)])
            yield from comm.gather(found)[: len(turn)] if share.size > 1 else [found]
            if on_progress:
                on_progress(sum(map(len, turn)))
    finally:
        model.train(was_training)


def outputs_by_example(
    model: Model,
    task: str,
    table: TokenTable,
    batcher: MicroBatcher,
    on_progress: OnProgress | None = None,
    share: Share = WHOLE,
) -> list[dict[str, Any]]:
    """Raw outputs, one row per sequence in the order of the table: {"id": …, "logits": […]}."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(table))]

    def work(batch: Batch) -> Any:
        named = model.objective(task).answers(model.outputs(batch), batch)
        return batch.ids.tolist(), {name: value.cpu().tolist() for name, value in named.items()}

    for ids, plain in in_turns(model, in_order(table, batcher, task), work, on_progress, share):
        for place, row in enumerate(ids):
            rows[row] = {name: values[place] for name, values in plain.items()}
            rows[row]["id"] = table.example_ids[int(table.example[row])]
            here = slice(int(table.starts[row]), int(table.starts[row + 1]))
            rows[row] |= {name: values[here].tolist() for name, values in table.marks.items()}
    return rows


def answer(
    model: Model,
    task: Task,
    table: TokenTable,
    batcher: MicroBatcher,
    on_progress: OnProgress | None = None,
    examples: Sequence[Example] = (),
    share: Share = WHOLE,
) -> dict[str, Answer]:
    """Answers of a model by example id; of a task without labels sums over everything."""
    if not task.labelled:
        return task.decode([sums(model, task.name, table, batcher, on_progress, share=share)])
    return task.decode(outputs_by_example(model, task.name, table, batcher, on_progress, share), examples)


def sums(
    model: Model, task: str, table: TokenTable, batcher: MicroBatcher, on_progress: OnProgress | None = None,
    noise: int = 0,
    share: Share = WHOLE,
) -> dict[str, Any]:  # fmt: skip
    """What the objective's answers add up to over a table: memory does not grow with it. `noise` decides the masks."""

    def work(batch: Batch) -> Any:
        batch = replace(batch, noise=noise)
        found = model.objective(task).answers(model.outputs(batch), batch)
        return {name: values.sum(0).cpu().double().tolist() for name, values in found.items()}

    total: dict[str, np.ndarray] = {}
    for found in in_turns(model, in_order(table, batcher, task), work, on_progress, share):
        for name, part in found.items():
            total[name] = total[name] + np.asarray(part) if name in total else np.asarray(part)
    return {name: value.tolist() for name, value in total.items()}


def majority(task: Task, train: Sequence[Example], examples: Sequence[Example]) -> dict[str, float]:
    """Scores of the answer that needs no model: the commonest label, the mean, or what else is simplest."""
    answers = task.simplest(train, examples)
    return task.score(answers, examples) if answers else {}


def collapsed(task: Task, answers: Mapping[str, Answer]) -> str | None:
    """A sentence if the model says the same whatever it reads (R15)."""
    if len(answers) < 8:
        return None
    said = [a["prediction"] for a in answers.values()]
    if isinstance(said[0], float):
        spread = max(said) - min(said)
        return f"all predictions are within {spread:.1e} of {said[0]:.3f}" if spread < 1e-3 else None
    if task.objective()["kind"] == "tagging":  # sentences may well have the same kinds of tags
        kinds = {tag for tags in said for tag in tags}
    else:
        kinds = {tuple(sorted(set(x))) if isinstance(x, list) else x for x in said}
    return f"every prediction is {kinds.pop()!r}" if len(kinds) == 1 else None
