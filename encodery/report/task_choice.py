"""Which tasks help a task, as a table, JSON and pictures: rankings, trials, choices, what they brought and cost."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.text import markdown_table
from encodery.report import figures, stats
from encodery.runs.head_matrices import Comparison


@dataclass(frozen=True)
class Candidate:
    """A task in the ranking of a primary task."""

    name: str
    values: Mapping[int, float]  # correlation by seed of the fine-tunings
    interval: tuple[float, float]  # 95 %: over examples, and from three seeds on over fine-tunings too
    unsure: bool  # whether its place before the next one may be chance

    @property
    def mean(self) -> float:
        return stats.mean(list(self.values.values()))


@dataclass(frozen=True)
class Tried:
    """A set of auxiliary tasks that was trained with the primary one."""

    tasks: tuple[str, ...]
    scores: Mapping[int, float]
    counts: bool = True  # False: it was run ahead, behind the end of the trials


@dataclass(frozen=True)
class Row:
    """What a strategy chose for a primary task, what it brought, and what it cost."""

    primary: str
    strategy: str
    tasks: tuple[str, ...]
    metric: str
    scores: Mapping[int, float]
    gain: float | None  # over single-task, on the same seeds
    interval: tuple[float, float] | None
    p: float | None
    p_holm: float | None  # over all strategies of the table
    trainings: int
    seconds: float
    kept: Mapping[str, str]  # task → `812 of 2,490 examples`


@dataclass(frozen=True)
class Choices:
    """A whole study."""

    strategy: str
    rankings: Mapping[str, Sequence[Candidate]]
    trials: Mapping[str, Sequence[Tried]]
    rows: Sequence[Row]
    matrices: Mapping[int, Comparison]  # by seed
    stability: Mapping[str, float]  # of a task's own matrix over seeds: mean correlation
    notes: tuple[str, ...] = ()

    def chosen(self) -> dict[str, tuple[str, ...]]:
        """What the strategy of the study took for each primary task."""
        return {row.primary: row.tasks for row in self.rows if row.strategy == self.strategy}


def adjusted(rows: Sequence[Row]) -> list[Row]:
    """The rows with Holm's p; single-task beside itself, and a strategy that chose nothing, are no comparisons."""
    tested = [place for place, row in enumerate(rows) if row.p is not None and row.tasks]
    by_place = dict(zip(tested, stats.holm([rows[place].p or 0.0 for place in tested]), strict=True))
    return [replace(row, p_holm=by_place.get(place)) for place, row in enumerate(rows)]


def ranking_table(candidates: Sequence[Candidate], primary: str) -> str:
    """The candidates of a primary task, the most alike first."""
    rows = []
    for rank, candidate in enumerate(candidates, 1):
        spread = stats.sd(list(candidate.values.values()))
        seeds = f"{candidate.mean:.3f}" + (f" ± {spread:.3f} ({len(candidate.values)})" if spread is not None else "")
        low, high = candidate.interval
        after = "within noise of the next" if candidate.unsure else ""
        rows.append([str(rank), candidate.name, seeds, f"{low:.3f} to {high:.3f}", after])
    both = all(len(one.values) >= stats.FEW for one in candidates)
    about = "95 % over examples and fine-tuning runs" if both else "95 % over examples alone"
    return markdown_table([f"for {primary}", "task", "tau", about, ""], rows)


def trial_table(trials: Sequence[Tried], primary: str, metric: str) -> str:
    """What was trained on the way."""
    rows = [
        [str(len(one.tasks)), ", ".join(one.tasks) or "(alone)", stats.percent(list(one.scores.values())),
         "" if one.counts else "run ahead, does not count"]
        for one in trials
    ]  # fmt: skip
    return markdown_table([f"trials for {primary}", "with", metric, ""], rows)


def row_cells(row: Row) -> list[str]:
    """A line of the table of strategies."""
    tasks = ", ".join(f"{name} ({row.kept[name]})" if name in row.kept else name for name in row.tasks)
    difference = ""
    if row.gain is not None and row.strategy != "none":
        difference = f"{100 * row.gain:+.1f}"
        if row.interval:
            difference += f" [{100 * row.interval[0]:+.1f}, {100 * row.interval[1]:+.1f}]"
        difference += f" p {row.p_holm:.2f}" if row.p_holm is not None else ""
    scores = stats.percent(list(row.scores.values()))
    return [row.primary, row.strategy, tasks or "(alone)", row.metric, scores, difference, str(row.trainings),
            f"{row.seconds:,.0f}"]  # fmt: skip


def strategy_table(found: Choices) -> str:
    """Every strategy beside single-task."""
    header = ["task", "strategy", "with", "metric", "score", "against single-task", "runs", "seconds"]
    return markdown_table(header, [row_cells(row) for row in found.rows])


NOTE = (
    "Score: mean ± standard deviation over seeds (their number). Against single-task: mean difference on the same "
    "seeds, Student's 95 % interval (none below three seeds), p of a paired t-test after Holm's correction for all "
    "comparisons of the table. Runs and seconds: all that the strategy needs, including "
    "the fine-tuning runs for the importance; seconds of training steps and gradient passes, evaluation left out."
)


def markdown(choices: Choices) -> str:
    """Everything, the result first."""
    blocks = [strategy_table(choices), NOTE, *choices.notes]
    for primary, candidates in choices.rankings.items():
        blocks.append(ranking_table(candidates, primary))
    for primary, tried in choices.trials.items():
        metric = next(row.metric for row in choices.rows if row.primary == primary)
        blocks.append(trial_table(tried, primary, metric))
    for seed, matrix in choices.matrices.items():
        header = [f"{matrix.kind}, seed {seed}", *matrix.names]
        lines = [[n, *(f"{v:.2f}" for v in line)] for n, line in zip(matrix.names, matrix.values, strict=True)]
        blocks.append(markdown_table(header, lines))
    if choices.stability:
        lines = [[name, f"{value:.3f}"] for name, value in choices.stability.items()]
        blocks.append(markdown_table(["a task's own matrix, over seeds", "mean tau"], lines))
    return "\n\n".join(blocks) + "\n"


def plain(choices: Choices) -> dict[str, Any]:
    return {
        "strategy": choices.strategy,
        "chosen": {primary: list(tasks) for primary, tasks in choices.chosen().items()},
        "rankings": {p: [{**asdict(c), "mean": c.mean} for c in ranked] for p, ranked in choices.rankings.items()},
        "trials": {p: [asdict(one) for one in tried] for p, tried in choices.trials.items()},
        "rows": [asdict(row) for row in choices.rows],
        "matrices": {str(seed): matrix.to_dict() for seed, matrix in choices.matrices.items()},
        "stability": dict(choices.stability),
        "notes": list(choices.notes),
    }


def write(folder: Path, choices: Choices, heads: Mapping[str, Any]) -> None:
    """gradts.md, gradts.json, a heat map of the correlations of each seed, one of every task's heads."""
    files.write_atomic(folder / "gradts.md", markdown(choices))
    files.write_json(folder / "gradts.json", plain(choices))
    for seed, matrix in choices.matrices.items():
        picture = figures.heat_map(matrix.names, matrix.values, f"{matrix.kind}, seed {seed}")
        files.write_atomic(folder / f"correlation-seed-{seed}.svg", picture)
    if heads:
        files.write_atomic(folder / "heads.svg", figures.head_maps(heads))
