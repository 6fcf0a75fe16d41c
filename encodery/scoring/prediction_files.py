"""Prediction files: writing ours, reading anybody's, and scoring them."""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from encodery.core.text import counted
from encodery.errors import UserError
from encodery.tasks.base import Answer, Example, Task
from encodery.tasks.forms.tagging import read_tagged, words_of
from encodery.tasks.sources.file_layout import WORD_A_LINE, csv_layout
from encodery.tasks.sources.labels import matched
from encodery.tasks.sources.readers import Row, Sheet, read, refuse, shown
from encodery.tasks.table import Table

IDS = ("id", "index", "idx", "pairID", "pair_id")
GUESSES = ("prediction", "pred", "label", "gold_label")
SHOWN = 5  # ids that an error message shows


def answers_of(
    path: str | Path, task: Task, split: str, null_odds: str | Path | None = None
) -> tuple[dict[str, Answer], Sequence[Example]]:
    """The answers of a prediction file as the task has them, and the rows that they belong to."""
    examples = task.examples(split)
    if Path(path).suffix.lower() in WORD_A_LINE:
        answers = read_tags(Path(path), examples)
    elif task.free_labels and Path(path).suffix == ".txt":
        answers = read_loose(path)
    else:
        answers = _by_place(Path(path), task, examples) or read_predictions(path, getattr(task, "id", None))
    if task.more_ids:
        wanted = {example.id for example in examples}
        answers = {id: answer for id, answer in answers.items() if id in wanted}
    if isinstance(task, Table) and task.bad_rows(split):  # which were skipped: their answers are not scored
        skipped = set(task.raw_rows(split)) - {example.id for example in examples}
        answers = {id: answer for id, answer in answers.items() if id not in skipped}
    _same_ids(str(path), answers, examples)
    if null_odds is not None:
        odds = read_mapping(null_odds)
        _same_ids(str(null_odds), odds, examples)
        answers = {id: {**answer, "null_odds": _number(str(null_odds), id, odds[id])} for id, answer in answers.items()}
    form = task.objective().get("form")
    legal = {id: _legal(str(path), task, form, id, answer) for id, answer in answers.items()}
    return {id: task.fold(answer) for id, answer in legal.items()}, examples


def read_tags(path: Path, examples: Sequence[Example]) -> dict[str, Answer]:
    """The tags of a file with a word a line: its sentences are the task's, one after the other."""
    sheet = read_tagged(path, "words", "tags", None, hidden=False)
    refuse(sheet.bad, advice="Correct them.")
    if len(sheet.rows) != len(examples):
        raise UserError(f"{path}: has {counted(len(sheet.rows), 'sentence')} where there should be {len(examples):,}")
    for row, example in zip(sheet.rows, examples, strict=True):
        if list(row.values["words"]) != list(words_of(example)):
            raise UserError(f"{path}, line {row.line}: the words are not those of sentence {example.id}")
    return {e.id: {"prediction": row.values["tags"]} for row, e in zip(sheet.rows, examples, strict=True)}


def with_predicted_labels(task: Table, paths: Sequence[str | Path]) -> Table:
    """The task of a labelled file with the labels of the predictions.

    A file of few rows may lack some of them, and a row's label may differ from the predicted one in case and blanks.
    """
    if task.answer_form == "regression" or not task.labels or isinstance(task.label_names, dict):
        return task
    guesses = [answer["prediction"] for path in paths for _, answer in _pairs(path, task.id)]
    several = task.answer_form == "multilabel"
    names = list(dict.fromkeys(str(name) for guess in guesses for name in (_list(guess) if several else [guess])))
    gold = dict.fromkeys(matched(label, names) or label for label in task.labels)
    meant = [*gold, *(name for name in names if matched(name, list(gold)) is None)]
    return task if meant == list(task.labels) else Table.model_validate(task.to_dict() | {"labels": meant})


def read_loose(path: str | Path) -> dict[str, Answer]:
    """`exN,label` by line, as McCoy's script reads it: the first line is not looked at, and any label is one."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    pairs = []
    for number, line in enumerate(lines[1:], 2):
        cells = line.strip().split(",")
        if len(cells) > 1:
            pairs.append((cells[0], {"prediction": cells[1]}))
        elif line.strip():
            raise UserError(f"{path}, line {number}: {shown(line)} is not an id and label with a comma between them")
    _refuse_twice(path, [id for id, _ in pairs])
    return dict(pairs)


def _refuse_twice(path: str | Path, ids: Sequence[str]) -> None:
    twice = [id for id, count in Counter(ids).items() if count > 1]
    if twice:
        raise UserError(f"{path}: {_few(twice)} appear{'s' if len(twice) == 1 else ''} more than once")


def read_predictions(path: str | Path, id: str | None = None) -> dict[str, Answer]:
    """Answers by id: our jsonl, any file with ids and a prediction column, or SQuAD's {id: text}.

    The ids are in the column `id` of the task's own files, else in one that is called id, index or the like.
    """
    pairs = _pairs(path, id)
    _refuse_twice(path, [id for id, _ in pairs])
    return dict(pairs)


def _pairs(path: str | Path, id: str | None) -> list[tuple[str, Answer]]:
    """Each row's id and answer; an id may stand in several rows."""
    if Path(path).suffix.lower() == ".json":
        return [(id, {"prediction": guess}) for id, guess in read_mapping(path).items()]
    sheet = _sheet(Path(path))
    refuse(sheet.bad, advice="Correct them.")
    ids = IDS if id is None else (id, *IDS)
    id_column, column = _column(sheet, ids, "the ids"), _column(sheet, GUESSES, "the predictions")
    return [(_id(sheet, row, id_column), _answer(sheet, row, column)) for row in sheet.rows]


