"""A task selection from tasks to a table: fine-tune, measure heads, correlate, rank, try, train. Run again = go on.

In the study's folder: base.yaml, singles/ (the fine-tunings whose heads are measured), heads/, trials/, subsets/ (fg),
autosem/, finals/, and at the end gradts.md, gradts.json and pictures. Runs are named by content: what is done in one
of the folders, or in one that `reuse` names, is never trained twice.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import cache, files
from encodery.core.files import as_name
from encodery.core.progress import Progress
from encodery.core.text import counted
from encodery.data.provenance import fingerprint
from encodery.data.subset import Subset
from encodery.errors import UserError
from encodery.gradts import rules
from encodery.gradts.autosem import Bandit, utilities
from encodery.gradts.config import Strategy
from encodery.gradts.plan import Plan, require_metrics
from encodery.gradts.ranking import Correlations
from encodery.gradts.runs import Runner, Training, chosen_step, main_metric, on_the_way, scores_of
from encodery.report.stats import FEW
from encodery.report.task_choice import Candidate, Choices, Row, Tried, adjusted, write
from encodery.runs.directory import RunDir
from encodery.runs.head_matrices import Importance
from encodery.selection.study import locked

ONE_FINE_TUNING = (
    f"importance_seeds is below {FEW}: the intervals of the rankings do not include the variation between fine-tuning "
    "runs."
)
Set = tuple[tuple[str, str | None], ...]  # auxiliary tasks, each with the rows that are left of it, or None: all


@dataclass
class Cost:
    """What a strategy has needed: its runs, and seconds that are in none of them."""

    runs: set[Path] = field(default_factory=set)
    more: dict[str, float] = field(default_factory=dict)  # what → seconds
    bandits: int = 0

    def plus(self, *others: "Cost") -> "Cost":
        """Both together, shared runs once."""
        total = Cost(set(self.runs), dict(self.more), self.bandits)
        for other in others:
            total.runs |= other.runs
            total.more |= other.more
            total.bandits += other.bandits
        return total

    @property
    def trainings(self) -> int:
        """Runs, and bandits, each of which is a training too."""
        return len(self.runs) + self.bandits

    @property
    def seconds(self) -> float:
        """Of training steps and gradient passes."""
        return sum(RunDir(path).seconds() or 0.0 for path in self.runs) + sum(self.more.values())


class Study:
    """A study at work. Whatever it knows lies in its folder."""

    def __init__(self, plan: Plan, progress: Progress, executor: str = "local"):
        require_metrics(plan)
        self.plan, self.options, self.progress = plan, plan.gradts, progress
        self.runner = Runner(plan.base, plan.gradts, plan.folder, progress, executor, plan.allow_code)
        self.notes: list[str] = []
        self.tried: dict[str, list[Tried]] = {}
        self.tested: dict[str, tuple[Set, Cost]] = {}  # what trials have found
        self.singles: dict[tuple[int, str], Path] = {}
        self.kept: dict[tuple[str, str], dict[str, str]] = {}  # (strategy, primary) → task → `12 of 40`

    def run(self) -> Choices:
        """Everything that is not there yet. A second command on the folder is refused."""
        with locked(self.plan.folder):
            self.runner.begin()
            return self._made()

    def _made(self) -> Choices:
        plan, options = self.plan, self.options
        measured, rankings, related = Cost(), dict[str, list[Candidate]](), None
        if options.ranks:
            heads, measured = self.measure()
            related = Correlations(heads, options.correlation, options.norm)
            if options.importance_seeds < FEW:
                self.notes.append(ONE_FINE_TUNING)
            self.notes += [note for matrix in related.matrices.values() for note in matrix.notes]
            rankings = {name: related.ranking(name, plan.candidates(name)) for name in plan.primaries}
        sets: dict[tuple[Strategy, str], tuple[Set, Cost]] = {}
        for strategy in sorted(options.strategies, key=lambda name: name == "fg"):  # fg begins with what trial found
            for primary, (chosen, cost) in self.choose(strategy, rankings, related).items():
                ranks = measured if strategy in ("trial", "thres", "fg") else Cost()
                sets[strategy, primary] = chosen, cost.plus(ranks)
        choices = Choices(
            options.strategy, rankings, self.tried, self.rows(sets), related.matrices if related else {},
            related.stability() if related else {}, tuple(self.notes),
        )  # fmt: skip
        write(plan.folder, choices, self.head_maps(related))
        return choices

    # Importance

    def measure(self) -> tuple[dict[int, dict[str, Importance]], Cost]:
        """Fine-tune every task and measure its heads, once for each of the seeds."""
        wanted = {
            (seed, name): Training(((name, None),), seed, (name,), fine_tuning=bool(self.options.finetune))
            for seed in self.options.importance_seed_list
            for name in self.plan.tasks
        }
        self.progress.say(self.plan.importance_cost)
        runs = self.runner.run("singles", list(wanted.values()))
        self.singles = {key: runs[training] for key, training in wanted.items()}
        heads: dict[int, dict[str, Importance]] = {}
        cost = Cost(set(runs.values()))
        for (seed, name), training in wanted.items():
            importance = self.heads_of(runs[training], name, seed)
            heads.setdefault(seed, {})[name] = importance
            cost.more[f"heads {name} {seed}"] = float(importance.meta["seconds"])
        return heads, cost

    def heads_of(self, run: Path, name: str, seed: int, every_row: bool = False) -> Importance:
        """Head importance of a fine-tuned task, from the folder or made now; of the rows of the run, or of all."""
        from encodery.analysis.head_importance import measure, part_of, request, rows_of_run
        from encodery.inference.classifier import open_classifier
        from encodery.inference.task_argument import TaskSplit
        from encodery.models import locate

        how = self.options.importance.model_copy(update={"max_rows": None}) if every_row else self.options.importance
        folder = self.plan.folder / "heads" / f"{as_name(name)}-seed-{seed}{'-all' if every_row else ''}"
        task = self.plan.tasks[name]
        rows = None if every_row else rows_of_run(RunDir(run), TaskSplit(task, "train"))
        wanted = {
            **how.to_dict(), "model": locate.resolve(str(run)).digest(), "rows": task.origin("train").digest,
            "part": part_of(task.examples("train"), rows) if rows else None,
        }  # fmt: skip
        if damaged := cache.damages(folder):
            cache.discard(folder, damaged)
        stored = next((files.read_json(folder / n) for n in ("meta.json", "plan.json") if (folder / n).is_file()), None)
        same = stored is not None and all(stored.get(key) == value for key, value in wanted.items())
        if same and (folder / "meta.json").is_file():
            return Importance(folder)
        if stored is not None and not same:  # of other settings or older weights
            shutil.rmtree(folder)
        self.progress.say(f"heads of {name}, seed {seed}")
        model = open_classifier(run, self.plan.base.config.device)
        return measure(request(model, TaskSplit(task, "train"), how, rows=rows), folder)

    def head_maps(self, related: Correlations | None) -> dict[str, Any]:
        """Every task's matrix, first seed."""
        first = next(iter(related.heads.values())) if related else {}
        return {name: one.matrix(self.options.norm) for name, one in first.items()}

    # Strategies

    def choose(
        self, strategy: Strategy, rankings: Mapping[str, Sequence[Candidate]], related: Correlations | None
    ) -> dict[str, tuple[Set, Cost]]:
        """What a strategy takes for each primary task, and what that cost besides importance and the last training."""
        plan = self.plan
        if strategy in ("none", "all"):
            names = {p: plan.candidates(p) if strategy == "all" else [] for p in plan.primaries}
        elif strategy == "thres":
            order = {p: dict.fromkeys(plan.candidates(p), 0.0) for p in plan.primaries}
            means = {p: order[p] | {c.name: c.mean for c in rankings[p]} for p in plan.primaries}
            names = {p: rules.above(means[p], self.options.threshold) for p in plan.primaries}
        elif strategy == "autosem":
            return self.autosem()
        else:
            found = self.tested = self.tested or self.trials(rankings)
            assert related is not None
            return found if strategy == "trial" else {p: self.fine_grained(p, *found[p], related) for p in found}
        return {p: (tuple((name, None) for name in some), Cost()) for p, some in names.items()}

    def trials(self, rankings: Mapping[str, Sequence[Candidate]]) -> dict[str, tuple[Set, Cost]]:
        """The primary with the first 1, 2, … candidates, all primaries at once, until the rule ends each."""
        order: dict[str, Set] = {p: tuple((c.name, None) for c in ranked) for p, ranked in rankings.items()}
        lengths = {primary: min(2, len(all_of_them)) for primary, all_of_them in order.items()}  # two in any case
        while True:
            wanted = {p: [order[p][:k] for k in range(lengths[p] + 1)] for p in order}
            runs = self.train("trials", wanted)
            tried = {p: [self.trial_of(p, runs[p, chosen]) for chosen in wanted[p]] for p in order}
            left = [p for p in order if not rules.ended(tried[p][1:], len(order[p]), self.options.rule)]
            if not left:
                break
            for primary in left:
                lengths[primary] = min(lengths[primary] + self.options.ahead, len(order[primary]))
        result = {}
        for primary, trials in tried.items():
            place = self.settle(primary, trials[0], trials[1:], [name for name, _ in order[primary]])
            cost = Cost({path for chosen in wanted[primary] for path in runs[primary, chosen].values()})
            result[primary] = order[primary][:place], cost
        return result

    def settle(self, primary: str, alone: rules.Trial, trials: Sequence[rules.Trial], order: Sequence[str]) -> int:
        """How many candidates the best trial has; what was tried is kept for the report."""
        count = rules.counted(trials, self.options.rule)
        tried = [Tried((), alone.scores)]
        tried += [Tried(tuple(order[: k + 1]), trial.scores, k < count) for k, trial in enumerate(trials)]
        self.tried[primary] = tried
        if self.options.rule == "released":
            return rules.winner(trials[:count], "released") + 1
        place = rules.winner([alone, *trials[:count]], "sound")
        if place:
            gain = rules.gain(trials[place - 1].scores, alone.scores, picked_from=count)
            if not gain.clear:
                how = f"{100 * gain.mean:+.1f}, not clearly above zero with {counted(gain.seeds, 'seed')}"
                kept = "single-task stays" if self.options.sure else "it is chosen anyway (sure: true would not)"
                self.notes.append(f"{primary}: the best trial's gain over single-task is {how}: {kept}.")
                place = 0 if self.options.sure else place
        return place

    def trial_of(self, primary: str, runs: Mapping[int, Path]) -> rules.Trial:
        """The scores of a set of tasks, by seed."""
        metric = self.metric(primary, next(iter(runs.values())))
        scores = {seed: self.score(path, primary, metric) for seed, path in runs.items()}
        if self.options.rule == "sound":
            return rules.Trial(scores)
        ways = {seed: on_the_way(path, primary) for seed, path in runs.items()}
        headline = next(name for name in scores_of(next(iter(runs.values())), primary))
        return rules.Trial(
            scores,
            best={seed: rules.best_epoch(way, headline)[metric] for seed, way in ways.items()},
            last={seed: way[-1][metric] for seed, way in ways.items()},
            first={seed: rules.best_epoch(way, headline)[headline] for seed, way in ways.items()},
        )

    def metric(self, primary: str, run: Path) -> str:
        """The score that decides."""
        return self.plan.metric(primary) or main_metric(run, primary)

    def score(self, run: Path, primary: str, metric: str) -> float:
        """What trials are compared by: the score on the rows that were held out of train, where there are some."""
        if self.plan.base.config.train.holdout:
            way = on_the_way(run, primary)
            step = chosen_step(run, primary)
            return next((one for one in way if one["step"] == step), way[-1])[metric]
        return self.reported(run, primary, metric)

    def reported(self, run: Path, primary: str, metric: str) -> float:
        """The score on dev."""
        scores = scores_of(run, primary)
        if metric not in scores:
            raise UserError(f"metric: {primary} has no {metric}; it has {', '.join(scores)}")
        return scores[metric]

    def train(self, stage: str, wanted: Mapping[str, Sequence[Set]]) -> dict[tuple[str, Set], dict[int, Path]]:
        """Each primary with each of its sets, by seed; equal sets of tasks are one training for all primaries."""
        trainings = {
            (primary, chosen, seed): self.training(primary, chosen, seed)
            for seed in self.options.seed_list
            for primary, sets in wanted.items()
            for chosen in sets
        }
        runs = self.runner.run(stage, list(trainings.values()))
        found: dict[tuple[str, Set], dict[int, Path]] = {}
        for (primary, chosen, seed), training in trainings.items():
            found.setdefault((primary, chosen), {})[seed] = runs[training]
        return found

    def training(self, primary: str, chosen: Set, seed: int) -> Training:
        """A primary with its auxiliary tasks: in the file's order, so that it is the same for every primary in it."""
        position = list(self.plan.tasks).index
        rest = sorted(chosen, key=lambda one: position(one[0]))
        if not self.plan.shares_runs:
            return Training(((primary, None), *rest), seed, (primary,))
        members = sorted([(primary, None), *rest], key=lambda one: position(one[0]))
        wanted = {primary, *self.plan.primaries}
        return Training(tuple(members), seed, tuple(name for name, cut in members if cut is None and name in wanted))

    def fine_grained(self, primary: str, chosen: Set, cost: Cost, related: Correlations) -> tuple[Set, Cost]:
        """Of trial's tasks only the examples that are alike enough; a task with none left is left out."""
        seed, first = next(iter(related.heads.items()))
        matrix, kept, about = first[primary].matrix(self.options.norm), list[tuple[str, str | None]](), dict[str, str]()
        sampled = self.options.importance.max_rows is not None or self.plan.base.config.train.holdout > 0
        for name, _ in chosen:
            heads = self.heads_of(self.singles[seed, name], name, seed, every_row=True) if sampled else first[name]
            alike = heads.correlation_of_instances(matrix, self.options.norm, self.options.correlation)
            keep = rules.kept(alike, self.options.fg_threshold, self.options.keep_fraction, heads.ids)
            about[name] = f"{int(keep.sum()):,} of {len(keep):,} examples"
            self.progress.say(f"{primary}: fg keeps {about[name]} of {name}")
            if keep.all():
                kept.append((name, None))
            elif keep.any():
                kept.append((name, self.subset(primary, name, heads, alike, keep)))
        self.kept["fg", primary] = about
        return tuple(kept), cost

    def subset(self, primary: str, name: str, heads: Importance, alike: np.ndarray, keep: np.ndarray) -> str:
        """The rows that are left of a task, as a selection, the most alike first."""
        examples = self.plan.tasks[name].examples("train")
        ids = heads.ids
        places = np.array([place for place in rules.most_alike(alike, ids) if keep[place]], np.int64)
        meta = {
            "selector": {"kind": "gradts", "primary": primary, "threshold": self.options.fg_threshold,
                         "keep_fraction": self.options.keep_fraction},
            "task": name, "split": "train", "pool": len(examples), "fingerprint": fingerprint(examples), "short": True,
            "heads": {key: heads.meta[key] for key in ("model", "estimator", "rows")},
        }  # fmt: skip
        found = Subset([ids[i] for i in places], meta, scores=[float(alike[i]) for i in places])
        folder = (self.plan.folder / "subsets" / f"{as_name(primary)}-{as_name(name)}").resolve()
        found.write(folder)
        return str(folder)

    def autosem(self) -> dict[str, tuple[Set, Cost]]:
        """The tasks of highest utility under AUTOSEM's bandit."""
        sets: dict[str, tuple[Set, Cost]] = {}
        for primary in self.plan.primaries:
            folder = self.plan.folder / "autosem" / as_name(primary)
            bandit: Bandit = utilities(self.plan.base, primary, self.options.autosem, folder, self.progress)
            names = bandit.best(self.plan.candidates(primary), self.options.autosem.keep)
            cost = Cost(more={f"bandit {primary}": bandit.seconds}, bandits=1)
            sets[primary] = tuple((name, None) for name in names), cost
        return sets

    # The end

    def rows(self, sets: Mapping[tuple[Strategy, str], tuple[Set, Cost]]) -> list[Row]:
        """Train what was chosen, and set every strategy beside single-task."""
        wanted: dict[str, list[Set]] = {}
        for (_, primary), (chosen, _) in sets.items():
            wanted.setdefault(primary, []).append(chosen)
        runs = self.train("finals", {primary: list(dict.fromkeys(some)) for primary, some in wanted.items()})
        rows = []
        for primary in wanted:
            alone = runs[primary, ()]
            metric = self.metric(primary, next(iter(alone.values())))
            single = {seed: self.reported(path, primary, metric) for seed, path in alone.items()}
            for strategy in self.options.strategies:
                chosen, cost = sets[strategy, primary]
                mine = runs[primary, chosen]
                scores = {seed: self.reported(path, primary, metric) for seed, path in mine.items()}
                gain = rules.gain(scores, single)
                total = cost.plus(Cost(set(mine.values())))
                names = tuple(name for name, _ in chosen)
                kept = {n: text for n, text in self.kept.get((strategy, primary), {}).items() if n in names}
                rows.append(
                    Row(primary, strategy, names, metric, scores, gain.mean, gain.interval, gain.p, None,
                        total.trainings, total.seconds, kept)
                )  # fmt: skip
        return adjusted(rows)
