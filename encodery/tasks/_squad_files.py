"""Files in SQuAD's layouts: the official JSON, or rows (jsonl, Parquet) with id, context, question and answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from encodery.errors import UserError
from encodery.tasks.base import Example
from encodery.tasks.readers import Bad, Row, Sheet, need_columns, read, shown
from encodery.tasks.rows import text_of

COLUMNS = (
    "id",
    "title",
    "context",
    "question",
    "answer_text",
    "answer_start",
    "is_impossible",
    "answers",
    "n_occurrences",
)


def read_squad(path: Path, hidden: bool = False) -> tuple[list[Example], Sheet]:
    """All good questions, in file order, and the sheet with the bad ones. `hidden`: answers may be absent."""
    sheet = _read_json(path) if path.suffix.lower() == ".json" else _read_rows(path)
    # some files say that the answer stands in several places: then nobody knows which one is meant
    sheet.rows = [row for row in sheet.rows if row.values.get("n_occurrences") in (None, 1)]
    return examples_of(sheet, hidden), sheet


def _read_rows(path: Path) -> Sheet:
    sheet = read(path, COLUMNS)
    need_columns(sheet, ["id", "context", "question"])
    return sheet


def _read_json(path: Path) -> Sheet:
    """{"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers": […]}]}]}]}."""
    try:
        whole = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise UserError(f"{path}: is no valid JSON ({error})") from None
    if not isinstance(whole, dict) or not isinstance(whole.get("data"), list):
        raise UserError(f"{path}: is not in SQuAD's layout; it should be an object with a list 'data' of articles")
    sheet = Sheet(str(path), COLUMNS)
    for line, values in enumerate(_questions(path, whole["data"]), 1):
        sheet.rows.append(Row(line, values))
    return sheet


def _questions(path: Path, articles: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for number, article in enumerate(articles):
        title = article.get("title", f"number {number + 1}") if isinstance(article, dict) else f"number {number + 1}"
        for place, paragraph in enumerate(_list(article, "paragraphs", f'{path}: article "{title}"')):
            where = f'{path}: article "{title}", paragraph {place + 1}'
            for question in _list(paragraph, "qas", where):
                if not isinstance(question, dict):
                    raise UserError(f"{where}: {shown(question)} is no question")
                yield {**question, "title": title, "context": paragraph.get("context")}


def _list(value: Any, key: str, where: str) -> Sequence[Any]:
    if not isinstance(value, dict) or not isinstance(value.get(key), list):
        raise UserError(f'{where}: has no list "{key}"')
    found: list[Any] = value[key]
    return found


def examples_of(sheet: Sheet, hidden: bool) -> list[Example]:
    """Examples of all good rows; each bad one is noted with its article, its question's id and what is wrong."""
    examples: list[Example] = []
    seen: set[str] = set()
    for row in sheet.rows:
        try:
            example = _example(row.values, hidden)
            if example.id in seen:
                raise Bad("its id occurs twice", "id")
            seen.add(example.id)
            examples.append(example)
        except Bad as bad:
            named = Bad(f"{_which(row.values)}: {bad.why}", bad.column)
            sheet.refuse(row.line, named, shown({k: v for k, v in row.values.items() if k != "context"}))
    sheet.bad.sort(key=lambda bad: bad.line)
    return examples


def _which(values: Mapping[str, Any]) -> str:
    article = f'article "{values["title"]}", ' if values.get("title") else ""
    return f"{article}question {values.get('id') or 'without an id'}"


def _example(values: dict[str, Any], hidden: bool) -> Example:
    id = values.get("id")
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(id, str) or not id:
        raise Bad("the id is missing", "id")
    question, context = text_of(values, "question"), text_of(values, "context")
    title = values.get("title")
    group = title if isinstance(title, str) and title else None
    texts, starts = _answers(values)
    impossible = values.get("is_impossible")
    if impossible is None and not texts and ("answers" in values or values.get("answer_text") is not None):
        impossible = True
    if impossible:
        return Example(id, (question, context), (), group)
    if not texts:
        if not hidden:
            raise Bad("it has no answer and is not marked as impossible", "answers")
        return Example(id, (question, context), None, group)
    for text, start in zip(texts, starts, strict=True):
        _must_stand(context, text, start)
    return Example(id, (question, context), tuple(texts), group, {"starts": tuple(starts)})


def _answers(values: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Texts and starts: two columns of lists, the hub's {"text": […], "answer_start": […]}, or SQuAD's list."""
    given = values.get("answers")
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get("answer_start")
    elif isinstance(given, list):
        if not all(isinstance(one, dict) for one in given):
            raise Bad(f"{shown(given)} is no list of answers", "answers")
        texts, starts = [one.get("text") for one in given], [one.get("answer_start") for one in given]
    else:
        texts, starts = values.get("answer_text"), values.get("answer_start")
        texts, starts = ([texts], [starts]) if isinstance(texts, str) else (texts, starts)
    texts, starts = texts or [], starts or []
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise Bad("its answers need as many texts as starts", "answers")
    return texts, starts


def _must_stand(context: str, text: Any, start: Any) -> None:
    if not isinstance(text, str) or not text.strip():
        raise Bad(f"the answer {shown(text)} is no text", "answers")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise Bad(f"the start {shown(start)} of the answer {shown(text)} is no place in a text", "answer_start")
    there = context[start : start + len(text)]
    if there != text:
        raise Bad(f"the answer {shown(text)} is not at its place {start}, where {shown(there)} stands", "answer_start")
