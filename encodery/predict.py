"""Model + task → answers by example id, and their scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from encodery.data.batches import Cutter, in_order
from encodery.data.tokens import TokenTable
from encodery.models.model import Model
from encodery.tasks.base import Answer, Example, Task


@torch.no_grad()
def outputs_by_example(
    model: Model, task: str, table: TokenTable, cutter: Cutter, tick: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """Raw outputs, one row per sequence in the order of the table: {"id": …, "logits": […]}."""
    was_training = model.training
    model.eval()
    rows: list[dict[str, Any]] = [{} for _ in range(len(table))]
    try:
        for batch in in_order(table, cutter, task):
            named = model.question(task).answers(model.outputs(batch), batch)
            plain = {name: value.cpu().tolist() for name, value in named.items()}
            for place, row in enumerate(batch.ids.tolist()):
                rows[row] = {name: values[place] for name, values in plain.items()}
                rows[row]["id"] = table.example_ids[int(table.example[row])]
                here = slice(int(table.starts[row]), int(table.starts[row + 1]))
                rows[row] |= {name: values[here].tolist() for name, values in table.marks.items()}
            if tick:
                tick(len(batch))
    finally:
        model.train(was_training)
    return rows


def answer(
    model: Model,
    task: Task,
    table: TokenTable,
    cutter: Cutter,
    tick: Callable[[int], None] | None = None,
    examples: Sequence[Example] = (),
) -> dict[str, Answer]:
    """Answers of a model by example id; of a task without labels sums over everything."""
    if not task.labelled:
        return task.decode([sums(model, task.name, table, cutter, tick)])
    return task.decode(outputs_by_example(model, task.name, table, cutter, tick), examples)


@torch.no_grad()
def sums(
    model: Model, task: str, table: TokenTable, cutter: Cutter, tick: Callable[[int], None] | None = None,
    noise: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """What the question's answers add up to over a table: memory does not grow with it. `noise` decides the masks."""
    was_training = model.training
    model.eval()
    total: dict[str, torch.Tensor] = {}
    try:
        for batch in in_order(table, cutter, task):
            batch = replace(batch, noise=noise)
            for name, values in model.question(task).answers(model.outputs(batch), batch).items():
                part = values.sum(0).cpu()
                total[name] = total[name] + part if name in total else part
            if tick:
                tick(len(batch))
    finally:
        model.train(was_training)
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
        return f"all predictions lie within {spread:.1e} of {said[0]:.3f}" if spread < 1e-3 else None
    kinds = {tuple(sorted(set(x))) if isinstance(x, list) else x for x in said}
    return f"every prediction is {kinds.pop()!r}" if len(kinds) == 1 else None
