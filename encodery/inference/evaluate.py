"""Models on a split of any task that their labels fit: answers, scores, ensembles, and where they are kept."""

import csv
import io
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from encodery.config import load
from encodery.core import files
from encodery.core.text import counted
from encodery.errors import UserError
from encodery.inference.answer_head import AnyHead, form_of, no_such_head
from encodery.inference.classifier import Classifier, heads_in, with_labels, with_own_weights
from encodery.inference.ensemble import average
from encodery.inference.open_model import pick_precision
from encodery.inference.task_argument import TaskSplit
from encodery.runs.directory import RunDir
from encodery.tasks.base import Answer, Example, Origin, Task
from encodery.tasks.forms.hans_figures import Heuristics, caution
from encodery.tasks.forms.metric_table import metric
from encodery.tasks.sources.labels import matched
from encodery.tasks.sources.own_files import Own

# Is a model asked in the way it was trained? The order of unnamed labels, and answers that must come out again.


CLEAR = 0.15  # by so much the best order must beat the next one
ROWS = 256  # answers of a run that are asked for again
DIFFERENT = 0.01  # share of them that rounding may change


@dataclass(frozen=True)
class LabelOrder:
    """The order of labels that fits best, with its accuracy and the next best one's."""

    labels: tuple[str, ...]
    accuracy: float
    next_best: float

    def __str__(self) -> str:
        order = ", ".join(f"{i} = {label}" for i, label in enumerate(self.labels))
        return f"labels by calibration: {order} (accuracy {self.accuracy:.3f}, the next order {self.next_best:.3f})"


def calibrated(model: Classifier, asked: TaskSplit) -> tuple[Classifier, LabelOrder]:
    """The model with names for its outputs: the order that answers a labelled split best, if it is unmistakable."""
    task, examples = asked.task, asked.task.examples(asked.split)
    if len(task.labels) != len(model.labels):
        raise UserError(
            f"--calibrate: {model.source} has {len(model.labels)} outputs, {task.name} has {len(task.labels)} labels"
        )
    if any(example.label is None for example in examples):
        raise UserError(f"--calibrate: the labels of {asked.key} are hidden")
    rows = model.outputs(examples, task)
    guesses = [max(range(len(row["logits"])), key=row["logits"].__getitem__) for row in rows]
    order = best_order(guesses, [str(example.label) for example in examples], task.labels)
    if order.accuracy - order.next_best < CLEAR:
        raise UserError(
            f"--calibrate: on {asked.key} the best order of labels has accuracy {order.accuracy:.3f} and the next one "
            f"{order.next_best:.3f}: it is unknown which is right; give --labels"
        )
    return with_labels(model, order.labels), order


def best_order(guesses: Sequence[int], gold: Sequence[str], labels: Sequence[str]) -> LabelOrder:
    """Of all orders the one with the highest accuracy."""
    right = {
        order: sum(order[guess] == label for guess, label in zip(guesses, gold, strict=True)) / len(gold)
        for order in itertools.permutations(labels)
    }
    first, second = sorted(right, key=right.__getitem__, reverse=True)[:2]
    return LabelOrder(first, right[first], right[second])


def path_alarm(model: Classifier, run: RunDir, task: Task, allow_code: bool = False) -> str | None:
    """A sentence if the run's own dev answers do not come out again when its rows go the way of this task's."""
    resolved = load.load(run.path, allow_code=allow_code)
    own, net = resolved.tasks[0][0], model.model
    for split in ("dev", "dev_mismatched"):
        if run.predictions_path(own.name, split).is_file() and own.has(split):
            with net.at_precision(pick_precision(resolved.config, model.batcher.device)):  # another rounds more answers
                return _compare(model, task, own, split, run.read_predictions(own.name, split))
    return None


