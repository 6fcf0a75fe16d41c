"""Raw input of `predict`: texts from the command line, a file or stdin, and answers as rows of a file."""

import csv
import io
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.text import markdown_table, short
from encodery.errors import UserError
from encodery.inference.classifier import CHUNK, Classifier
from encodery.inference.ensemble import average
from encodery.inference.evaluate import with_head_for
from encodery.tasks.base import Example
from encodery.tasks.forms.spans import read_squad
from encodery.tasks.forms.tagging import read_tagged, tagged_examples, words_of
from encodery.tasks.sources.candidates import are_candidates
from encodery.tasks.sources.file_layout import (
    TABLES,
    WORD_A_LINE,
    csv_layout,
    detect_delimiter,
    detect_encoding,
    layout,
)
from encodery.tasks.sources.readers import ADVICE as BAD_ROWS
from encodery.tasks.sources.readers import (
    Bad,
    Sheet,
    as_utf8,
    decoded,
    is_rows,
    named,
    need_columns,
    open_nested,
    raw_shown,
    read,
    refuse,
    shown,
)
from encodery.tasks.sources.readers import Row as FileRow
from encodery.tasks.sources.rows import Columns, good_rows, name_of, text_of, to_examples

Row = dict[str, Any]  # id, text, text2, prediction, probabilities
COLUMNS = "columns"  # in the extra of an example: the row of its file
SHOWN = 60  # characters of a text in a table
TEXT_COLUMN = "; name the column of the text with --text-column (in Python: text=)"


def of_words(texts: Sequence[str], second: Sequence[str] | None) -> list[Example]:
    """Texts or pairs of the command line."""
    if second is None:
        return [Example(str(number), (text,)) for number, text in enumerate(texts)]
    if len(second) != len(texts):
        raise UserError(f"--text is given {len(texts)} times and --text2 {len(second)} times; a pair needs one of each")
    return [Example(str(number), pair) for number, pair in enumerate(zip(texts, second, strict=True))]


def of_file(
    name: str,
    model: Classifier,
    columns: tuple[str | None, str | None],
    skip_bad_rows: bool = False,
    encoding: str | None = None,
) -> list[Example]:
    """The texts of a file, or of stdin. Bad rows are named, all at once, also where they are skipped.

    The columns of the file stay with each example, in its extra `columns`, with the names that they have there.
    """
    data = sys.stdin.buffer.read() if name == "-" else None
    trained: dict[str, Any] = model.card["tasks"][model.head.name]["task"] or {}
    says = model.head.answer_kind
    if data is not None and not data.lstrip().startswith(b"{"):
        examples, sheet = _of_lines(data, pairs=model.head.texts == 2)
    elif says == "tagging" and data is None and _has_a_word_a_line(Path(name)):
        place, codec = _word_place(trained, Path(name)), _codec(Path(name), trained, encoding)
        sheet = read_tagged(Path(name), place, "tags", None, hidden=True, encoding=codec)
        examples = tagged_examples(_without_tags(sheet), hidden=True, names=None)
    elif says == "span" and data is None and _is_squad(Path(name)):
        examples, sheet = read_squad(Path(name), hidden=True)
        examples = [replace(one, extra={**one.extra, COLUMNS: _of_question(one)}) for one in examples]
    else:
        sheet = _of_table(Path(name), trained, encoding) if data is None else _of_json(data)
        examples = _of_rows(model, columns, sheet)
    if not skip_bad_rows:
        refuse(sheet.bad, _advice(sheet, name))
    elif sheet.bad:
        print(named(sheet.bad, "skipped row"), file=sys.stderr)
    if not examples:
        raise UserError(f"{sheet.file}: has no rows that can be used")
    return examples


def _of_rows(model: Classifier, columns: tuple[str | None, str | None], sheet: Sheet) -> list[Example]:
    """What the rows of a table ask, each with its columns."""
    trained: dict[str, Any] = model.card["tasks"][model.head.name]["task"] or {}
    own = sheet.columns
    open_nested(sheet, [*columns, *(trained.get(key) for key in ("text", "text2", "id"))])
    before = {row.line: dict(row.values) for row in sheet.rows}
    tags = model.head.answer_kind == "tagging"
    examples = _words(model, columns[0], sheet) if tags else _texts(model, columns, sheet)
    id = _id_column(trained, sheet)
    if id is None and (repeated := _named_id(trained, sheet)):
        print(f"{sheet.file}: values of {repeated} repeat, so rows are numbered", file=sys.stderr)
    kept = [*own, *([id] if id and id not in own else [])]  # a nested text is in its object already
    return _with_columns(examples, sheet, before, id, kept)


