"""A run directory as files. No torch here: reports, tables and sweeps read runs through this page only.

    config.yaml  run.json  metrics.jsonl  log.txt  predictions/  scores.json  README.md  checkpoints/  model/  code/
    DONE (last)

Everything is written atomically or by whole lines, and with secrets hidden.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from encodery.core import files, yaml
from encodery.core.files import as_name, below, check_name, file_name
from encodery.core.lock import Holder, RunLock, holder
from encodery.core.redact import scrub, scrub_data, scrub_yaml
from encodery.errors import UserError
from encodery.runs import finished, json_schemas
from encodery.runs.finished import Change, Finished
from encodery.runs.metrics_log import MetricsFile

if TYPE_CHECKING:
    from encodery.tasks.base import Answer, Task


_NAMES = {
    "config.yaml", "run.json", "metrics.jsonl", "log.txt", "predictions", "scores.json", "README.md", "checkpoints",
    "model", "kept", "best", "code", "attacks", "dynamics", "DONE", finished.STATUS, "bad_rows.jsonl",
}  # fmt: skip
_OLD_LOG = re.compile(r"^log\.\d+\.txt$")
_MOVED = re.compile(r"\.old-\d+$")


class RunDir:
    """One run's directory. With `writes=False` it is read as ever, and what would write does nothing: of several
    processes of a run only the first one writes.
    """

    def __init__(self, path: Path | str, writes: bool = True) -> None:
        self.path, self.writes = Path(path), writes
        self.config = self.path / "config.yaml"
        self.metrics_file = MetricsFile(self.path / "metrics.jsonl")
        self.log_file = self.path / "log.txt"
        self.scores = self.path / "scores.json"
        self.card = self.path / "README.md"
        self.predictions = self.path / "predictions"
        self.attacks = self.path / "attacks"
        self.checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"
        self.kept = self.path / "kept"
        self.best = self.path / "best"
        self.code = self.path / "code"
        self.bad_rows = self.path / "bad_rows.jsonl"
        self.status = self.path / finished.STATUS
        self.done = Finished(self.path)
        self._change: Change | None = None

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    @classmethod
    def create(cls, path: Path | str) -> "RunDir":
        """Make the directory, or go on in it; refused if it holds something else than a run."""
        run = cls(path)
        check_name(run.path.resolve().name)
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            visible = {entry.name for entry in run.path.iterdir() if not entry.name.startswith(".")}
        except OSError as error:
            raise UserError(f"{path} cannot be used as a run directory: {error.strerror}") from None
        foreign = sorted(name for name in visible - _NAMES if not _OLD_LOG.match(name))
        if foreign and "config.yaml" not in visible:
            raise UserError(f"{path} is not a run directory and not empty ({foreign[0]}): give another folder with -o")
        return run

    @classmethod
    def open(cls, path: Path | str) -> "RunDir":
        """An existing run; an error says what is wrong with the folder."""
        run = cls(path)
        problem = run.problem()
        if problem:
            raise UserError(problem)
        return run

    # The lock

    def lock(self) -> AbstractContextManager[Any]:
        """`with run.lock():` around everything that writes. A folder that is a link would lead the writes elsewhere."""
        if not self.writes:
            return nullcontext()
        for folder in sorted(self.path.iterdir()) if self.path.is_dir() else ():
            if folder.is_symlink() and folder.is_dir():
                raise UserError(
                    f"{folder} is a link to a folder, and links are not followed below a run directory: put a real "
                    "folder there, or link the whole run directory"
                )
        return RunLock(self.path)

    def holder(self) -> Holder | None:
        """The process that is running this run now."""
        return holder(self.path)

    def clean(self) -> None:
        """Complete or remove what killed writers left. Call it with the lock held."""
        if not self.writes:
            return
        self.done.complete()
        for folder in (self.path, self.predictions, self.attacks, self.checkpoints, self.kept, self.best):
            files.remove_leftovers(folder)

    def move_aside(self) -> Path | None:
        """Rename the run to <name>.old-1, -2, … so that one can begin anew; refused while somebody runs it."""
        if not self.path.exists():
            return None
        with self.lock():
            target = next(path for path in self._old_paths() if not path.exists())
            with files.io_trouble(f"{self.path} could not be moved aside", self.path.parent):
                os.rename(self.path, target)
                files.sync_folder(target.parent)
        return target

    def _old_paths(self) -> Iterator[Path]:
        return (self.path.with_name(f"{self.path.name}.old-{number}") for number in range(1, 1_000_000))

    # Models

    def best_of(self, task: str) -> Path:
        """With `train.select: each`, where the weights lie that were best for a task."""
        return self.best / file_name(task).replace(".", "_")

    def weights_of(self, task: str | None) -> Path:
        """The model that the scores of a task are of: the task's own best one, or model/ where it has none."""
        if task is None or not self.scores.exists():
            return self.model
        chosen = self.read_scores().get("chosen") or {}
        own = chosen.get("select") == "each" and task in (chosen.get("best_of") or {})
        return self.best_of(task) if own else self.model

    def own_weights(self) -> dict[str, Path]:
        """The tasks that have a model of their own, with its folder."""
        found = {task: self.weights_of(task) for task in self.task_names()}
        return {task: folder for task, folder in found.items() if folder != self.model}

    # Writing

    @contextmanager
    def change(self) -> Iterator[None]:
        """Inside, what is written into a finished run is held back; at the end all of it takes effect as one step.

        Call it with the lock held. An unfinished run is written file by file: it is not read before it is done.
        """
        if self._change or not self.is_done:
            yield
            return
        self.clean()
        self._change = Change(self.done)
        try:
            yield
            self._change.commit()
        finally:
            self._change.undo()
            self._change = None

    @contextmanager
    def atomic(self, path: Path) -> Iterator[IO[bytes]]:
        """A stream whose bytes become a file of the run when the block, or the change it is part of, ends well."""
        if not self.writes:
            yield BytesIO()
            return
        if not path.parent.is_dir():
            with files.io_trouble(f"{path} could not be written", self.path):
                path.parent.mkdir(exist_ok=True)
        with self.change(), self._change.open(path) if self._change else files.atomic(path) as stream:
            yield stream

    def write(self, path: Path, content: bytes | str) -> None:
        """Replace a file of the run in one instant, or with the change that is under way."""
        with self.atomic(path) as stream:
            stream.write(content.encode() if isinstance(content, str) else content)

    def write_json(self, path: Path, value: Any) -> None:
        """Write a value as readable JSON."""
        self.write(path, files.plain_json(value, indent=2) + "\n")

    def _current(self, path: Path) -> Path:
        return self._change.current(path) if self._change else path

    # What was asked, and where it ran

    def config_text(self) -> str:
        """The resolved config as stored."""
        try:
            return self.config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{self.config} cannot be read: {error}") from None

    def write_config(self, text: str) -> None:
        """Store the resolved config; to compare later, compare with `scrub_yaml` of the new one."""
        self.write(self.config, scrub_yaml(text))

    def info(self) -> dict[str, Any]:
        """run.json: what happened, as data; empty before the first `update_info`."""
        path = self._current(self.path / "run.json")
        if not path.exists():
            return {}
        stored = files.read_json(path)
        if not isinstance(stored, dict):
            raise UserError(f"{path} is damaged, it is not a mapping: restore it from a copy")
        json_schemas.require(stored, json_schemas.INFO, path, "restore it from a copy")
        return stored

    def task_names(self) -> list[str]:
        """The tasks that the run was trained on."""
        info = self.info()
        known: list[str] = info.get("tasks") or ([str(info["task"])] if info.get("task") else [])
        return known

    def rows_of(self, task: str, split: str) -> dict[str, Any]:
        """What the run says of a split of one of its tasks; empty for others."""
        info = self.info()
        if task not in self.task_names():
            return {}
        found: dict[str, Any] = info.get("data_of", {}).get(task, info.get("data", {})).get(split, {})
        return found

    def update_info(self, **fields: Any) -> None:
        """Merge fields into run.json."""
        self.write_json(self.path / "run.json", self.info() | scrub_data(fields))

    def notice(self, text: str) -> None:
        """Add to the list of things a reader of the run should know."""
        self.update_info(notices=[*self.info().get("notices", []), {"time": now(), "text": text}])

    def read_status(self) -> dict[str, Any]:
        """status.json: what a sweep says of the run; empty where none does, or the file is damaged."""
        try:
            stored = files.read_json(self.status)
        except (UserError, OSError):
            return {}
        return stored if isinstance(stored, dict) else {}

    # What happened

    def record(self, step: int, **values: Any) -> None:
        """Add a line to metrics.jsonl. Record step k before saving checkpoint k: resuming drops what is later."""
        if self.writes:
            self.metrics_file.append({"step": step, "time": round(time.time(), 3)} | scrub_data(values))

    def metrics(self) -> list[dict[str, Any]]:
        """All records; a last line that was torn by a kill, or is being written now, is left out."""
        self.require_as_finished(self.metrics_file.path)
        return self.metrics_file.read()

    def seconds(self, most: int | None = None) -> float | None:
        """Time spent in training steps, from the records in the last bytes of metrics.jsonl; default: from all."""
        self.require_as_finished(self.metrics_file.path)
        return self.metrics_file.seconds(most)

    def rewind_metrics(self, step: int) -> int:
        """Drop the records after the step, so that a resumed run's equal an undisturbed one's; how many are left."""
        return self.metrics_file.rewind(step) if self.writes else 0

    def log(self, line: str) -> None:
        """Add to log.txt, with the time."""
        if self.writes:
            files.append_line(self.log_file, f"{now()} {scrub(line)}")

    def sync(self) -> None:
        """Bring metrics and log to the disk; before a checkpoint, so that it never survives its own records."""
        if not self.writes:
            return
        with files.io_trouble(f"{self.path} could not be written", self.path):
            for path in (self.metrics_file.path, self.log_file):
                if path.exists():
                    files.sync_file(path)

    # What came out

    def predictions_path(self, task: str, split: str) -> Path:
        """predictions/glue-rte-dev.jsonl for glue/rte and dev."""
        return self.predictions / f"{file_name(task)}-{check_name(split)}.jsonl"

    def write_predictions(self, task: str, split: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        """Write one prediction per line, all or none."""
        path = self.predictions_path(task, split)
        with self.atomic(path) as stream:
            stream.writelines(f"{files.plain_json(dict(row))}\n".encode() for row in rows)
        return path

    def read_predictions(self, task: str, split: str) -> dict[str, dict[str, Any]]:
        """The lines of that file by example id, in their order; a damaged one is an error that names it."""
        path, rows = self.predictions_path(task, split), dict[str, dict[str, Any]]()
        self.require_as_finished(path)
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                row = json.loads(line)
                if "prediction" not in row:
                    raise ValueError("no prediction")
                rows[str(row["id"])] = row
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise UserError(f"{path}, line {number}: is not a prediction ({error})") from None
        return rows

    def write_answers(
        self, task: "Task", split: str, answers: "Mapping[str, Answer]", pages: Mapping[str, str] | None = None
    ) -> Path:
        """Predictions by line, and beside them the files that the task's community exchanges, and pages to read."""
        if not self.writes:
            return self.predictions_path(task.name, split)
        for ending, text in (pages or {}).items():
            self.write(self.predictions_path(task.name, split).with_suffix(f".{ending}"), text)
        for name, data in task.official_files(answers).items():
            self.write_json(self.predictions_path(task.name, split).with_suffix(f".{name}.json"), data)
        rows = ({"id": id, **{k: v for k, v in a.items() if k not in task.unwritten}} for id, a in answers.items())
        return self.write_predictions(task.name, split, rows)

    def read_scores(self) -> dict[str, Any]:
        """scores.json."""
        stored = files.read_json(self._current(self.scores))
        if not isinstance(stored, dict):
            raise UserError(f"{self.scores} is damaged, it is not a mapping: {finished.REMEDY}")
        json_schemas.require(stored, json_schemas.SCORES, self.scores, finished.REMEDY)
        return stored

    def all_scores(self) -> dict[str, dict[str, float]]:
        """Scores by `glue/rte:dev`: those of the end of training, and those that `evaluate` added for other data."""
        own: dict[str, dict[str, float]] = self.read_scores().get("scores") or {}
        later = self.evaluations().items()
        return own | {key: about["scores"] for key, about in later if key not in own and about.get("scores")}

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """What `evaluate` added after the training, by `hans:dev`: scores, main metric, alarms, notes."""
        return (self.read_scores().get("evaluations") or {}) if self.scores.exists() else {}

    def write_scores(self, scores: Mapping[str, Any]) -> None:
        """Write scores.json; a finished run's DONE changes with it."""
        self.write_json(self.scores, scrub_data(scores))

    def write_card(self, text: str) -> None:
        """README.md, beside the run and inside its model."""
        for folder in (self.path, self.model):
            if folder.is_dir():
                self.write(folder / self.card.name, scrub(text))

    def forget(self) -> None:
        """Remove a directory in which nothing was written yet but hidden files; call it with the lock held."""
        if self.writes and self.path.is_dir() and all(entry.name.startswith(".") for entry in self.path.iterdir()):
            shutil.rmtree(self.path, ignore_errors=True)

    def drop_attempt(self) -> None:
        """Remove what a run wrote that ended before its first step; its log stays. Call it with the lock held."""
        for path in (self.path / "run.json", self.config, self.bad_rows):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.path / "code", ignore_errors=True)

    def drop_checkpoints(self) -> None:
        """Remove the checkpoints of a finished run: model/ holds its weights."""
        if self.writes:
            shutil.rmtree(self.checkpoints, ignore_errors=True)

    def drop_left_checkpoints(self) -> bool:
        """Remove the checkpoints of a finished run whose process was killed while it did so; whether there were any."""
        if not self.writes or not self.is_done or not self.checkpoints.is_dir():
            return False
        train = yaml.read_text(self.config_text(), str(self.config)).tree.get("train")
        if not isinstance(train, Mapping) or train.get("keep_checkpoints") is not False:
            return False
        self.drop_checkpoints()
        return True

    def mark_done(self) -> None:
        """Write DONE, last of all, with the sizes and digests of all files."""
        if not self.writes:
            return
        self.sync()
        with files.io_trouble(f"{self.done.path} could not be written", self.path):
            self.done.write(now())

    def reopen(self) -> None:
        """Take DONE away: the run is trained for longer. Call it with the lock held."""
        if self.writes:
            self.done.path.unlink(missing_ok=True)

    @property
    def is_done(self) -> bool:
        """Whether the run is finished."""
        return self.done.path.is_file()

    def problem(self) -> str | None:
        """What is wrong with this directory, as a sentence; None if nothing is."""
        if not self.path.is_dir():
            return f"{self.path} is not a folder"
        missing = [name for name in ("config.yaml", "run.json") if not (self.path / name).is_file()]
        if missing:
            return f"{self.path} is not a complete run: {' and '.join(missing)} missing"
        try:
            self.config_text(), self.info()  # not the metrics: a table of a thousand runs would read millions of lines
            return self._done_problem()
        except UserError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename or self.path} cannot be read: {error.strerror}"

    def require_as_finished(self, path: Path) -> None:
        """Refuse a file of a finished run that is not as the run, or a later evaluation, left it."""
        if self.is_done and (sentence := self.done.damage_of(path)):
            raise UserError(sentence)

    def _done_problem(self) -> str | None:
        if not self.is_done:
            return None
        if self.done.read().get("scores_sha256") is not None:
            self.read_scores()
        return self.done.problem()