def _compare(model: Classifier, task: Task, own: Task, split: str, rows: Mapping[str, Answer]) -> str | None:
    before = {id: row["prediction"] for id, row in itertools.islice(rows.items(), ROWS)}
    examples = [example for example in own.examples(split) if example.id in before]
    if not examples:
        return None
    answers = model.answers(examples, task)
    other = [id for id in (e.id for e in examples) if answers[id]["prediction"] != before[id]]
    if len(other) <= DIFFERENT * len(examples):
        return None
    return (
        f"{len(other)} of {len(examples)} predictions for {own.name}:{split} differ from the run's own "
        f"(first: {other[0]}): the model does not get its input as in training"
    )


HARDLY = 0.02  # a score that is no further above the one without a model has learnt nothing


@dataclass(frozen=True)
class Evaluation:
    """What models said on a split."""

    asked: TaskSplit
    answers: Mapping[str, Answer]
    scores: Mapping[str, float] | None  # None: the labels are hidden
    heads: tuple[str, ...]
    alarms: tuple[str, ...] = ()  # what no healthy model gives
    seen: str | None = None  # how many of the rows were trained on
    without: tuple[str, ...] = ()  # attention heads that were switched off, as layer.head
    precision: str = "fp32"  # in what matrices were multiplied
    slices: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # column → scores by value

    @property
    def main(self) -> str:
        return self.asked.task.main_metric

    @property
    def label(self) -> str:
        """The data with what must stand beside every figure: `hans:dev (regenerated, not the published HANS)`."""
        return self.asked.key + caution(self.asked.task.origin(self.asked.split).note)

    @property
    def unscored(self) -> str:
        """Why there are no scores."""
        return f"{without_labels(self.asked)}: predictions only{other_column(self.asked)}"

    def pages(self) -> dict[str, str]:
        """Further files that people read; a note on the rows stands in each but those of another program's form."""
        task, split = self.asked
        pages = task.pages(self.answers, task.examples(split)) if self.scores else {}
        return with_note(pages, task.origin(split).note)

    def to_dict(self) -> dict[str, Any]:
        """What scores.json says of it."""
        origin: Origin = self.asked.task.origin(self.asked.split)
        about = {"part": origin.part, "note": origin.note, "seen": self.seen}
        known: dict[str, Any] = {key: value for key, value in about.items() if value}
        known |= {"alarms": list(self.alarms)} if self.alarms else {}
        known |= {"without_heads": list(self.without)} if self.without else {}
        known |= {"precision": self.precision} if self.precision != "fp32" else {}
        return {"scores": self.scores, "main": self.main, "heads": list(self.heads), "rows": len(self.answers), **known}


def without_labels(asked: TaskSplit) -> str:
    """`new.csv has no labels`; those of a published set are hidden."""
    task, split = asked
    return f"{task.file_name(split)} has no labels" if isinstance(task, Own) else "labels are hidden"


def other_column(asked: TaskSplit) -> str:
    """Where the labels of a file were looked for, if it does not have that column."""
    column = getattr(asked.task, "lacking", None)
    return f" (the run has them in {column}; --label-column names another column)" if column else ""


def with_note(pages: Mapping[str, str], note: str | None) -> dict[str, str]:
    """Pages whose figures carry a note: a line in Markdown, a key in JSON, a column in CSV."""
    noted = dict(pages)
    if not note:
        return noted
    if "report.md" in noted:
        noted["report.md"] = f"{note}\n\n{noted['report.md']}"
    if "report.json" in noted:
        noted["report.json"] = json.dumps({"note": note, **json.loads(noted["report.json"])}, indent=1) + "\n"
    if "report.csv" in noted:
        rows = list(csv.reader(io.StringIO(noted["report.csv"])))
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([[*rows[0], "note"], *([*row, note] for row in rows[1:])])
        noted["report.csv"] = stream.getvalue()
    return noted


