"""R3F: small noise on the embeddings must not change the answer (Aghajanyan et al. 2021, arXiv 2008.03156).

    loss(E) + weight · distance(f(sg(E) + z), f(E)),   z ~ U(−eps, eps) or N(0, eps²)

sg: on the noisy branch no gradient goes into the embeddings. No ascent.
"""

from typing import Literal

from pydantic import Field

from encodery.data.batches import Batch
from encodery.methods._perturb import Perturbation, distance
from encodery.methods.base import Totals, detached, note
from encodery.models.model import Model, Terms


class R3F(Perturbation):
    """The loss plus the distance between a clean and a noisy answer."""

    weight: float = Field(default=1.0, ge=0)
    """How much the distance counts, λ."""
    eps: float = Field(default=1e-5, ge=0)
    """Size of the noise: bound (uniform) or standard deviation (normal) of each number."""
    noise: Literal["uniform", "normal"] = "uniform"
    """Its distribution."""
    norm: Literal["linf"] = "linf"
    """The noise is bounded number by number."""
    consistent_dropout: bool = False
    """The same dropout masks in both passes. At an eps of 1e-5 the distance comes from dropout almost alone; with true
    it is next to nothing."""

    def one(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        """One micro-batch."""
        space = self.space(model, batch)
        clean, terms = self.run(model, batch, None)
        shift = space.draw(self.eps) if self.noise == "uniform" else space.normal(self.eps)
        noisy, _ = self.run(model, batch, shift, draw=1, detach=True)
        apart = distance(model, batch, noisy, clean)
        loss = totals.mean(terms) + self.weight * totals.per_example(apart)
        loss.backward()  # type: ignore[no-untyped-call]
        return detached(terms) | note("distance", apart, len(batch)) | self.look(model, space, shift, clean=False)
