"""Tasks in MT-DNN's own files: `tasks: mtdnn:experiments/glue/glue_task_def.yml#rte`."""

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import PrivateAttr

from encodery.core.text import each
from encodery.errors import UserError
from encodery.tasks.base import HIDDEN, Example, Features, Origin, Pieces, Task
from encodery.tasks.forms.classification import Classification
from encodery.tasks.forms.ranking import Ranking
from encodery.tasks.forms.spans import Spans
from encodery.tasks.forms.tagging import SPECIAL, Tagging
from encodery.tasks.sources.candidates import right_one
from encodery.tasks.sources.readers import Bad, Row, Sheet, read_jsonl, refuse, shown
from encodery.tasks.sources.rows import Loaded, Read, content_digest, file_digest, good_rows, label_number, must_be_in

# MT-DNN's files: a task definition in YAML, canonical TSV without a header, and its tokenised JSON lines.


SPLITS = {
    "train": "train", "dev": "dev", "test": "test", "matched_dev": "dev", "mismatched_dev": "dev_mismatched",
    "matched_test": "test", "mismatched_test": "test_mismatched",
}  # fmt: skip
ORDER = ("train", "dev", "dev_mismatched", "test", "test_mismatched")
FORMATS = {
    "PremiseOnly": 3, "PremiseAndOneHypothesis": 4, "PremiseAndMultiHypothesis": None, "Seqence": 3, "Sequence": 3,
    "MRC": 4, "CLUE_SPAN": 4,
}  # fmt: skip
TYPES = {
    "Classification": "single", "Regression": "regression", "Ranking": "ranking", "SeqenceLabeling": "tags",
    "SequenceLabeling": "tags", "Span": "spans", "SpanYN": "spans", "SpanClassification": "spans",
    "SpanClassificationYN": "spans",
}  # fmt: skip
METRICS = {
    "ACC": "accuracy", "F1": "f1", "MCC": "mcc", "Pearson": "pearson", "Spearman": "spearman", "SeqEval": "f1",
    "F1MAC": "macro_f1", "F1MIC": "accuracy", "EmF1": "f1", "EmF12": "f1",
}  # fmt: skip


FITTING = {
    "single": ("PremiseOnly", "PremiseAndOneHypothesis"), "regression": ("PremiseOnly", "PremiseAndOneHypothesis"),
    "ranking": ("PremiseAndMultiHypothesis",), "tags": ("Seqence", "Sequence"),
    "spans": ("MRC", "CLUE_SPAN", "PremiseAndOneHypothesis"),
}  # fmt: skip


def read_definition(path: Path, task: str, notes: list[str] | None = None) -> dict[str, Any]:
    """The entry of one task; what we have nothing for is refused by name. A key that it has twice, as some released
    definitions do, is noted and the last one taken, as PyYAML does there."""
    from encodery.core import yaml  # a tenth of the time of `encodery tasks`, which reads no task_def

    repeated: yaml.Repeated = {}
    tree = yaml.read_file(path, str(path), repeated).tree
    if notes is not None:
        notes += [
            f"{path.name}:{lines[1]}: the key {'.'.join(map(str, key))} appears twice (first in line {lines[0]}); the "
            "last one is taken"
            for key, lines in repeated.items()
            if key[0] == task
        ]
    if not isinstance(tree, dict) or not isinstance(tree.get(task), dict):
        have = ", ".join(map(str, tree)) if isinstance(tree, dict) else "nothing"
        raise UserError(f"{path}: there is no task {task}; it has {have}")
    entry: dict[str, Any] = tree[task]
    for key, legal in (("data_format", FORMATS), ("task_type", TYPES)):
        if entry.get(key) not in legal:
            raise UserError(f"{path}: {task}.{key}: {shown(entry.get(key))} is not supported; use {', '.join(legal)}")
    if entry["data_format"] not in FITTING[TYPES[entry["task_type"]]]:
        raise UserError(f"{path}: {task}: data_format {entry['data_format']} does not fit {entry['task_type']}")
    if entry.get("enable_san"):
        raise UserError(
            f"{path}: {task}.enable_san is not supported: set it to false, and write objective: {{head: san}}"
        )
    unknown = [name for name in entry.get("metric_meta") or [] if name not in METRICS]
    if unknown:
        raise UserError(f"{path}: {task}.metric_meta: {', '.join(unknown)} is not supported; use {', '.join(METRICS)}")
    return entry


