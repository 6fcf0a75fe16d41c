"""Model classes of ours, made known to transformers' Auto classes as soon as somebody imports those, and not before.

`import encodery` must stay quick, and importing transformers takes seconds; so the registration waits for it.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

CONFIGS = "transformers.models.auto.configuration_auto"
MODELS = "transformers.models.auto.modeling_auto"
PURPOSES = (
    "", "ForPreTraining", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
)  # fmt: skip


def register() -> None:
    """Tell the Auto classes, now or when they come."""
    waiting = dict(TELL)
    for name in TELL:
        if name in sys.modules:
            waiting.pop(name)()
    if waiting and not any(isinstance(finder, Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, Waiting(waiting))


def tell_configs() -> None:
    """Our configs, under the names that files carry."""
    from transformers import AutoConfig

    from encodery.models.amos_config import AmosConfig

    AutoConfig.register(AmosConfig.model_type, AmosConfig, exist_ok=True)


def tell_models() -> None:
    """Our models, each for its purpose."""
    from transformers.models.auto import modeling_auto

    from encodery.models import amos
    from encodery.models.amos_config import AmosConfig

    for purpose in PURPOSES:
        auto: Any = getattr(modeling_auto, f"AutoModel{purpose}")
        auto.register(AmosConfig, getattr(amos, f"Amos{purpose or 'Model'}"), exist_ok=True)


TELL: dict[str, Callable[[], None]] = {CONFIGS: tell_configs, MODELS: tell_models}


class Waiting(MetaPathFinder):
    """Stands before the other finders until the Auto classes are asked for."""

    def __init__(self, waiting: dict[str, Callable[[], None]]):
        self.waiting = waiting

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that registers afterwards."""
        if name not in self.waiting:
            return None
        then = self.waiting.pop(name)  # so that the next line does not come here again
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Then(spec.loader, then)
        return spec


class Then(Loader):
    """Loads as the first loader does, and then registers."""

    def __init__(self, first: Loader, then: Callable[[], None]):
        self.first, self.then = first, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the first."""
        return self.first.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the first, and more."""
        self.first.exec_module(module)
        self.then()
