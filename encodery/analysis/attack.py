"""How much of a model's score survives when its word embeddings are moved against it: scores and loss by radius.

pgd     A ascents of 2.5 · radius / A along the gradient, projected into the ball after each
fgsm    one ascent to the ball's edge
random  A random points of the edge: the control that knows no gradient

All begin at the clean embeddings. Of all points seen, the clean one included, each sequence keeps the one with its
highest loss. l2 climbs along g / ‖g‖, linf along sign(g). Dropout is off, and every radius is attacked by itself, so
that a figure does not depend on which others were asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from encodery.data import rng
from encodery.data.batches import Batch, in_order
from encodery.data.token_table import TokenTable, memory_table
from encodery.errors import UserError
from encodery.inference.answer_head import Head
from encodery.inference.classifier import CHUNK, Classifier
from encodery.inference.evaluate import other_column, with_head_for, without_labels
from encodery.inference.task_argument import TaskSplit
from encodery.methods._perturbation import Norm, Perturbation, Space
from encodery.methods._scale import STRIDE, Scale, embedding_scales, unit_of
from encodery.models.model import Model
from encodery.tasks.base import Answer, Example, Task
from encodery.tasks.sources.own_files import Own

Kind = Literal["pgd", "fgsm", "random"]


@dataclass(frozen=True)
class Level:
    """What is left at one radius."""

    radius: float
    loss: float
    scores: dict[str, float]
    per_embedding_norm: float  # root mean square of the perturbation over tokens, against the word embeddings' norm
    per_neighbour_distance: float  # the same against the distance to the nearest other word

    def to_dict(self) -> dict[str, Any]:
        """As JSON and as a line of a table."""
        sizes = {"per_embedding_norm": self.per_embedding_norm, "per_neighbour_distance": self.per_neighbour_distance}
        return {"radius": self.radius, "loss": self.loss, **self.scores, **sizes}


class Point(NamedTuple):
    """A perturbation of a micro-batch, and what the model says there."""

    delta: Tensor  # [T, width]
    losses: Tensor  # [n]
    answers: dict[str, Tensor]


@dataclass(frozen=True)
class Attack:
    """How the worst point is looked for."""

    kind: Kind = "pgd"
    steps: int = 5
    norm: Norm = "l2"
    scale: Scale = "absolute"  # token_norm: radii are multiples of the attacked encoder's mean token norm

    def unit(self, model: Model) -> float:
        """What radii count in."""
        return 1.0 if self.scale == "absolute" else unit_of(model.encoder, "word", self.norm)

    def worst(self, model: Model, batch: Batch, clean: Point, slope: Tensor, radius: float) -> Point:
        """For each sequence the point of highest loss that is found within the radius; `slope` is that at the clean
        one."""
        space, worst = self.space(model, batch), clean
        here = clean.delta
        ascents = 1 if self.kind == "fgsm" else self.steps
        for k in range(ascents):
            if self.kind == "random":
                here, slope = clean.delta, noise(space, k)
            rate = STRIDE * radius / ascents if self.kind == "pgd" else radius
            here = space.ascend(here, slope, rate, radius)
            point, slope = look(model, batch, here, climb=self.kind == "pgd" and k + 1 < ascents)
            worst = worse(worst, point, batch)
        return worst

    def space(self, model: Model, batch: Batch) -> Space:
        """One ball per sequence (of a long text: per window), special tokens included."""
        return Perturbation(norm=self.norm).space(model, batch)


def noise(space: Space, number: int) -> Tensor:
    """Random directions, the same in every run."""
    batch = replace(space.batch, noise=rng.key(0, "attack", number))
    return replace(space, batch=batch).draw(1.0)


def look(model: Model, batch: Batch, delta: Tensor | None, climb: bool) -> tuple[Point, Tensor]:
    """Losses and answers at a perturbation (None: untouched), and the gradient there (zero unless it is asked for)."""
    moved_by = Perturbation().space(model, batch).zero() if delta is None else delta
    moved_by = moved_by.detach().requires_grad_(climb)
    objective = model.objective(batch.task)
    moved = delta is not None or climb
    with torch.set_grad_enabled(climb):
        with model.encoder.perturbed(batch.layout.from_tokens(moved_by)) if moved else nullcontext():
            outputs = model.outputs(batch)
        answers = objective.answers(outputs, batch)
        losses = objective.per_example(answers["logits"], batch.targets["label"])
        slope = torch.autograd.grad(losses.sum(), moved_by)[0] if climb else torch.zeros_like(moved_by)
    return Point(moved_by.detach(), losses.detach(), {name: value.detach() for name, value in answers.items()}), slope


def worse(old: Point, new: Point, batch: Batch) -> Point:
    """Sequence by sequence the one with the higher loss."""
    higher = new.losses > old.losses
    answers = {name: torch.where(higher[:, None], new.answers[name], value) for name, value in old.answers.items()}
    tokens = higher[batch.layout.sequence_of_token][:, None]
    return Point(torch.where(tokens, new.delta, old.delta), torch.maximum(new.losses, old.losses), answers)


# A whole split


def under_attack(
    model: Classifier,
    asked: TaskSplit,
    radii: Sequence[float],
    attack: Attack,
    head: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> list[Level]:
    """Scores and mean loss of one model at every radius."""
    task, examples = asked.task, asked.task.examples(asked.split)
    require_labels(asked, examples)
    fitting = with_head_for(model, task, head)
    if not isinstance(fitting.head, Head):
        raise UserError(f"{asked.key}: only models that give a label or a number can be attacked")
    if strange := sorted(set(task.labels) - set(fitting.head.labels)):
        have = ", ".join(fitting.head.labels)
        raise UserError(
            f"{asked.key}: its label {strange[0]} is not a label of this head ({have}), so there is no loss to attack; "
            "evaluate it without --attack"
        )
    fitting.require_texts(examples)
    fitting.model.eval()
    sums, unit = {radius: Sums() for radius in radii}, attack.unit(fitting.model)
    for begin in range(0, len(examples), CHUNK):
        table = labelled(fitting, task, examples[begin : begin + CHUNK])
        for batch in in_order(table, fitting.batcher, fitting.head.name):
            for radius, point in points(fitting.model, batch, radii, attack, unit):
                sums[radius].add(fitting.model, batch, point, table)
                if on_progress:
                    on_progress(len(batch))
    return [sums[radius].level(radius, fitting, task, examples) for radius in radii]


def require_labels(asked: TaskSplit, examples: Sequence[Example]) -> None:
    """An attack climbs the loss, which needs labels."""
    hidden = next((example.id for example in examples if example.label is None), None)
    if hidden is not None and isinstance(asked.task, Own) and asked.split == "test":
        raise UserError(f"{without_labels(asked)}, and a loss needs them{other_column(asked)}")
    if hidden is not None:
        raise UserError(
            f"{asked.key}: the labels are hidden (first: example {hidden}), so there is no loss to attack; "
            "use a split with labels, such as dev"
        )


def labelled(model: Classifier, task: Task, examples: Sequence[Example]) -> TokenTable:
    """Tokens as the task makes them, targets in the order of the head's outputs."""
    hidden = [replace(example, label=None) for example in examples]
    head = model.head
    assert isinstance(head, Head)
    number = {label: i for i, label in enumerate(head.labels)}
    rows = [
        replace(row, targets={"label": head.target(examples[row.example].label, number)})
        for row in task.encode(hidden, model.pieces, head.max_length)
    ]
    return memory_table(rows, [example.id for example in examples])


