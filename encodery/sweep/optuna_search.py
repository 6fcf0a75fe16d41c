"""Searches that learn and rules that stop runs early, through Optuna (extra `search`).

The study is a journal in <sweep>/search/, written through to the disk before a run starts, so that a sweep that was
killed goes on with exactly the trials that are missing.
"""

import json
import statistics
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.extras import install
from encodery.core.lock import RunLock
from encodery.errors import UserError
from encodery.runs.sweep_spec import Outcome, RunSpec, write_plan
from encodery.sweep import best, search_space
from encodery.sweep.fixed_plan import FixedPlan
from encodery.sweep.plan import Planner
from encodery.sweep.sweep_file import EarlyStop, Sweep

_RUNS, _SPACE = "runs", "space"
_FINAL = ("done", "failed", "timeout", "oom", "pruned")  # a stopped run goes on later


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError(
            f"search and early_stop need Optuna: {install('search')} (grid and random need nothing)."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna warns that parts of it may change; our extra says which versions were tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Trials:
    """The study: which trial is which runs, what they scored, and which are not worth going on."""

    def __init__(self, folder: Path, sweep: Sweep, metric: str) -> None:
        self.optuna, self.sweep, self.folder, self.metric = _optuna(), sweep, folder, metric
        self.direction = "maximize" if sweep.metric.looks_for(metric) == "max" else "minimize"
        own = folder / "search"
        own.mkdir(parents=True, exist_ok=True)
        self.lock = RunLock(own)
        self.lock.acquire()  # two schedulers would ask for twice as many trials
        self.runs: dict[int, list[str]] = {}
        self.closed: set[int] = set()
        self.pruned: set[int] = set()
        try:
            self.study = self._open(own / "journal.jsonl")
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the lock back."""
        self.lock.release()

    def _open(self, journal: Path) -> Any:
        files.cut_torn_line(journal)  # else the next record would be glued to what a kill left
        storages = self.optuna.storages
        backend = storages.journal.JournalFileBackend(str(journal), lock_obj=_Held())
        mode = self.direction
        with _quiet():
            study = self.optuna.create_study(
                storage=storages.JournalStorage(backend), study_name="sweep", direction=mode, load_if_exists=True,
                pruner=_pruner(self.optuna, self.sweep.early_stop),
            )  # fmt: skip
        wanted = json.dumps([mode, self.sweep.search.space], sort_keys=True)
        if study.user_attrs.setdefault(_SPACE, wanted) != wanted:
            raise UserError(
                f"{journal.parent}: was started with another metric.mode or search.space; give another folder with -o, "
                "or move this one away to search again (finished runs are kept and used)."
            )
        study.set_user_attr(_SPACE, wanted)
        return study

    def _load(self) -> None:
        states = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.is_finished():
                self.closed.add(trial.number)
            if trial.state == states.PRUNED:
                self.pruned.add(trial.number)
            if _RUNS in trial.user_attrs:
                self.runs[trial.number] = list(trial.user_attrs[_RUNS])
            elif not trial.state.is_finished():  # killed before it was known what it runs
                self.tell(trial.number, None)

    def params(self) -> dict[int, dict[str, Any]]:
        """The drawn values of the trials that count."""
        found = self.study.get_trials(deepcopy=False)
        return {trial.number: dict(trial.params) for trial in found if trial.number in self.runs}

    def ask(self, distributions: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """A new trial and its values. The sampler depends on the number alone, not on how often we were killed."""
        search, number = self.sweep.search, len(self.study.get_trials(deepcopy=False))
        with _quiet():
            self.study.sampler = self.optuna.samplers.TPESampler(
                seed=(search.seed * 1_000_003 + number) % 2**32, n_startup_trials=search.startup, constant_liar=True
            )
            trial = self.study.ask(dict(distributions))
        return trial.number, dict(trial.params)

    def bind(self, number: int, ids: Sequence[str]) -> None:
        """Write down which runs a trial is, before any of them starts."""
        self._trial(number).set_user_attr(_RUNS, list(ids))
        self.runs[number] = list(ids)

    def tell(self, number: int, value: float | None, pruned: bool = False) -> None:
        """How a trial ended; without a value it failed."""
        states = self.optuna.trial.TrialState
        state = states.PRUNED if pruned else states.FAIL if value is None else states.COMPLETE
        self.study.tell(number, value if state == states.COMPLETE else None, state=state)
        self.closed.add(number)
        if pruned:
            self.pruned.add(number)

    def settle(self, ended: Mapping[str, Outcome], score: Callable[[Outcome], float | None]) -> None:
        """Tell what has ended: the mean over the seeds that are done."""
        for number, ids in self.runs.items():
            if number in self.closed:
                continue
            outcomes = [ended[id] for id in ids if id in ended and ended[id].state in _FINAL]
            if any(outcome.state == "pruned" for outcome in outcomes):
                self.tell(number, None, pruned=True)
            elif len(outcomes) == len(ids):
                found = [score(outcome) for outcome in outcomes if outcome.state == "done"]
                values = [value for value in found if value is not None]
                self.tell(number, statistics.fmean(values) if values else None)

    def should_stop(self, id: str, metrics: Path) -> bool:
        """Report what is new where runs are compared, and ask the rule. Of several seeds the first counts."""
        rule = self.sweep.early_stop
        number = next((number for number, ids in self.runs.items() if id in ids), None)
        if rule is None or number is None:
            return False
        if number in self.pruned:
            return True
        if number in self.closed or self.runs[number][0] != id:
            return False
        trial = self._trial(number)
        known = trial.storage.get_trial(trial._trial_id).intermediate_values
        for step, value in sorted(best.on_the_way(metrics, self.metric).items()):
            if rule.compares_at(step) and step not in known:
                trial.report(value, step)
                if trial.should_prune():
                    self.pruned.add(number)
                    return True
        return False

    def _trial(self, number: int) -> Any:
        trials = self.study.get_trials(deepcopy=False)
        return self.optuna.trial.Trial(self.study, trials[number]._trial_id)


class _Held:
    """The folder's lock is ours already; Optuna's own file would be left behind by a kill and waited for."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        """Not before the end."""


def _pruner(optuna: Any, rule: EarlyStop | None) -> Any:
    if rule is None:
        return optuna.pruners.NopPruner()
    if rule.rule == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=rule.startup, n_warmup_steps=rule.after)
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=rule.min, reduction_factor=rule.eta)


class Watched(FixedPlan):
    """A fixed plan whose runs may be stopped early; every run is a trial."""

    def __init__(self, specs: Sequence[RunSpec], sweep: Sweep, folder: Path, metric: str) -> None:
        super().__init__(specs)
        self.trials, self._known = Trials(folder, sweep, metric), {spec.id: spec for spec in specs}

    def ready(self, ended: Mapping[str, Outcome], started: Collection[str], free: int) -> list[RunSpec]:
        self.trials.settle(ended, self._score)
        specs = super().ready(ended, started, free)
        bound = {id for ids in self.trials.runs.values() for id in ids}
        for spec in specs:
            if spec.id not in bound:
                number, _ = self.trials.ask({})
                self.trials.bind(number, [spec.id])
        return specs

    def exhausted(self, ended: Mapping[str, Outcome], started: Collection[str]) -> bool:
        self.trials.settle(ended, self._score)
        return super().exhausted(ended, started)

    def should_stop(self, spec: RunSpec, metrics: Path) -> bool:
        """As the rule says."""
        return self.trials.should_stop(spec.id, metrics)

    def _score(self, outcome: Outcome) -> float | None:
        spec = self._known.get(outcome.id)
        return _score(outcome, spec, self.trials)

    def close(self) -> None:
        """Let others have the study."""
        self.trials.close()


def _score(outcome: Outcome, spec: RunSpec | None, trials: Trials) -> float | None:
    if outcome.score is not None or spec is None:
        return outcome.score
    return best.score(trials.folder / spec.name, trials.sweep.metric)


class Tpe:
    """n trials; each is drawn where the ended ones promise most, and is one run for each seed."""

    def __init__(self, planner: Planner, about: Mapping[str, Any]) -> None:
        self.planner, self.about, self.sweep = planner, about, planner.file.sweep
        self.trials = Trials(planner.folder, self.sweep, self._metric())
        self.distributions = {key: self._distribution(given) for key, given in self.sweep.search.space.items()}
        self.specs = {number: planner.trial(self._values(drawn)) for number, drawn in self.trials.params().items()}
        self._write()

    def _metric(self) -> str:
        """What the trials are compared by: as named, or the main metric of the task."""
        drawn = {key: search_space.draw(given) for key, given in self.sweep.search.space.items()}
        some = {key: one.choices[0] if one.kind == "choice" else one.low for key, one in drawn.items()}
        whole = {key: int(value) if drawn[key].kind == "int" else value for key, value in some.items()}
        spec = self.planner.trial(whole)[0]  # checks the metric too, before there is a study
        return self.sweep.metric.name or self.planner.main_metric(spec)

    def _distribution(self, given: Any) -> Any:
        drawn, kinds = search_space.draw(given), self.trials.optuna.distributions
        if drawn.kind == "choice":
            return kinds.CategoricalDistribution([json.dumps(choice) for choice in drawn.choices])
        if drawn.kind == "int":
            return kinds.IntDistribution(int(drawn.low), int(drawn.high))
        return kinds.FloatDistribution(drawn.low, drawn.high, log=drawn.kind == "loguniform")

    def _values(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Choices back from text; numbers as short as they are written in names."""
        return {
            key: json.loads(value)
            if isinstance(value, str)
            else search_space.rounded(value)
            if isinstance(value, float)
            else value
            for key, value in drawn.items()
        }

    def _write(self) -> None:
        write_plan(self.planner.folder, {s.id: s for specs in self.specs.values() for s in specs}.values(), self.about)

    def ready(self, ended: Mapping[str, Outcome], started: Collection[str], free: int) -> list[RunSpec]:
        """Runs of trials that were begun, then of new ones."""
        self.trials.settle(ended, self._score)
        specs = self._open(ended, started)
        asked = False
        while len(specs) < free and len(self.specs) < self.sweep.search.n:
            number, drawn = self.trials.ask(self.distributions)
            self.specs[number] = self.planner.trial(self._values(drawn))
            self.trials.bind(number, [spec.id for spec in self.specs[number]])
            specs, asked = self._open(ended, started), True
        if asked:
            self._write()
        return specs[:free]

    def _open(self, ended: Mapping[str, Outcome], started: Collection[str]) -> list[RunSpec]:
        """Runs that nobody has started; those of a pruned trial are given up."""
        wanted = {
            spec.id: spec
            for number, specs in self.specs.items()
            if number not in self.trials.pruned
            for spec in specs
            if spec.id not in ended and spec.id not in started
        }
        return list(wanted.values())

    def exhausted(self, ended: Mapping[str, Outcome], started: Collection[str]) -> bool:
        """Whether all trials were begun and none has a run left."""
        self.trials.settle(ended, self._score)
        return len(self.specs) >= self.sweep.search.n and not self._open(ended, started)

    def should_stop(self, spec: RunSpec, metrics: Path) -> bool:
        """As the rule says."""
        return self.trials.should_stop(spec.id, metrics)

    def _score(self, outcome: Outcome) -> float | None:
        spec = next((s for specs in self.specs.values() for s in specs if s.id == outcome.id), None)
        return _score(outcome, spec, self.trials)

    def close(self) -> None:
        """Let others have the study."""
        self.trials.close()
