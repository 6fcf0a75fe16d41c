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
    """The loss plus the distance between a clean and a noisy answer."""

    weight: float = Field(default=1.0, ge=0)
    """How much the distance counts, λ."""
    eps: float = Field(default=1e-5, ge=0)
    """Size of the noise: bound (uniform) or standard deviation (normal) of each number. The default is the published
    one and by itself next to nothing for small encoders; its part of the distance grows with the square."""
    noise: Literal["uniform", "normal"] = "uniform"
    """Its distribution."""
    norm: Literal["linf"] = "linf"
    """The noise is bounded number by number."""
    norm_scope: Literal["example"] = "example"
    """Nothing to choose: each number has its own bound."""
    consistent_dropout: bool = False
    """The same dropout masks in both passes. At an eps of 1e-5 the distance comes from dropout almost alone; with true
    it is next to nothing."""

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
        add(summed, self.look(model, space, delta, clean=False))
        return summed
