"""The toy tasks: small, from a seeded grammar, with known answers. Nobody should quote their scores."""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from encodery.tasks._toy_forms import ToyHans, ToyQa, ToyTags
from encodery.tasks._toy_rows import PARTS, ToyRows
from encodery.tasks.base import Task
from encodery.tasks.classify import Classification, Form
from encodery.tasks.grammar.corpus import documents
from encodery.tasks.grammar.words import vocabulary

__all__ = ["Toy", "documents", "vocabulary"]


class Toy(ToyRows, Classification):
    """Small tasks from a seeded grammar, with known answers."""

    parts: ClassVar[dict[str, str]] = {
        **{name: part.about for name, part in PARTS.items()},
        "hans": "hypotheses of the premise's words only, for a model of toy/nli",
    }
    variants: ClassVar[Mapping[str, type[Task]]] = {"tags": ToyTags, "spans": ToyQa, "hans": ToyHans}
    forms: ClassVar[tuple[str, ...]] = ("single", "multilabel", "regression")

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        """Tags, spans and the small HANS are classes of their own."""
        if options.get("part") == "hans":
            return ToyHans
        part = PARTS.get(str(options.get("part")))
        return cls.variants.get(part.form, cls) if part else cls

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in id order."""
        return PARTS[self.part].labels

    @property
    def answer_form(self) -> Form:
        """One label, several, or a number."""
        return cast(Form, PARTS[self.part].form)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Similarity goes from 0 to 5."""
        return (0.0, 5.0) if self.answer_form == "regression" else None

    @property
    def scale(self) -> float:
        """Points are learned as parts of 1."""
        return 5.0 if self.answer_form == "regression" else 1.0