@dataclass(frozen=True)
class FoundRun:
    """A run directory that was found, and what is wrong with it, if anything."""

    run: RunDir
    problem: str | None = None


def find_runs(*folders: Path | str, depth: int | None = None) -> list[FoundRun]:
    """The runs at and below the folders, damaged ones too; what `move_aside` put away counts only if named itself.

    `depth` limits how far below.
    """
    by_path: dict[Path, FoundRun] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder")
        for path in _run_paths(folder, set(), depth):
            by_path.setdefault(path.resolve(), FoundRun(RunDir(path), RunDir(path).problem()))
    return list(by_path.values())


def _run_paths(folder: Path, seen: set[Path], depth: int | None) -> Iterator[Path]:
    if folder.resolve() in seen:  # links may lead round in circles
        return
    seen.add(folder.resolve())
    try:
        names = {entry.name for entry in folder.iterdir()}
    except PermissionError:  # what cannot be looked at holds no run of this person's
        return
    if "run.json" in names or {"config.yaml", "metrics.jsonl"} <= names or {"config.yaml", "DONE"} <= names:
        yield folder
        return
    if depth == 0:
        return
    for name in sorted(names):
        below = folder / name
        if below.is_dir() and not name.startswith(".") and not _MOVED.search(name):
            yield from _run_paths(below, seen, None if depth is None else depth - 1)


def task_and_split(key: str) -> tuple[str, str]:
    """A key of scores, `glue/mnli:dev`, as (`glue/mnli`, `dev`); the task is empty where a split stands alone."""
    task, _, split = key.rpartition(":")  # names of tasks may have colons
    return task, split


def of_task(result: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The part of a result (what scores.json holds) that is about one of its tasks."""
    tables = {
        name: {key: value for key, value in result[name].items() if task_and_split(key)[0] == task}
        for name in ("scores", "main", "majority")
    }
    alarms = [sentence for sentence in result["alarms"] if sentence.startswith(f"{task}:")]
    return {**result, **tables, "alarms": alarms}


def default_path(stem: str, identity: str, root: Path | str = "runs") -> Path:
    """runs/<stem>-<first 8 of the identity>; characters that a name may not have become `-`."""
    return below(Path(root), check_name(f"{as_name(stem)[:100]}-{identity[:8]}"))


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
