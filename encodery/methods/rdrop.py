"""R-Drop: two passes with different dropout must agree (Liang et al. 2021, arXiv 2106.14448).

    ½ · (loss(x; mask 1) + loss(x; mask 2)) + weight/2 · distance(f(x; mask 1), f(x; mask 2))

For labels `distance` is KL(p‖q) + KL(q‖p), as a mean over the examples.
"""

from collections.abc import Sequence

from pydantic import Field

from encodery.data.batches import Batch
from encodery.methods._smoothness import again, distance
from encodery.methods.base import Method, Totals, add, detached, each, note, seed_dropout, step_of
from encodery.methods.plain import Plain
from encodery.models.model import Model, Terms


class RDrop(Method):
    """The mean loss of two passes with different dropout masks, plus the divergence between their outputs."""

    weight: float = Field(default=0.5, ge=0)
    """α, the weight of the divergence, which is averaged over the examples. The authors' GLUE code corresponds to 0.25
    · batch_size."""
    start_step: int = Field(default=0, ge=0)
    """Train without the method before this step."""

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        if step_of(micro, totals) < self.start_step:
            return Plain()(model, micro, totals)
        return each(self.on_batch, model, micro, totals)

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        seed_dropout(batch, 0)
        first, terms = model(batch)
        seed_dropout(batch, 1)
        second, others = model(again(model, batch, first))
        summed: Terms = {}
        add(summed, terms, 0.5)
        add(summed, others, 0.5)
        apart = distance(model, batch, first, second)
        loss = totals.mean(summed) + self.weight / 2 * totals.per_example(apart)
        loss.backward()  # type: ignore[no-untyped-call]
        return detached(summed) | note("distance", apart, batch.examples)
