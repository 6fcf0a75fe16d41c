"""What studies of many runs share: their lock, the config that all runs begin with, the demand that all are done."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from encodery.config.load import Resolved, with_code_paths
from encodery.core import files, yaml
from encodery.core.lock import RunLock
from encodery.errors import RunFailed, Stopped
from encodery.runs.sweep_spec import Outcome, RunSpec
from encodery.sweep.sweep_file import SweepFile, parse

BASE = "base.yaml"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Inside, the study's folder is there and ours: two commands would choose, and write tables, over each other."""
    with files.io_trouble(f"{folder} cannot be written", folder.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with RunLock(folder):
        yield


def write_base(base: Resolved, folder: Path, evaluate: str | None) -> None:
    """The config that all runs share, with paths that hold from everywhere.

    `evaluate` replaces `train.evaluate` unless evaluations choose the weights; None leaves it as it is.
    """
    tree = with_code_paths(base)
    for key in ("name", "init_from", "tokenizer"):
        path = base.folder / str(tree["model"][key])
        if tree["model"][key] and path.exists():
            tree["model"][key] = str(path.resolve())
    train = tree["train"]
    if evaluate and train["select"] == "last" and train["patience"] is None:
        train["evaluate"] = evaluate
    files.write_atomic(folder / BASE, yaml.write(tree))


def sweep_of(folder: Path, name: str, block: dict[str, object]) -> tuple[SweepFile, str]:
    """A sweep over the study's base in a folder of its own, and its text."""
    (folder / name).mkdir(exist_ok=True)
    text = yaml.write({"base": str((folder / BASE).resolve()), **block})
    return parse(text, f"{folder.name}/{name}", folder, name), text


def require_done(folder: Path, specs: Sequence[RunSpec], outcomes: Sequence[Outcome]) -> None:
    """A study needs all its runs."""
    names = {spec.id: spec.name for spec in specs}
    ended = [one for one in outcomes if one.id in names]
    if any(one.state == "stopped" for one in ended):
        raise Stopped(f"{folder}: stopped; run the same command to resume")
    bad = [f"{names[one.id]} {one.state}: {one.error or ''}".rstrip() for one in ended if one.state != "done"]
    lost = [name for id, name in names.items() if id not in {one.id for one in ended}]
    if bad or lost:
        listed = "\n".join([*bad, *lost][:5])
        raise RunFailed(f"{folder}: {len(bad) + len(lost)} runs are not done; run the same command again\n{listed}")