def points(
    model: Model, batch: Batch, radii: Sequence[float], attack: Attack, unit: float = 1.0
) -> Iterator[tuple[float, Point]]:
    """The worst point found at every radius; at 0 it is the model as it is."""
    clean, _ = look(model, batch, None, climb=False)
    slope = clean.delta
    if attack.kind != "random" and any(radii):
        slope = look(model, batch, None, climb=True)[1]
    for radius in radii:
        yield radius, attack.worst(model, batch, clean, slope, radius * unit) if radius else clean


class Sums:
    """What adds up over the micro-batches of a radius."""

    def __init__(self) -> None:
        self.loss = self.count = self.norm_share = self.gap_share = 0.0
        self.rows: list[dict[str, Any]] = []

    def add(self, model: Model, batch: Batch, point: Point, table: TokenTable) -> None:
        objective: Any = model.objective(batch.task)
        self.loss += float(objective.of_example(point.losses, batch).double().sum())  # the windows of a text share one
        self.count += objective.counts(batch)["loss"]
        norms, gaps = embedding_scales(model, batch)
        sizes = Perturbation().space(model, batch).sizes(point.delta) / batch.layout.lengths.sqrt()
        self.norm_share += float((sizes / norms).sum())
        self.gap_share += float((sizes / gaps).sum())
        plain = {name: value.cpu().tolist() for name, value in point.answers.items()}
        for place, row in enumerate(batch.ids.tolist()):
            named = {name: values[place] for name, values in plain.items()}
            self.rows.append({**named, "id": table.example_ids[int(table.example[row])]})

    def answers(self, model: Classifier) -> dict[str, Answer]:
        """What the model says, by example."""
        return model.head.decode(self.rows)

    def level(self, radius: float, model: Classifier, task: Task, examples: Sequence[Example]) -> Level:
        """The means and the scores."""
        scores = task.score(self.answers(model), examples)
        rows = max(len(self.rows), 1)
        return Level(radius, self.loss / self.count, scores, self.norm_share / rows, self.gap_share / rows)
