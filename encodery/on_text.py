"""A pretrained model on plain text: the loss and the scores that its training took on held-out text."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery import build, config, predict
from encodery.data.batches import Cutter
from encodery.data.blocks import BlockTable, Tick, corpus_table
from encodery.data.pieces import TokenizerPieces
from encodery.errors import UserError
from encodery.evaluate import Evaluation
from encodery.head import speaks
from encodery.models import hub
from encodery.models.encoder import load_encoder
from encodery.models.model import Model, read_card
from encodery.models.pretrained import from_folder
from encodery.on import Asked
from encodery.rundir import RunDir
from encodery.schema import ModelOptions
from encodery.tasks.corpus import Corpus

BUDGET = 4096  # tokens of a micro-batch: logits of asked positions are chunked, activations are not kept
LONGEST = 512  # tokens of a block for models of others, whose blocks nobody knows


@dataclass(frozen=True)
class TextEvaluation(Evaluation):
    """What a model said of a text: sums over it, no answers of single rows."""

    sequences: int = 0

    def plain(self) -> dict[str, Any]:
        """What scores.json says of it."""
        return super().plain() | {"rows": self.sequences}


@dataclass(frozen=True)
class Pretrained:
    """A model that was pretrained, here or elsewhere."""

    model: Model
    tokenizer: Any
    name: str  # of its question
    max_length: int
    source: str

    def blocks(self, asked: Asked, tick: Tick | None = None) -> BlockTable:
        """The text in blocks as this model reads them: prepared ones as they are, others of its own length."""
        assert isinstance(asked.task, Corpus)
        length = asked.task.prepared_length or self.max_length
        most = build.longest_of(self.model.encoder)
        if length > most:
            raise UserError(f"{asked.key}: blocks of {length} tokens, but {self.source} has positions for {most}")
        return corpus_table(asked.task, asked.split, TokenizerPieces(self.tokenizer), length, tick)

    def evaluate(
        self, asked: Asked, table: BlockTable, seed: int = 0, tick: Callable[[int], None] | None = None
    ) -> TextEvaluation:
        """Scores on the text; masks and samples follow from the seed (0: those of evaluations in training)."""
        encoder = self.model.encoder
        cutter = Cutter(encoder.layout, encoder.form, BUDGET, device=next(encoder.parameters()).device)
        found = predict.sums(self.model, self.name, table, cutter, tick, noise=seed)  # type: ignore[arg-type]
        answers = asked.task.decode([found])
        scores = asked.task.score(answers, ())
        return TextEvaluation(asked, answers, scores, (self.name,), sequences=sequences(table))


def sequences(table: BlockTable) -> int:
    """How many sequences are read: of full blocks each text counts."""
    return len(table if table.texts is None else table.texts)


def open_pretrained(source: str, device: str = "auto", *, allow_code: bool = False) -> Pretrained:
    """A run, what it kept on the way (`runs/x@25%`), a model folder, or a masked language model of the hub."""
    folder = hub.resolve(source)
    if read_card(folder.path) is None:
        return _foreign(folder.path, source, device)
    code = config.load(source, allow_code=True).code if allow_code and Path(source, "run.json").is_file() else None
    model, tokenizer, card = build.load_model(folder.path, device=device, code=code)
    silent = {name: about for name, about in card["tasks"].items() if not speaks(about)}
    name, about = next(iter((silent or card["tasks"]).items()))
    if not hasattr(model.question(name), "go_on"):
        raise UserError(f"{source}: was trained on {name}; plain text is for models that were pretrained")
    return Pretrained(model, tokenizer, name, about["max_length"], source)


def _foreign(folder: Path, source: str, device: str) -> Pretrained:
    """Somebody else's masked language model."""
    from transformers import AutoTokenizer

    encoder, _ = load_encoder(folder, ModelOptions(name=str(folder)))
    tokenizer = from_folder(AutoTokenizer, folder)
    build.require_vocabulary(encoder, tokenizer)
    question = build.make_objective({"kind": "mlm"}).build(encoder, tokenizer)
    if question.go_on(encoder, folder):
        raise UserError(f"{source}: has no head that guesses masked words, so text says nothing of it")
    model = Model(encoder, {"text": question})
    model.to(build.pick_device(device)).eval()
    return Pretrained(model, tokenizer, "text", min(build.longest_of(encoder), LONGEST), source)


def trained_on(run: RunDir, asked: Asked) -> bool:
    """Whether a run has trained on this very text, as far as digests tell."""
    rows = [run.rows_of(name, "train") for name in run.task_names()]
    origin = asked.task.origin(asked.split)
    files = {digest for known in rows for digest in known.get("files", {}).values()}
    same_files = asked.task.name not in run.task_names() and bool(set(origin.files.values()) & files)
    return any(origin.digest == known.get("digest") for known in rows) or same_files
