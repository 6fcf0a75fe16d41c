"""A trained model that answers raw text: a text, a pair of texts, or a list of these."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import ValidationError

from encodery.config import load
from encodery.config.schema import TOKEN_BUDGET
from encodery.core import files
from encodery.data.batches import MicroBatcher
from encodery.data.token_table import memory_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.inference import open_model
from encodery.inference import outputs as inference_outputs
from encodery.inference.answer_head import AnyHead, head_of, no_such_head, speaks
from encodery.models import locate
from encodery.models.model import CARD, LOWERED, Model, Precision, damaged, require_openable
from encodery.runs.directory import RunDir
from encodery.tasks.base import Answer, Example, Task
from encodery.tasks.forms.tagging import tagged_examples
from encodery.tasks.sources.readers import Row, Sheet

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase

CHUNK = 8192  # examples whose tokens are held in memory at once
Text = str | tuple[str, ...]


@dataclass(frozen=True)
class Prediction:
    """An answer: a label with probabilities, several labels, a value, tags of words, or a span of a text."""

    label: str | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] | None = None  # of a model that may give several
    value: float | None = None  # of a model that gives a number
    tags: tuple[str, ...] | None = None  # of a model that tags words
    text: str | None = None  # of a model that answers questions; empty: there is no answer
    start: int | None = None  # where that is in the context

    def __repr__(self) -> str:
        """Only what there is."""
        values = {name: value for name, value in vars(self).items() if value not in (None, {})}
        return f"Prediction({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    @property
    def answer(self) -> Any:
        """Whichever of them it is: the label, the labels, the number, the tags or the text."""
        known = (self.label, self.labels, self.value, self.tags, self.text)
        return next((one for one in known if one is not None), None)

    @classmethod
    def of(cls, answer: Answer) -> "Prediction":
        """From an answer as tasks give it."""
        said = answer["prediction"]
        if "null_odds" in answer:
            return cls(text=said, start=answer["start"] if said else None)
        if "confidence" in answer:
            return cls(tags=tuple(said))
        chances = dict(answer.get("probabilities", {}))
        if isinstance(said, str):
            return cls(said, chances)
        return cls(labels=tuple(said), probabilities=chances) if isinstance(said, list) else cls(value=said)


@dataclass(frozen=True)
class Classifier:
    """`model(("a premise", "a hypothesis"))` gives label and probabilities; a list gives a list."""

    model: Model = field(repr=False)
    tokenizer: "PreTrainedTokenizerBase" = field(repr=False)
    card: Mapping[str, Any] = field(repr=False)
    head: AnyHead
    source: str
    folder: Path | None = field(default=None, repr=False)  # where the weights lie
    allow_code: bool = field(default=False, repr=False)

    @property
    def encoder(self) -> Any:
        return self.model.encoder.net

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in the order of the outputs; empty for a model that gives a number."""
        return self.head.labels

    @property
    def precision(self) -> Precision:
        """In what its matrices are multiplied."""
        return next((name for name, kind in LOWERED.items() if kind == self.model.autocast_to), "fp32")

    @property
    def task(self) -> str | None:
        """The task it was trained on; None for models of others."""
        return None if self.foreign else self.head.name

    @property
    def foreign(self) -> bool:
        """Whether it was trained elsewhere."""
        return self.card["tasks"][self.head.name]["task"] is None

    def __call__(self, texts: "Text | Sequence[Text] | pd.Series | pd.DataFrame") -> Any:
        """A Prediction for one text or pair, a list of them for a list or a Series.

        A data frame gives a data frame: its own columns, `prediction`, and p_<label> for each probability.
        """
        if hasattr(texts, "columns"):
            return self._of_frame(texts)
        if self._are_words(texts):
            return self._of_words(list(texts))
        if hasattr(texts, "index") and hasattr(texts, "tolist"):
            _require_text_in(texts, "the series", "series", "series.dropna()", pairs=True)
        if hasattr(texts, "tolist"):
            texts = texts.tolist()
        many = isinstance(texts, list)
        most = 2 if self.head.answer_kind != "ranking" else None
        given = texts if many else [texts]
        examples = [
            Example(str(i), as_texts(one, most, f"element {i}: " if many else "")) for i, one in enumerate(given)
        ]
        answers = self.answers(examples)
        predictions = [Prediction.of(answers[example.id]) for example in examples]
        return predictions if many else predictions[0]

    def _of_frame(self, frame: Any) -> Any:
        names = self.text_columns(list(frame.columns))
        missing = [name for name in names if name not in frame.columns]
        if missing:
            have = ", ".join(map(str, frame.columns))
            raise UserError(f'the data frame has no column "{missing[0]}", which {self.source} reads; it has {have}')
        if self._are_words(frame[names[0]]):
            return frame.assign(prediction=[one.answer for one in self._of_words(frame[names[0]].tolist())])
        for name in names:
            _require_text_in(frame[name], f'column "{name}"', f'frame["{name}"]', f'frame.dropna(subset=["{name}"])')
        texts = [tuple(row) for row in zip(*(frame[name].tolist() for name in names), strict=True)]
        predictions = self(texts)
        any_shown = predictions[0].probabilities if predictions else self.head.answer_kind != "tagging"
        chances = [f"p_{label}" for label in self.labels if any_shown]
        columns = {"prediction": [one.answer for one in predictions]}
        columns |= {name: [one.probabilities[name[2:]] for one in predictions] for name in chances}
        return frame.assign(**columns)

    def _are_words(self, given: Any) -> bool:
        """Whether a model of tags is given sentences that are lists of words."""
        several = isinstance(given, list) or hasattr(given, "tolist")
        return self.head.answer_kind == "tagging" and several and all(isinstance(one, list) for one in given)

    def _of_words(self, sentences: Sequence[Sequence[str]]) -> list[Prediction]:
        """Tags for sentences that are lists of words."""
        rows = [Row(place, {"words": list(words), "tags": None}) for place, words in enumerate(sentences)]
        sheet = Sheet("the sentences", ("words", "tags", "id"), rows)
        examples = tagged_examples(sheet, hidden=True, names=None)
        if sheet.bad:
            raise TypeError(f"row {sheet.bad[0].line}: {sheet.bad[0].why}")
        answers = self.answers(examples)
        return [Prediction.of(answers[example.id]) for example in examples]

    def text_columns(
        self, there: Sequence[str], given: tuple[str | None, str | None] = (None, None)
    ) -> tuple[str, ...]:
        """The columns that it reads: as given, else as its own files called them, else text and text2.

        Of those that are not there the first is named, so that an error can say which one was looked for.
        """
        trained: Mapping[str, Any] = self.card["tasks"][self.head.name]["task"] or {}
        usual = ("question", "context") if self.head.answer_kind == "span" else ("text", "text2")
        first, second = (
            str(one or next((name for name in (trained.get(key), word) if name in there), trained.get(key) or word))
            for one, key, word in zip(given, ("text", "text2"), usual, strict=True)
        )
        pair = self.head.texts == 2 or (self.head.texts is None and (given[1] is not None or second in there))
        if given[1] and not pair:
            raise UserError(f"--text2-column {given[1]}: this model reads single texts")
        return (first, second) if pair else (first,)

    def answers(
        self, examples: Sequence[Example], task: Task | None = None, on_progress: Callable[[int], None] | None = None
    ) -> dict[str, Answer]:
        """Answers by example id. A task may turn its examples into tokens in its own way."""
        self.require_texts(examples)
        by_id: dict[str, Answer] = {}
        for begin in range(0, len(examples), CHUNK):
            chunk = examples[begin : begin + CHUNK]
            by_id |= self.head.decode(self.outputs(chunk, task, on_progress), chunk)
        return by_id

    def outputs(
        self, examples: Sequence[Example], task: Task | None = None, on_progress: Callable[[int], None] | None = None
    ) -> list[dict[str, Any]]:
        """Raw outputs, in order."""
        hidden = [replace(example, label=None) for example in examples]
        features = (task or self.head).encode(hidden, self.pieces, self.head.max_length)
        table = memory_table(features, [example.id for example in examples])
        return inference_outputs.outputs_by_example(self.model, self.head.name, table, self.batcher, on_progress)

    @property
    def pieces(self) -> TokenizerPieces:
        """The tokenizer as tasks see it."""
        return TokenizerPieces(self.tokenizer)

    @property
    def batcher(self) -> MicroBatcher:
        """The layout that the encoder was proven in."""
        encoder = self.model.encoder
        return MicroBatcher(encoder.layout, encoder.form, TOKEN_BUDGET, device=next(encoder.parameters()).device)

    def require_texts(self, examples: Sequence[Example]) -> None:
        """A model of pairs that is given one text would answer nonsense."""
        count = self.head.texts
        if self.head.answer_kind == "ranking" and (few := next((e for e in examples if len(e.texts) < 3), None)):
            raise UserError(
                f"{self.source}: is a ranking model; example {few.id} needs a text and at least two candidates"
            )
        wrong = next((example for example in examples if count and len(example.texts) != count), None)
        if wrong is not None:
            needs = "pairs of texts" if count == 2 else "single texts"
            raise UserError(f"{self.source}: this model reads {needs}; example {wrong.id} has {len(wrong.texts)}")


