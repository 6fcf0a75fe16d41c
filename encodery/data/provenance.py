"""What an artefact was made from: a task, a split, and a digest of its texts.

Vectors, training dynamics, head importances and selections know their rows by id alone, and ids of GLUE are row
numbers: without this, those of one task would fit any other.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks.base import Example

KEY = "made_from"  # in meta files


@dataclass(frozen=True)
class Provenance:
    """A split of a task and what its rows were. Artefacts of older versions know less: None."""

    task: str | None = None
    split: str | None = None
    rows: int | None = None
    texts: str | None = None  # digest of ids and texts, in any order
    answers: str | None = None  # the same with the labels

    @classmethod
    def of(cls, task: str, split: str, examples: Iterable[Example]) -> "Provenance":
        """Of rows that are here."""
        rows, texts, answers = 0, 0, 0
        for example in examples:
            rows += 1
            texts += _hash(example.id, example.texts)
            answers += _hash(example.id, example.texts, example.label)
        return cls(task, split, rows, _hex(texts), _hex(answers))

    @classmethod
    def read(cls, meta: Mapping[str, Any], **known: str | None) -> "Provenance":
        """From a meta file; `known` is what an artefact without provenance says elsewhere."""
        found = meta.get(KEY)
        return cls(**found) if isinstance(found, dict) else cls(**known)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """For a meta file."""
        return {KEY: dict(vars(self))}

    @property
    def name(self) -> str:
        """`glue/rte:train (2,490 rows)`."""
        rows = f" ({counted(self.rows, 'row')})" if self.rows is not None else ""
        return f"{self.task or 'an unknown task'}:{self.split or '?'}{rows}"

    def require_fit(self, what: str, pool: "Provenance", labels: bool = True, verb: str = "made") -> str | None:
        """Refuse an artefact of other rows than the pool's; a warning where it does not tell what it was made from.

        Equal rows fit under any name, so that a file may be moved. `labels`: whether they count too.
        """
        mine, theirs = (self.answers, pool.answers) if labels else (self.texts, pool.texts)
        if mine is not None and mine == theirs:
            return None
        if self.task is not None and (self.task, self.split) != (pool.task, pool.split):
            raise UserError(
                f"{what}: was {verb} from {self.name}, but it is used for {pool.name}; make it from those rows"
            )
        if mine is None:
            return f"{what}: has no digest of the texts it was {verb} from; only its ids are compared with {pool.name}"
        less = " (the texts are the same, the labels are not)" if self.texts == pool.texts else ""
        raise UserError(f"{what}: was {verb} from other rows: {self.name} then, {pool.name} now{less}; make it again")


UNKNOWN = Provenance()


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode(errors="surrogatepass")).digest(), "big")


def _hex(total: int) -> str:
    return f"{total % (1 << 256):064x}"


def fingerprint(examples: Iterable[Example]) -> str:
    """A digest of rows with their labels that does not depend on their order."""
    return Provenance.of("", "", examples).answers or ""
