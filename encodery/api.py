"""The Python interface: train, load, steps, table.

run = train("rte.yaml", optim={"lr": 3e-5})
run.scores, run.metrics(), run.predictions("glue/rte:dev")
model = load(run)
model(("a premise", "a hypothesis"))
"""

import atexit
import json
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery import config as settings
from encodery import run as runs
from encodery import yaml_reader
from encodery.classifier import Classifier, Prediction, open_classifier
from encodery.digests import sizes_only
from encodery.errors import RunFailed, UserError
from encodery.folds import Folds
from encodery.folds import cross_validate as validate
from encodery.loop import StepReport
from encodery.progress import Progress
from encodery.rundir import RunDir
from encodery.signals import StopRequest
from encodery.tasks import split_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Classifier",
    "Folds",
    "Prediction",
    "Run",
    "StepReport",
    "cross_validate",
    "load",
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
        """Where it is."""
        return self.directory.path

    @property
    def config(self) -> dict[str, Any]:
        """All settings, as stored."""
        tree: dict[str, Any] = yaml_reader.read_text(self.directory.config_text(), str(self.directory.config)).tree
        return tree

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Scores by `glue/rte:dev`: those of the end of training, and those that `evaluate` added."""
        found = self.directory.read_scores()
        later = {key: about["scores"] for key, about in found.get("evaluations", {}).items() if about["scores"]}
        return {**found.get("scores", {}), **later}

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
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return pd.DataFrame([_flat(row) for row in rows])


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
    """Train as the command does; called again it goes on, and a finished run is left as it is.

    `config` is a file, `recipe:…`, a mapping or nothing; sections such as `optim={"lr": 3e-5}` are laid on top.
    """
    resolved = settings.load(_config(config), sections)
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
        base = settings.load(_config(config), sections)
        if fold is None or len(base.config.tasks) != 1:
            return base
        tree = base.config.plain()
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
    """A generator that nobody closed saves and gives its lock back before the interpreter is taken apart."""
    for generator in list(_unfinished):
        generator.close()  # type: ignore[attr-defined]


def _steps(
    config: str | Path | Mapping[str, Any] | RunDir | Run | None,
    out: str | Path | RunDir | Run | None,
    restart: bool,
    allow_change: bool,
    sections: Mapping[str, Any],
) -> Iterator[StepReport]:
    resolved = settings.load(_config(config), sections)
    place = None if out is None else _path(out)
    with runs.prepared(resolved, place, restart, allow_change, Progress(quiet=True), StopRequest()) as session:
        if isinstance(session, RunDir):
            return
        for report in session.steps():
            session.after(report)
            try:
                yield report
            except GeneratorExit:
                session.save()
                raise
        runs.conclude(session, resolved)


def load(
    source: str | Path | RunDir | Run,
    device: str = "auto",
    *,
    head: str | None = None,
    allow_code: bool = False,
    verify: bool = True,
) -> Classifier:
    """A trained model from a run, a folder or the hub; `head` names one where there are several.

    `allow_code` lets Python files run that a run directory brings along (an own objective). `verify=False` compares
    the files of a finished run by size alone, not by sha256.
    """
    path = source if isinstance(source, str) else _path(source)
    with sizes_only(not verify):
        return open_classifier(path, device, head=head, allow_code=allow_code)


def table(*dirs: str | Path | RunDir | Run, baseline: str | None = None) -> "pd.DataFrame":
    """Runs at and below the folders, grouped by settings: mean ± sd over seeds, and differences to a baseline."""
    import pandas as pd

    from encodery.report import tables

    return pd.DataFrame(tables.table([_path(one) for one in dirs], baseline).plain())


def _path(place: str | Path | RunDir | Run) -> Path:
    return place.path if isinstance(place, RunDir | Run) else Path(place)


def _config(source: str | Path | Mapping[str, Any] | RunDir | Run | None) -> str | Path | Mapping[str, Any] | None:
    return source.path if isinstance(source, RunDir | Run) else source