def _require_text_in(series: Any, where: str, name: str, dropped: str, pairs: bool = False) -> None:
    """A cell that holds no text (None and NaN are the usual ones) is named by its row."""
    kinds = (str, tuple) if pairs else (str,)
    for row, value, missing in zip(series.index.tolist(), series.tolist(), series.isna().tolist(), strict=True):
        if isinstance(value, kinds):
            continue
        if missing:
            ways = f'{name}.fillna("") reads it as an empty text, {dropped} leaves such rows out'
            raise TypeError(f"{where}, row {row!r}: there is no text ({value!r}); {ways}")
        raise TypeError(
            f"{where}, row {row!r}: expected a text, not {value!r:.80}; {name}.astype(str) makes texts of all"
        )


def as_texts(value: Any, most: int | None = 2, where: str = "") -> tuple[str, ...]:
    """One text, a pair or more, as a tuple; `where` begins the error for anything else."""
    texts = (value,) if isinstance(value, str) else value
    right = isinstance(texts, tuple) and texts and all(isinstance(text, str) for text in texts)
    if not right or len(texts) > (most or len(texts)):
        raise TypeError(f"{where}expected a text, a tuple of two texts, or a list of these, not {value!r:.80}")
    for text in texts:
        _require_unicode(text, where)
    return tuple(texts)