def evaluate(
    models: Sequence[Classifier],
    asked: TaskSplit,
    head: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Answers and scores of one model, or of several as an ensemble (mean of probabilities or numbers)."""
    task, examples = asked.task, asked.task.examples(asked.split)
    fitting = [with_head_for(model, task, head) for model in models]
    each = [model.answers(examples, task, on_progress) for model in fitting]
    raw = average(task, [model.head for model in fitting], each)
    answers = {id: task.fold(answer) for id, answer in raw.items()}
    hidden = any(example.label is None for example in examples)
    scores = None if hidden else task.score(answers, examples)
    alarms = () if hidden else tuple(_alarms(models, task, answers, examples))
    precision = ", ".join(dict.fromkeys(model.precision for model in fitting))
    return Evaluation(asked, answers, scores, tuple(model.head.name for model in fitting), alarms, precision=precision)


def _alarms(
    models: Sequence[Classifier], task: Task, answers: Mapping[str, Answer], examples: Sequence[Example]
) -> list[str]:
    """The task's; a task that guesses at causes is told whether the run has learnt nothing at all."""
    if isinstance(task, Heuristics):
        found = [collapsed_run(model.source) for model in models]
        return task.alarms(answers, examples, found[0] if all(found) else None)  # of an ensemble all must have
    return task.alarms(answers, examples)


def collapsed_run(source: str) -> str | None:
    """How a run shows on its own data that it has learnt nothing: an alarm, or a score that needs no model."""
    path = Path(source)
    if not files.is_run(path) or not RunDir(path).scores.is_file():
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
    """The model with the head that answers a task: the named one, the task's own, or the one with equal label names.

    Where a run kept the best weights of each task, it is opened with those of the head.
    """
    heads = [head for head in heads_in(model) if wanted in (None, head.name)]
    if not heads:
        raise UserError(no_such_head(model.source, str(wanted), [head.name for head in heads_in(model)]))
    own = [head for head in heads if head.name in (task.name, getattr(task, "like", None))]
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
    opened = with_own_weights(replace(model, head=chosen))
    return replace(opened, head=opened.head.model_copy(update={"names": spelled(chosen, task)}))


def spelled(head: AnyHead, task: Task) -> list[str] | None:
    """The head's labels as the task spells them, in the head's order; None if they are not the same."""
    return as_said(task, head.answer_kind, head.labels)


def as_said(task: Task, form: str, labels: Sequence[str]) -> list[str] | None:
    """Labels of a head of some form as a task spells them; None if it does not ask for these."""
    if form_of(task) != form:
        return None
    for own in (task.labels, *task.also_labels):
        names = [matched(label, own) for label in labels]
        if sorted(map(str, names)) == sorted(own):
            return [str(name) for name in names]
    return None


def telling(task: Task) -> bool:
    """Whether equal labels mean an equal question: `entailment` does, `0` and `1` or a number do not."""
    return form_of(task) == "span" or any(not label.isdecimal() for label in task.labels)


def _no_head(model: Classifier, heads: Sequence[AnyHead], task: Task) -> str:
    if any(head.unnamed for head in heads):
        return (
            f"{model.source}: its labels are only called {', '.join(model.labels)}, so it is unknown which is which; "
            f"give their names in that order, such as --labels {','.join(task.labels)}"
        )
    have = "; ".join(f"{head.name} says {', '.join(head.labels) or 'a number'}" for head in heads)
    return f"{model.source}: no head fits {task.name} ({', '.join(task.labels) or 'a number'}): {have}"


# Where they are kept


def require_run(run: RunDir) -> None:
    """Only a finished run takes further answers: an unfinished one would overwrite them."""
    if not run.is_done:
        raise UserError(f"{run.path}: this run is not finished; run its command again, or keep the answers with -o")


def keep_in_run(run: RunDir, evaluation: Evaluation) -> Path:
    """Into a finished run: its predictions, and its scores under `evaluations`."""
    require_run(run)
    require_same_rows(run, evaluation)
    with run.lock(), run.change():
        path = _write(run, evaluation)
        about = evaluation.to_dict() | _file_of(evaluation.asked)
        run.write_scores(run.read_scores() | {"evaluations": run.evaluations() | {evaluation.asked.key: about}})
    return path


def replaced(run: RunDir, evaluation: Evaluation) -> str | None:
    """What to say of an evaluation under the same name that one of other rows, or by another head, replaces."""
    asked = evaluation.asked
    before = run.evaluations().get(asked.key, {})
    rows = counted(int(before.get("rows") or 0), "row")
    if before.get("digest") not in (None, asked.task.origin(asked.split).digest):
        return (
            f"the earlier evaluation in {run.path} ({rows}, other rows or labels) is replaced; another file name keeps "
            "both"
        )
    old, new = (list(dict.fromkeys(heads)) for heads in (before.get("heads", evaluation.heads), evaluation.heads))
    if old == new:
        return None
    return (
        f"the earlier evaluation in {run.path} ({rows}, by the head {', '.join(old)}) is replaced by that of "
        f"{', '.join(new)}; -o DIR keeps one of them elsewhere"
    )


def _file_of(asked: TaskSplit) -> dict[str, Any]:
    """How the rows of a data file are found again, which the run's own config does not say; for the page."""
    if not isinstance(asked.task, Own) or asked.task.train is not None:
        return {}
    return {"task": {"kind": "table", **asked.task.to_dict()}, "digest": asked.task.origin(asked.split).digest}


def require_same_rows(run: RunDir, evaluation: Evaluation) -> None:
    """The run's own predictions are not replaced by answers to other rows of the same name."""
    task, split = evaluation.asked
    before = run.rows_of(task.name, split).get("digest")
    if before and before != task.origin(split).digest:
        raise UserError(
            f"{evaluation.asked.key} has other rows than when {run.path} was made (some may have been trained on); "
            "keep the answers elsewhere with -o"
        )


def require_shared_rows(runs: Sequence[RunDir], asked: TaskSplit, instead: str = "") -> None:
    """Several runs answer rows that none of them has trained on: all must have had the same split."""
    digest = asked.task.origin(asked.split).digest
    known = {run: run.rows_of(asked.task.name, asked.split) for run in runs}
    others = [str(run.path) for run, about in known.items() if about.get("digest", digest) != digest]
    if others:
        raise UserError(
            f"{asked.key}: {', '.join(others)} had other rows there than {runs[0].path} (another part of train set "
            f"aside?) and may have trained on these; name a dev file, or give runs with the same split{instead}"
        )


def require_folder(folder: Path) -> None:
    """A run's own scores are not for others to write."""
    if files.is_run(folder):
        raise UserError(f"{folder}: is a run; leave out -o to add to it, or give another folder")


def keep_in_folder(folder: Path, evaluation: Evaluation, models: Sequence[str]) -> Path:
    """Into a folder of their own: predictions/ and scores.json."""
    require_folder(folder)
    with files.io_trouble(f"{folder} cannot be written", folder.parent):
        folder.mkdir(parents=True, exist_ok=True)
    out = RunDir(folder)
    with out.lock():
        path = _write(out, evaluation)
        asked = evaluation.asked
        about = evaluation.to_dict() | {"models": list(models), "digest": asked.task.origin(asked.split).digest}
        files.write_json(out.scores, {"evaluations": out.evaluations() | {evaluation.asked.key: about}})
    return path


def slices_page(run: RunDir, evaluation: Evaluation) -> dict[str, str]:
    """The scores by columns as a file beside the predictions; other columns of the same rows stay in it."""
    if not evaluation.slices:
        return {}
    task, split = evaluation.asked
    digest = task.origin(split).digest
    path = run.predictions_path(task.name, split).with_suffix(".slices.json")
    before = files.read_json(path) if path.is_file() else {}
    known = before.get("by", {}) if before.get("digest") == digest else {}
    about = {"format": 1, "task": task.name, "split": split, "metric": evaluation.main, "digest": digest}
    return {"slices.json": files.plain_json({**about, "by": {**known, **evaluation.slices}}, indent=1) + "\n"}


def _write(run: RunDir, evaluation: Evaluation) -> Path:
    if not evaluation.asked.task.labelled:  # sums over the whole text: the scores are all there is
        return run.scores
    return run.write_answers(
        evaluation.asked.task,
        evaluation.asked.split,
        evaluation.answers,
        evaluation.pages() | slices_page(run, evaluation),
    )