def _advice(sheet: Sheet, name: str) -> str:
    """What to do about bad rows: of a file from Windows nearly all that have an umlaut would be skipped."""
    wrong = name != "-" and any("UTF-8" in bad.why for bad in sheet.bad)
    codec = detect_encoding(Path(name).read_bytes()) if wrong else None
    return f"The file looks like {codec}: add --encoding {codec}." if codec else BAD_ROWS


def _codec(path: Path, trained: Mapping[str, Any], encoding: str | None) -> str | None:
    """As given; else UTF-16, which is unmistakable, or cp1252 where the run's own files were that. None is UTF-8."""
    codec = encoding or (detect_encoding(path.read_bytes()) if path.is_file() else None)
    return None if encoding is None and codec == "cp1252" and trained.get("encoding") is None else codec


def _has_a_word_a_line(path: Path) -> bool:
    """Whether it is no table, by its ending or by what is in it."""
    return path.suffix.lower() in WORD_A_LINE or (path.is_file() and layout(path, {}, labelled=False) is None)


def _word_place(trained: Mapping[str, Any], path: Path) -> int | str:
    """The column that the run was told, in files of its own kind; else the usual one of the file's kind."""
    told, own = trained.get("text"), Path(str(trained.get("train"))).suffix.lower()
    alike = (own == ".conllu") == (path.suffix.lower() == ".conllu")
    return told if isinstance(told, int) and alike else "words"


def _is_squad(path: Path) -> bool:
    """Whether it is JSON in SQuAD's layout, with paragraphs and their questions."""
    return path.suffix.lower() == ".json" and path.is_file() and not is_rows(path)


def _of_question(example: Example) -> Row:
    return {"id": example.id, "question": example.texts[0], "context": example.texts[1]}


def _of_table(path: Path, trained: Mapping[str, Any], encoding: str | None) -> Sheet:
    """A file of rows. The delimiter is recognised; the encoding only where it is unmistakable or was the run's own, as
    a wrong byte must not turn a file of UTF-8 into another one."""
    if not path.is_file() or path.suffix.lower() == ".parquet":
        return read(path)
    codec = _codec(path, trained, encoding)
    delimiter = None
    with suppress(UserError):  # one column has none
        delimiter = detect_delimiter(path, as_utf8(path, path.read_bytes(), codec))
    return read(path, delimiter=delimiter if path.suffix.lower() in TABLES else None, encoding=codec)


def _with_columns(
    examples: Sequence[Example], sheet: Sheet, before: Mapping[int, Row], id: str | None, kept: Sequence[str]
) -> list[Example]:
    """The examples with these columns as the file has them; where none holds the ids, the number of the row is `id`."""
    by_id = {str(row.values.get(id)) if id else str(place): before[row.line] for place, row in sheet.numbered()}
    with_rows = []
    for example in examples:
        row: Row = {} if id else {"id": example.id}
        row |= {name: by_id[example.id].get(name) for name in kept}
        with_rows.append(replace(example, extra={**example.extra, COLUMNS: row}))
    return with_rows


def _texts(model: Classifier, columns: tuple[str | None, str | None], sheet: Sheet) -> list[Example]:
    if model.head.answer_kind == "ranking":
        return _candidates(model, columns, sheet)
    texts = model.text_columns(sheet.columns, columns)
    need_columns(sheet, texts, TEXT_COLUMN)
    trained = model.card["tasks"][model.head.name]["task"] or {}
    return to_examples(sheet, Columns(texts, id=_id_column(trained, sheet)), lambda value: None)


def _words(model: Classifier, given: str | None, sheet: Sheet) -> list[Example]:
    """Sentences: a column with lists of words, or with texts that are split at blanks."""
    trained = model.card["tasks"][model.head.name]["task"] or {}
    id, column = _id_column(trained, sheet), _word_column(trained, given, sheet)
    need_columns(sheet, [column], TEXT_COLUMN)
    for row in sheet.rows:
        row.values["words"], row.values["id"] = row.values.get(column), row.values.get(id) if id else None
    return tagged_examples(_without_tags(sheet), hidden=True, names=None)


def _word_column(trained: Mapping[str, Any], given: str | None, sheet: Sheet) -> str:
    names = [given] if given else [trained.get("text"), "tokens", "words", "text"]
    return next((str(name) for name in names if name in sheet.columns), str(names[-1]))


