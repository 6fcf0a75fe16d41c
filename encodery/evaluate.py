"""Models on a split of any task that their labels fit: answers, scores, ensembles, and where they are kept."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from encodery import files
from encodery.classifier import Classifier, heads_in
from encodery.ensemble import average
from encodery.errors import UserError
from encodery.head import AnyHead, form_of
from encodery.metric_table import metric
from encodery.on import Asked
from encodery.rundir import RunDir
from encodery.tasks._heuristics import Heuristics
from encodery.tasks._heuristics_report import caution
from encodery.tasks.base import Answer, Example, Origin, Task

HARDLY = 0.02  # a score that is no further above the one without a model has learnt nothing


@dataclass(frozen=True)
class Evaluation:
    """What models said on a split."""

    asked: Asked
    answers: Mapping[str, Answer]
    scores: Mapping[str, float] | None  # None: the labels are hidden
    heads: tuple[str, ...]
    alarms: tuple[str, ...] = ()  # what no healthy model gives
    without: tuple[str, ...] = ()  # attention heads that were switched off, as layer.head

    @property
    def main(self) -> str:
        """The headline among the scores."""
        return self.asked.task.main_metric

    @property
    def label(self) -> str:
        """The data with what must stand beside every figure: `hans:dev (regenerated, not the published HANS)`."""
        return self.asked.key + caution(self.asked.task.origin(self.asked.split).note)

    def pages(self) -> dict[str, str]:
        """Further files that people read; a note on the rows stands in each but those of another program's form."""
        task, split = self.asked
        pages = task.pages(self.answers, task.examples(split)) if self.scores else {}
        return with_note(pages, task.origin(split).note)

    def plain(self) -> dict[str, Any]:
        """What scores.json says of it."""
        origin: Origin = self.asked.task.origin(self.asked.split)
        about = {"part": origin.part, "note": origin.note}
        known: dict[str, Any] = {key: value for key, value in about.items() if value}
        known |= {"alarms": list(self.alarms)} if self.alarms else {}
        known |= {"without_heads": list(self.without)} if self.without else {}
        return {"scores": self.scores, "main": self.main, "heads": list(self.heads), "rows": len(self.answers), **known}


def with_note(pages: Mapping[str, str], note: str | None) -> dict[str, str]:
    """Pages whose figures carry a note: a line in Markdown, a key in JSON, a column in CSV."""
    found = dict(pages)
    if not note:
        return found
    if "report.md" in found:
        found["report.md"] = f"{note}\n\n{found['report.md']}"
    if "report.json" in found:
        found["report.json"] = json.dumps({"note": note, **json.loads(found["report.json"])}, indent=1) + "\n"
    if "report.csv" in found:
        rows = list(csv.reader(io.StringIO(found["report.csv"])))
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([[*rows[0], "note"], *([*row, note] for row in rows[1:])])
        found["report.csv"] = stream.getvalue()
    return found


def evaluate(
    models: Sequence[Classifier], asked: Asked, head: str | None = None, tick: Callable[[int], None] | None = None
) -> Evaluation:
    """Answers and scores of one model, or of several as an ensemble (mean of probabilities or numbers)."""
    task, examples = asked.task, asked.task.examples(asked.split)
    fitting = [with_head_for(model, task, head) for model in models]
    each = [model.answers(examples, task, tick) for model in fitting]
    raw = average(task, [model.head for model in fitting], each)
    answers = {id: task.fold(answer) for id, answer in raw.items()}
    hidden = any(example.label is None for example in examples)
    scores = None if hidden else task.score(answers, examples)
    alarms = () if hidden else tuple(_alarms(models, task, answers, examples))
    return Evaluation(asked, answers, scores, tuple(model.head.name for model in fitting), alarms)


def _alarms(
    models: Sequence[Classifier], task: Task, answers: Mapping[str, Answer], examples: Sequence[Example]
) -> list[str]:
    """The task's; a task that guesses at causes is told whether the run has learnt nothing at all."""
    if isinstance(task, Heuristics) and len(models) == 1:
        return task.alarms(answers, examples, collapsed_run(models[0].source))
    return task.alarms(answers, examples)


def collapsed_run(source: str) -> str | None:
    """How a run shows on its own data that it has learnt nothing: an alarm, or a score that needs no model."""
    path = Path(source)
    if not (path / "run.json").is_file() or not RunDir(path).scores.is_file():
        return None
    result = RunDir(path).read_scores()
    if result.get("alarms"):
        return str(result["alarms"][0])
    for key, scores in result.get("scores", {}).items():
        main = result["main"][key]
        easy = result.get("majority", {}).get(key, {}).get(main)
        if metric(main).better == "higher" and easy is not None and scores[main] <= easy + HARDLY:
            return f"{key} {main} {scores[main]:.3f}, where the commonest answer gets {easy:.3f}"
    return None


# Which head answers


