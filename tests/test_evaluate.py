import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.evaluate import average, spelled, telling
from encodery.head import Head
from encodery.on import named
from encodery.progress import Counting

NAMES = ["yes", "perhaps", "no"]


def head(form="single", names=NAMES):
    return Head(called="any", form=form, names=[] if form == "regression" else names, max_length=8)


def chances():
    return st.lists(st.floats(0.01, 1), min_size=3, max_size=3).map(
        lambda parts: dict(zip(NAMES, (part / sum(parts) for part in parts), strict=True))
    )


@given(st.lists(chances(), min_size=1, max_size=5))
def test_an_ensemble_is_a_mean_in_any_order(each):
    answers = [{"x": {"prediction": max(one, key=one.__getitem__), "probabilities": one}} for one in each]
    joined = average(head(), answers)["x"]
    assert sum(joined["probabilities"].values()) == pytest.approx(1)
    assert joined == average(head(), answers[::-1])["x"]
    assert joined["probabilities"][joined["prediction"]] == max(joined["probabilities"].values())
    alike = average(head(), [answers[0]] * 3)["x"]
    assert alike["probabilities"] == pytest.approx(each[0])


def test_ensembles_of_numbers_and_of_several_labels():
    numbers = average(head("regression"), [{"x": {"prediction": 1.0}}, {"x": {"prediction": 4.0}}])
    assert numbers == {"x": {"prediction": 2.5}}
    each = [
        {"x": {"prediction": [], "probabilities": dict(zip(NAMES, p, strict=True))}}
        for p in ((0.9, 0.4, 0.1), (0.3, 0.4, 0.2))
    ]
    assert average(head("multilabel"), each)["x"]["prediction"] == ["yes"]


def test_labels_fit_by_name_whatever_their_order_and_case():
    task = named("glue/mnli")
    assert spelled(head(names=["CONTRADICTION", "Entailment", "neutral"]), task) == [
        "contradiction", "entailment", "neutral",
    ]  # fmt: skip
    assert spelled(head(), task) is None
    assert spelled(head("regression"), task) is None
    assert spelled(head("regression"), named("glue/stsb")) == []
    assert [telling(named(name)) for name in ("glue/mnli", "glue/mrpc", "glue/stsb")] == [True, False, False]


def test_long_work_is_counted_in_lines_unless_quiet(capsys):
    with Counting("glue/rte:dev", 10, every=0) as tick:
        tick(4)
        tick(6)
    assert capsys.readouterr().err.splitlines()[-1] == "glue/rte:dev  10/10  0 s left"
    with Counting("glue/rte:dev", 10, quiet=True, every=0) as tick:
        tick(10)
    assert capsys.readouterr().err == ""