class MtdnnFiles(Read):
    """What all forms of such a task share: the definition, and where its files are."""

    paths: ClassVar[tuple[str, ...]] = ("definition", "folder", "root")

    definition: str
    """The YAML file with task definitions."""
    task: str
    """Name of the task in that file."""
    folder: str | None = None
    """Folder of the files <task>_<split>.tsv, or .json as tokenised by MT-DNN. Default: the folder of the
    definition."""
    root: str | None = None
    """Folder that relative paths start from. Default: the folder of the config, else the current directory."""
    test_labels: Literal["auto", "real", "dummy"] = "auto"
    """Whether the labels of test files are real. auto: not if all rows have the same label, as MT-DNN writes for hidden
    labels. With dummy labels, test is predicted but not scored."""

    _entry: dict[str, Any] = PrivateAttr(default_factory=dict)
    _notes: list[str] = PrivateAttr(default_factory=list)

    @property
    def entry(self) -> Mapping[str, Any]:
        """What the definition says of the task."""
        if not self._entry:
            self._entry.update(read_definition(self._from_root(self.definition), self.task, self._notes))
        return self._entry

    @property
    def name(self) -> str:
        """`mtdnn/rte`."""
        return f"mtdnn/{self.task}"

    @property
    def form(self) -> str:
        """single, regression, ranking, tags or spans."""
        return TYPES[self.entry["task_type"]]

    @property
    def main_metric(self) -> str:
        """The first of metric_meta."""
        usual = {"regression": "spearman"}.get(self.form, "accuracy")
        return next((METRICS[name] for name in self.entry.get("metric_meta") or []), usual)

    @property
    def named(self) -> tuple[str, ...]:
        """The labels of the definition, else numbers below n_class."""
        if self.form in ("regression", "ranking", "spans"):
            return ()
        return tuple(map(str, self.entry.get("labels") or range(int(self.entry["n_class"]))))

    def with_dropout(self, objective: dict[str, Any]) -> dict[str, Any]:
        """With the task's own dropout before its classifier, if it has one."""
        rate = self.entry.get("dropout_p")
        return objective if rate is None else {**objective, "head_dropout": rate}

    def splits(self) -> tuple[str, ...]:
        """Those of the definition, under our names."""
        found = {SPLITS.get(str(name), "") for name in self._split_names()}
        return tuple(split for split in ORDER if split in found)

    def has(self, split: str) -> bool:
        """Whether its file is here."""
        return split in self.splits() and self._path(split) is not None

    def _split_names(self) -> Sequence[str]:
        return self.entry.get("split_names") or ["train", "dev", "test"]

    def _from_root(self, path: str) -> Path:
        return Path(self.root or "").expanduser() / Path(path).expanduser()

    def _path(self, split: str) -> Path | None:
        folder = self._from_root(self.folder) if self.folder else self._from_root(self.definition).parent
        theirs = [name for name in self._split_names() if SPLITS.get(str(name)) == split]
        files = [folder / f"{self.task}_{name}.{ending}" for name in theirs for ending in ("tsv", "json")]
        return next((file for file in files if file.is_file()), None)

    def loaded(self, split: str) -> Loaded:
        if split not in self._loaded:
            path = self._path(split) if split in self.splits() else None
            if path is None:
                raise UserError(f'{self.name} has no file for the split "{split}"; it has {", ".join(self.splits())}')
            sheet = read_jsonl(path) if path.suffix == ".json" else read_canonical(path, self.entry["data_format"])
            make: Callable[[dict[str, Any]], Example] = self._of_json if path.suffix == ".json" else self._of_tsv
            examples = good_rows(sheet, lambda _, row: self._labelled(make(row.values), split), "uid")
            if not self.skip_bad_rows:
                refuse(sheet.bad)
            notes = ["tokenised by MT-DNN: the model needs the same tokenizer"] if path.suffix == ".json" else []
            notes += self._notes if split == "train" else []
            if split.startswith("test") and (dummy := self._dummy(examples)):
                examples = [replace(example, label=None) for example in examples]
                notes.append(f"{path.name}: {dummy}, so the labels are treated as hidden and not scored "
                             "(set test_labels: real if they are real)")  # fmt: skip
            files, note = {path.name: file_digest(path)}, "; ".join(notes) or None
            origin = Origin("folder", content_digest(examples), len(examples), files=files, note=note)
            self._loaded[split] = Loaded(examples, origin, sheet.bad)
        return self._loaded[split]

    def _labelled(self, example: Example, split: str) -> Example:
        """Only test rows may be without a right candidate."""
        if self.form == "ranking" and example.label is None and not split.startswith("test"):
            raise Bad("the row does not name its correct candidate", "labels")
        return example

    def _dummy(self, examples: Sequence[Example]) -> str | None:
        """Why the labels of a test file are none: MT-DNN's own scripts write the same one into every row."""
        if self.test_labels != "auto":
            return "test_labels is dummy" if self.test_labels == "dummy" else None
        known = [one for e in examples for one in (e.label if isinstance(e.label, tuple) else (e.label,))]
        if len(examples) < 2 or self.form == "spans" or len(set(known)) > 1:
            return None
        return f"{each(len(examples), 'row')} have the same label" + (f" ({known[0]})" if known[0] is not None else "")

    def _of_tsv(self, row: dict[str, Any]) -> Example:
        raise NotImplementedError

    def _of_json(self, row: dict[str, Any]) -> Example:
        """A tokenised row; the text is not there any more."""
        ids, types = row.get("token_id"), row.get("type_id")
        if not isinstance(ids, list) or not ids or not isinstance(types, list) or len(types) != len(ids):
            raise Bad("token_id and type_id must be lists of one length", "token_id")
        return Example(str(row.get("uid")), ("",), None, extra={"ids": tuple(ids), "types": tuple(types)})

    def label_of(self, value: Any) -> str | float:
        """A label as text or number: a name, or its place among the names."""
        if self.form == "regression":
            number = label_number(value)
            if number is None:
                raise Bad("there is no label", "label")
            return number
        text = str(value)
        if text not in self.named and text.isdecimal() and int(text) < len(self.named):
            return self.named[int(text)]
        return must_be_in(text, self.named)


