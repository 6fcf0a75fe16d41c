import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.errors import UserError
from encodery.scoring.prediction_files import read_predictions
from encodery.tasks.table import Table
from tests.scoring.scored import score_file, write_predictions


def table(folder, form="single", labels=("yes", "no", "no", "yes")):
    lines = [json.dumps({"id": f"{i}", "text": "t", "label": label}) for i, label in enumerate(labels)]
    (folder / "gold.jsonl").write_text("\n".join(lines) + "\n")
    return Table.model_validate({"form": form, "dev": "gold.jsonl", "id": "id", "root": str(folder)})


def put(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def test_our_own_file_comes_back_and_is_scored(tmp_path):
    task = table(tmp_path)
    answers = {
        str(i): {"prediction": name, "probabilities": {"no": 1.0 - p, "yes": p}}
        for i, (name, p) in enumerate([("yes", 0.9), ("no", 0.2), ("yes", 0.6), ("yes", 0.8)])
    }
    path = tmp_path / "deep" / "p.jsonl"
    write_predictions(path, answers)
    assert read_predictions(path) == answers
    found = score_file(path, task, "dev")
    assert found["accuracy"] == 0.75
    assert set(found) == {"accuracy", "macro_f1", "ece", "brier", "nll"}
    assert found == task.score(answers, task.examples("dev"))
    assert [file.name for file in path.parent.iterdir()] == ["p.jsonl"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.tsv", "index\tprediction\n0\tyes\n2\tno\n1\tno\n3\tno\n"),
        ("p.csv", "id,prediction\n0,yes\n1,no\n2,no\n3,no\n"),
        ("p.csv", "confidence,label,idx\n.5,yes,0\n.5,no,1\n1,no,2\n1,no,3\n"),
        (
            "p.jsonl",
            '{"id": 0, "prediction": "yes"}\n' + "".join(f'{{"id": {i}, "prediction": "no"}}\n' for i in (1, 2, 3)),
        ),
    ],
)
def test_other_peoples_files(tmp_path, name, text):
    found = score_file(put(tmp_path, name, text), table(tmp_path), "dev")
    assert found["accuracy"] == 0.75
    assert "ece" not in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("index\tprediction\n0\tyes\n1\tno\n", r"no prediction for 2 ids \(2, 3\)"),
        (
            "index\tprediction\n0\tyes\n1\tno\n2\tno\n3\tno\n7\tno\n",
            r"predictions for 1 id \(7\), which the split does not",
        ),
        ("index\tprediction\n0\tyes\n0\tno\n1\tno\n", r"1 id \(0\) appears more than once"),
        (
            "index\tprediction\n0\tyes\n1\tno\n2\tno\n3\tmaybe\n",
            r'the prediction for id 3, "maybe", is not a label .*no, yes',
        ),
        ("nr\tprediction\n0\tyes\n", "no column for the ids .* there are nr, prediction"),
        ("index\tanswer\n0\tyes\n", "no column for the predictions"),
        ("index\tprediction\n0\n", "line 2"),
    ],
)
def test_faults_are_named(tmp_path, text, words):
    with pytest.raises(UserError, match=words) as error:
        score_file(put(tmp_path, "p.tsv", text), table(tmp_path), "dev")
    assert "p.tsv" in str(error.value)


def test_numbers_and_lists(tmp_path):
    numbers = table(tmp_path, "regression", [1.0, 2.0, 3.0])
    good = put(tmp_path, "p.tsv", "index\tprediction\n0\t1\n1\t2.5\n2\t9\n")
    assert score_file(good, numbers, "dev")["spearman"] == 1.0
    bad = put(tmp_path, "p.tsv", "index\tprediction\n0\t1\n1\tnan\n2\t9\n")
    with pytest.raises(UserError, match=r"id 1, .*is not a finite number"):
        score_file(bad, numbers, "dev")
    lists = table(tmp_path, "multilabel", [["a"], ["a", "b"], []])
    text = 'id,prediction\n0,a\n1,"a, b"\n2,\n'
    assert score_file(put(tmp_path, "p.csv", text), lists, "dev")["subset_accuracy"] == 1.0
    names = table(tmp_path, "multilabel", [["a"], ["a, b"], []])
    text = 'id,prediction\n0,a\n1,"[""a, b""]"\n2,[]\n'
    assert score_file(put(tmp_path, "p.csv", text), names, "dev")["subset_accuracy"] == 1.0


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
@settings(max_examples=20, deadline=None)
def test_any_id_and_label_survive(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("p") / "p.jsonl"
    answers = {id: {"prediction": name} for id, name in names.items()}
    write_predictions(path, answers)
    assert not answers or read_predictions(path) == answers
