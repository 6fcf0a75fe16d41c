"""Raw input of `predict`: texts from the command line, a file or stdin, and answers as rows of a file."""

import csv
import io
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from encodery import files
from encodery.classifier import CHUNK, Classifier
from encodery.ensemble import average
from encodery.errors import UserError
from encodery.evaluate import with_head_for
from encodery.tasks._tag_files import read_tagged, tagged_examples
from encodery.tasks.base import Example
from encodery.tasks.readers import Bad, Sheet, need_columns, read, refuse, shown
from encodery.tasks.rows import Columns, text_of, to_examples
from encodery.tasks.tagged import words_of

Row = dict[str, Any]  # id, text, text2, prediction, probabilities
SHOWN = 60  # characters of a text in a table
WORD_A_LINE = (".conll", ".conllu", ".bio", ".iob")


def of_words(text: str, text2: str | None) -> list[Example]:
    """One text or pair."""
    return [Example("0", (text,) if text2 is None else (text, text2))]


def of_file(
    name: str, model: Classifier, columns: tuple[str | None, str | None], skip_bad_rows: bool = False
) -> list[Example]:
    """The texts of a file, or of stdin. Bad rows are named, all at once, unless they shall be skipped."""
    data = sys.stdin.buffer.read() if name == "-" else None
    if data is not None and not data.lstrip().startswith(b"{"):
        return _of_lines(data, pairs=model.head.texts == 2)
    says = model.head.says
    if says == "tagging" and data is None and Path(name).suffix.lower() in WORD_A_LINE:
        sheet = read_tagged(Path(name), 0, 0, None, hidden=True)  # the second column, if any, is not read
        examples = tagged_examples(_without_tags(sheet), hidden=True, names=None)
    else:
        sheet = read(Path(name)) if data is None else _of_json(data)
        examples = _words(model, columns[0], sheet) if says == "tagging" else _texts(model, columns, sheet)
    if not skip_bad_rows:
        refuse(sheet.bad)
    if not examples:
        raise UserError(f"{sheet.file}: has no rows that can be used")
    return examples


def _texts(model: Classifier, columns: tuple[str | None, str | None], sheet: Sheet) -> list[Example]:
    if model.head.says == "ranking":
        return _candidates(model, columns, sheet)
    texts = _text_columns(model, columns, sheet)
    need_columns(sheet, texts)
    return to_examples(sheet, Columns(texts, id="id" if "id" in sheet.columns else None), lambda value: None)


def _words(model: Classifier, given: str | None, sheet: Sheet) -> list[Example]:
    """Sentences: a column with lists of words, or with texts that are split at blanks."""
    trained = (model.card["tasks"][model.head.name]["task"] or {}).get("text")
    names = [given] if given else [trained, "tokens", "words", "text"]
    column = next((str(name) for name in names if name in sheet.columns), names[-1])
    need_columns(sheet, [str(column)])
    for row in sheet.rows:
        row.values["words"], row.values["id"] = row.values.get(str(column)), row.values.get("id")
    return tagged_examples(_without_tags(sheet), hidden=True, names=None)


def _without_tags(sheet: Sheet) -> Sheet:
    for row in sheet.rows:
        row.values["tags"] = None
    return sheet


def _candidates(model: Classifier, columns: tuple[str | None, str | None], sheet: Sheet) -> list[Example]:
    """A text and a list of candidates."""
    trained: dict[str, Any] = model.card["tasks"][model.head.name]["task"] or {}
    first = columns[0] or trained.get("text") or "text"
    second = columns[1] or trained.get("candidates") or "candidates"
    need_columns(sheet, [first, second])
    examples = []
    for place, row in enumerate(sheet.rows):
        texts = row.values.get(second)
        if isinstance(texts, list) and len(texts) > 1 and all(isinstance(text, str) for text in texts):
            examples.append(Example(str(row.values.get("id", place)), (text_of(row.values, first), *texts)))
        else:
            sheet.refuse(row.line, Bad(f"{shown(texts)} is no list of two texts or more", second), shown(row.values))
    return examples


def _of_lines(data: bytes, pairs: bool) -> list[Example]:
    examples = []
    for number, raw in enumerate(data.splitlines(), start=1):
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise UserError(f"stdin, line {number}: is no valid UTF-8 at byte {error.start + 1}") from None
        texts = tuple(line.split("\t")) if pairs else (line,)
        if pairs and len(texts) != 2:
            raise UserError(f"stdin, line {number}: two texts with one tab between them are needed")
        examples.append(Example(str(number - 1), texts))
    if not examples:
        raise UserError("stdin: there is nothing to read")
    return examples