def read_canonical(path: Path, data_format: str) -> Sheet:
    """Rows as lists of fields; a wrong number of them (a tab inside a field) is named by line."""
    sheet = _lines(path)
    wanted = FORMATS[data_format]
    for row in list(sheet.rows):
        fields = row.values["fields"]
        if (wanted and len(fields) != wanted) or (not wanted and len(fields) < 6):
            need = str(wanted) if wanted else "6 or more"
            sheet.refuse(row.line, Bad(f"{len(fields)} fields instead of {need}: is there a tab in a text?"), "")
            sheet.rows.remove(row)
    return sheet


def _lines(path: Path) -> Sheet:
    sheet = Sheet(str(path), ("fields",))
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip("\r"):
            sheet.rows.append(Row(number, {"fields": line.removesuffix("\r").split("\t")}))
    return sheet


class MtdnnRank(MtdnnFiles, Ranking):
    """An MT-DNN ranking task."""

    def _of_tsv(self, row: dict[str, Any]) -> Example:
        uid, _, labels, premise, *others = row["fields"]
        values = [word.strip(" '\"") for word in labels.strip("[] ").split(",")]
        return Example(uid, (premise, *others), self._right(values, others, "labels"))

    def _right(self, values: list[str], texts: list[str], column: str) -> str | None:
        """The right candidate; by the definition's names (`entailment,not_entailment`) that of the last one. None where
        all are labelled alike, as MT-DNN does it in test files."""
        names = [str(name) for name in self.entry.get("labels") or ()]
        numbers = [str(names.index(value)) if value in names else value for value in values]
        return None if len(numbers) > 1 and len(set(numbers)) == 1 else right_one(numbers, texts, column)

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """Texts, or the token ids of each candidate as they are."""
        if not examples or "ids" not in examples[0].extra:
            yield from super().encode(examples, pieces, max_length)
            return
        for row, example in enumerate(examples):
            pairs = zip(example.extra["ids"], example.extra["types"], strict=True)
            for place, (ids, types) in enumerate(pairs):
                right = HIDDEN if example.label is None else int(str(place) == example.label)
                targets = {"right": right, "place": place}
                yield Features(row, ids[:max_length], types[:max_length], targets, group=row)

    def _of_json(self, row: dict[str, Any]) -> Example:
        example = super()._of_json(row)
        given = row.get("olabel", row.get("label"))
        texts = [""] * len(example.extra["ids"])
        if isinstance(given, list):
            label = self._right([str(one) for one in given], texts, "label")
        else:
            label = right_one(given, texts, "label")
        return Example(example.id, example.texts, label, extra=example.extra)


