"""R3F: small noise on the embeddings must not change the answer (Aghajanyan et al. 2021, arXiv 2008.03156).

    loss(E) + weight · distance(f(sg(E) + z), f(E)),   z ~ U(−eps, eps) or N(0, eps²)

sg: on the noisy branch no gradient goes into the embeddings. No ascent.
"""

from typing import ClassVar, Literal

from pydantic import Field

from encodery.data.batches import Batch
from encodery.methods._notes import both_losses, size_notes
from encodery.methods._perturbation import Perturbation
from encodery.methods._smoothness import again, distance
from encodery.methods.base import Totals, add, detached, note
from encodery.models.model import Model, Terms


class R3F(Perturbation):
    """The loss, plus the divergence between the outputs for clean and for noisy embeddings."""

    weight: float = Field(default=1.0, ge=0)
    """λ, the weight of the divergence."""
    eps: float = Field(default=1e-5, ge=0)
    """Size of the noise: the bound (uniform) or standard deviation (normal) of each component. The default is the
    published value, which has almost no effect on small encoders. The divergence it causes grows with its square."""
    noise: Literal["uniform", "normal"] = "uniform"
    """Distribution of the noise."""
    norm: Literal["linf"] = "linf"
    """Only linf: every component has its own bound."""
    norm_scope: Literal["example"] = "example"
    """Only example; it has no effect, because every component has its own bound."""
    consistent_dropout: bool = False
    """Use the same dropout masks in both passes. With an eps of 1e-5 nearly all of the divergence comes from dropout,
    so with true it is close to zero."""

    numbers: ClassVar[tuple[str, ...]] = ("eps",)

    @property
    def reach(self) -> float:
        """The bound of the noise; of normal noise nearly all of it."""
        return self.eps if self.noise == "uniform" else 2 * self.eps

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        space = self.space(model, batch)
        clean, terms = self.run(model, batch, None)
        delta = space.draw(self.eps) if self.noise == "uniform" else space.normal(self.eps)
        noisy, others = self.run(model, again(model, batch, clean), delta, draw=1, detach=True)
        apart = distance(model, batch, noisy, clean)
        loss = totals.mean(terms) + self.weight * totals.per_example(apart)
        loss.backward()  # type: ignore[no-untyped-call]
        summed = detached(terms) | note("distance", apart, batch.examples)
        add(summed, both_losses(model, batch, terms, others))
        add(summed, size_notes(space, totals, 1, delta, None))
        add(summed, self.costly_notes(model, space, delta, clean=False))
        return summed
