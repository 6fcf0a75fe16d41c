import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from encodery.tasks.forms import metrics

LABELS = ["a", "b", "c"]
pairs = st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), min_size=1, max_size=40)
numbers = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3))
points = st.lists(st.tuples(numbers, numbers), min_size=3, max_size=40)


@pytest.mark.slow
@given(pairs)
@settings(max_examples=60)
def test_F12_label_scores_equal_sklearn(rows):
    gold, guess = map(list, zip(*rows, strict=True))
    assert metrics.accuracy(gold, guess) == pytest.approx(sk.accuracy_score(gold, guess))
    assert metrics.macro_f1(gold, guess) == pytest.approx(sk.f1_score(gold, guess, average="macro", zero_division=0))
    assert metrics.matthews(gold, guess) == pytest.approx(sk.matthews_corrcoef(gold, guess), abs=1e-12)
    binary = [x == "a" for x in gold], [x == "a" for x in guess]
    assert metrics.f1(gold, guess, "a") == pytest.approx(sk.f1_score(*binary, zero_division=0))


@pytest.mark.slow
@given(points)
@settings(max_examples=60)
def test_F12_correlations_equal_scipy(rows):
    gold, guess = (np.asarray(x) for x in zip(*rows, strict=True))
    if (gold == gold[0]).all() or (guess == guess[0]).all():
        assert metrics.pearson(gold, guess) == metrics.spearman(gold, guess) == 0.0
        return
    assert metrics.spearman(gold, guess) == pytest.approx(stats.spearmanr(gold, guess).statistic, abs=1e-9)
    if min(np.ptp(gold), np.ptp(guess)) > 1:
        assert metrics.pearson(gold, guess) == pytest.approx(stats.pearsonr(gold, guess).statistic, abs=1e-7)


def test_F12_one_class_gives_zero_and_no_crash():
    assert metrics.matthews(["0", "1", "1"], ["1", "1", "1"]) == 0.0
    assert metrics.matthews(["1", "1"], ["1", "1"]) == 0.0
    assert metrics.f1(["0"], ["0"], "1") == 0.0


@pytest.mark.parametrize("bad", [[1.0, 1.0, 1.0], [float("nan"), 1.0, 2.0], [float("inf"), 1.0, 2.0]])
def test_F12_constant_or_broken_predictions_have_no_correlation(bad):
    assert metrics.pearson([1.0, 2.0, 3.0], bad) == 0.0
    assert metrics.spearman([1.0, 2.0, 3.0], bad) == 0.0


def test_pearson_survives_extreme_sizes():
    assert metrics.pearson([1e300, 2e300, 3e300], [1e-300, 2e-300, 3e-300]) == pytest.approx(1.0)


def test_multilabel_equals_sklearn():
    draw = np.random.default_rng(0)
    gold, guess = (draw.integers(0, 2, (30, 4)).astype(float) for _ in range(2))
    found = metrics.multilabel(gold, guess)
    assert found["micro_f1"] == pytest.approx(sk.f1_score(gold, guess, average="micro"))
    assert found["macro_f1"] == pytest.approx(sk.f1_score(gold, guess, average="macro"))
    assert found["subset_accuracy"] == pytest.approx(sk.accuracy_score(gold, guess))
    assert metrics.multilabel(np.zeros((2, 3)), np.zeros((2, 3)))["micro_f1"] == 0.0


def test_calibration_by_hand():
    sure = np.asarray([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    found = metrics.calibration(np.asarray([0, 1, 1]), sure)
    # bins: two rows at 0.9 (one right), one at 0.8 (right)
    assert found["ece"] == pytest.approx((2 * abs(0.9 - 0.5) + abs(0.8 - 1)) / 3)
    assert found["brier"] == pytest.approx((0.02 + 1.62 + 0.08) / 3)
    assert found["nll"] == pytest.approx(sk.log_loss([0, 1, 1], sure))
    assert np.isfinite(metrics.calibration(np.asarray([1]), np.asarray([[1.0, 0.0]]))["nll"])
