"""What all tasks share that ask for a tag of every word: pieces and words, windows, span F1."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

from pydantic import Field

from encodery.core.text import counted
from encodery.errors import RunFailed, UserError
from encodery.tasks.base import HIDDEN, Answer, Example, Features, Pieces, Task
from encodery.tasks.forms.classification import CHUNK, best_window, paired, softmax, windows
from encodery.tasks.sources.file_layout import cells_of
from encodery.tasks.sources.readers import Bad, Row, Sheet, as_utf8, need_columns, read, shown
from encodery.tasks.sources.rows import good_rows, label_name, must_be_in, name_of

# Files with words and their tags: CoNLL columns, or rows (jsonl, Parquet) with a list of words and a list of tags.


ROWS = (".jsonl", ".ndjson", ".json", ".parquet")
Column = str | int
NAMES = "; name the column of the {0} with --tasks.{1}, or --{1}-column where a run is evaluated"


def read_tagged(
    path: Path, words: Column, tags: Column, id: str | None, hidden: bool, encoding: str | None = None
) -> Sheet:
    """Sentences with the columns `words`, `tags` (absent only if they may be hidden) and `id`."""
    if path.suffix.lower() not in ROWS:
        return _read_columns(path, words, tags, encoding, hidden)
    sheet = read(path, [str(words), str(tags), *filter(None, [id])], encoding=encoding)
    need_columns(sheet, [str(words), *filter(None, [id])], NAMES.format("words", "text"))
    if not hidden:
        need_columns(sheet, [str(tags)], NAMES.format("tags", "label"))
    for row in sheet.rows:
        row.values["words"], row.values["tags"] = row.values.get(str(words)), row.values.get(str(tags))
        row.values["id"] = row.values.get(id) if id else None
    return sheet


def _read_columns(path: Path, words: Column, tags: Column, encoding: str | None, hidden: bool) -> Sheet:
    """A word a line, columns parted by tabs or spaces, an empty line after each sentence."""
    universal = path.suffix.lower() == ".conllu"
    word_at, tag_at = _column_number(words, 1 if universal else 0), _column_number(tags, 3 if universal else -1)
    sheet = Sheet(str(path), ("words", "tags", "id"))
    blocks = list(_blocks(path, encoding))
    is_comment = comments_of([[text for _, text in block] for _, block in blocks])
    for line, block in blocks:
        comments = dict(_comment(text) for _, text in block if universal and text.startswith("#"))
        kept: list[tuple[str, str | None]] = []
        try:
            for number, text in block if universal else dropwhile(lambda numbered: is_comment(numbered[1]), block):
                cells = cells_of(text)
                if (universal and _skipped(cells[0])) or cells[0] == "-DOCSTART-":
                    continue
                kept.append((_cell(cells, word_at, number), _tag(cells, tag_at, number, hidden)))
        except Bad as bad:
            sheet.refuse(line, bad, block[0][1])
            continue
        if kept:
            given: list[str | None] | None = [tag for _, tag in kept]
            if hidden and set(given or ()) <= {None, "_"}:  # what a file without tags has in their place
                given = None
            sheet.rows.append(
                Row(line, {"words": [word for word, _ in kept], "tags": given, "id": comments.get("sent_id")})
            )
    return sheet


def comments_of(sentences: Sequence[Sequence[str]]) -> Callable[[str], bool]:
    """What tells a comment above a sentence from the word `#`, which has as many columns as other words.

    A comment has a `name = value` or other columns; and where every sentence begins with `#`, these lines are comments.
    """
    counts = Counter(len(cells_of(line)) for lines in sentences for line in lines if not line.startswith("#"))
    usual = counts.most_common(1)[0][0] if counts else 0
    always = len(sentences) > 1 and all(lines[0].startswith("#") for lines in sentences)
    named = re.compile(r"#\s*[\w.]+\s*=")

    def is_comment(line: str) -> bool:
        return line.startswith("#") and (always or bool(named.match(line)) or len(cells_of(line)) != usual)

    return is_comment


def _column_number(column: Column, usual: int) -> int:
    """A column's number; a name (which such files do not have) stands for the usual place."""
    return column if isinstance(column, int) else usual


def _comment(text: str) -> tuple[str, str]:
    name, _, value = text.lstrip("# ").partition("=")
    return name.strip(), value.strip()


def _skipped(cell: str) -> bool:
    """Comments, joined words (1-2) and words that are not there (1.1) of Universal Dependencies."""
    return cell.startswith("#") or not cell.isdecimal()


def _cell(cells: Sequence[str], column: int, line: int) -> str:
    if not -len(cells) <= column < len(cells):
        raise Bad(f"line {line} has {counted(len(cells), 'column')}, but column {column} (from 0) is needed")
    return cells[column]


def _tag(cells: Sequence[str], column: int, line: int, hidden: bool) -> str | None:
    """The tag of a word; a file without tags has words alone."""
    if len(cells) < 2 and hidden:
        return None
    if len(cells) < 2:
        raise Bad(f"line {line} has a word and no tag")
    return _cell(cells, column, line)


