"""The Python interface: train, load, predict, evaluate, export, inspect, report, run_sweep, steps, table.

run = train("rte.yaml", optim={"lr": 3e-5})
run.scores, run.metrics(), run.predictions("glue/rte:dev")
model = load(run)
model(("a premise", "a hypothesis"))
"""

import atexit
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.config import load as settings
from encodery.config.layers import is_data_file
from encodery.core import files, yaml
from encodery.core.files import sizes_only
from encodery.core.progress import Progress
from encodery.core.signals import StopRequest
from encodery.core.text import counted
from encodery.errors import RunFailed, Stopped, UserError
from encodery.inference.classifier import Classifier, Prediction, open_classifier
from encodery.report.page.write import report
from encodery.runs.directory import RunDir
from encodery.tasks import split_name
from encodery.training import run as runs
from encodery.training.cross_validation import Folds
from encodery.training.cross_validation import cross_validate as validate
from encodery.training.loop import StepReport

if TYPE_CHECKING:
    import pandas as pd

    from encodery.inference.evaluate import Evaluation
    from encodery.inference.task_argument import TaskSplit
    from encodery.models.model import Precision
    from encodery.runs.sweep_spec import Outcome

__all__ = [
    "Classifier",
    "Folds",
    "Prediction",
    "Run",
    "StepReport",
    "Sweep",
    "cross_validate",
    "evaluate",
    "export",
    "inspect",
    "load",
    "predict",
    "report",
    "run_sweep",
    "steps",
    "table",
    "train",
]