def _of_json(data: bytes) -> Sheet:
    """The reader of files wants a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.jsonl"
        path.write_bytes(data)
        sheet = read(path)
    sheet.file, sheet.bad = "stdin", [replace(bad, file="stdin") for bad in sheet.bad]
    return sheet


def _text_columns(model: Classifier, given: tuple[str | None, str | None], sheet: Sheet) -> tuple[str, ...]:
    """As given, else as the model's own files called them, else text and text2."""
    trained: dict[str, Any] = model.card["tasks"][model.head.name]["task"] or {}
    usual = ("question", "context") if model.head.says == "span" else ("text", "text2")
    first = given[0] or trained.get("text") or usual[0]
    second = given[1] or trained.get("text2") or usual[1]
    pair = model.head.texts == 2 or (model.head.texts is None and (given[1] is not None or second in sheet.columns))
    if given[1] and not pair:
        raise UserError(f"--text2-column {given[1]}: this model reads single texts")
    return (first, second) if pair else (first,)


def answered(models: Sequence[Classifier], examples: Sequence[Example], tick: Callable[[int], None]) -> Iterator[Row]:
    """Rows in order, a chunk at a time. Several models are an ensemble; the first says what its labels are called."""
    head = models[0].head
    models = [models[0], *(with_head_for(model, head) for model in models[1:])]
    heads = [model.head for model in models]
    for begin in range(0, len(examples), CHUNK):
        chunk = examples[begin : begin + CHUNK]
        answers = average(head, heads, [model.answers(chunk, tick=tick) for model in models])
        for example in chunk:
            texts = dict(zip(("text", "text2"), example.texts, strict=False))
            answer = {key: value for key, value in answers[example.id].items() if key not in head.unwritten}
            if head.says == "tagging":
                texts["words"] = list(words_of(example))  # type: ignore[assignment]
            yield {"id": example.id, **texts, **answer}


def writer(path: Path) -> Callable[[Iterable[Row]], None]:
    """A function that writes rows to the file, whole or not at all; the ending of its name decides the form."""
    delimiters = {".jsonl": "", ".csv": ",", ".tsv": "\t"}
    if path.suffix not in delimiters:
        raise UserError(f"{path}: answers are written to {', '.join(delimiters)} files")
    if not path.resolve().parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist")
    delimiter = delimiters[path.suffix]

    def write(rows: Iterable[Row]) -> None:
        lines = _cells(rows, delimiter) if delimiter else (files.plain_json(row) + "\n" for row in rows)
        with files.atomic(path) as stream:
            stream.writelines(line.encode() for line in lines)

    return write


def _cells(rows: Iterable[Row], delimiter: str) -> Iterator[str]:
    """Comma- or tab-separated lines, a column p_<label> for each probability."""
    for number, row in enumerate(rows):
        chances = row.get("probabilities") or {}
        flat = {key: value for key, value in row.items() if key != "probabilities"}
        flat |= {f"p_{label}": chance for label, chance in chances.items()}
        if number == 0:
            yield _line(list(flat), delimiter)
        yield _line([",".join(cell) if isinstance(cell, list) else cell for cell in flat.values()], delimiter)


def _line(cells: list[Any], delimiter: str) -> str:
    """In tsv there is no quoting: tabs and line ends inside a text become spaces."""
    if delimiter == "\t":
        return "\t".join(" ".join(str(cell).replace("\t", " ").splitlines()) for cell in cells) + "\n"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def show(rows: Iterable[Row], form: str) -> None:
    """On stdout, for programs or for people."""
    for row in rows:
        print(files.plain_json(row) if form == "jsonl" else _for_people(row))


def _for_people(row: Row) -> str:
    said, chances = row["prediction"], row.get("probabilities") or {}
    if "words" in row:
        return " ".join(f"{word}/{tag}" for word, tag in zip(row["words"], said, strict=True))
    texts = " | ".join(_cut(row[key]) for key in ("text", "text2") if key in row)
    if isinstance(said, float):
        return f"{said:8.4f}  {texts}"
    best = ", ".join(said) if isinstance(said, list) else said
    order = sorted(chances.items(), key=lambda pair: -pair[1])
    return f"{best or '(none)'}  {'  '.join(f'{label} {chance:.3f}' for label, chance in order)}  {texts}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"
