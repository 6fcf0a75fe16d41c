"""`{kind: table, form: spans}`: anyone's own questions with answers in a text."""

from typing import Literal

from encodery.tasks._own import Own
from encodery.tasks._squad_files import read_squad
from encodery.tasks.readers import refuse
from encodery.tasks.rows import Loaded
from encodery.tasks.spans import Spans


class SpanTable(Own, Spans):
    """Own files in SQuAD's JSON layout, or jsonl and Parquet with id, context, question, answer_text, answer_start."""

    form: Literal["spans"] = "spans"
    """Where in a text the answer to a question stands."""

    @property
    def unanswerable(self) -> bool:
        """Whether one of the files has a question without an answer."""
        return any(e.label == () for split in self.splits() if self.has(split) for e in self.examples(split))

    @property
    def _set_aside_by(self) -> str | None:
        """Articles stay whole when a part of train is set aside."""
        return "title"

    def _read_all(self) -> dict[str, Loaded]:
        here = [split for split in self._files() if self._path(split).exists()]
        found = {split: read_squad(self._path(split), hidden=split == "test") for split in here}
        if not self.skip_bad_rows:
            refuse([row for _, sheet in found.values() for row in sheet.bad])
        return {split: self._finished(split, examples, sheet.bad) for split, (examples, sheet) in found.items()}
