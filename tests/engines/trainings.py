"""The training that engines interrupt: tiny, slow until it may be fast, and the same without any engine."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import yaml

from encodery.runs.directory import RunDir

SITE = Path(__file__).parent / "site"  # its sitecustomize.py slows a training down
STEPS = 160
ROWS = {"train_rows": 400, "dev_rows": 20, "test_rows": 20}


def config(folder: Path, save: str = "end") -> Path:
    """A tiny training."""
    train = {"max_steps": STEPS, "batch_size": 4, "save": save, "evaluate": "never"}
    tasks = {"name": "toy/nli", **ROWS}
    path = folder / "train.yaml"
    path.write_text(yaml.safe_dump({"extends": "recipe:toy/nli", "device": "cpu", "tasks": tasks, "train": train}))
    return path


def slow_until(file: Path) -> dict[str, str]:
    """The environment in which a training is slow until a file is there."""
    path = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"SLOW_UNTIL": str(file), "PYTHONPATH": os.pathsep.join(path)}


class Undisturbed:
    """`undisturbed(2)`: the training without an engine, in two processes; done once, when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, processes: int) -> RunDir:
        run = RunDir(self.folder / f"processes-{processes}")
        with open(self.folder / "lock", "w") as lock:  # others may ask at the same time
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (run.path / "DONE").exists():
                words = ["train", str(config(self.folder)), "-o", str(run.path), f"--processes={processes}", "--quiet"]
                subprocess.run([sys.executable, "-m", "encodery", *words], check=True, cwd=self.folder)
        return run


def results(run: RunDir) -> dict[str, bytes]:
    """Weights and predictions."""
    folders = [run.path / "model", run.path / "predictions"]
    found = {p.name: p.read_bytes() for folder in folders for p in sorted(folder.rglob("*")) if p.is_file()}
    kept = {name: content for name, content in found.items() if name.endswith((".safetensors", ".jsonl"))}
    assert len(kept) > 1
    return kept