def _without_tags(sheet: Sheet) -> Sheet:
    for row in sheet.rows:
        row.values["tags"] = None
    return sheet


def _candidates(model: Classifier, columns: tuple[str | None, str | None], sheet: Sheet) -> list[Example]:
    """A text and a list of candidates."""
    trained: dict[str, Any] = model.card["tasks"][model.head.name]["task"] or {}
    first = columns[0] or trained.get("text") or "text"
    second = columns[1] or trained.get("candidates") or "candidates"
    need_columns(sheet, [first, second], TEXT_COLUMN)
    id = _id_column(trained, sheet)

    def example(number: int, row: FileRow) -> Example:
        texts = row.values.get(second)
        if not are_candidates(texts):
            raise Bad(f"{shown(texts)} is not a list of two texts or more", second)
        return Example(name_of(row.values, id) if id else str(number), (text_of(row.values, first), *texts))

    return good_rows(sheet, example, id)


def _named_id(trained: Mapping[str, Any], sheet: Sheet) -> str | None:
    """The column that is called as the ids are."""
    return next((name for name in (trained.get("id"), "id") if name in sheet.columns), None)


def _id_column(trained: Mapping[str, Any], sheet: Sheet) -> str | None:
    """The id column of the model's own files, else `id`; without one, and where its values repeat, rows are numbered.

    What names a row of a training set may name a customer here, who writes more than once.
    """
    column = _named_id(trained, sheet)
    values = [str(row.values.get(column)) for row in sheet.rows] if column else []
    return column if len(set(values)) == len(values) else None


def _of_lines(data: bytes, pairs: bool) -> tuple[list[Example], Sheet]:
    sheet = Sheet("stdin", ("text",))
    for number, raw in enumerate(data.splitlines(), start=1):
        try:
            sheet.rows.append(FileRow(number, {"text": decoded(raw)}))
        except Bad as bad:
            sheet.refuse(number, bad, raw_shown(raw))
    if not sheet.rows and not sheet.bad:
        raise UserError("stdin: there is nothing to read")

    def example(number: int, row: FileRow) -> Example:
        texts = tuple(row.values["text"].split("\t")) if pairs else (row.values["text"],)
        if pairs and len(texts) != 2:
            raise Bad("expected two texts separated by one tab")
        return Example(str(number), texts)

    return good_rows(sheet, example, None), sheet


