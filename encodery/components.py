"""What people's own components import: the path of these names does not change when a file inside moves.

from encodery.components import Classification, Example, Origin      # tasks: text and labels, no torch
from encodery.components import Batch, Method, Model, Terms, Totals   # methods: batch -> gradient
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encodery.core.options import Options
    from encodery.data.batches import Batch
    from encodery.data.mixes import Mix, Size
    from encodery.errors import UserError
    from encodery.methods._perturbation import Attack, OneStep, Perturbation, Space
    from encodery.methods.base import (
        ActiveMethod,
        Method,
        Totals,
        add,
        backward,
        detached,
        each,
        note,
        seed_dropout,
        uniform_noise,
    )
    from encodery.models.encoder import Encoder
    from encodery.models.model import Model, Terms
    from encodery.objectives.base import Objective, ObjectiveModule
    from encodery.objectives.classification import Classification as ClassificationObjective
    from encodery.objectives.classification import Classifier
    from encodery.selectors.base import Pool, Ranked, Selector
    from encodery.tasks.base import HIDDEN, Example, Features, Origin, Task
    from encodery.tasks.forms.classification import Classification
    from encodery.tasks.forms.ranking import Ranking
    from encodery.tasks.forms.spans import Spans
    from encodery.tasks.forms.tagging import Tagging
    from encodery.weighting.base import Part, Weighting, put, taken

# Imported when they are asked for: a task must not load torch.
_PLACES = {
    "encodery.core.options": ("Options",),
    "encodery.errors": ("UserError",),
    "encodery.tasks.base": ("HIDDEN", "Example", "Features", "Origin", "Task"),
    "encodery.tasks.forms.classification": ("Classification",),
    "encodery.tasks.forms.ranking": ("Ranking",),
    "encodery.tasks.forms.spans": ("Spans",),
    "encodery.tasks.forms.tagging": ("Tagging",),
    "encodery.data.batches": ("Batch",),
    "encodery.data.mixes": ("Mix", "Size"),
    "encodery.methods._perturbation": ("Attack", "OneStep", "Perturbation", "Space"),
    "encodery.methods.base": (
        "ActiveMethod",
        "Method",
        "Totals",
        "add",
        "backward",
        "detached",
        "each",
        "note",
        "seed_dropout",
        "uniform_noise",
    ),
    "encodery.models.encoder": ("Encoder",),
    "encodery.models.model": ("Model", "Terms"),
    "encodery.objectives.base": ("Objective", "ObjectiveModule"),
    "encodery.objectives.classification": ("ClassificationObjective", "Classifier"),
    "encodery.selectors.base": ("Pool", "Ranked", "Selector"),
    "encodery.weighting.base": ("Part", "Weighting", "put", "taken"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}
_CALLED = {"ClassificationObjective": "Classification"}  # tasks and objectives each have one

__all__ = [
    "HIDDEN", "ActiveMethod", "Attack", "Batch", "Classification", "ClassificationObjective", "Classifier", "Encoder",
    "Example", "Features", "Method", "Mix", "Model", "Objective", "ObjectiveModule", "OneStep", "Options", "Origin",
    "Part", "Perturbation", "Pool", "Ranked", "Ranking", "Selector", "Size", "Space", "Spans", "Tagging", "Task",
    "Terms", "Totals", "UserError", "Weighting", "add", "backward", "detached", "each", "note", "put", "seed_dropout",
    "taken", "uniform_noise",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The class or function of that name, from where it is today."""
    if name not in _MODULES:
        raise AttributeError(f"encodery.components has no {name}; it has {', '.join(sorted(_MODULES))}")
    return getattr(importlib.import_module(_MODULES[name]), _CALLED.get(name, name))
