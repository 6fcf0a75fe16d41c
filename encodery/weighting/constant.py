"""Constant weights: each loss counts by its task's `weight`, which the model multiplies in."""

from collections.abc import Sequence

from encodery.methods.base import ActiveMethod, add
from encodery.models.model import Model, Terms
from encodery.weighting.base import Gradient, Part, Weighting, put, taken


class Constant(Weighting):
    """Weights each loss by the `weight` of its task."""

    def __call__(self, method: ActiveMethod, model: Model, parts: Sequence[Part]) -> Terms:
        """One part goes straight into .grad."""
        if len(parts) == 1:
            return parts[0].add_gradient(method, model)
        summed: Terms = {}
        held: Gradient = {}
        for part in parts:
            terms, found = taken(method, model, part)
            add(summed, terms)
            for parameter, value in found.items():
                held[parameter] = held[parameter].add_(value) if parameter in held else value
        put([held])
        return summed
