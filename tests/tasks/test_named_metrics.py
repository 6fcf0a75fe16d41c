"""Metrics of own data by name, beside scikit-learn's."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from encodery.errors import UserError
from encodery.tasks.base import Example
from encodery.tasks.forms.label_metrics import Tables, average_precision, roc_auc
from encodery.tasks.forms.metric_names import names, parse
from encodery.tasks.table import Table

TWO, THREE = ["ham", "spam"], ["a", "b", "c"]
coarse = st.sampled_from([0.1, 0.2, 0.5, 0.5, 0.9])  # with many ties


def rows_of(labels):
    chances = st.lists(coarse, min_size=len(labels), max_size=len(labels))
    return st.lists(st.tuples(st.sampled_from(labels), chances), min_size=2, max_size=30)


def one_hot(names, labels):
    return np.asarray([[float(name == label) for label in labels] for name in names])


def single(rows, labels, positive=None):
    """Tables of rows (gold label, weights of the labels), and what sklearn wants."""
    gold = [label for label, _ in rows]
    chances = np.asarray([chance for _, chance in rows])
    chances = chances / chances.sum(axis=1, keepdims=True)
    guess = [labels[i] for i in chances.argmax(axis=1)]
    return Tables(labels, one_hot(gold, labels), one_hot(guess, labels), chances, positive), gold, guess, chances


def value(tables, name, form="single"):
    return tables.value(parse(name, form))


@pytest.mark.slow
@given(rows_of(TWO), st.sampled_from(TWO))
@settings(max_examples=80)
def test_F30_metrics_of_two_labels_equal_sklearn(rows, positive):
    tables, gold, guess, chances = single(rows, TWO, positive)
    options = {"pos_label": positive, "zero_division": 0}
    assert value(tables, "f1") == pytest.approx(sk.f1_score(gold, guess, **options))
    assert value(tables, "precision") == pytest.approx(sk.precision_score(gold, guess, **options))
    assert value(tables, "recall") == pytest.approx(sk.recall_score(gold, guess, **options))
    other = "ham" if positive == "spam" else "spam"
    assert value(tables, f"f1_{other}") == pytest.approx(sk.f1_score(gold, guess, pos_label=other, zero_division=0))
    assert value(tables, "mcc") == pytest.approx(sk.matthews_corrcoef(gold, guess), abs=1e-12)
    there, score = [label == positive for label in gold], chances[:, TWO.index(positive)]
    if any(there):
        assert value(tables, "average_precision") == pytest.approx(sk.average_precision_score(there, score))
    if len(set(gold)) == 2:
        assert value(tables, "roc_auc") == pytest.approx(sk.roc_auc_score(there, score))
        assert value(tables, "balanced_accuracy") == pytest.approx(sk.balanced_accuracy_score(gold, guess))


@pytest.mark.slow
@given(rows_of(THREE))
@settings(max_examples=80)
def test_F30_metrics_of_many_labels_equal_sklearn(rows):
    tables, gold, guess, chances = single(rows, THREE)
    for mean in ("macro", "micro", "weighted"):
        options = {"average": mean, "zero_division": 0}
        assert value(tables, f"{mean}_f1") == pytest.approx(sk.f1_score(gold, guess, **options))
        assert value(tables, f"{mean}_precision") == pytest.approx(sk.precision_score(gold, guess, **options))
        assert value(tables, f"{mean}_recall") == pytest.approx(sk.recall_score(gold, guess, **options))
    assert value(tables, "mcc") == pytest.approx(sk.matthews_corrcoef(gold, guess), abs=1e-12)
    assert value(tables, "accuracy") == pytest.approx(sk.accuracy_score(gold, guess))
    assert value(tables, "recall_b") == pytest.approx(
        sk.recall_score(gold, guess, labels=["b"], average="macro", zero_division=0)
    )
    if len(set(gold)) == 3:
        expected = sk.roc_auc_score(gold, chances, multi_class="ovr", labels=THREE)
        assert value(tables, "macro_roc_auc") == pytest.approx(expected)
        table = one_hot(gold, THREE)
        for mean in ("macro", "micro"):
            expected = sk.average_precision_score(table, chances, average=mean)
            assert value(tables, f"{mean}_average_precision") == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_F30_metrics_of_several_labels_equal_sklearn(seed):
    draw = np.random.default_rng(seed)
    gold, chances = draw.integers(0, 2, (30, 4)).astype(float), draw.integers(0, 8, (30, 4)) / 8
    guess = (chances > 0.5).astype(float)
    tables = Tables(list("wxyz"), gold, guess, chances, single=False)
    for mean in ("macro", "micro", "weighted"):
        options = {"average": mean, "zero_division": 0}
        for name, of in (("f1", sk.f1_score), ("precision", sk.precision_score), ("recall", sk.recall_score)):
            assert value(tables, f"{mean}_{name}", "multilabel") == pytest.approx(of(gold, guess, **options))
    for mean in ("macro", "micro"):
        of_area, of_precision = (
            sk.roc_auc_score(gold, chances, average=mean),
            sk.average_precision_score(gold, chances, average=mean),
        )
        assert value(tables, f"{mean}_roc_auc", "multilabel") == pytest.approx(of_area)
        assert value(tables, f"{mean}_average_precision", "multilabel") == pytest.approx(of_precision)
    assert value(tables, "roc_auc_y", "multilabel") == pytest.approx(sk.roc_auc_score(gold[:, 2], chances[:, 2]))
    assert value(tables, "subset_accuracy", "multilabel") == pytest.approx(sk.accuracy_score(gold, guess))


def test_F30_one_class_and_ties_give_numbers_and_no_crash():
    ones, zeros, scores = np.ones(4), np.zeros(4), np.asarray([0.1, 0.2, 0.2, 0.9])
    assert roc_auc(ones, scores) == roc_auc(zeros, scores) == 0.5
    assert average_precision(ones, scores) == 1.0
    assert average_precision(zeros, scores) == 0.0
    tied = np.asarray([1.0, 0.0, 1.0, 0.0]), np.full(4, 0.3)
    assert roc_auc(*tied) == sk.roc_auc_score(*tied) == 0.5
    assert average_precision(*tied) == sk.average_precision_score(*tied) == 0.5
    for form, labels in (("single", TWO), ("single", THREE), ("multilabel", THREE)):
        gold = np.zeros((4, len(labels)))
        gold[:, 0] = form == "single"
        tables = Tables(labels, gold, gold, np.full(gold.shape, 1 / len(labels)), None, form == "single")
        for name in names(form):
            if name in ("f1", "precision", "recall", "roc_auc", "average_precision"):
                name = f"{name}_{labels[-1]}"
            assert np.isfinite(value(tables, name, form)), name


# As a task has them


def task_with(folder, labels, form="single", **options):
    rows = [{"text": f"t{i}", "label": [label] if form == "multilabel" else label} for i, label in enumerate(labels)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Table.model_validate({"root": str(folder), "train": "rows.jsonl", "form": form, **options})


def answers_to(examples, chances, labels):
    found = {}
    for example, row in zip(examples, chances, strict=True):
        each = dict(zip(labels, row, strict=True))
        found[example.id] = {"prediction": max(each, key=each.__getitem__), "probabilities": each}
    return found


def test_the_main_metric_is_the_named_one_and_the_usual_scores_stay(tmp_path):
    task = task_with(tmp_path, TWO * 20, metric="f1_ham")
    examples = [Example("0", ("x",), "ham"), Example("1", ("y",), "spam")]
    scores = task.score(answers_to(examples, [(0.9, 0.1), (0.8, 0.2)], TWO), examples)
    assert task.main_metric == "f1_ham"
    assert scores["f1_ham"] == pytest.approx(2 / 3)
    assert {"accuracy", "macro_f1", "nll"} < set(scores)


def test_metrics_names_exactly_what_is_reported(tmp_path):
    task = task_with(tmp_path, TWO * 20, metric="mcc", metrics=["roc_auc", "f1", "ece"])
    examples = [Example("0", ("x",), "ham"), Example("1", ("y",), "spam")]
    scores = task.score(answers_to(examples, [(0.9, 0.1), (0.2, 0.8)], TWO), examples)
    assert list(scores) == ["mcc", "roc_auc", "f1", "ece"]
    assert scores["mcc"] == scores["roc_auc"] == scores["f1"] == 1.0


def test_positive_says_which_of_two_labels_is_meant(tmp_path):
    examples = [Example("0", ("x",), "ham"), Example("1", ("y",), "ham"), Example("2", ("z",), "spam")]
    answers = answers_to(examples, [(0.9, 0.1), (0.2, 0.8), (0.3, 0.7)], TWO)
    default, named = (task_with(tmp_path, TWO * 20, metric="precision", **more) for more in ({}, {"positive": "ham"}))
    assert default.score(answers, examples)["precision"] == 0.5
    assert named.score(answers, examples)["precision"] == 1.0


def test_answers_without_probabilities_have_no_area(tmp_path):
    examples = [Example("0", ("x",), "ham"), Example("1", ("y",), "spam")]
    bare = {"0": {"prediction": "ham"}, "1": {"prediction": "spam"}}
    assert task_with(tmp_path, TWO * 20, metrics=["roc_auc", "f1"]).score(bare, examples) == {
        "accuracy": 1.0,
        "f1": 1.0,
    }
    with pytest.raises(UserError, match="roc_auc needs the probability"):
        task_with(tmp_path, TWO * 20, metric="roc_auc").score(bare, examples)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"metric": "f2"}, "has no metric f2"),
        ({"metrics": ["acuracy"]}, "Did you mean accuracy"),
        ({"form": "multilabel", "metric": "mcc"}, "form multilabel has no metric mcc"),
        ({"form": "regression", "metric": "f1"}, "pearson, spearman, rmse"),
        ({"threshold": 1.5}, "from 0 to 1"),
        ({"form": "regression", "threshold": "dev"}, "a regression has none"),
        ({"threshold": "dev", "metric": "roc_auc"}, "does not depend on a threshold"),
        ({"threshold": "dev", "metric": "recall"}, "hardly any row, or to all"),
        ({"threshold": "dev_each"}, "is for multilabel"),
    ],
)
def test_what_a_form_does_not_have_is_refused_before_anything_is_read(options, why):
    with pytest.raises(ValueError, match=why):
        Table.model_validate({"train": "rows.jsonl", **options})


@pytest.mark.parametrize(
    ("labels", "options", "why"),
    [
        (TWO, {"metric": "f1_eggs"}, "there is no label eggs; there are ham, spam"),
        (
            THREE,
            {"metric": "f1"},
            "exactly two labels, not 3; use f1_a, f1_b, f1_c, … or macro_f1, micro_f1, weighted_f1",
        ),
        (THREE, {"threshold": "dev"}, "threshold is for two labels"),
        (THREE, {"positive": "a"}, "is not one of the two labels"),
        (TWO, {"positive": "eggs"}, "eggs is not one of the two labels"),
        (TWO, {"threshold": {"eggs": 0.3}}, "not eggs"),
    ],
)
def test_what_the_labels_do_not_allow_is_refused_with_their_names(tmp_path, labels, options, why):
    with pytest.raises(UserError, match=why):
        _ = task_with(tmp_path, labels * 20, **options).labels
