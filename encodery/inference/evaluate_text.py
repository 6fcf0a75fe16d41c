"""A pretrained model on plain text: the loss and the scores that its training took on held-out text."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.config import load
from encodery.core import files
from encodery.data.batches import MicroBatcher
from encodery.data.corpus.blocks import BlockTable, OnProgress
from encodery.data.corpus.prepare import corpus_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.inference import open_model, outputs
from encodery.inference.answer_head import speaks
from encodery.inference.evaluate import Evaluation
from encodery.inference.model_card import longest_of
from encodery.inference.task_argument import TaskSplit
from encodery.models import locate
from encodery.models.model import Model, read_card, require_openable
from encodery.objectives.mlm import Mlm
from encodery.runs.directory import RunDir
from encodery.tasks.corpus import Corpus

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BUDGET = 4096  # tokens of a micro-batch: logits of asked positions are chunked, activations are not kept
LONGEST = 512  # tokens of a block for models of others, whose blocks nobody knows


@dataclass(frozen=True)
class TextEvaluation(Evaluation):
    """What a model said of a text: sums over it, no answers of single rows."""

    sequences: int = 0

    def to_dict(self) -> dict[str, Any]:
        """What scores.json says of it."""
        return super().to_dict() | {"rows": self.sequences}


@dataclass(frozen=True)
class Pretrained:
    """A model that was pretrained, here or elsewhere."""

    model: Model
    tokenizer: "PreTrainedTokenizerBase"
    name: str  # of its objective
    max_length: int
    source: str

    def blocks(self, asked: TaskSplit, on_progress: OnProgress | None = None) -> BlockTable:
        """The text in blocks as this model reads them: prepared ones as they are, others of its own length."""
        assert isinstance(asked.task, Corpus)
        length = asked.task.prepared_length or self.max_length
        most = longest_of(self.model.encoder)
        if length > most:
            raise UserError(f"{asked.key}: blocks of {length} tokens, but {self.source} has positions for {most}")
        return corpus_table(asked.task, asked.split, TokenizerPieces(self.tokenizer), length, on_progress)

    def evaluate(
        self, asked: TaskSplit, table: BlockTable, seed: int = 0, on_progress: Callable[[int], None] | None = None
    ) -> TextEvaluation:
        """Scores on the text; masks and samples follow from the seed (0: those of evaluations in training)."""
        encoder = self.model.encoder
        batcher = MicroBatcher(encoder.layout, encoder.form, BUDGET, device=next(encoder.parameters()).device)
        found = outputs.sums(self.model, self.name, table, batcher, on_progress, noise=seed)  # type: ignore[arg-type]
        answers = asked.task.decode([found])
        scores = asked.task.score(answers, ())
        return TextEvaluation(asked, answers, scores, (self.name,), sequences=sequences(table))


def sequences(table: BlockTable) -> int:
    """How many sequences are read: of full blocks each text counts."""
    return len(table if table.texts is None else table.texts)


def open_pretrained(source: str, device: str = "auto", *, allow_code: bool = False) -> Pretrained:
    """A run, what it kept on the way (`runs/x@25%`), a model folder, or a masked language model of the hub."""
    folder = locate.resolve(source)
    if (card := read_card(folder.path)) is None:
        return _foreign(folder.path, source, device)
    code = load.load(source, allow_code=True).code if allow_code and files.is_run(source) else None
    silent = {name: about for name, about in card["tasks"].items() if not speaks(about)}
    name, about = next(iter((silent or card["tasks"]).items()))
    require_openable(folder.path, {name: about})
    folder = locate.resolve(source, head=name)
    model, tokenizer, card = open_model.load_model(folder.path, device=device, code=code)
    if not hasattr(model.objective(name), "load_heads"):
        raise UserError(f"{source}: was trained on {name}; plain text is for models that were pretrained")
    return Pretrained(model, tokenizer, name, about["max_length"], source)


def _foreign(folder: Path, source: str, device: str) -> Pretrained:
    """Somebody else's masked language model."""
    encoder, tokenizer, _ = open_model.open_encoder(folder)
    objective = Mlm().build(encoder, tokenizer)
    if objective.load_heads(encoder, folder):
        raise UserError(f"{source}: has no head that predicts masked words, so it cannot be scored on text")
    model = Model(encoder, {"text": objective})
    open_model.make_ready(model, encoder, device)
    return Pretrained(model, tokenizer, "text", min(longest_of(encoder), LONGEST), source)


def trained_on(run: RunDir, asked: TaskSplit) -> bool:
    """Whether a run has trained on this very text, as far as digests tell."""
    rows = [run.rows_of(name, "train") for name in run.task_names()]
    origin = asked.task.origin(asked.split)
    files = {digest for known in rows for digest in known.get("files", {}).values()}
    same_files = asked.task.name not in run.task_names() and bool(set(origin.files.values()) & files)
    return any(origin.digest == known.get("digest") for known in rows) or same_files
