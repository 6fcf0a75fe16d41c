"""One sweep from its file to its last run: what `encodery sweep run` and `encodery.run_sweep` do."""

from collections.abc import Sequence
from pathlib import Path

from encodery.core import files
from encodery.core.progress import Progress
from encodery.errors import UserError
from encodery.runs.sweep_spec import Outcome
from encodery.sweep import best
from encodery.sweep.execute import execute
from encodery.sweep.slots import find_slots
from encodery.sweep.sources import source
from encodery.sweep.sweep_file import Limits, Resources, SweepFile


def run_sweep(
    file: SweepFile,
    folder: Path,
    resources: Resources,
    limits: Limits,
    executor: str,
    progress: Progress,
    command: Sequence[str] | None = None,
    allow_code: bool = False,
) -> list[Outcome]:
    """Start or resume it in this folder; how its runs ended. `command` is what `sweep retry` then says to type."""
    not_a_run(folder)
    require_devices(resources, executor)
    folder.mkdir(parents=True, exist_ok=True)
    about = {"metric": file.sweep.metric.to_dict()} | ({"command": list(command)} if command else {})
    runs = source(file, folder, about, allow_code, progress.say)
    files.write_atomic(folder / "sweep.yaml", file.text)
    try:
        return execute(
            folder, runs, resources, limits, executor, progress,
            score=lambda _, run: best.score(run, file.sweep.metric),
        )  # fmt: skip
    finally:
        runs.close()


def not_a_run(folder: Path) -> Path:
    """A sweep in the directory of a run would be hidden by it: tables see one run there."""
    if files.is_run(folder):
        raise UserError(f"{folder} is the directory of a run; give the sweep another folder, such as -o {folder}-sweep")
    return folder


def require_devices(resources: Resources, executor: str) -> None:
    """What this machine does not have is found before anything is planned or written; other machines know theirs."""
    if executor == "local":
        find_slots(resources)