class Run:
    """A run directory, with its content as Python data."""

    def __init__(self, path: "str | Path | RunDir | Run"):
        self.directory = RunDir.open(_path(path))

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def config(self) -> dict[str, Any]:
        """All settings, as stored."""
        tree: dict[str, Any] = yaml.read_text(self.directory.config_text(), str(self.directory.config)).tree
        return tree

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Scores by `glue/rte:dev`: those of the end of training, and those that `evaluate` added for other data."""
        return self.directory.all_scores()

    def metrics(self) -> "pd.DataFrame":
        """What was recorded along the way: one row per record, with its step."""
        import pandas as pd

        return pd.DataFrame(self.directory.metrics())

    def predictions(self, which: str) -> "pd.DataFrame":
        """Answers on `glue/rte:dev`: id, prediction, and a column p_<label> for each probability."""
        import pandas as pd

        task, split = split_name(which)
        path = self.directory.predictions_path(task, split or "dev")
        if not path.is_file():
            here = ", ".join(sorted(file.stem for file in self.directory.predictions.glob("*.jsonl"))) or "none"
            raise UserError(f"{path}: no such predictions; there are {here} (evaluate --on {which} makes them)")
        rows = self.directory.read_predictions(task, split or "dev")
        return pd.DataFrame([_flat(row) for row in rows.values()])


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    chances = row.get("probabilities") or {}
    rest = {key: value for key, value in row.items() if key != "probabilities"}
    return {**rest, **{f"p_{label}": chance for label, chance in chances.items()}}


def train(
    config: str | Path | Mapping[str, Any] | RunDir | Run | None = None,
    out: str | Path | RunDir | Run | None = None,
    *,
    restart: bool = False,
    allow_change: bool = False,
    quiet: bool = True,
    **sections: Any,
) -> Run:
    """Train as the command does; called again it resumes, and a finished run is left as it is.

    `config` is a config, a data file such as reviews.csv, `recipe:…`, a mapping or nothing; sections such as
    `optim={"lr": 3e-5}` are laid on top.
    """
    resolved = settings.load(_config(config), _whole_sections(sections))
    place = None if out is None else _path(out)
    progress = Progress(quiet)
    return Run(runs.train_run(resolved, place, restart=restart, allow_change=allow_change, progress=progress))


def cross_validate(
    config: str | Path | Mapping[str, Any] | RunDir | Run | None = None,
    out: str | Path | None = None,
    *,
    folds: int = 5,
    restart: bool = False,
    allow_change: bool = False,
    quiet: bool = True,
    **sections: Any,
) -> Folds:
    """Train on each fold's complement and answer the fold, as `encodery train --folds` does; called again it resumes.

    The result has `scores` of each fold, `together` of all rows at once, `markdown()` and the file `predictions`.
    """

    def resolve(fold: int | None) -> settings.Resolved:
        base = settings.load(_config(config), _whole_sections(sections))
        if fold is None or len(base.config.tasks) != 1:
            return base
        tree = base.config.to_dict()
        return settings.load({**tree, "tasks": [{**tree["tasks"][0], "folds": folds, "fold": fold}]})

    done, failures = validate(resolve, folds, out, restart, allow_change, lambda: Progress(quiet))
    if done is None:
        raise RunFailed("; ".join(f"fold {number}: {sentence}" for number, sentence in failures.items()))
    return done


def steps(
    config: str | Path | Mapping[str, Any] | RunDir | Run | None = None,
    out: str | Path | RunDir | Run | None = None,
    *,
    restart: bool = False,
    allow_change: bool = False,
    **sections: Any,
) -> Iterator[StepReport]:
    """The loop itself. Records, evaluations and checkpoints are written as ever; leaving early saves a checkpoint."""
    generator = _steps(config, out, restart, allow_change, sections)
    _unfinished.add(generator)
    return generator


_unfinished: "weakref.WeakSet[Iterator[StepReport]]" = weakref.WeakSet()


@atexit.register
def _close_unfinished() -> None:
    """A generator that was not closed saves and gives its lock back before the interpreter is taken apart."""
    for generator in list(_unfinished):
        generator.close()  # type: ignore[attr-defined]


def _steps(
    config: str | Path | Mapping[str, Any] | RunDir | Run | None,
    out: str | Path | RunDir | Run | None,
    restart: bool,
    allow_change: bool,
    sections: Mapping[str, Any],
) -> Iterator[StepReport]:
    resolved = settings.load(_config(config), _whole_sections(sections))
    place = None if out is None else _path(out)
    with runs.prepared(resolved, place, restart, allow_change, Progress(quiet=True), StopRequest()) as (_, session):
        if session is None:
            return
        for report in session.steps():
            session.after(report)
            try:
                yield report
            except GeneratorExit:
                session.save()
                raise
        session.finish()


def load(
    source: str | Path | RunDir | Run,
    device: str = "auto",
    *,
    head: str | None = None,
    allow_code: bool = False,
    verify: bool = True,
    precision: "Precision" = "fp32",
) -> Classifier:
    """A trained model from a run, a folder or the hub; `head` names one where there are several.

    `allow_code` lets Python files run that a run directory brings along (an own objective). `verify=False` compares
    the files of a finished run by size alone, not by sha256. In `precision` bf16 or fp16 matrices are multiplied so,
    which is faster where the device can do it and rounds the logits.
    """
    if isinstance(source, list | tuple):
        raise UserError("load: one model at a time; predict([a, b], 'new.csv') and evaluate([a, b], …) take several")
    path = source if isinstance(source, str) else _path(source)
    with sizes_only(not verify):
        return open_classifier(path, device, head=head, allow_code=allow_code, precision=precision)


class Sweep:
    """The folder of a sweep, with its runs."""

    def __init__(self, path: "str | Path | Sweep"):
        from encodery.runs.sweep_spec import read_plan

        self.path: Path = path.path if isinstance(path, Sweep) else Path(path)
        read_plan(self.path)  # an error where it is no sweep's folder

    def __repr__(self) -> str:
        return f"Sweep({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def runs(self) -> list[Run]:
        """The runs of its plan that are done."""
        from encodery.runs.sweep_spec import read_plan

        directories = [RunDir(self.path / spec.name) for spec in read_plan(self.path) if spec.config is not None]
        return [Run(directory) for directory in directories if directory.is_done]

    def table(self, baseline: str | None = None) -> "pd.DataFrame":
        """Mean ± sd over seeds of every configuration, and differences to a baseline."""
        return table(self.path, baseline=baseline)

    def ranking(self) -> "pd.DataFrame":
        """A row for each configuration, by the sweep's metric, the best of each task first."""
        import pandas as pd

        from encodery.sweep import best

        rows = [
            {"task": one.task, "settings": one.label, "metric": one.metric, "mean": one.mean, "n": len(one.scores),
             "best_run": str(self.path / one.spec.name)}
            for ranked in best.ranking(self.path).values() for one in ranked
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def best(self, task: str | None = None) -> Run:
        """The best seed of the configuration with the best mean; `task` names one where there are several."""
        from encodery.sweep import best

        tasks = best.ranking(self.path)
        if not tasks:
            raise UserError(f"{self.path}: no run is done yet")
        return Run(self.path / best.only(tasks, task).spec.name)


def run_sweep(
    config: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    *,
    executor: str = "local",
    allow_code: bool = False,
    quiet: bool = True,
    **sections: Any,
) -> Sweep:
    """Train many runs as `encodery sweep run` does, in processes of their own; called again it resumes.

    `config` is a sweep file, a config, a data file, `recipe:…`, a mapping or nothing. The rest is laid on top: sections
    of a config (`optim={"lr": 3e-5}`) and keys of a sweep file (`grid={"optim.lr": [1e-5, 3e-5]}`, `variants`, `seeds`,
    `search`, `metric`, `resources={"devices": "cpu:2"}`, `limits`).
    """
    from encodery.sweep import command_line, sweep_file
    from encodery.sweep.run import run_sweep as run

    if isinstance(config, Mapping) or config is None:
        file = sweep_file.parse(yaml.write(dict(config or {})), "given", Path.cwd(), "")
    elif Path(config).is_dir():
        raise UserError(f"{config} is a folder; give the file that the sweep was started with")
    else:
        file = sweep_file.read(str(config))
    file = command_line.lay(file, _whole_sections(sections))
    folder = Path(out) if out is not None else Path("runs") / (file.name or f"sweep-{files.digest_text(file.text)[:8]}")
    limits, progress = file.sweep.limits, Progress(quiet)
    outcomes = run(file, folder, file.sweep.resources, limits, executor, progress, allow_code=allow_code)
    sweep = Sweep(folder)
    _require_ended(sweep, {outcome.id: outcome for outcome in outcomes})
    return sweep


def _require_ended(sweep: Sweep, outcomes: "Mapping[str, Outcome]") -> None:
    """Runs that failed are an error that names them, and so is a sweep that was stopped."""
    from encodery.runs.sweep_spec import read_plan
    from encodery.sweep.fixed_plan import FAILED, OPEN

    planned = [(spec.name, outcomes.get(spec.id)) for spec in read_plan(sweep.path)]
    failed = [f"{name}: {end.state}: {end.error or ''}" for name, end in planned if end and end.state in FAILED]
    if failed:
        again = f"`encodery sweep retry {sweep.path}` queues failed runs again"
        raise RunFailed("\n".join([*failed, again]))
    left = sum(end is None or end.state in OPEN for _, end in planned)
    if left:
        raise Stopped(f"{counted(left, 'run')} of {sweep.path} left: the same call resumes")


Model = str | Path | RunDir | Run | Classifier


def predict(
    model: Model | Sequence[Model],
    data: Any,
    *,
    out: str | Path | None = None,
    text: str | None = None,
    text2: str | None = None,
    skip_bad_rows: bool = False,
    device: str = "auto",
) -> Any:
    """Answers to texts, as `load(run)` gives them; to a data file (`new.csv`) a data frame with its rows and answers.

    Several models are an ensemble, for files only. `out` also writes the answers to a .jsonl, .csv or .tsv file; `text`
    and `text2` name columns that are called otherwise than in training.
    """
    from encodery.inference import raw_text

    models = [_opened(one, device) for one in _several(model)]
    if not (isinstance(data, str | Path) and is_data_file(str(data)) and Path(data).is_file()):
        if isinstance(data, Path) or (isinstance(data, str) and is_data_file(data) and len(data.split()) == 1):
            raise UserError(f"{data}: there is no such data file")
        if len(models) > 1 or out is not None:
            raise UserError(
                "predict: `out` and several models need a data file (write the texts to a csv file with the column "
                "text); one model answers texts directly"
            )
        return models[0](data)
    import pandas as pd

    write = raw_text.writer(Path(out), like=str(data)) if out is not None else None
    examples = raw_text.of_file(str(data), models[0], (text, text2), skip_bad_rows)
    rows = list(raw_text.answered(models, examples, lambda _: None))
    if write is not None:
        write(rows)
    return pd.DataFrame([_flat(row) for row in rows])


def evaluate(
    model: Model | Sequence[Model],
    on: str | Path,
    *,
    data: str | Path | None = None,
    head: str | None = None,
    text: str | None = None,
    text2: str | None = None,
    label: str | None = None,
    labels: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Scores by task and split (`glue/rte:dev`, `table/gold:test`) of one model, or of several as an ensemble.

    `on` is a task as in `evaluate --on`, or a file with labels such as gold.csv, which is read with the run's own
    columns and labels; `text`, `text2` and `label` name columns that are called otherwise, and `labels` says what
    labels of the file mean: {"ja": "yes"}. `out` keeps predictions and scores in a folder.

    A pretrained model is scored on plain text, `corpus:dev` or a text file, as the command does it: one at a time, with
    masks drawn from `seed`; the result is by text and split (`news.txt:train`, `corpus/wiki:dev`), with its loss.
    """
    from encodery.inference.evaluate import keep_in_folder
    from encodery.inference.task_argument import resolve_split

    several = _several(model)
    sources = [_source(one) for one in several]
    columns = {"text": text, "text2": text2, "label": label, "labels": labels}
    folder = None if data is None else str(data)
    reading: dict[str, Any] = {"columns": columns, "head": head or _loaded_head(several), "models": sources}
    splits = resolve_split(_file(on, "evaluate"), folder, _runs_of(sources), **reading)
    rows = all(asked.task.labelled for asked in splits)
    evaluations = _on_rows(several, splits, head, device) if rows else _on_text(several, splits, device, seed)
    scores: dict[str, dict[str, float]] = {}
    for evaluation in evaluations:
        if out is not None:
            keep_in_folder(Path(out), evaluation, sources)
        scores[evaluation.asked.key] = dict(evaluation.scores or {})
    return scores


def _loaded_head(several: Sequence[Model]) -> str | None:
    """The head that models were opened with (`en.load(run, head=…)`), which then answers a file, too."""
    names = {one.head.name if isinstance(one, Classifier) else None for one in several}
    return names.pop() if len(names) == 1 else None


def _runs_of(sources: Sequence[str]) -> list[RunDir]:
    """The runs among the models, whose columns and labels a file is read with."""
    from encodery.models.locate import kept_on_the_way

    return [RunDir.open(one) for one in sources if files.is_run(one)] or kept_on_the_way(sources)


def _on_rows(
    several: Sequence[Model], splits: "Sequence[TaskSplit]", head: str | None, device: str
) -> "Iterator[Evaluation]":
    """Answers to rows with labels."""
    from encodery.inference.evaluate import evaluate as answer
    from encodery.inference.evaluate import without_labels

    models = [_opened(one, device, undecided=True) for one in several]
    for asked in splits:
        evaluation = answer(models, asked, head)
        if evaluation.scores is None:
            raise UserError(f"{asked.key}: {without_labels(asked)}, so it cannot be scored (label= names its column)")
        yield evaluation


def _on_text(several: Sequence[Model], splits: "Sequence[TaskSplit]", device: str, seed: int) -> "Iterator[Evaluation]":
    """A pretrained model on plain text."""
    from encodery.inference.evaluate_text import open_pretrained

    if len(several) != 1:
        raise UserError(f"{splits[0].key}: plain text is scored with one model at a time: give one")
    model = open_pretrained(_source(several[0]), device)
    for asked in splits:
        yield model.evaluate(asked, model.blocks(asked), seed)


def _source(model: Model) -> str:
    """Where a model comes from: a run, a folder, a name."""
    if isinstance(model, Classifier):
        return str(model.source)
    return model if isinstance(model, str) else str(_path(model))


def export(
    run: str | Path | RunDir | Run,
    folder: str | Path,
    *,
    head: str | None = None,
    onnx: bool = False,
    int8: bool = False,
) -> Path:
    """A clean folder for transformers (or with `onnx` for ONNX Runtime), verified to give the same outputs."""
    from encodery.exchange.export import export as write
    from encodery.exchange.export_onnx import export_onnx

    if int8 and not onnx:
        raise UserError("export: int8 needs onnx=True")
    if not onnx:
        write(_path(run), Path(folder), head)
        return Path(folder)
    with tempfile.TemporaryDirectory() as nowhere:
        source = write(_path(run), Path(nowhere) / "model", head).folder if head else _path(run)
        export_onnx(source, Path(folder), int8)
    return Path(folder)


def _several(model: Model | Sequence[Model]) -> Sequence[Model]:
    return [model] if isinstance(model, str | Path | RunDir | Run | Classifier) else model


def _opened(model: Model, device: str, undecided: bool = False) -> Classifier:
    if isinstance(model, Classifier):
        return model
    path = model if isinstance(model, str) else _path(model)
    return open_classifier(path, device, undecided=undecided)


def table(*dirs: str | Path | RunDir | Run, baseline: str | None = None) -> "pd.DataFrame":
    """Runs at and below the folders, grouped by settings: mean ± sd over seeds, and differences to a baseline."""
    import pandas as pd

    from encodery.report import table as report_table

    return pd.DataFrame(report_table.table([_path(one) for one in dirs], baseline).to_dict())


def inspect(
    config: str | Path | Mapping[str, Any] | RunDir | Run | None = None,
    *,
    split: str = "train",
    rows: int = 5,
    head: str | None = None,
    allow_code: bool = False,
    **sections: Any,
) -> "dict[str, pd.DataFrame]":
    """The data as the model will read them, as `encodery inspect` shows them: a data frame for each of its tables.

    `data`, `labels`, `doubles`, `lengths`, `rows` (so many of `split`, decoded) and `first batch`, where there is such;
    of several tasks `head` names one. Nothing is trained.
    """
    import pandas as pd

    from encodery.analysis.inspect import only, run_records
    from encodery.tasks import SPLITS

    if rows < 0:
        raise UserError(f"rows={rows}: must be 0 or more")
    resolved = settings.load(_config(config), _whole_sections(sections), allow_code=allow_code)
    records = run_records(only(resolved, head) if head else resolved, SPLITS.get(split, split), rows)
    return {title: pd.DataFrame(found) for title, found in records.items()}


def _path(place: str | Path | RunDir | Run) -> Path:
    return place.path if isinstance(place, RunDir | Run) else Path(place)


def _whole_sections(sections: Mapping[str, Any]) -> Mapping[str, Any]:
    """In Python a section is a mapping; a dotted key, as on the command line, is told apart from a misspelt one."""
    for key, value in sections.items():
        if "." in key:
            section, _, rest = key.partition(".")
            inner = "".join(f"{{{part!r}: " for part in rest.split("."))
            raise UserError(f"{key}: in Python write {section}={inner}{value!r}{'}' * len(rest.split('.'))}")
    return sections


def _config(source: str | Path | Mapping[str, Any] | RunDir | Run | None) -> str | Path | Mapping[str, Any] | None:
    if hasattr(source, "columns"):
        _file(source, "train")
    return source.path if isinstance(source, RunDir | Run) else source


def _file(given: object, verb: str) -> str:
    """A run names its data by file, so that it can be read again; predict alone takes data frames."""
    if hasattr(given, "columns"):
        how = "write it (frame.to_parquet('rows.parquet')) and give 'rows.parquet'"
        raise UserError(f"{verb}: a data frame is no file: {how}")
    return str(given)
