import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.core.progress import Counting
from encodery.errors import UserError
from encodery.inference.answer_head import Head, RankHead, SpanHead, TagHead
from encodery.inference.ensemble import average
from encodery.inference.evaluate import spelled, telling
from encodery.inference.task_argument import named

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
    joined = average(head(), [head()] * len(each), answers)["x"]
    assert sum(joined["probabilities"].values()) == pytest.approx(1)
    assert joined == average(head(), [head()] * len(each), answers[::-1])["x"]
    assert joined["probabilities"][joined["prediction"]] == max(joined["probabilities"].values())
    alike = average(head(), [head()] * 3, [answers[0]] * 3)["x"]
    assert alike["probabilities"] == pytest.approx(each[0])


def test_models_of_three_labels_are_averaged_before_they_answer_a_task_of_two():
    """HANS: what they agree on is folded afterwards. Models whose labels differ have no mean."""
    two = head(names=["entailment", "non-entailment"])
    one, other = dict(zip("abc", (0.6, 0.3, 0.1), strict=True)), dict(zip("abc", (0.1, 0.5, 0.4), strict=True))
    each = [{"x": {"prediction": max(c, key=c.__getitem__), "probabilities": c}} for c in (one, other)]
    joined = average(two, [head(names=list("abc"))] * 2, each)["x"]
    assert joined["prediction"] == "b"
    assert joined["probabilities"] == pytest.approx({"a": 0.35, "b": 0.4, "c": 0.25})
    del other["c"]
    with pytest.raises(UserError, match="different labels"):
        average(two, [two] * 2, each)


def test_ensembles_of_numbers_and_of_several_labels():
    numbers = average(
        head("regression"), [head("regression")] * 2, [{"x": {"prediction": 1.0}}, {"x": {"prediction": 4.0}}]
    )
    assert numbers == {"x": {"prediction": 2.5}}
    each = [
        {"x": {"prediction": [], "probabilities": dict(zip(NAMES, p, strict=True))}}
        for p in ((0.9, 0.4, 0.1), (0.3, 0.4, 0.2))
    ]
    assert average(head("multilabel"), [head("multilabel")] * 2, each)["x"]["prediction"] == ["yes"]


def tagger(names):
    return TagHead(called="t", names=names, max_length=8)


def test_tags_are_averaged_by_word_whatever_the_order_of_the_labels():
    one = tagger(["O", "B-x"]).said(np.array([[0.9, 0.1], [0.4, 0.6], [0.0, 0.0]]))
    two = tagger(["B-x", "O"]).said(np.array([[0.3, 0.7], [0.1, 0.9], [0.0, 0.0]]))
    assert (one["prediction"], two["prediction"]) == (["O", "B-x", "O"], ["O", "O", "O"])
    both = average(tagger(["O", "B-x"]), [tagger(["O", "B-x"]), tagger(["B-x", "O"])], [{"a": one}, {"a": two}])["a"]
    assert both["prediction"] == ["O", "O", "O"]  # 0.65 against 0.35; nothing is known of the last word
    assert both["confidence"] == pytest.approx([0.8, 0.65, 0.0])


def test_candidates_are_averaged_by_their_number():
    ranker = RankHead(called="r", max_length=8)
    each = [
        {"a": {"prediction": "0", "probabilities": dict(zip("012", p, strict=True))}}
        for p in ((0.5, 0.4, 0.1), (0.0, 0.4, 0.6))
    ]
    both = average(ranker, [ranker] * 2, each)["a"]
    assert both["prediction"] == "1"
    assert both["probabilities"] == pytest.approx({"0": 0.25, "1": 0.4, "2": 0.35})


def finder(kind="simple", none_allowed=True, null_threshold=None):
    return SpanHead(called="s", head=kind, none_allowed=none_allowed, null_threshold=null_threshold, max_length=8)


def found(null_odds, *nbest):
    listed = [{"text": text, "score": score, "start": start} for text, start, score in nbest]
    return {"a": {"prediction": "", "text": nbest[0][0], "start": nbest[0][1], "null_odds": null_odds, "nbest": listed}}


def test_stretches_are_averaged_by_their_share_of_each_list():
    log = np.log
    one = found(-1.0, ("Paris", 3, log(0.6) + 7), ("Rome", 9, log(0.4) + 7))  # what is added to all scores is nothing
    two = found(0.5, ("Rome", 9, log(0.7)), ("Rome", 20, log(0.3)))
    both = average(finder(), [finder()] * 2, [one, two])["a"]
    assert (both["prediction"], both["text"], both["start"], both["null_odds"]) == ("Rome", "Rome", 9, -0.25)
    assert [(n["text"], n["start"]) for n in both["nbest"]] == [("Rome", 9), ("Paris", 3), ("Rome", 20)]
    assert np.exp([n["score"] for n in both["nbest"]]) == pytest.approx([0.55, 0.3, 0.15])
    assert average(finder(), [finder(null_threshold=-1.0)] * 2, [one, two])["a"]["prediction"] == ""
    thresholds = [finder(), finder("joint")]  # 0 and -2.75, in the mean -1.375: odds above that mean no answer
    assert average(finder(), thresholds, [one, two])["a"]["prediction"] == ""
    with pytest.raises(UserError, match="they cannot form an ensemble"):
        average(finder(), [finder(), finder(none_allowed=False)], [one, two])


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
    with Counting("glue/rte:dev", 10, every=0) as on_progress:
        on_progress(4)
        on_progress(6)
    assert capsys.readouterr().err.splitlines()[-1] == "glue/rte:dev  10/10  0 s left"
    with Counting("glue/rte:dev", 10, quiet=True, every=0) as on_progress:
        on_progress(10)
    assert capsys.readouterr().err == ""