def with_head_for(model: Classifier, task: Task, wanted: str | None = None) -> Classifier:
    """The model with the head that answers a task: the named one, the task's own, or the one with equal label names."""
    heads = [head for head in heads_in(model) if wanted in (None, head.name)]
    if not heads:
        have = ", ".join(head.name for head in heads_in(model))
        raise UserError(f"{model.source}: has no head {wanted}; it has {have}")
    own = [head for head in heads if head.name == task.name]
    fitting = [head for head in own or heads if spelled(head, task) is not None]
    if not fitting:
        raise UserError(_no_head(model, heads, task))
    if len(fitting) > 1:
        names = ", ".join(head.name for head in fitting)
        raise UserError(f"{model.source}: the heads {names} all fit {task.name}; choose one with --head")
    chosen = fitting[0]
    if not (own or wanted or model.foreign or telling(task)):
        kinds = f"labels {', '.join(task.labels)}" if task.labels else "numbers"
        raise UserError(
            f"{model.source}: was trained on {chosen.name}, and {kinds} do not say whether that fits {task.name}; "
            f"if it does, add --head {chosen.name}"
        )
    return replace(model, head=chosen.model_copy(update={"names": spelled(chosen, task)}))


def spelled(head: AnyHead, task: Task) -> list[str] | None:
    """The head's labels as the task spells them, in the head's order; None if they are not the same."""
    return as_said(task, head.says, head.labels)


def as_said(task: Task, form: str, labels: Sequence[str]) -> list[str] | None:
    """Labels of a head of some form as a task spells them; None if it does not ask for these."""
    if form_of(task) != form:
        return None
    for own in (task.labels, *task.also_labels):
        names = {label.lower(): label for label in own}
        if sorted(names) == sorted(label.lower() for label in labels):
            return [names[label.lower()] for label in labels]
    return None


def telling(task: Task) -> bool:
    """Whether equal labels mean an equal question: `entailment` does, `0` and `1` or a number do not."""
    return form_of(task) == "span" or any(not label.isdecimal() for label in task.labels)


def _no_head(model: Classifier, heads: Sequence[AnyHead], task: Task) -> str:
    if any(head.unnamed for head in heads):
        return (
            f"{model.source}: its labels are only called {', '.join(model.labels)}, so nobody can know which is which; "
            f"give their names in that order, such as --labels {','.join(task.labels)}"
        )
    have = "; ".join(f"{head.name} says {', '.join(head.labels) or 'a number'}" for head in heads)
    return f"{model.source}: no head fits {task.name} ({', '.join(task.labels) or 'a number'}): {have}"


# Where they are kept


def require_run(run: RunDir) -> None:
    """Only a finished run takes further answers: an unfinished one would overwrite them."""
    if not run.is_done:
        raise UserError(f"{run.path}: this run is not finished; run its command again, or keep the answers with -o")


def keep_in_run(run: RunDir, found: Evaluation) -> Path:
    """Into a finished run: its predictions, and its scores under `evaluations`."""
    require_run(run)
    require_same_rows(run, found)
    with run.lock(), run.change():
        path = _write(run, found)
        result = run.read_scores()
        run.write_scores(result | {"evaluations": result.get("evaluations", {}) | {found.asked.key: found.plain()}})
    return path


def require_same_rows(run: RunDir, found: Evaluation) -> None:
    """The run's own predictions are not replaced by answers to other rows of the same name."""
    task, split = found.asked
    known = run.rows_of(task.name, split).get("digest")
    if known and known != task.origin(split).digest:
        raise UserError(
            f"{found.asked.key} has other rows than when {run.path} was made (some may have been trained on); "
            "keep the answers elsewhere with -o"
        )


def require_shared_rows(runs: Sequence[RunDir], asked: Asked) -> None:
    """An ensemble answers rows that none of its runs has trained on: all must have had the same split."""
    digest = asked.task.origin(asked.split).digest
    known = {run: run.rows_of(asked.task.name, asked.split) for run in runs}
    others = [str(run.path) for run, about in known.items() if about.get("digest", digest) != digest]
    if others:
        raise UserError(
            f"{asked.key}: {', '.join(others)} had other rows there than {runs[0].path} (another part of train set "
            "aside?) and may have trained on these; name a dev file, or give runs with the same split"
        )


def require_folder(folder: Path) -> None:
    """A run's own scores are not for others to write."""
    if (folder / "run.json").exists():
        raise UserError(f"{folder}: is a run; leave -o away to add to it, or give another folder")


def keep_in_folder(folder: Path, found: Evaluation, models: Sequence[str]) -> Path:
    """Into a folder of their own: predictions/ and scores.json."""
    require_folder(folder)
    with files.io_trouble(f"{folder} cannot be written", folder.parent):
        folder.mkdir(parents=True, exist_ok=True)
    out = RunDir(folder)
    with out.lock():
        path = _write(out, found)
        before = out.read_scores().get("evaluations", {}) if out.scores.exists() else {}
        about = found.plain() | {"models": list(models)}
        files.write_json(out.scores, {"evaluations": before | {found.asked.key: about}})
    return path


def _write(run: RunDir, found: Evaluation) -> Path:
    if not found.asked.task.labelled:  # sums over the whole text: the scores are all there is
        return run.scores
    return run.write_answers(found.asked.task, found.asked.split, found.answers, found.pages())