class MtdnnLabels(MtdnnFiles, Classification):
    """A classification or regression task of MT-DNN."""

    @property
    def main_metric(self) -> str:
        """The first of metric_meta."""
        return MtdnnFiles.main_metric.fget(self)  # type: ignore[attr-defined,no-any-return]

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in id order."""
        return self.named

    @property
    def answer_form(self) -> Any:
        """One label, or a number."""
        return self.form

    def objective(self) -> dict[str, Any]:
        return self.with_dropout(super().objective())

    def score(self, answers: Mapping[str, Any], examples: Sequence[Example]) -> dict[str, float]:
        """What metric_meta names, and our usual scores."""
        from encodery.tasks.forms import metrics
        from encodery.tasks.forms.classification import paired

        scores = super().score(answers, examples)
        gold, found = paired(self.name, answers, examples)
        guess = [answer["prediction"] for answer in found]
        if "MCC" in (self.entry.get("metric_meta") or ()):
            scores["mcc"] = metrics.matthews(gold, guess)
        if "F1" in (self.entry.get("metric_meta") or ()):
            scores["f1"] = metrics.f1(gold, guess, self.labels[1])
        return scores

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """Texts, or token ids as they are."""
        if not examples or "ids" not in examples[0].extra:
            yield from super().encode(examples, pieces, max_length)
            return
        number = {label: i for i, label in enumerate(self.labels)}
        for row, example in enumerate(examples):
            ids, types = example.extra["ids"], example.extra["types"]
            yield Features(row, ids[:max_length], types[:max_length], {"label": self.target(example.label, number)})

    def _of_tsv(self, row: dict[str, Any]) -> Example:
        uid, label, *texts = row["fields"]
        return Example(uid, tuple(texts), self.label_of(label))

    def _of_json(self, row: dict[str, Any]) -> Example:
        example = super()._of_json(row)
        return Example(example.id, example.texts, self.label_of(row.get("label")), extra=example.extra)


def literal_list(text: str, column: str) -> list[Any]:
    """A list as JSON or as Python writes it; nothing is evaluated."""
    try:
        value = json.loads(text)
    except ValueError:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise Bad(f"{shown(text)} is not a list", column) from None
    if not isinstance(value, list):
        raise Bad(f"{shown(text)} is not a list", column)
    return value


# Questions in MT-DNN's TSV: id, `start:::end:::impossible:::answer`, context, question.


MARK = ":::"
END = " EOSEOS"  # MT-DNN adds this to every context of SQuAD 2.0; it is no part of the text


class MtdnnSpans(MtdnnFiles, Spans):
    """An MT-DNN span task."""

    @property
    def main_metric(self) -> str:
        """EmF1 is both; the headline is F1."""
        return "f1"

    @property
    def unanswerable(self) -> bool:
        """Whether one of the files has a question without an answer: MT-DNN's definitions do not always say it."""
        return any(e.label == () for split in self.splits() if self.has(split) for e in self.examples(split))

    def objective(self) -> dict[str, Any]:
        return self.with_dropout(super().objective())

    def _of_tsv(self, row: dict[str, Any]) -> Example:
        uid, label, context, question = row["fields"]
        context = context.removesuffix(END)
        parts = label.split(MARK)
        if len(parts) != 4 or not all(part.removeprefix("-").isdecimal() for part in parts[:3]):
            raise Bad(f"{shown(label)} is not start:::end:::impossible:::answer", "label")
        start, end, impossible = map(int, parts[:3])
        if impossible:
            return Example(uid, (question, context), ())
        answer = context[max(start, 0) : end]
        if start < 0 or not answer.strip() or _plain(answer) != _plain(parts[3]):
            raise Bad(
                f"the answer {shown(parts[3])} is not at offset {start}, where the text is {shown(answer)}", "label"
            )
        return Example(uid, (question, context), (answer,), extra={"starts": (start,)})

    def _of_json(self, row: dict[str, Any]) -> Example:
        raise Bad("tokenised files do not contain the text of the answers; give the canonical TSV")