def _require_unicode(text: str, where: str) -> None:
    """Half of a surrogate pair, left over by a wrong decoding, is no character; tokenizers cannot read it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        at = error.start
        raise TypeError(
            f"{where}character {at} ({text[at]!r}) is half of a surrogate pair, so this is no text; "
            'text.encode("utf-8", "replace").decode() replaces such characters'
        ) from None


def open_classifier(
    source: str | Path,
    device: str = "auto",
    *,
    head: str | None = None,
    labels: Sequence[str] | None = None,
    allow_code: bool = False,
    undecided: bool = False,
    precision: Precision = "fp32",
) -> Classifier:
    """A run directory, a model folder or a hub name. `labels` names the outputs of a model that has LABEL_0, …

    Of several heads one must be named, unless who asks will choose it later (`undecided`). Weights stay in fp32; in
    bf16 or fp16 matrices are multiplied, as in training with this precision.

    An own objective is opened from its run directory, whose Python files run only with `allow_code`. A head of a run
    that kept the best weights of each task (`train.select: each`) is opened with these: its scores are theirs.
    """
    folder = locate.resolve(str(source), head=head)
    code = load.load(source, allow_code=True).code if allow_code and files.is_run(source) else None
    model, tokenizer, card = open_model.load_model(folder.path, device=device, code=code)
    model.autocast_to = LOWERED.get(precision)
    spoken = {name: about for name, about in card["tasks"].items() if speaks(about) or len(card["tasks"]) == 1}
    heads = _heads(str(source), folder.path, spoken)
    if head is not None and head not in heads:
        raise UserError(no_such_head(source, head, list(heads)))
    if head is None and len(heads) > 1 and not undecided:
        raise UserError(f"{source}: has several heads, name one of them: {', '.join(heads)}")
    first = heads[head or next(iter(heads))]
    chosen = Classifier(model, tokenizer, card, first, str(source), folder.path, allow_code)
    chosen = chosen if len(heads) > 1 else with_own_weights(chosen)
    return chosen if labels is None else with_labels(chosen, labels)


def _heads(source: str, folder: Path, tasks: Mapping[str, Any]) -> dict[str, AnyHead]:
    """The heads that a card tells of."""
    require_openable(folder, tasks)
    try:
        return {name: head_of(name, about) for name, about in tasks.items()}
    except UserError as error:  # pretrained: its questions are no questions of people
        raise UserError(f"{source}: {error}; train it on a task first: --model {source} --tasks glue/rte") from None
    except (KeyError, ValidationError) as error:  # each kind of head has keys of its own
        key = error.args[0] if isinstance(error, KeyError) else error.errors()[0]["loc"][0]
        why = "missing" if isinstance(error, KeyError) else "not as it should be"
        raise damaged(folder / CARD, f"{key} of a head is {why}") from None


def with_own_weights(model: Classifier) -> Classifier:
    """The model as the run has scored it on the task of its head: opened again where these are other weights."""
    if model.folder is None or not files.is_run(model.source):
        return model
    if model.folder.is_relative_to(RunDir(model.source).weights_of(model.head.name).resolve()):
        return model
    device = str(next(model.model.parameters()).device)
    code, precision = model.allow_code, model.precision
    return open_classifier(model.source, device, head=model.head.name, allow_code=code, precision=precision)


def with_labels(model: Classifier, labels: Sequence[str]) -> Classifier:
    """The same model with names for its outputs, which only models of others need."""
    if not model.foreign:
        raise UserError(
            f"{model.source}: already has label names ({', '.join(model.labels)}); --labels is for models without them"
        )
    if len(set(labels)) != len(model.labels) or len(labels) != len(model.labels):
        raise UserError(f"--labels: {len(model.labels)} different names are required, not {', '.join(labels)}")
    return replace(model, head=model.head.model_copy(update={"names": list(labels)}))


def heads_in(model: Classifier) -> Iterator[AnyHead]:
    """All heads of a model; the current one first, with the names it has now."""
    yield model.head
    others = {name: about for name, about in model.card["tasks"].items() if name != model.head.name and speaks(about)}
    yield from (head_of(name, about) for name, about in others.items())


@torch.no_grad()
def logits(model: Classifier, texts: Sequence[Text]) -> torch.Tensor:
    """Outputs before any softmax, in order: for checks against transformers."""
    rows = model.outputs([Example(str(i), as_texts(one)) for i, one in enumerate(texts)])
    return torch.tensor([row["logits"] for row in rows])
