"""Questions in MT-DNN's TSV: id, `start:::end:::impossible:::answer`, context, question."""

from typing import Any

from encodery.tasks._mtdnn import MtdnnFiles
from encodery.tasks.base import Example
from encodery.tasks.readers import Bad, shown
from encodery.tasks.spans import Spans

MARK = ":::"
END = " EOSEOS"  # MT-DNN adds this to every context of SQuAD 2.0; it is no part of the text


class MtdnnSpans(MtdnnFiles, Spans):
    """A task of MT-DNN that asks for a stretch of a text."""

    @property
    def main_metric(self) -> str:
        """EmF1 is both; the headline is F1."""
        return "f1"

    @property
    def unanswerable(self) -> bool:
        """Whether one of the files has a question without an answer: MT-DNN's definitions do not always say it."""
        return any(e.label == () for split in self.splits() if self.has(split) for e in self.examples(split))

    def objective(self) -> dict[str, Any]:
        """With the task's own dropout before its classifier."""
        return self.with_dropout(super().objective())

    def _of_tsv(self, row: dict[str, Any]) -> Example:
        uid, label, context, question = row["fields"]
        context = context.removesuffix(END)
        parts = label.split(MARK)
        if len(parts) != 4 or not all(_whole(part) for part in parts[:3]):
            raise Bad(f"{shown(label)} is not start:::end:::impossible:::answer", "label")
        start, end, impossible = map(int, parts[:3])
        if impossible:
            return Example(uid, (question, context), ())
        answer = context[max(start, 0) : end]
        if start < 0 or not answer.strip() or _plain(answer) != _plain(parts[3]):
            raise Bad(
                f"the answer {shown(parts[3])} is not at its place {start}, where {shown(answer)} stands", "label"
            )
        return Example(uid, (question, context), (answer,), extra={"starts": (start,)})

    def _of_json(self, row: dict[str, Any]) -> Example:
        raise Bad("tokenised questions do not hold the text that answers are cut from; give the canonical TSV")


def _whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _plain(text: str) -> str:
    """MT-DNN blanks its own mark out of answers, and compares without case."""
    return text.replace(MARK, " " * len(MARK)).lower()