def _blocks(path: Path, encoding: str | None) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Sentences: the line they begin at, and their lines."""
    try:
        data = path.read_bytes()
        text = as_utf8(path, data, encoding).decode()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start + 1} is not valid UTF-8") from None
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        line = line.removesuffix("\r")
        if line.strip(" \t"):
            block.append((number, line))
        elif block:
            yield block[0][0], block
            block = []


def tagged_examples(sheet: Sheet, hidden: bool, names: Sequence[str] | None) -> list[Example]:
    """Examples of all good rows; bad ones are noted in the sheet. `names`: the legal tags, by number too."""
    return good_rows(sheet, lambda place, row: _example(place, row.values, hidden, names), "id")


def _example(number: int, values: dict[str, Any], hidden: bool, names: Sequence[str] | None) -> Example:
    words = _texts(values["words"], "words")
    if not words:
        raise Bad("there are no words", "words")
    given = values.get("tags")
    if given is None and not hidden:
        raise Bad("there are no tags", "tags")
    tags = None if given is None else tuple(_tags(given, names))
    if tags is not None and len(tags) != len(words):
        raise Bad(f"{len(tags)} tags for {len(words)} words", "tags")
    id = str(number) if values.get("id") is None else name_of(values, "id")
    return Example(id, (" ".join(words),), tags, extra={"words": words})


def _texts(value: Any, column: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split()
    if not isinstance(value, list):
        raise Bad(f"{shown(value)} is not a list of words", column)
    for word in value:
        if not isinstance(word, str) or not word.strip():
            raise Bad(f"{shown(word)} is not a word", column)
        try:
            word.encode()
        except UnicodeEncodeError:
            raise Bad("a lone surrogate in a word", column) from None
    return tuple(value)


def _tags(value: Any, names: Sequence[str] | None) -> Iterator[str]:
    value = value.split() if isinstance(value, str) else value
    if not isinstance(value, list):
        raise Bad(f"{shown(value)} is not a list of tags", "tags")
    for one in value:
        if isinstance(one, int) and not isinstance(one, bool) and names and 0 <= one < len(names):
            one = names[one]  # the hub numbers them
        name = label_name(one)
        if name is None:
            raise Bad("a tag is empty", "tags")
        try:
            yield must_be_in(name, names) if names else name
        except Bad as bad:
            raise Bad(bad.why, "tags") from None


def tag_set(examples: Iterable[Example]) -> list[str]:
    """All tags that occur, sorted."""
    return sorted({tag for example in examples for tag in (example.label or ())})  # type: ignore[union-attr]


SPECIAL = ("X", "CLS", "SEP")  # MT-DNN's labels of pieces inside a word, of the first and of the last token


class Tagging(Task):
    """Base: a subclass gives name, splits, examples, origin and labels. The words stand in `extra["words"]`."""

    stride: int = Field(default=128, ge=1)
    """Sentences longer than max_length are read in windows that start this many tokens apart."""
    train_on_special_labels: bool = False
    """Also train on the labels X (inside a word), CLS and SEP, as MT-DNN does. They are never predicted."""

    @property
    def main_metric(self) -> str:
        """F1 of spans where the tags mark spans (B-, I-), else accuracy."""
        return "f1" if marks_spans(self.labels) else "accuracy"

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the model may say: the labels, and the special ones if they are trained on."""
        more = SPECIAL if self.train_on_special_labels else ()
        return (*self.labels, *(name for name in more if name not in self.labels))

    def encode(self, examples: Sequence[Example], pieces: Pieces, max_length: int) -> Iterator[Features]:
        """One sequence per sentence, several where it is long; each word is asked for once, at its first piece."""
        number = {label: i for i, label in enumerate(self.outputs)}
        for start in range(0, len(examples), CHUNK):
            chunk = examples[start : start + CHUNK]
            spelled = pieces.spelled([" ".join(words_of(example)) for example in chunk])
            for row, (example, (ids, places)) in enumerate(zip(chunk, spelled, strict=True), start):
                words = first_pieces(words_of(example), places)
                yield from self._sequences(row, example, ids, words, pieces, max_length, number)

    def _sequences(
        self,
        row: int,
        example: Example,
        ids: Sequence[int],
        words: Sequence[int],
        pieces: Pieces,
        max_length: int,
        number: Mapping[str, int],
    ) -> Iterator[Features]:
        before, _, after = pieces.special(pair=False)
        found = windows(len(ids), max_length - before - after, self.stride)
        best = best_window(found, len(ids))
        for place, (begin, end) in enumerate(found):
            joined, types = pieces.join(ids[begin:end], None, max_length)
            asked = [words[piece] if best[piece] == place else None for piece in range(begin, end)]
            word = [-1 if one is None else one for one in asked]
            targets = self._targets(example, asked, number, before, after)
            marks = {"word": [*[-1] * before, *word, *[-1] * after]}
            yield Features(row, joined, types, {}, {"tag": targets}, marks)

    def _targets(
        self, example: Example, asked: Sequence[int | None], number: Mapping[str, int], before: int, after: int
    ) -> list[int]:
        """Label numbers; HIDDEN where nothing is asked: other windows' pieces, and those that are no word's first."""
        label: Any = example.label
        inside, first, last = (number[name] if self.train_on_special_labels else HIDDEN for name in SPECIAL)
        if label is None:
            return [HIDDEN] * (before + len(asked) + after)
        kept = [HIDDEN if one is None else inside if one < 0 else number[label[one]] for one in asked]
        return [*[first] * before, *kept, *[last] * after]

    def objective(self) -> dict[str, Any]:
        return {"kind": "tagging", "labels": list(self.outputs)}

    def reading(self) -> dict[str, Any]:
        """How the windows are cut, and what is asked for."""
        return {"stride": self.stride, "special": self.train_on_special_labels}

    def decode(self, rows: Iterable[Mapping[str, Any]], examples: Sequence[Example] = ()) -> dict[str, Answer]:
        """A tag and its probability for each word. A word without a piece of its own gets O, probability 0."""
        import numpy as np

        shape = {example.id: (len(words_of(example)), len(self.labels)) for example in examples}
        chances = {id: np.zeros(size) for id, size in shape.items()}
        for row in rows:
            places = [(token, word) for token, word in enumerate(row["word"]) if word >= 0]
            if not places:
                continue
            logits = np.asarray([row["logits"][token] for token, _ in places], dtype=np.float64)
            if not np.isfinite(logits).all():
                raise RunFailed(f"{self.name}: the model's output for example {row['id']} is not a finite number")
            chances[row["id"]][[word for _, word in places]] = softmax(logits[:, : len(self.labels)])
        return {id: self.said(found) for id, found in chances.items()}

    def said(self, chances: Any) -> Answer:
        """Tags from the probabilities [words, labels]; a word of which nothing is known has zeros."""
        known, best = chances.any(axis=1), chances.argmax(axis=1)
        labels = self.labels  # of own files: this looks for the file each time
        unseen = "" if known.all() else self._unseen
        tags = [labels[i] if there else unseen for i, there in zip(best, known, strict=True)]
        return {"prediction": tags, "confidence": chances.max(axis=1, initial=0.0).tolist(), "chances": chances}

    @property
    def _unseen(self) -> str:
        return "O" if "O" in self.labels else self.labels[0]

    def simplest(self, train: Sequence[Example], examples: Sequence[Example]) -> dict[str, Answer]:
        """Each word's commonest tag in train; unknown words get the commonest of all."""
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        all_tags: Counter[str] = Counter()
        for example in train:
            for word, tag in zip(words_of(example), tags_of(example), strict=True):
                seen[word][tag] += 1
                all_tags[tag] += 1
        if not all_tags:
            return {}
        best = {word: _commonest(counts) for word, counts in seen.items()}
        rest = _commonest(all_tags)
        return {e.id: {"prediction": [best.get(word, rest) for word in words_of(e)]} for e in examples}

    def score(self, answers: Mapping[str, Answer], examples: Sequence[Example]) -> dict[str, float]:
        """Accuracy of words; where tags mark spans also precision, recall and F1 of spans."""
        from encodery.tasks.forms import metrics

        gold, found = paired(self.name, answers, examples)
        guess = [answer["prediction"] for answer in found]
        for example, tags, other in zip(examples, gold, guess, strict=True):
            if len(tags) != len(other):
                raise UserError(
                    f"{self.name}: example {example.id} has {len(tags)} words, and {len(other)} tags were given"
                )
        flat = [(a, b) for tags, other in zip(gold, guess, strict=True) for a, b in zip(tags, other, strict=True)]
        scores = {"accuracy": sum(a == b for a, b in flat) / len(flat)} if flat else {"accuracy": 0.0}
        if not marks_spans(self.labels):
            return scores | {"macro_f1": metrics.macro_f1([a for a, _ in flat], [b for _, b in flat])}
        return metrics.span_scores(gold, guess) | scores


def words_of(example: Example) -> Sequence[str]:
    """The words of a sentence; raw text is split at blanks."""
    words: Sequence[str] = example.extra.get("words") or example.texts[0].split()
    return words


def tags_of(example: Example) -> Sequence[str]:
    """The gold tags; none where they are hidden."""
    return example.label if isinstance(example.label, tuple) else ()


def _commonest(counts: Counter[str]) -> str:
    return min(counts.items(), key=lambda pair: (-pair[1], pair[0]))[0]


def marks_spans(labels: Sequence[str]) -> bool:
    """Whether tags are made like B-person, I-person, O."""
    return any(label.startswith("B-") for label in labels)


def first_pieces(words: Sequence[str], places: Sequence[tuple[int, int]]) -> list[int]:
    """For each piece of the words joined by blanks: the word whose first piece it is, or -1."""
    word_of_piece = [-1] * len(places)
    begin, piece = 0, 0
    for number, word in enumerate(words):
        end = begin + len(word)
        while piece < len(places) and (places[piece][1] <= begin or places[piece][0] == places[piece][1]):
            piece += 1
        if piece < len(places) and places[piece][0] < end:
            word_of_piece[piece] = number
            piece += 1  # a piece is the first of one word only
        begin = end + 1
    return word_of_piece
