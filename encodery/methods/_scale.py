"""How large perturbations are: in absolute numbers or in units of the encoder's own embeddings, and what they do.

A radius that suits one encoder ruins another whose embeddings are shorter. With `scale: token_norm` every length of a
method is a multiple of the mean norm of a token where it is perturbed; linf, and what is a size of single numbers,
counts in that norm / √width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from encodery.data.batches import Batch
from encodery.models.encoder import Encoder
from encodery.models.model import Model, Terms
from encodery.models.perturb import Site, site_module

if TYPE_CHECKING:
    from encodery.methods._perturbation import Perturbation

Scale = Literal["absolute", "token_norm"]
DIGITS = 6  # of a unit: the sum behind it is rounded differently with other threads, what is left of it is not
CHUNK = 4096  # tokens whose embeddings are looked at together
ASCENTS = 3  # of the look before training
STRIDE = 2.5  # how often the ascents to a worst point could cross the ball
TOO_MUCH = 2.0  # times the loss of the model as it is


@torch.no_grad()
def token_norm(encoder: Encoder, site: Site) -> float:
    """The mean l2 norm of the vocabulary's tokens at the place of a perturbation, without padding.

    It follows from the weights alone: its digits are few enough to hide in which order a machine adds.
    """
    if site == "normalised":  # there every token has deviation 1
        return math.sqrt(encoder.site_width(site))
    words: Tensor = encoder.net.get_input_embeddings().weight
    if site == "word":
        norms = torch.linalg.vector_norm(words.detach().cpu().double(), dim=1)
    else:
        norms = output_norms(encoder, len(words), words.device)
    pad = encoder.form.pad_id
    kept = torch.cat([norms[:pad], norms[pad + 1 :]])
    return float(f"{float(kept.mean()):.{DIGITS}g}")


def unit_of(encoder: Encoder, site: Site, norm: str) -> float:
    """What a length in this norm is a multiple of."""
    unit = token_norm(encoder, site)
    return unit if norm == "l2" else float(unit / encoder.site_width(site) ** 0.5)


def output_norms(encoder: Encoder, count: int, device: torch.device) -> Tensor:
    """The norm of each token after the embedding layer, alone at the first position, without dropout."""
    layer: Any = site_module(encoder.net, "embedding_output")
    was_training = layer.training
    layer.eval()
    try:
        chunks: Sequence[Tensor] = torch.split(torch.arange(count, device=device), CHUNK)
        found = [torch.linalg.vector_norm(layer(input_ids=ids[:, None])[:, 0].double(), dim=1) for ids in chunks]
    finally:
        layer.train(was_training)
    return torch.cat(found).cpu()


@torch.no_grad()
def embedding_scales(model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
    """For each sequence the mean norm of its word embeddings, and the distance from its middle token to the nearest
    other one of the vocabulary."""
    table: Tensor = model.encoder.net.get_input_embeddings().weight
    ids, layout = batch.tokens(batch.inputs["input_ids"]), batch.layout
    norms = torch.linalg.vector_norm(table, dim=1)
    mean = norms.new_zeros(len(batch)).index_add(0, layout.sequence_of_token, norms[ids]) / layout.lengths
    middle = ids[layout.lengths.cumsum(0) - layout.lengths + layout.lengths // 2]
    gaps = torch.cdist(table[middle], table)
    gaps.scatter_(1, middle[:, None], float("inf"))
    return mean, gaps.amin(1)


@dataclass(frozen=True)
class Preview:
    """What the largest perturbation of a method does to a model that was not trained for it."""

    reach: float  # the longest perturbation that the method makes, in its own norm
    unit: float  # the mean norm of a token, or the size of one of its numbers for linf
    norm: str
    rows: int
    clean: float  # mean loss
    worst: float

    @property
    def ruins(self) -> bool:
        """Whether the loss more than doubles."""
        return self.worst > TOO_MUCH * self.clean

    def to_dict(self) -> dict[str, float]:
        """For run.json."""
        sizes = {"reach": self.reach, "unit": self.unit}
        return {**sizes, "loss": self.clean, "loss_perturbed": self.worst, "sequences": self.rows}

    def line(self) -> str:
        unit = "mean token norm" if self.norm == "l2" else "mean token norm / √width"
        size = f"up to {self.reach:.3g} ({100 * self.reach / self.unit:.3g} % of the {unit}, {self.unit:.3g})"
        times = f"× {self.worst / max(self.clean, 1e-12):.2f}"
        sentence = f"perturbations of {size} take the loss before training from {self.clean:.4f} to {self.worst:.4f}"
        sentence += f" ({times}, {self.rows} sequences)"
        if not self.ruins:
            return sentence
        return f"WARNING {sentence}: they more than double it; smaller ones may be needed to learn (method.scale)"


def preview(method: "Perturbation", model: Model, batch: Batch) -> Preview | None:
    """A few ascents to the edge of what a method can reach, on one micro-batch, dropout off; nothing is changed.

    `method` has absolute lengths. None: it makes no perturbation of its own.
    """
    reach = method.reach
    if not reach:
        return None
    was_training = model.training
    model.eval()
    try:
        clean, worst = climb(method, model, batch, reach)
    finally:
        model.train(was_training)
    return Preview(reach, unit_of(model.encoder, method.site, method.norm), method.norm, len(batch), clean, worst)


def climb(method: "Perturbation", model: Model, batch: Batch, reach: float) -> tuple[float, float]:
    """The loss at the embeddings as they are, and the highest that the ascents find."""
    space, losses = method.space(model, batch), list[float]()
    delta, counts = space.zero(), model.objective(batch.task).counts(batch.host)
    for k in range(ASCENTS + 1):
        last = k == ASCENTS
        delta = delta.detach().requires_grad_(not last)
        with torch.set_grad_enabled(not last):
            terms = method.run(model, batch, delta)[1]
            loss = mean_of(terms, counts)
        losses.append(float(loss.detach()))
        if not last:
            (grad,) = torch.autograd.grad(loss, delta)
            delta = space.ascend(delta, grad, STRIDE * reach / ASCENTS, reach)
    return losses[0], max(losses)


def mean_of(terms: Terms, counts: dict[str, float]) -> Tensor:
    """The loss of a micro-batch."""
    return torch.stack([value / max(counts[name], 1e-12) for (_, name), value in terms.items()]).sum()
