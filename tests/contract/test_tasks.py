"""What every task must keep: each file of the package is found by itself, with all its parts and splits."""

import json
import os

import pytest

from encodery.tasks import task_classes
from encodery.tasks.base import Example, Task
from encodery.tasks.corpus import Corpus
from encodery.tasks.forms.classification import Classification
from tests.toolbox.tokenizers import Characters

MOST = 300  # rows of a split that are encoded; fewer where each makes many windows


def table_entry(folder):
    """The task that needs files of its own gets some."""
    rows = [{"text": f"text {i}", "label": "ab"[i % 2]} for i in range(20)]
    path = folder / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"train": str(path)}


def corpus_entry(folder, part):
    """Own documents, so that nobody asks the hub for gigabytes."""
    path = folder / "own.txt"
    path.write_text("".join(f"First sentence {i}.\nSecond sentence.\n\n" for i in range(20)))
    return {"part": part, "held_out": 0.2} | ({} if part == "toy" else {"files": str(path), "min_line": 0})


def mtdnn_entry(folder):
    """So does the one that reads MT-DNN's files."""
    form = "{data_format: PremiseOnly, task_type: Classification, n_class: 2, enable_san: false, metric_meta: [ACC]}"
    (folder / "def.yml").write_text(f"own: {form}\n")
    for split in ("train", "dev"):
        (folder / f"own_{split}.tsv").write_text("".join(f"{i}\t{i % 2}\ttext {i}\n" for i in range(20)))
    return {"definition": str(folder / "def.yml"), "task": "own"}


FILES = {"table": table_entry, "mtdnn": mtdnn_entry}
CASES = [(name, part) for name, kind in task_classes().items() for part in (kind.parts or {"": ""})]


def made(case, folders) -> Task:
    name, part = case
    options = {"part": part} if part else FILES[name](folders.mktemp("own")) if name in FILES else {}
    options = corpus_entry(folders.mktemp("own"), part) if name == "corpus" else options
    return task_classes()[name].variant(options).model_validate(options)


def spelled(case):
    return "/".join(filter(None, case))


def published(case) -> bool:
    """Whether its rows are somebody's files."""
    kind = task_classes()[case[0]]
    return "revision" in kind.model_fields and not issubclass(kind, Corpus)


@pytest.fixture(scope="module", params=CASES, ids=spelled)
def any_task(request, tmp_path_factory):
    """Also of files that are not here: its rows are not read."""
    return made(request.param, tmp_path_factory)


MARKED = [pytest.param(case, marks=pytest.mark.real) if published(case) else case for case in CASES]


@pytest.fixture(scope="module", params=MARKED, ids=spelled)
def task(request, tmp_path_factory):
    if published(request.param) and not os.environ.get("ENCODERY_DATA"):
        pytest.skip(f"{spelled(request.param)} needs ENCODERY_DATA")
    return made(request.param, tmp_path_factory)


def here(task: Task) -> list[str]:
    """The splits whose rows can be read now; the hub is not asked."""
    splits = [split for split in task.splits() if task.has(split)]
    if not splits:
        pytest.skip(f"no file of {task.name} is in ENCODERY_DATA")
    return splits


def test_it_names_itself_and_its_splits(any_task):
    task = any_task
    assert set(task.name.split("/")) & set(task_classes())
    known = ("train", "dev", "dev_mismatched", "test", "test_mismatched")
    assert task.splits()
    assert sorted(task.splits(), key=known.index) == list(task.splits())


def test_its_objective_is_plain_data(any_task):
    task = any_task
    objective = task.objective()
    assert json.loads(json.dumps(objective)) == objective
    assert isinstance(objective["kind"], str)
    assert type(task).model_validate(task.to_dict()).to_dict() == task.to_dict()


def test_ids_are_unique_and_the_origin_fits(task):
    for split in here(task):
        examples = task.examples(split)
        assert len({e.id for e in examples}) == len(examples) == task.origin(split).rows > 0
        assert len(task.origin(split).digest) >= 16


def test_a_second_task_of_the_same_options_gives_the_same_rows(task):
    split = min(here(task), key=lambda split: task.origin(split).rows)
    again = type(task).model_validate(task.to_dict())
    assert again.origin(split) == task.origin(split)
    assert again.examples(split) == task.examples(split)


def test_labels_are_legal(task):
    if not isinstance(task, Classification):
        pytest.skip(f"{task.name} does not classify")
    for split in here(task):
        for example in task.examples(split):
            assert example.label is not None or split.startswith("test")
            assert legal(task, example)


def legal(task: Classification, example: Example) -> bool:
    if example.label is None:
        return True
    if task.answer_form == "regression":
        return isinstance(example.label, float)
    return set([example.label] if isinstance(example.label, str) else example.label) <= set(task.labels)


@pytest.mark.parametrize("max_length", [8, 64])
def test_encoding_gives_legal_lengths(task, max_length):
    for split in here(task):
        examples = task.examples(split)[: MOST * max_length // 64]
        features = list(task.encode(examples, Characters(), max_length))
        assert {f.example for f in features} == set(range(len(examples)))
        assert all(0 < len(f.ids) == len(f.types) <= max_length for f in features)
        assert len({tuple(sorted(f.targets)) for f in features}) == 1


def gold_logits(task: Classification, label):
    if task.answer_form == "regression":
        return [label / task.scale]
    return [9.0 if name == label or (isinstance(label, tuple) and name in label) else -9.0 for name in task.labels]


def test_gold_answers_are_perfect(task):
    if not isinstance(task, Classification):
        pytest.skip(f"{task.name} does not classify")
    for split in here(task):
        examples = [e for e in task.examples(split) if e.label is not None][: 10 * MOST]
        if examples:
            answers = task.decode({"id": e.id, "logits": gold_logits(task, e.label)} for e in examples)
            assert json.loads(json.dumps(answers)) == answers
            assert task.score(answers, examples)[task.main_metric] == pytest.approx(1.0)