def _of_json(data: bytes) -> Sheet:
    """The reader of files wants a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.jsonl"
        path.write_bytes(data)
        sheet = read(path)
    sheet.file, sheet.bad = "stdin", [replace(bad, file="stdin") for bad in sheet.bad]
    return sheet


def answered(
    models: Sequence[Classifier], examples: Sequence[Example], on_progress: Callable[[int], None], brief: bool = False
) -> Iterator[Row]:
    """Rows in order, a chunk at a time: the columns of the file and the answer; `brief` ones are ids, texts, answers.

    Several models are an ensemble; the first says what its labels are called.
    """
    head = models[0].head
    models = [models[0], *(with_head_for(model, head) for model in models[1:])]
    heads = [model.head for model in models]
    for begin in range(0, len(examples), CHUNK):
        chunk = examples[begin : begin + CHUNK]
        answers = average(head, heads, [model.answers(chunk, on_progress=on_progress) for model in models])
        for example in chunk:
            answer = head.told(answers[example.id])
            if head.answer_kind == "tagging":
                answer = {"words": list(words_of(example)), **answer}
            given = None if brief else example.extra.get(COLUMNS)
            texts = {"id": example.id, **dict(zip(("text", "text2"), example.texts, strict=False))}
            yield {**_kept(texts if given is None else given, set(answer)), **answer}


def _kept(columns: Row, taken: set[str]) -> Row:
    """The columns of a file, or the texts; one that is called like a part of the answer gets `input_` before it."""
    return {f"input_{name}" if name in taken else name: value for name, value in columns.items()}


WRITTEN = {"jsonl": "", "csv": ",", "tsv": "\t", "conll": ""}  # forms of a file, and what parts cells


def writer(path: Path, form: str | None = None, like: str | None = None) -> Callable[[Iterable[Row]], None]:
    """A function that writes rows to the file, whole or not at all; by default the ending of its name decides the form.

    A csv file has the delimiter of the csv file that it answers, `like`: who has semicolons needs them.
    """
    if form is not None and form not in WRITTEN:
        raise UserError(f"--format {form} is for the screen; with -o use {', '.join(WRITTEN)}")
    form = form or path.suffix.removeprefix(".")
    if form not in WRITTEN:
        endings = ", ".join(f".{one}" for one in WRITTEN)
        raise UserError(f"{path}: predictions are written to {endings} files; for another name add --format csv")
    if not path.resolve().parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist")
    delimiter = WRITTEN[form]
    if form == "csv" and like is not None:
        delimiter = csv_layout(Path(like)).get("delimiter", delimiter)

    def write(rows: Iterable[Row]) -> None:
        if form == "conll":
            lines = _words_and_tags(path, rows)
        else:
            lines = _cells(rows, delimiter) if delimiter else (files.readable_json(row) + "\n" for row in rows)
        with files.atomic(path) as stream:
            stream.writelines(line.encode() for line in lines)

    return write


def _words_and_tags(path: Path, rows: Iterable[Row]) -> Iterator[str]:
    """A word and its tag a line, an empty line after each sentence."""
    for row in rows:
        if "words" not in row:
            raise UserError(f"{path}: the model gives no tags; write its predictions to a .jsonl, .csv or .tsv file")
        for word, tag in zip(row["words"], row["prediction"], strict=True):
            if not word or " " in word or "\t" in word or len(word.splitlines()) > 1:
                raise UserError(f"{path}: {shown(word)} is no word of such a file (row {row['id']}); write jsonl")
            yield f"{word}\t{tag}\n"
        yield "\n"


def _cells(rows: Iterable[Row], delimiter: str) -> Iterator[str]:
    """Lines with this between their cells, the names of the columns first."""
    return (_line(cells, delimiter) for cells in _flat(rows))


def _flat(rows: Iterable[Row]) -> Iterator[list[Any]]:
    """The names of the columns, then the cells of each row; a column p_<label> for each probability.

    Our own numbers have nine digits, which is all that a model's float32 holds.
    """
    for number, row in enumerate(rows):
        chances = row.get("probabilities") or {}
        plain = not any("," in label for label in chances)
        flat = {key: value for key, value in row.items() if key != "probabilities"}
        if isinstance(flat.get("prediction"), float):
            flat["prediction"] = float(f"{flat['prediction']:.9g}")
        flat |= {f"p_{label}": float(f"{chance:.9g}") for label, chance in chances.items()}
        if number == 0:
            yield list(flat)
        yield [_cell(value, joined=key == "prediction" and plain) for key, value in flat.items()]


def _cell(value: Any, joined: bool = False) -> Any:
    """A value in a table: lists and objects as JSON, nothing for what is absent.

    Answers that are several labels or tags are `joined` by commas, unless a label holds one; `score` reads both.
    """
    if joined and isinstance(value, list) and all(isinstance(one, str) and "," not in one for one in value):
        return ",".join(value)
    return "" if value is None else files.readable_json(value) if isinstance(value, list | dict) else value


def _line(cells: list[Any], delimiter: str) -> str:
    """In tsv there is no quoting: tabs and line ends inside a text become spaces."""
    if delimiter == "\t":
        return "\t".join(" ".join(str(cell).replace("\t", " ").splitlines()) for cell in cells) + "\n"
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(cells)
    return text.getvalue()


def show(rows: Iterable[Row], form: str) -> None:
    """On stdout, for programs or for people."""
    if form in ("csv", "tsv"):
        for line in _cells(rows, "," if form == "csv" else "\t"):
            print(line, end="")
    elif form == "conll":
        for line in _words_and_tags(Path("stdout"), rows):
            print(line, end="")
    elif form == "md":
        header, *lines = [*_flat(rows)] or [["id"]]
        print(markdown_table(header, lines))
    elif form == "json":
        print("[" + ",".join(f"\n {files.readable_json(row)}" for row in rows) + "\n]")
    else:
        for row in rows:
            print(files.readable_json(row) if form == "jsonl" else _for_people(row))


def _for_people(row: Row) -> str:
    said, chances = row["prediction"], row.get("probabilities") or {}
    if "words" in row:
        return " ".join(f"{word}/{tag}" for word, tag in zip(row["words"], said, strict=True))
    first = "input_text" if "input_text" in row else "text"  # of an answer that has a text itself
    texts = " | ".join(short(row[key], SHOWN) for key in (first, "text2") if key in row)
    if isinstance(said, float):
        return f"{said:8.4f}  {texts}"
    best = ", ".join(said) if isinstance(said, list) else said
    order = sorted(chances.items(), key=lambda pair: -pair[1])
    return f"{best or '(none)'}  {'  '.join(f'{label} {chance:.3f}' for label, chance in order)}  {texts}"
