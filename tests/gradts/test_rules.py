"""The rules of a choice: when trials stop, which one wins, what passes a threshold."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.gradts import rules
from encodery.gradts.autosem import Bandit
from encodery.gradts.rules import Trial

scores = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=8)


def trials(values: list[float]) -> list[Trial]:
    """One seed each; of the release's numbers the best and the last epoch are the same."""
    return [Trial({1: v}, {1: v}, {1: v}, {1: v}) for v in values]


def run_all(values: list[float], ahead: int = 1, rule: rules.Rule = "sound") -> list[Trial]:
    """What a study does: two trials in any case, then as many at once as asked for."""
    count = min(2, len(values))
    while not rules.ended(trials(values[:count]), len(values), rule):
        count = min(count + ahead, len(values))
    return trials(values[:count])


@given(scores, st.integers(1, 4))
def test_G20_trials_stop_at_the_first_drop_and_the_best_one_wins(values: list[float], ahead: int) -> None:
    done = run_all(values, ahead)
    count = rules.counted(done, "sound")
    drops = [k for k in range(1, len(values)) if values[k] < values[k - 1]]
    wanted = (drops[0] if drops else len(values) - 1) + 1
    assert count == wanted
    assert rules.winner(done[:count], "sound") == values[:wanted].index(max(values[:wanted]))
    last = wanted - 1 - values[:wanted][::-1].index(max(values[:wanted]))
    assert rules.winner(run_all(values, ahead, "released")[:count], "released") == last


def test_G20_the_released_rule_compares_the_best_epoch_with_the_last_one() -> None:
    best, last = {1: 0.8}, {1: 0.7}
    one, two = Trial({1: 0.7}, best, last, {1: 0.5}), Trial({1: 0.6}, {1: 0.75}, {1: 0.6}, {1: 0.6})
    assert not rules.ended([one, two], 3, "released")  # 0.75 is no worse than 0.70
    assert rules.ended([one, two], 3, "sound")
    assert rules.winner([one, two], "released") == 1  # by the first metric
    assert rules.winner([one, two], "sound") == 0


def test_G20_seeds_are_averaged() -> None:
    a, b = Trial({1: 0.5, 2: 0.9}), Trial({1: 0.8, 2: 0.7})
    assert rules.winner([a, b], "sound") == 1
    gain = rules.gain(b.scores, a.scores)
    assert gain.mean == pytest.approx(0.05)
    assert not gain.clear
    assert rules.gain({1: 0.6, 2: 0.95, 3: 0.7}, {1: 0.5, 2: 0.8, 3: 0.6}).clear


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "trials"), [(2, 2), (3, 1), (3, 4), (5, 7)])
def test_G31_a_choice_between_nothings_is_hardly_ever_clear(seeds: int, trials: int) -> None:
    """Sets of tasks that bring nothing: the best of them must not look as if it helped."""
    draw = np.random.default_rng(seeds * 10 + trials)
    clear = 0
    for _ in range(2000):
        alone, *each = ({seed: draw.normal(0.7, 0.02) for seed in range(seeds)} for _ in range(trials + 1))
        best = max(each, key=lambda scores: sum(scores.values()))
        clear += rules.gain(best, alone, picked_from=trials).clear
    assert clear / 2000 <= (0.0 if seeds < 3 else 0.035)  # 2.5 %, and three standard errors


@given(st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from([math.nan, -0.5, 0.0, 0.3, 0.3, 0.9])))
def test_G19_the_most_alike_first_ties_as_given_nan_last(values: dict[str, float]) -> None:
    order = rules.ranked(values)
    assert sorted(order) == sorted(values)
    known = [name for name in order if not math.isnan(values[name])]
    assert order[: len(known)] == known
    given_order = list(values)
    for a, b in pairwise(known):
        assert values[a] > values[b] or (values[a] == values[b] and given_order.index(a) < given_order.index(b))
    assert rules.above(values, 0.3) == [name for name in values if values[name] >= 0.3]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.floats(-1, 1), st.floats(-1, 1))
def test_G23_a_higher_threshold_keeps_a_part(values: list[float], a: float, b: float) -> None:
    alike, ids = np.array(values), [str(place) for place in range(len(values))]
    low, high = (rules.kept(alike, one, None, ids) for one in sorted((a, b)))
    assert (low | ~high).all()
    assert rules.kept(alike, -1.0, None, ids).all()
    assert not rules.kept(alike, 1.01, None, ids).any()
    part = rules.kept(alike, None, 0.5, ids)
    assert part.sum() == len(values) // 2
    assert not part.any() or alike[part].min() >= alike[~part].max()


def test_G35_of_equally_alike_examples_it_is_not_the_first_of_the_file_that_are_kept() -> None:
    ids = [f"ex{place}" for place in range(400)]
    alike = np.repeat([0.5, 0.2], 200)
    keep = rules.kept(alike, None, 0.25, ids)
    assert keep.sum() == 100
    assert not keep[200:].any()  # what is less alike stays out
    assert 30 <= keep[:100].sum() <= 70  # half of the first half
    shuffle = np.random.default_rng(0).permutation(400)
    moved = rules.kept(alike[shuffle], None, 0.25, [ids[i] for i in shuffle])
    assert {ids[i] for i in np.flatnonzero(keep)} == {ids[shuffle[i]] for i in np.flatnonzero(moved)}
    assert (alike[rules.most_alike(alike, ids)] == alike).all()


def test_the_bandit_learns_forgets_and_can_be_told_its_history() -> None:
    bandit = Bandit(["main", "good", "bad"], 0.3)
    assert bandit.draw() == "main"
    bandit.learn("main", 0.5)
    assert bandit.history[-1]["reward"] == 1  # no worse than 0
    assert bandit.alpha.tolist() == pytest.approx([2, 1, 1])
    bandit.learn("good", 0.5)
    bandit.learn("bad", 0.4)
    assert [one["reward"] for one in bandit.history] == [1, 1, 0]
    assert bandit.alpha.tolist() == pytest.approx([1 + 0.7**2, 1 + 0.7, 1])
    assert bandit.beta.tolist() == pytest.approx([1, 1, 2])
    assert bandit.best(["bad", "good"], 1) == ["good"]
    again = Bandit(["main", "good", "bad"], 0.3, history=bandit.history)
    assert again.utilities == bandit.utilities
    assert again.draw() == bandit.draw()
    for _ in range(200):
        bandit.learn("good", 1.0)
    assert float(bandit.alpha.sum() + bandit.beta.sum()) < 3 * (2 + 1 / 0.3)  # it forgets
