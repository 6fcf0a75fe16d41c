"""What a data file is, guessed from the file: which column is what, and the form of the question.

Used where a person names a file instead of a config. The guess becomes ordinary settings of the task `table`, which are
printed and stored with the run; where two readings are possible nothing is guessed, and the error lists the flags.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks.sources.candidates import MOST, are_pieces, look_like_candidates, names_one
from encodery.tasks.sources.column import FEW_LABELS, NUMBER, TEXTS, Column, is_number
from encodery.tasks.sources.file_layout import TABLES, encoding_of, layout, usual_delimiter
from encodery.tasks.sources.labels import has_decimal_comma, matched
from encodery.tasks.sources.readers import Sheet, is_rows, need_columns, nested, read, refuse, shown

FAR = 10  # numbers with a larger mean or spread, or a spread below its inverse, are learnt standardised
SAMPLE = 5000  # rows that are looked at, evenly spaced
OTHERS = 0.1  # share of the labels that may be something else where all others are numbers
SEPARATORS = (";", "|", ",")

# Names of columns, by how sure they are. Spelled as `plain` spells them; those of texts are in column.py.
_PAIRS = (
    "premise hypothesis", "sentence1 sentence2", "text1 text2", "text text2", "text_a text_b", "question1 question2",
    "sentence_a sentence_b", "question answer", "question sentence", "query passage", "query document", "s1 s2",
    "title1 title2", "claim evidence", "left right", "first second", "prompt response", "query response",
    "question response", "context response",
)  # fmt: skip
_LABELS = (
    "label labels gold gold_label gold_labels target y label_name class_label",
    "class class_name category category_name categories topic topics theme genre tag tags intent sentiment polarity "
    "emotion rating star_rating stars score grade similarity relevance relevant priority severity urgency queue team "
    "department outcome verdict decision classification stance toxicity quality is_duplicate is_spam",
)
_MISSING = {"n/a", "#n/a", "nan", "null", "-", "--", "?"}  # "none" and "unknown" may be classes
_IDS = "id idx index guid uid uuid key rowid row_id unnamed:_0"
_QUANTITIES = {"score", "rating", "grade", "similarity", "relevance", "quality", "toxicity", "target", "y"}
_TOKENS = {"tokens", "words", "token"}
_TAGS = {"tags", "ner_tags", "pos_tags", "chunk_tags", "ner", "pos", "upos", "labels", "label", "tag", "bio"}
_CANDIDATES = {"candidates", "choices", "options", "endings"}
_RIGHT = (
    "best correct right answer correct_answer best_answer answer_key index answer_index correct_index label_index "
    "answer_idx"
)


@dataclass(frozen=True)
class Inferred:
    """Settings of the task `table`, and what a person should know of the guess."""

    options: dict[str, Any]
    remarks: list[str] = field(default_factory=list)


def infer(path: Path, given: Mapping[str, Any], labelled: bool = True, flag: str = "--tasks.{}") -> Inferred:
    """The settings that a file asks for. `given` ones stay; without `labelled` no column is taken for the label.

    `flag` is how the command line names a column, for errors.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    if not path.stat().st_size:
        raise UserError(f"{path}: is empty")
    if str(given.get("form")) in ("tags", "spans", "ranking"):
        return Inferred(dict(given))
    if path.suffix.lower() == ".json" and (questions := _of_json(path, given)):
        return questions
    more = layout(path, given, labelled)
    if more is None:
        encoding = encoding_of(path, given)
        return Inferred({**given, "form": "tags", **({} if encoding is None else {"encoding": encoding})})
    both = {**given, **more}
    sheet = read(path, delimiter=both.get("delimiter"), encoding=both.get("encoding"))
    if not sheet.rows:
        refuse(sheet.bad)
        raise UserError(f"{path}: has no rows")
    return _Guess(sheet, both, labelled, flag).run()


