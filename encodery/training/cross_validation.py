"""Cross-validation: a run for each fold of a training file, one table, and the answers to all rows in one file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery.config.load import Resolved
from encodery.core import files
from encodery.core.progress import Progress
from encodery.core.text import markdown_table
from encodery.data.out_of_fold import FILE as PREDICTIONS
from encodery.distributed import comm
from encodery.errors import RunFailed, UserError
from encodery.report import stats
from encodery.runs.directory import RunDir, default_path
from encodery.runs.identity import identity_of_config
from encodery.tasks.base import Answer
from encodery.tasks.sources.own_files import Own
from encodery.training import build
from encodery.training.run import train_run

SCORES, TABLE = "folds.json", "folds.md"


@dataclass(frozen=True)
class Folds:
    """A finished cross-validation."""

    path: Path
    runs: Sequence[RunDir]
    main: str
    rows: Sequence[int]  # that each fold was scored on
    scores: Sequence[Mapping[str, float]]  # of each fold
    together: Mapping[str, float]  # of all rows at once, each answered by the model that has not seen it
    notes: Sequence[str] = ()

    @property
    def predictions(self) -> Path:
        """The file with the answers to all rows."""
        return self.path / PREDICTIONS

    @property
    def metrics(self) -> list[str]:
        """The main metric first."""
        return [self.main, *(name for name in self.together if name != self.main)]

    def to_dict(self) -> dict[str, Any]:
        summary_of_all: dict[str, Any] = {"folds": len(self.runs), "main": self.main, "metrics": {}}
        for name in self.metrics:
            values = [scores[name] for scores in self.scores]
            summary = {"mean": stats.mean(values), "sd": stats.sd(values), "interval": stats.t_interval(values)}
            summary_of_all["metrics"][name] = {"folds": values, **summary, "all_rows": self.together[name]}
        return {**summary_of_all, "rows": list(self.rows), "notes": list(self.notes)}

    def markdown(self) -> str:
        """One line for each fold, then mean, deviation, interval, and the score of all rows at once."""
        plain, names = self.to_dict()["metrics"], self.metrics
        lines = [
            [str(number), f"{rows:,}", *(f"{scores[name]:.4f}" for name in names)]
            for number, (rows, scores) in enumerate(zip(self.rows, self.scores, strict=True), 1)
        ]
        for title, key in (("mean", "mean"), ("sd", "sd"), ("95 % interval", "interval")):
            lines.append([title, "", *(_cell(plain[name][key]) for name in names)])
        every = f"{sum(self.rows):,}"
        lines.append(["all rows at once", every, *(_cell(plain[name]["all_rows"]) for name in names)])
        notes = [*([stats.FOLDS] if plain[self.main]["interval"] else []), *self.notes]
        table = markdown_table(["fold", "rows", *names], lines)
        return "\n".join([table, *(line for note in notes for line in ("", note))])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else " to ".join(f"{end:.4f}" for end in value)


def cross_validate(
    resolve: Callable[[int | None], Resolved],
    count: int,
    out: Path | str | None = None,
    restart: bool = False,
    allow_change: bool = False,
    progress: Callable[[], Progress] = lambda: Progress(quiet=True),
) -> tuple[Folds | None, dict[int, str]]:
    """Train each fold (`resolve(fold)`, from 1; None: without folds) in a folder of its own; run again = resume.

    What came out, or None and a sentence for each fold that failed.
    """
    folder = _folder(resolve, count, out)
    each = {number: resolve(number) for number in range(1, count + 1)}
    for resolved in each.values():
        _require_dev(resolved)
    runs, failures = dict[int, RunDir](), dict[int, str]()
    for number, resolved in each.items():
        try:
            place = folder / f"fold-{number}"
            runs[number] = train_run(resolved, place, restart=restart, allow_change=allow_change, progress=progress())
        except RunFailed as error:
            if comm.size() > 1:  # several processes cannot continue apart
                raise
            failures[number] = str(error)
    is_main = comm.is_main()
    comm.leave()
    if failures or not is_main:
        return None, failures
    return _concluded(folder, each, runs), {}


def _folder(resolve: Callable[[int | None], Resolved], count: int, out: Path | str | None) -> Path:
    """Where the folds go; what cannot be cut into folds is refused."""
    base = resolve(None)
    tasks = [task for task, _ in base.tasks]
    if count < 2:
        raise UserError("--folds: must be at least 2")
    if len(tasks) != 1 or not isinstance(tasks[0], Own):
        names = ", ".join(task.name for task in tasks)
        raise UserError(f"--folds: cross-validation is for one task on own files (kind: table), not for {names}")
    if tasks[0].dev is not None:
        raise UserError(
            f"--folds: {tasks[0].name} has a dev file, but each part of train is the dev set once; remove it, "
            "or name it as test"
        )
    if out is not None:
        return Path(out)
    identity = identity_of_config(base, build.find_inputs(base).digests)
    return default_path(f"{base.name}-{count}-folds", identity)


def _require_dev(resolved: Resolved) -> None:
    task, entry = resolved.tasks[0]
    if entry.evaluate_on is not None and "dev" not in entry.evaluate_on:
        raise UserError("--folds: tasks.evaluate_on leaves out dev, the part that each fold is scored on")
    task.examples("dev")  # too few rows of a label are found before the first run


def _concluded(folder: Path, each: Mapping[int, Resolved], runs: Mapping[int, RunDir]) -> Folds:
    """Write the answers, the scores and the table."""
    tasks: dict[int, Any] = {number: resolved.tasks[0][0] for number, resolved in each.items()}
    task = tasks[1]
    answers = {number: run.read_predictions(task.name, "dev") for number, run in runs.items()}
    examples = {e.id: e for e in [*task.examples("train"), *task.examples("dev")]}
    out_of_fold: dict[str, Answer] = {}
    for id, number in task.fold_of.items():
        if id not in answers[number]:
            raise RunFailed(f"{runs[number].path}: its predictions lack row {id}; train it again with --fresh")
        out_of_fold[id] = answers[number][id]
    results = {number: run.read_scores() for number, run in runs.items()}
    key = f"{task.name}:dev"
    scores = [results[number]["scores"][key] for number in each]
    together = task.score(out_of_fold, [examples[id] for id in out_of_fold])
    rows = [len(answers[number]) for number in each]
    done = Folds(
        folder, list(runs.values()), results[1]["main"][key], rows, scores, together, _notes(results, task.name)
    )
    with files.io_trouble(f"{folder} cannot be written", folder):
        with files.atomic(done.predictions) as stream:
            for id, answer in out_of_fold.items():
                row = {"id": id, "fold": task.fold_of[id], "label": examples[id].label, **answer}
                stream.write((files.plain_json(row) + "\n").encode())
        files.write_json(folder / SCORES, done.to_dict())
        files.write_atomic(folder / TABLE, done.markdown() + "\n")
    return done


def _notes(results: Mapping[int, Mapping[str, Any]], task: str) -> list[str]:
    """What was chosen on the rows that are scored."""
    chosen = []
    if any(result["chosen"].get("chosen_on") == "dev" for result in results.values()):
        chosen.append("checkpoint")
    if any(result.get("thresholds", {}).get(task, {}).get("chosen_on") == "dev" for result in results.values()):
        chosen.append("threshold")
    if not chosen:
        return []
    what = " and the ".join(chosen)
    return [
        f"The {what} of each fold was chosen on the rows it is scored on, so scores are optimistic. Set train.holdout."
    ]