def _plain(text: str) -> str:
    """MT-DNN blanks its own mark out of answers, and compares without case."""
    return text.replace(MARK, " " * len(MARK)).lower()


# Sequence labelling in MT-DNN's files: lists of words in its TSV, or pieces with their labels in its JSON.


class MtdnnTags(MtdnnFiles, Tagging):
    """An MT-DNN sequence labelling task."""

    @property
    def main_metric(self) -> str:
        """As tags have it: SeqEval is the F1 of spans."""
        return Tagging.main_metric.fget(self)  # type: ignore[attr-defined,no-any-return]

    @property
    def labels(self) -> tuple[str, ...]:
        """Without X, CLS and SEP, which are no answers."""
        return tuple(label for label in self.named if label not in SPECIAL)

    def objective(self) -> dict[str, Any]:
        return self.with_dropout(super().objective())

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """Words; rows that MT-DNN tokenised go to the model in its pieces."""
        if not examples or "ids" not in examples[0].extra:
            yield from super().encode(examples, pieces, max_length)
            return
        number = {label: i for i, label in enumerate(self.outputs)}
        for row, example in enumerate(examples):
            first, *inside, last = example.extra["ids"]
            wrapped = _Wrapped(first, last)
            yield from self._sequences(row, example, inside, example.extra["firsts"], wrapped, max_length, number)

    def _of_tsv(self, row: dict[str, Any]) -> Example:
        uid, tags, words = row["fields"]
        labels, texts = literal_list(tags, "labels"), tuple(map(str, literal_list(words, "words")))
        if len(labels) != len(texts) or not texts:
            raise Bad(f"{len(labels)} labels for {len(texts)} words", "labels")
        return Example(
            uid, (" ".join(texts),), tuple(str(self.label_of(one)) for one in labels), extra={"words": texts}
        )

    def _of_json(self, row: dict[str, Any]) -> Example:
        """A label for every piece: CLS, then a word's own on its first piece and X on the others, at the end SEP."""
        example = super()._of_json(row)
        given = row.get("label")
        if not isinstance(given, list) or len(given) != len(example.extra["ids"]):
            raise Bad("label must be a list as long as token_id", "label")
        first, *inside, last = [str(self.label_of(one)) for one in given] if len(given) > 2 else ["", "", ""]
        if (first, last) != ("CLS", "SEP") or inside[0] in SPECIAL:
            raise Bad("label must begin with CLS and a word's label, and end with SEP", "label")
        tags = tuple(label for label in inside if label not in SPECIAL)
        places = iter(range(len(tags)))
        firsts = tuple(-1 if label in SPECIAL else next(places) for label in inside)
        words = ("",) * len(tags)  # their spelling is not there any more
        return Example(example.id, ("",), tags, extra={"ids": example.extra["ids"], "firsts": firsts, "words": words})


class _Wrapped:
    """A tokenizer that is asked for nothing but the special tokens around pieces that are there already."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def special(self, pair: bool) -> tuple[int, int, int]:
        return 1, 0, 1

    def join(self, a: Sequence[int], b: Sequence[int] | None, max_length: int) -> tuple[list[int], list[int]]:
        return [self.first, *a, self.last], [0] * (len(a) + 2)

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        raise NotImplementedError

    def spelled(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        raise NotImplementedError


class Mtdnn(MtdnnLabels):
    """A task from an MT-DNN task definition, with its canonical TSV or tokenised JSON files."""

    parts: ClassVar[Mapping[str, str]] = {}
    variants: ClassVar[Mapping[str, type[Task]]] = {"tags": MtdnnTags, "spans": MtdnnSpans, "ranking": MtdnnRank}

    @classmethod
    def variant(cls, options: Mapping[str, Any]) -> type[Task]:
        """Ranking, sequence labelling and questions are classes of their own."""
        path = Path(str(options.get("root") or "")).expanduser() / Path(str(options.get("definition"))).expanduser()
        if not path.is_file():
            return cls  # its own check says it better
        form = TYPES[read_definition(path, str(options.get("task")))["task_type"]]
        return cls.variants.get(form, cls)