def _by_place(path: Path, task: Task, examples: Sequence[Example]) -> dict[str, Answer] | None:
    """The answers to rows that are numbered because their `id` repeats, as `predict` writes them: row by row.

    None where ids tell the rows apart, and where number or texts of the rows are not the task's.
    """
    if not isinstance(task, Table) or task.id is not None or path.suffix.lower() == ".json":
        return None
    pairs = _pairs(path, None)
    if len({id for id, _ in pairs}) == len(pairs) or [e.id for e in examples] != [str(i) for i in range(len(pairs))]:
        return None
    rows = [row.values for row in _sheet(path).rows]
    for place, name in enumerate((task.text, getattr(task, "text2", None))):
        if isinstance(name, str) and any(
            name in row and str(row[name]).strip() != example.texts[place].strip()
            for row, example in zip(rows, examples, strict=True)
        ):
            return None
    print(f"{path}: values of id repeat, so its rows are taken in their order", file=sys.stderr)
    return {example.id: answer for example, (_, answer) in zip(examples, pairs, strict=True)}


def _sheet(path: Path) -> Sheet:
    """A csv file may have been through a spreadsheet, which writes its own delimiter and encoding."""
    found = csv_layout(path)
    return read(path, delimiter=found.get("delimiter"), encoding=found.get("encoding"))


def read_mapping(path: str | Path) -> dict[str, Any]:
    """A JSON object, such as SQuAD's prediction files are."""
    try:
        mapping = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise UserError(f"{path}: is not valid JSON ({error})") from None
    if not isinstance(mapping, dict):
        raise UserError(f"{path}: should be an object with an entry for each id")
    return mapping


def _column(sheet: Sheet, names: Sequence[str], what: str) -> str:
    for name in names:
        if name in sheet.columns:
            return name
    have = ", ".join(sheet.columns)
    raise UserError(f"{sheet.file}: no column for {what} (called {' or '.join(names)}); there are {have}")


def _id(sheet: Sheet, row: Row, column: str) -> str:
    value = row.values.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UserError(f'{sheet.file}, line {row.line}, column "{column}": {shown(value)} is not an id')
    return str(value)


def _answer(sheet: Sheet, row: Row, column: str) -> Answer:
    if row.values.get(column) is None:
        raise UserError(f'{sheet.file}, line {row.line}, column "{column}": there is no prediction')
    answer: dict[str, Any] = {"prediction": row.values[column]}
    if isinstance(row.values.get("probabilities"), dict):
        answer["probabilities"] = row.values["probabilities"]
    if isinstance(row.values.get("said"), str):
        answer["said"] = row.values["said"]
    return answer


def _same_ids(file: str, answers: Mapping[str, Any], examples: Iterable[Example]) -> None:
    wanted = {e.id for e in examples}
    missing, extra = [id for id in wanted if id not in answers], [id for id in answers if id not in wanted]
    problems = [f"no prediction for {_few(missing)}"] if missing else []
    problems += [f"predictions for {_few(extra)}, which the split does not have"] if extra else []
    if problems:
        raise UserError(f"{file}: {'; '.join(problems)}")


def _few(ids: Sequence[str]) -> str:
    """`3 ids (4, 7, 9)`, in the order of the numbers where they are numbers."""
    first = sorted(ids, key=lambda id: (int(id) if id.isdecimal() else math.inf, id))[:SHOWN]
    return f"{len(ids):,} id{'' if len(ids) == 1 else 's'} ({', '.join(first)}{', …' if len(ids) > SHOWN else ''})"


def _legal(file: str, task: Task, form: str | None, id: str, answer: Answer) -> Answer:
    """The answer with its prediction as the task has it: a label's name, a list of names, a number."""
    guess = answer["prediction"]
    kind = task.objective()["kind"]
    if kind == "tagging":
        words = guess.split() if isinstance(guess, str) else guess
        return {**answer, "prediction": [_label(file, task, id, one) for one in words]}
    if kind == "span" and not isinstance(guess, str):
        raise UserError(f"{file}: the prediction for id {id}, {shown(guess)}, is not text")
    if form == "regression":
        return {**answer, "prediction": _number(file, id, guess)}
    if form == "multilabel":
        return {**answer, "prediction": [_label(file, task, id, one) for one in _list(guess)]}
    return {**answer, "prediction": _label(file, task, id, guess)} if form == "single" else answer


def _number(file: str, id: str, guess: Any) -> float:
    try:
        number = math.nan if isinstance(guess, bool) else float(guess)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{file}: the prediction for id {id}, {shown(guess)}, is not a finite number")
    return number


def _list(guess: Any) -> list[Any]:
    if isinstance(guess, str) and guess.lstrip().startswith("["):
        with suppress(ValueError):
            guess = json.loads(guess)
    return guess if isinstance(guess, list) else [word.strip() for word in str(guess).split(",") if word.strip()]


def _label(file: str, task: Task, id: str, guess: Any) -> str:
    name = str(guess).lower() if isinstance(guess, bool) else str(guess)
    if task.free_labels:  # a published scorer's own rule
        return name
    if (meant := matched(name, task.labels)) is None:
        legal = ", ".join(task.labels)
        raise UserError(f"{file}: the prediction for id {id}, {shown(guess)}, is not a label of {task.name} ({legal})")
    return meant
