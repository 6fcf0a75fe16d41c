"""Numbers on perturbations for metrics.jsonl: losses where they were taken, and how large perturbations are."""

from typing import TYPE_CHECKING

from torch import Tensor

from encodery.data.batches import Batch
from encodery.methods.base import Totals, add, detached, note
from encodery.models.model import Model, Terms

if TYPE_CHECKING:
    from encodery.methods._perturbation import Space


def loss_notes(name: str, model: Model, batch: Batch, terms: Terms) -> Terms:
    """A note per loss term, as a mean over what the term counts."""
    counts, notes = model.objective(batch.task).counts(batch.host), Terms()
    for (_, term), value in terms.items():
        label = name if len(terms) == 1 else f"{name}.{term}"
        add(notes, note(label, value, counts[term]))
    return notes


def size_notes(space: "Space", totals: Totals, number: int, delta: Tensor, grad: Tensor | None) -> Terms:
    """Mean l2 norms over the sequences: of the perturbation in pass `number`, and of its own loss's gradient there."""
    notes = note(f"delta_{number}", space.sizes(delta).sum(), len(space.batch))
    if grad is not None:
        sizes = space.sizes(grad) * (totals.examples / totals.scale)
        add(notes, note(f"grad_{number}", sizes.sum(), len(space.batch)))
    return notes


def both_losses(model: Model, batch: Batch, clean: Terms, perturbed: Terms) -> Terms:
    """For the log: the loss at the embeddings as they are, and at the perturbed ones."""
    whole = loss_notes("loss_clean", model, batch, detached(clean))
    add(whole, loss_notes("loss_adv", model, batch, detached(perturbed)))
    return whole
