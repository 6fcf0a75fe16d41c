"""Where runs come from: a fixed plan, its needs, and trials whose journal survives a kill."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodery.errors import UserError
from encodery.runs.sweep_spec import Outcome, RunSpec, read_plan
from encodery.sweep import sources
from encodery.sweep.fixed_plan import FixedPlan
from encodery.sweep.sources import Closable
from encodery.sweep.sweep_file import EarlyStop
from tests.sweep.small_sweeps import sweep_file
from tests.toolbox.faults import in_child

TPE = "search: {tpe: {n: 6, startup: 2, space: {optim.lr: 'loguniform(1e-5, 1e-3)', train.batch_size: [8, 16]}}}\n"


def specs(*needs: tuple[int, ...]) -> list[RunSpec]:
    return [RunSpec(str(i), f"run-{i}", needs=tuple(map(str, before))) for i, before in enumerate(needs)]


@pytest.mark.slow
@given(st.lists(st.sets(st.integers(0, 6)), max_size=7), st.integers(1, 3), st.sets(st.integers(0, 6)))
def test_a_plan_runs_everything_that_can_run_once_and_in_order(
    needs: list[set[int]], free: int, failing: set[int]
) -> None:
    """Against a definition of its own: a run can run if all it needs end well."""
    runs = specs(*(tuple(sorted(n for n in before if n < i)) for i, before in enumerate(needs)))
    plan, ended, order = FixedPlan(runs), {}, []
    while not plan.exhausted(ended, order):
        now = plan.ready(ended, order, free)
        assert now, "something will become ready, and nothing is running"
        assert len(now) <= free
        for spec in now:
            assert all(ended[need].state == "done" for need in spec.needs)
            order.append(spec.id)
            ended[spec.id] = Outcome(spec.id, "failed" if int(spec.id) in failing else "done")
    well: set[str] = set()
    possible = set()
    for spec in runs:
        if all(need in well for need in spec.needs):
            possible.add(spec.id)
            well |= set() if int(spec.id) in failing else {spec.id}
    assert sorted(order) == sorted(possible)


def test_a_run_that_waits_is_not_the_end() -> None:
    plan = FixedPlan(specs((), (0,)))
    assert [spec.id for spec in plan.ready({}, [], 5)] == ["0"]
    assert plan.ready({}, ["0"], 5) == []
    assert not plan.exhausted({}, ["0"])
    assert plan.exhausted({"0": Outcome("0", "failed")}, ["0"])


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], Closable]]:
    """A source, as if by a new process each time."""
    pytest.importorskip("optuna")
    found: list[Closable] = []

    def open_again(text: str) -> Closable:
        while found:
            found.pop().close()
        (tmp_path / "out").mkdir(exist_ok=True)
        found.append(sources.source(sweep_file(text, tmp_path), tmp_path / "out", {}))
        return found[-1]

    yield open_again
    while found:
        found.pop().close()


def lr(spec: RunSpec) -> float:
    assert spec.config is not None
    return float(spec.config["optim"]["lr"])


def finish(source: Closable, ended: dict[str, Outcome], score: Callable[[RunSpec], float]) -> list[RunSpec]:
    """Execute one run at a time."""
    done: list[RunSpec] = []
    while not source.exhausted(ended, []):
        [spec] = source.ready(ended, [], 1)
        ended[spec.id] = Outcome(spec.id, "done", score(spec))
        done.append(spec)
    return done


def test_tpe_draws_n_trials_and_writes_each_down_before_it_starts(tmp_path: Path, opened: Any) -> None:
    source, ended = opened(TPE + "seeds: 2\n"), {}
    first = source.ready(ended, [], 3)
    assert len(first) == 3
    assert {spec.id for spec in first} <= {spec.id for spec in read_plan(tmp_path / "out")}
    journal = (tmp_path / "out" / "search" / "journal.jsonl").read_text()
    assert all(spec.id in journal for spec in first)
    done = finish(source, ended, lr)
    assert len({lr(spec) for spec in done}) == 6
    assert all(1e-5 <= lr(spec) <= 1e-3 for spec in done)
    assert sorted(spec.axes["seed"] for spec in done) == [1] * 6 + [2] * 6
    assert {spec.id for spec in read_plan(tmp_path / "out")} == {spec.id for spec in done}


@pytest.mark.slow(0.5)
def test_tpe_goes_on_where_it_was_left_as_if_it_had_not_been(tmp_path: Path, opened: Any) -> None:
    """Every trial by a new process against all by one."""
    ended: dict[str, Outcome] = {}
    broken: list[str] = []
    for _ in range(6):
        source = opened(TPE)
        [spec] = source.ready(ended, [], 1)
        again = opened(TPE).ready(ended, [], 1)  # killed before it ended: the same run is given out again
        assert [one.id for one in again] == [spec.id]
        ended[spec.id] = Outcome(spec.id, "done", lr(spec))
        broken.append(spec.id)
    assert opened(TPE).exhausted(ended, [])
    whole = sources.source(sweep_file(TPE, tmp_path), tmp_path / "other", {})
    assert [spec.id for spec in finish(whole, {}, lr)] == broken
    whole.close()


@pytest.mark.slow
def test_tpe_learns_from_scores(tmp_path: Path, opened: Any) -> None:
    text = "search: {tpe: {n: 25, startup: 5, space: {optim.lr: 'uniform(0.1, 1)'}}}\nmetric: {mode: min}\n"
    done = [lr(spec) for spec in finish(opened(text), {}, lambda spec: (lr(spec) - 0.3) ** 2)]
    early, late = done[:8], done[-8:]
    assert sum(abs(x - 0.3) for x in late) < sum(abs(x - 0.3) for x in early)


def test_a_failed_trial_counts_and_is_not_drawn_again(opened: Any) -> None:
    source, ended = opened(TPE), {}
    for state in ("failed", "oom", "timeout", "done", "done", "done"):
        [spec] = source.ready(ended, [], 1)
        ended[spec.id] = Outcome(spec.id, state, 0.5 if state == "done" else None)
    assert source.exhausted(ended, [])
    assert opened(TPE).exhausted(ended, [])


def test_a_torn_journal_is_mended_and_a_changed_space_refused(tmp_path: Path, opened: Any) -> None:
    source = opened(TPE)
    [spec] = source.ready({}, [], 1)
    with open(tmp_path / "out" / "search" / "journal.jsonl", "a") as stream:
        stream.write('{"op_code": 4, "torn')
    ended = {spec.id: Outcome(spec.id, "done", 0.5)}
    assert len(finish(opened(TPE), ended, lr)) == 5
    with pytest.raises(UserError, match=r"started with another metric.mode or search.space"):
        opened(TPE.replace("1e-5", "1e-6"))


@pytest.mark.slow
def test_a_second_scheduler_of_a_search_is_refused(tmp_path: Path, opened: Any) -> None:
    opened(TPE)

    def second() -> None:
        with pytest.raises(UserError, match="process"):
            sources.source(sweep_file(TPE, tmp_path), tmp_path / "out", {})

    assert in_child(second) == 0


def search_until(folder: Path, die_at: int) -> None:
    """Try what is left to try; kill -9 when so many trials have started."""
    source, log = sources.source(sweep_file(TPE, folder), folder / "out", {}), folder / "log.jsonl"
    lines = map(json.loads, log.read_text().splitlines())
    ended = {line["id"]: Outcome(line["id"], "done", line["score"]) for line in lines if line["score"]}
    started = 0
    while not source.exhausted(ended, []):
        [spec] = source.ready(ended, [], 1)
        assert spec.config is not None
        for score in (None, spec.config["optim"]["lr"]):
            with open(log, "a") as stream:
                print(json.dumps({"id": spec.id, "score": score}), file=stream)
            started += score is None
            if started == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
        ended[spec.id] = Outcome(spec.id, "done", score)


@pytest.mark.slow
def test_a_search_killed_twice_finishes_exactly_the_missing_trials(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    (tmp_path / "log.jsonl").touch()
    for die_at in (2, 3, 0):
        code = in_child(partial(search_until, tmp_path, die_at))
        assert code == (-signal.SIGKILL if die_at else 0)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    finished = [line["id"] for line in lines if line["score"]]
    started = [line["id"] for line in lines if not line["score"]]
    assert len(finished) == len(set(finished)) == 6
    assert len(started) == 6 + 2, "only the two that were killed started twice"
    assert {spec.id for spec in read_plan(tmp_path / "out")} == set(finished)


# Early stopping

MEDIAN = """
metric: {name: accuracy}
train: {evaluate: 10 steps}
early_stop: {rule: median, after: 20, every: 10, startup: 2}
grid: {optim.lr: [1e-4, 2e-4, 3e-4, 4e-4]}
"""


def curve(path: Path, **values: float) -> Path:
    records = [{"step": int(step[1:]), "split": "dev", "eval.accuracy": value} for step, value in values.items()]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("named", [True, False], ids=["a named metric", "the task's main metric"])
def test_median_compares_at_equal_steps_only(tmp_path: Path, opened: Any, named: bool) -> None:
    text = MEDIAN if named else MEDIAN.replace("metric: {name: accuracy}\n", "")
    source, ended = opened(text), {}
    first, second, good, bad = source.ready(ended, [], 4)
    for spec, final in ((first, 0.8), (second, 0.9)):
        metrics = curve(tmp_path / "m.jsonl", s10=0.5, s20=0.6, s30=0.7, s45=0.99)
        assert not source.should_stop(spec, metrics), "two runs must have ended before"
        ended[spec.id] = Outcome(spec.id, "done", final)
    source.ready(ended, [s.id for s in (good, bad)], 1)
    assert not source.should_stop(good, curve(tmp_path / "m.jsonl", s10=0.1))
    assert not source.should_stop(good, curve(tmp_path / "m.jsonl", s10=0.1, s20=0.65, s45=0.0))
    assert not source.should_stop(bad, curve(tmp_path / "m.jsonl", s10=0.1, s25=0.1))
    assert source.should_stop(bad, curve(tmp_path / "m.jsonl", s10=0.1, s20=0.3))
    ended[bad.id] = Outcome(bad.id, "pruned")
    ended[good.id] = Outcome(good.id, "done", 0.9)
    assert opened(text).exhausted(ended, [])


def test_successive_halving_keeps_one_of_eta_at_each_rung(tmp_path: Path, opened: Any) -> None:
    text = MEDIAN.replace("{rule: median, after: 20, every: 10, startup: 2}", "{asha: {eta: 2, min: 10, max: 40}}")
    source = opened(text)
    runs = source.ready({}, [], 4)
    stopped = [
        source.should_stop(spec, curve(tmp_path / "m.jsonl", s10=score, s15=1.0))
        for spec, score in zip(runs, (0.9, 0.8, 0.7, 0.95), strict=True)
    ]
    assert stopped == [False, True, True, False]


@given(st.integers(1, 2000))
def test_rungs_are_powers_and_medians_multiples(step: int) -> None:
    asha = EarlyStop(rule="asha", eta=3, min=200, max=2000)
    assert asha.compares_at(step) == (step in (200, 600, 1800))
    median = EarlyStop(rule="median", after=200, every=100)
    assert median.compares_at(step) == (step in range(200, 2001, 100))


def test_pruned_trials_give_up_their_other_seeds(tmp_path: Path, opened: Any) -> None:
    rest = MEDIAN.replace("grid: {optim.lr: [1e-4, 2e-4, 3e-4, 4e-4]}\n", "seeds: 2\n")
    source, ended = opened(TPE + rest), {}
    for _ in range(4):  # two trials of two seeds each
        [spec] = source.ready(ended, [], 1)
        source.should_stop(spec, curve(tmp_path / "m.jsonl", s20=0.9))
        ended[spec.id] = Outcome(spec.id, "done", 0.9)
    [spec] = source.ready(ended, [], 1)
    assert source.should_stop(spec, curve(tmp_path / "m.jsonl", s20=0.1))
    ended[spec.id] = Outcome(spec.id, "pruned")
    [other] = source.ready(ended, [], 1)
    assert lr(other) != lr(spec)