def _of_json(path: Path, given: Mapping[str, Any]) -> Inferred | None:
    """SQuAD's layout; None for rows, which are a list of objects or one object per line."""
    if is_rows(path):
        return None
    try:
        tree = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is not readable JSON ({error})") from None
    if isinstance(tree, dict) and isinstance(tree.get("data"), list):
        return Inferred({**given, "form": "spans"})
    raise UserError(
        f"{path}: holds neither rows (a list of objects, or one object per line) nor SQuAD's layout (an object with a "
        "list `data` of articles)."
    )


class _Guess:
    """The roles of the columns, one after the other."""

    def __init__(self, sheet: Sheet, given: dict[str, Any], labelled: bool, flag: str) -> None:
        self.sheet, self.given, self.labelled, self.flag = sheet, given, labelled, flag
        self.least = 2 if labelled and not flag.endswith("-column") else 1  # a file to be answered may have one label
        self.remarks: list[str] = []
        rows = [nested(row.values) for row in sheet.rows]
        step = max(1, len(rows) // SAMPLE)
        self.rows = rows
        names = list(dict.fromkeys(name for row in rows[::step] for name in row))
        self.columns = {name: Column(name, _present(row.get(name) for row in rows[::step])) for name in names}
        self.texts: list[str] = []

    def run(self) -> Inferred:
        """All settings: first the forms that have columns of their own, then a text and its label."""
        self._require_header()
        self._require_given()
        if special := self._special():
            return Inferred({**self.given, **special})
        id = self.given.get("id") or self._id()
        self.texts = self._texts(id)
        label = self.given.get("label") or (self._label(id) if self.labelled else None)
        options = {**self.given, "text": self.texts[0]}
        if len(self.texts) == 2:
            options["text2"] = self.texts[1]
        options |= self._form(label)
        options |= self._standardised(options)
        if id is not None:
            options["id"] = id
        else:
            self._say_repeated_ids()
        self._say_unused(options)
        order = ("form", "text", "text2", "label", "label_separator", "id")
        return Inferred({key: options[key] for key in (*order, *options) if key in options}, self.remarks)

    def _require_header(self) -> None:
        """A first line that is data would become names of columns."""
        if not self.sheet.file.lower().endswith(TABLES) or any(key in self.given for key in ("text", "label")):
            return
        wrong = [name for name in self.sheet.columns if NUMBER.fullmatch(name.strip()) or len(name) > 80]
        wrong += [name for name, column in self.columns.items() if name in column.distinct and not column.texts]
        if wrong:
            first = shown(", ".join(self.sheet.columns))
            raise UserError(
                f"{self.sheet.file}: line 1 ({first}) looks like a row, not like the names of columns. Write a line "
                f"with {counted(len(self.sheet.columns), 'name')} above it, such as {self._header()}."
            )

    def _header(self) -> str:
        """Names as the file would have them: as many as it has columns, with its own delimiter."""
        usual = usual_delimiter(Path(self.sheet.file).suffix.lower())
        delimiter = self.given.get("delimiter") or usual
        names = [*("text", "label"), *(f"column{i}" for i in range(3, len(self.sheet.columns) + 1))]
        if delimiter == "\t":
            return f"{' → '.join(names[: len(self.sheet.columns)])} (→: a tab)"
        return f"`{delimiter.join(names[: len(self.sheet.columns)])}`"

    def _require_given(self) -> None:
        """A misspelt column is told at once, not when training reads the rows."""
        keys = ("text", "text2", "label", "id") if self.labelled else ("text", "text2")
        there = tuple(dict.fromkeys((*self.sheet.columns, *(name for row in self.rows for name in row))))
        need_columns(replace(self.sheet, columns=there), sorted(_names_of(self.given, keys)))

    def _special(self) -> dict[str, Any] | None:
        """Questions with answers in a text, tagged words, and candidates are known by their columns."""
        names = set(self.sheet.columns)
        if {"context", "question"} <= names and names & {"answers", "answer_text"}:
            return {"form": "spans"}
        lists = [column for column in self.columns.values() if column.lists]
        words = next((c for c in lists if set(c.names) & _TOKENS), None)
        tags = next((c for c in lists if set(c.names) & _TAGS and c is not words), None)
        if words and tags and [len(value) for value in words.values] == [len(value) for value in tags.values]:
            return {"form": "tags", "text": words.name, "label": tags.name}
        choices = next((c.name for c in lists if set(c.names) & _CANDIDATES), None)
        if choices := self.given.get("candidates", choices):
            return self._ranking(choices, self._right(choices), sure=True)
        return self._ranking_by_content(lists) if self._may_be_ranking() else None

    def _may_be_ranking(self) -> bool:
        """Nothing that was given speaks against it, and there are flags to say what it is."""
        return self.labelled and not {"form", "text2"} & set(self.given) and not self.flag.endswith("-column")

    def _ranking_by_content(self, lists: Sequence[Column]) -> dict[str, Any] | None:
        """Lists of texts, and a column that names one of them in every row."""
        known = _TOKENS | _TAGS | set(" ".join(_LABELS).split())
        for column in (c for c in lists if not set(c.names) & known):
            if (right := self._right(column.name)) and not are_pieces(self.rows, column.name):
                always = all(self._names_one(column.name, name) == 1 for name in right)
                return self._ranking(column.name, right, always and look_like_candidates(self.rows, column.name))
        return None

    def _right(self, candidates: str) -> list[str]:
        """The column that names the right candidate: the given one, one with such a name, else all that could be."""
        names = [self.given["label"]] if "label" in self.given else [n for n in self.columns if n != candidates]
        names = [name for name in names if isinstance(name, str)]
        fit = {name for name in names if self._names_one(candidates, name) >= MOST}
        known = self._by_name((_LABELS[0], _RIGHT, _LABELS[1]), lambda c: c.name in fit)
        return [known] if known else [name for name in names if name in fit]

    def _names_one(self, candidates: str, name: str) -> float:
        """How often the column names a candidate: letters only count under a name such as `answer`."""
        return names_one(self.rows, candidates, name, letters=bool(set(self.columns[name].names) & set(_RIGHT.split())))

    def _ranking(self, candidates: str, right: Sequence[str], sure: bool) -> dict[str, Any]:
        """The settings; where several readings are left, or it may be no ranking at all, an error lists the flags."""
        labels = right or [self.given.get("label") or self._by_name(_LABELS, lambda c: True) or "label"]
        texts = [name for name, c in self.columns.items() if c.words > 0 and not c.technical and name not in labels]
        known = self.given.get("text") or self._by_name(TEXTS, lambda c: c.name in texts)
        text = [known] if known else [n for n in texts if self.columns[n].texts] or texts or ["text"]
        if not sure or len(text) > 1 or len(labels) > 1:
            raise self._undecided_ranking(text, candidates, labels, sure)
        settings = {"form": "ranking", "text": text[0], "candidates": candidates, "label": labels[0]}
        self._say_lists({**self.given, **settings})
        if others := [name for name in texts if name != text[0] and self.columns[name].sentences]:
            self.remarks.append(f"{', '.join(others)} also holds texts: a ranking has one beside its candidates")
        return settings

    def _undecided_ranking(self, texts: Sequence[str], candidates: str, labels: Sequence[str], sure: bool) -> UserError:
        lines = []
        for text, label in list(product(texts, labels))[:6]:
            named = {"text": text, "label": label}
            lines.append(self._flags({"form": "ranking", "candidates": candidates, **named}) + "  (which one is right)")
            lines += [] if sure else [self._flags({"form": "single", **named}) + f"  ({candidates} is left out)"]
        listed = "".join(f"\n  {line}" for line in sorted(lines))
        return UserError(
            f"{self.sheet.file}: column {candidates} holds lists of texts, and {' or '.join(labels)} may say which one "
            f"of them is right. What is asked? Add one of these:{listed}"
        )

    def _flags(self, settings: Mapping[str, str]) -> str:
        if self.flag.endswith("-column"):  # which has no form and no candidates
            settings = {key: settings[key] for key in ("text", "label")}
        return " ".join(f"{self.flag.format(key)} {_quoted(name)}" for key, name in settings.items())

    def _say_lists(self, options: Mapping[str, Any]) -> None:
        """No column is left out silently because it holds lists."""
        names = _names_of(options, ("text", "text2", "label", "id", "group", "candidates"))
        if left := [name for name, column in self.columns.items() if column.lists and name not in names]:
            hold = "holds lists and is" if len(left) == 1 else "hold lists and are"
            self.remarks.append(f"{', '.join(left)} {hold} left out")

    def _by_name(self, tiers: Iterable[str], fits: Any) -> str | None:
        """The only column of the surest tier of names; an error lists them where there are several."""
        for tier in tiers:
            found = self._named(tier.split(), fits)
            if len(found) == 1:
                return found[0]
        return None

    def _named(self, words: Sequence[str], fits: Any) -> list[str]:
        """Columns with these names; those with the name itself before those where it is a nested key."""
        for place in (0, -1):
            found = [c.name for c in self.columns.values() if c.names[place] in words and fits(c)]
            if found:
                return found
        return []

    def _id(self) -> str | None:
        """A column of ids by its name, else the first one if it looks so; its values must be unique in all rows."""
        candidates = [name for word in _IDS.split() for name in self._named([word], lambda c: True)]
        candidates += [c.name for c in self.columns.values() if c.names[-1].endswith("_id")]
        first = next(iter(self.columns.values()))
        plain = all(isinstance(v, int) or (isinstance(v, str) and " " not in v) for v in first.values[:200])
        if plain and not first.technical and not first.marks and len(first.values) >= 20:
            candidates.append(first.name)
        used = _names_of(self.given, ("text", "text2", "label"))
        return next((name for name in candidates if name not in used and self._unique(name)), None)

    def _say_repeated_ids(self) -> None:
        """A column that is called id and names no row would else be dropped without a word."""
        used = _names_of(self.given, ("text", "text2", "label"))
        for name in self._named(["id"], lambda c: c.name not in used):
            values = _present(row.get(name) for row in self.rows)
            if len(set(map(str, values))) < len(values):
                self.remarks.append(f"values of {name} repeat, so rows are numbered")

    def _unique(self, name: str) -> bool:
        values = [row.get(name) for row in self.rows]
        usable = all(isinstance(v, str | int) and not isinstance(v, bool) and v != "" for v in values)
        return usable and len(set(map(str, values))) == len(values)

    def _texts(self, id: str | None) -> list[str]:
        """One column of texts, or two."""
        if self.given.get("text"):
            return [self.given["text"], *filter(None, [self.given.get("text2")])]
        free = {n: c for n, c in self.columns.items() if n != id and n not in _names_of(self.given, ["label"])}
        for pair in map(str.split, _PAIRS):
            both = [next((n for n, c in free.items() if word in c.partners and c.words), None) for word in pair]
            if all(both) and both[0] != both[1]:
                return [str(name) for name in both]
        named = self._named(TEXTS[0].split(), lambda c: c.words > 0 and c.name in free)
        if len(named) == 1 or (len(named) == 2 and self._twins(*named)):
            return named
        candidates = [name for name, column in free.items() if column.texts or name in named]
        if len(candidates) == 1 or (len(candidates) == 2 and not named):
            return candidates
        if not candidates and (second := self._by_name(TEXTS, lambda c: c.words > 0 and c.name in free)):
            return [second]
        if not candidates:
            self._refuse_empty_text(free)
            candidates = [name for name, column in free.items() if column.words > 0 and not column.technical]
            if len(candidates) == 1:
                return candidates
        raise self._undecided("text", candidates or list(free))

    def _refuse_empty_text(self, free: Mapping[str, Column]) -> None:
        """Where the column called text holds nothing, the label is not taken for the text."""
        if empty := self._named(" ".join(TEXTS).split(), lambda c: c.name in free and not c.values):
            raise UserError(
                f"{self.sheet.file}: column {empty[0]} is empty in every row, so there is no text to read "
                f"({self.flag.format('text')} names another column)"
            )

    def _twins(self, one: str, other: str) -> bool:
        """`data.first.text` and `data.second.text`: the same key of two objects. A text and a comment on it are not."""
        same = self.columns[one].names[-1] == self.columns[other].names[-1]
        return same or self.given.get("form") == "pair"

    def _label(self, id: str | None) -> str | list[str] | None:
        """By its name, else the only column that could be one; columns of 0 and 1 are a label each."""
        rest = {n: c for n, c in self.columns.items() if n not in (id, *self.texts)}
        if len(known := [n for n, c in rest.items() if self._has_known_labels(c)]) == 1:
            return known[0]
        for tier in _LABELS:
            candidates = self._named(tier.split(), lambda c: c.name in rest and _answers(c, self.least))
            marks = [n for n, c in rest.items() if c.marks and n not in candidates]
            others = [n for n, c in rest.items() if n not in candidates and c.labels(self.least)]
            if len(candidates) == 1 and (tier is _LABELS[0] or len(marks) < 3):
                if tier is not _LABELS[0] and others:
                    self._say_other_labels(candidates[0], others)
                return candidates[0]
            if len(candidates) > 1 and not all(rest[name].marks for name in candidates):
                raise self._undecided("label", [*candidates, *others])
        self._refuse_single_value(rest)
        marks = [name for name, column in rest.items() if column.marks]
        several = [name for name, column in rest.items() if column.labels(2)]
        candidates = several or [name for name, column in rest.items() if column.labels(self.least)]
        if len(marks) > 1 and len(marks) == len(candidates):
            return marks
        if len(candidates) == 1:
            return candidates[0]
        raise self._undecided("label", candidates or list(rest), marks)

    def _say_other_labels(self, label: str, others: Sequence[str]) -> None:
        """A name such as `topics` is no proof: a person may have meant another column."""
        self.remarks.append(
            f"the label is {label}, by its name; {', '.join(others)} could be one too: "
            f"{self.flag.format('label')} {_quoted(others[0])} takes it instead"
        )

    def _has_known_labels(self, column: Column) -> bool:
        """Whether its values are labels that were given, such as those of the run that shall answer the file."""
        given = self.given.get("labels")
        if not given or column.lists or not column.distinct:
            return False
        return all(matched(value, list(map(str, given))) is not None for value in column.distinct)

    def _refuse_single_value(self, rest: Mapping[str, Column]) -> None:
        """A column that is called like a label but says the same of every row, or nothing at all."""
        empty = self._named(" ".join(_LABELS).split(), lambda c: c.name in rest and not c.distinct)
        if empty and self.least == 1:
            other = self.flag.format("label")
            raise UserError(f"{self.sheet.file} has no labels: column {empty[0]} is empty ({other} names another)")
        for name in self._named(" ".join(_LABELS).split(), lambda c: c.name in rest and len(c.distinct) == 1):
            if self.least > 1 and not any(c.labels(2) for c in rest.values()):
                value = shown(next(iter(rest[name].distinct)))
                raise UserError(
                    f"{self.sheet.file}: column {name} has one value in all rows ({value}): there is "
                    "nothing to learn from it"
                )

    def _undecided(self, what: str, names: Sequence[str], marks: Sequence[str] = ()) -> UserError:
        flags = [(f"{self.flag.format(what)} {_quoted(name)}", self.columns[name].about()) for name in names[:12]]
        if len(marks) > 1:
            flags.append(
                (
                    f"{self.flag.format('label')} '[{', '.join(marks)}]'",
                    "several labels, one for each column of 0 and 1",
                )
            )
        if what == "label" and self.flag.startswith("--pool"):
            flags.append((f"{self.flag.format('label')} none", "no labels: all rows are the pool"))
        if not flags:
            return UserError(f"{self.sheet.file}: has no column for the {what}; it has {', '.join(self.columns)}")
        if what == "text" and 1 < len(names) < 4 and "form" not in self.given:
            flags += [(self._both(*pair), "both, as a pair") for pair in combinations(names, 2)]
        width = max(len(flag) for flag, _ in flags)
        listed = "".join(f"\n  {flag:{width}}  ({about})" for flag, about in flags)
        python = f"\n(in Python: {what}={names[0]!r})" if self.flag.endswith("-column") else ""
        return UserError(f"{self.sheet.file}: which column is the {what}? Add one of these:{listed}{python}")

    def _form(self, label: str | list[str] | None) -> dict[str, Any]:
        """What is asked, from what the labels look like."""
        two = len(self.texts) == 2
        if isinstance(label, list):
            return {"form": "multilabel", "label": label}
        usual = {"form": "pair" if two else "single"}
        if label is None:
            return {**usual, "form": self.given.get("form") or usual["form"]}
        given = {"form": self.given["form"]} if "form" in self.given else {}
        column = self.columns.get(label)
        if column is None or "form" in self.given:
            return {**usual, **given, "label": label}
        if column.lists:
            return {"form": "multilabel", "label": label}
        self._look_at_labels(column)
        if separator := _separator(column):
            usual_one = "," if self.sheet.file.lower().endswith(TABLES) else None
            more = {} if separator == usual_one else {"label_separator": separator}
            return {"form": "multilabel", "label": label, **more}
        return {"form": self._number_form(column, usual["form"]), "label": label}

    def _look_at_labels(self, column: Column) -> None:
        """Refuse labels that name rows; remark on those that look like nothing."""
        count = len(column.values)
        self._refuse_few_other_than_numbers(column)
        if self.least > 1 and column.numbers is None and 20 <= count == len(column.distinct):
            raise UserError(
                f"{self.sheet.file}: column {column.name} has a different value in every row, so it cannot be "
                f"a label. {self.flag.format('label')} names the column of the labels."
            )
        if missing := [value for value in column.distinct if value.strip().lower() in _MISSING]:
            self.remarks.append(
                f"the label {shown(missing[0])} looks like a missing value: clear such cells, and --skip-bad-rows "
                "leaves their rows out"
            )
        if column.decimal_commas:
            self.remarks.append(f"{column.name} holds numbers with a decimal comma")

    def _refuse_few_other_than_numbers(self, column: Column) -> None:
        """Quantities with a `nan` among them are no classes: the rows are named."""
        numbers = [value for value in column.values if _numeric(value)]
        others = len(column.values) - len(numbers)
        if not 0 < others <= OTHERS * len(column.values) or len(set(map(str, numbers))) < FEW_LABELS:
            return
        rows = zip(self.sheet.rows, self.rows, strict=True)
        wrong = [(row.line, values.get(column.name)) for row, values in rows]
        wrong = [(line, value) for line, value in wrong if _present([value]) and not _numeric(value)]
        line, value = wrong[0]
        more = f" (and {counted(len(wrong) - 1, 'row')} more)" if len(wrong) > 1 else ""
        form = self.flag.format("form")
        skip = f"; {form} regression --skip-bad-rows leaves such rows out, {form} single takes all for names of classes"
        raise UserError(
            f"{self.sheet.file}, line {line}, column {column.name}: {shown(value)} is not a number, as the other "
            f"labels are{more}. Correct it or delete the row{'' if self.flag.endswith('-column') else skip}."
        )

    def _number_form(self, column: Column, usual: str) -> str:
        """Many different numbers are a quantity, few whole ones are names of classes."""
        if column.numbers is None:
            return usual
        if not column.whole_numbers:
            texts = all(isinstance(value, str) for value in column.values)  # two of them may be names, as in "1.5"
            return usual if texts and len(column.distinct) <= 2 else "regression"
        different = len(set(column.numbers))
        if different <= FEW_LABELS:
            return usual
        low, high = min(column.numbers), max(column.numbers)
        numbered = low in (0, 1) and high - low + 1 == different and not set(column.names) & _QUANTITIES
        if numbered and len(column.values) >= 5 * different:  # the numbers of classes, or points out of a hundred?
            form = "--tasks.form" if self.flag.endswith("-column") else self.flag.format("form")
            raise UserError(
                f"{self.sheet.file}: column {column.name} has {different} whole numbers from {low:g} to {high:g}. Are "
                f"they names of classes or a quantity? Add one of these:\n  {form} {usual}\n  {form} regression"
            )
        return "regression"

    def _standardised(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Numbers that are far from what a new head says would take it many epochs to reach."""
        label = options.get("label")
        if options.get("form") != "regression" or "standardise" in options or self.flag.endswith("-column"):
            return {}
        numbers = self.columns[label].numbers if isinstance(label, str) and label in self.columns else None
        if not numbers:
            return {}
        mean, sd = fmean(numbers), pstdev(numbers)
        if sd == 0 or (abs(mean) <= FAR and 1 / FAR <= sd <= FAR):
            return {}
        self.remarks.append(
            f"{label} has mean {mean:.4g} and standard deviation {sd:.4g}: the model learns the numbers standardised, "
            "and answers on their own scale"
        )
        return {"standardise": True}

    def _both(self, one: str, other: str) -> str:
        return f"{self.flag.format('text')} {_quoted(one)} {self.flag.format('text2')} {_quoted(other)}"

    def _say_unused(self, options: Mapping[str, Any]) -> None:
        """Texts that are left out: a remark where the name of the chosen column is sure, else an error."""
        self._say_lists(options)
        names = _names_of(options, ("text", "text2", "label", "id", "group"))
        others = [name for name, column in self.columns.items() if column.sentences and name not in names]
        if not others or len(self.texts) == 2 or self.given.get("text"):
            return
        if not set(self.columns[self.texts[0]].names) & set(TEXTS[0].split()):
            raise self._undecided("text", [name for name in self.columns if name in (self.texts[0], *others)])
        self.remarks.append(
            f"{', '.join(others)} also holds texts; {self.flag.format('text2')} {_quoted(others[0])} reads both"
        )


def _names_of(options: Mapping[str, Any], keys: Iterable[str]) -> set[str]:
    """The columns that these settings name."""
    values = [options.get(key) for key in keys]
    return {str(name) for one in values for name in (one if isinstance(one, list) else [one]) if name is not None}


def _present(values: Iterable[Any]) -> list[Any]:
    return [v for v in values if v is not None and v != "" and not (isinstance(v, float) and v != v)]


def _numeric(value: Any) -> bool:
    return is_number(value) or (isinstance(value, str) and has_decimal_comma(value))


def _answers(column: Column, least: int) -> bool:
    """Whether a column with the name of a label can be one: it has enough different values, and is no text."""
    return len(column.distinct) >= least and not column.technical and (column.lists or not column.texts)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else f"'{name}'"


def _separator(column: Column) -> str | None:
    """What parts several labels of a row: its parts come back in other combinations."""
    if column.numbers is not None or not all(isinstance(value, str) for value in column.values):
        return None
    for separator in SEPARATORS:
        several = [value for value in column.distinct if separator in value]
        if not several or sum(column.distinct[value] for value in several) < 0.02 * len(column.values):
            continue
        combinations: Counter[str] = Counter()
        for value in column.distinct:
            combinations.update({part.strip() for part in value.split(separator) if part.strip()})
        parts = {part.strip() for value in several for part in value.split(separator) if part.strip()}
        if parts and sum(combinations[part] > 1 for part in parts) >= len(parts) / 2 and max(map(len, parts)) <= 60:
            return separator
    return None
