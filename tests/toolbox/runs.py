"""Settings of tiny runs, and the runs themselves: one takes a second."""

import json
from pathlib import Path
from typing import Any

import torch

from encodery.config import load
from encodery.config.load import Resolved
from encodery.core.progress import Progress
from encodery.runs.directory import RunDir
from encodery.training.run import train_run
from tests.toolbox.tasks import write_rows
from tests.toolbox.tokenizers import save_tokenizer
from tests.toolbox.vocabulary import vocabulary

NARROW = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
DISTILBERT = {"n_layers": 2, "dim": 32, "n_heads": 2, "hidden_dim": 64}


def settings(folder: Path, *, rows: int = 96, dev: int = 32, noise: bool = False, **sections: Any) -> dict[str, Any]:
    """A whole config for a tiny run on a table in `folder`; sections are merged over it."""
    if not (folder / "train.csv").exists():
        write_rows(folder / "train.csv", rows, 1, noise)
        write_rows(folder / "dev.csv", dev, 2, noise)
        save_tokenizer(folder / "tokenizer")
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64}
    tree: dict[str, Any] = {
        "model": {"new": {"kind": "bert", "size": "tiny", "config": small}, "tokenizer": str(folder / "tokenizer")},
        "tasks": [{"kind": "table", "root": str(folder), "train": "train.csv", "dev": "dev.csv"}],
        "optim": {"lr": 2e-3},
        "train": {"epochs": 2, "batch_size": 16, "max_length": 16, "log": 1},
        "device": "cpu",
    }
    for name, section in sections.items():
        if name == "task":
            tree["tasks"][0].update(section)
        else:
            tree[name] = {**tree[name], **section} if isinstance(tree.get(name), dict) else section
    return tree


def model_section(folder: Path, kind: str = "bert", **more: Any) -> dict[str, Any]:
    """A new encoder of two narrow layers."""
    fields = dict(DISTILBERT if kind == "distilbert" else NARROW)
    if kind in ("electra", "albert"):
        fields["embedding_size"] = 16
    return {"new": {"kind": kind, "config": fields}, "tokenizer": str(vocabulary(folder)), **more}


def config_for(folder: Path, task: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Settings of a run of a few steps."""
    train = {"max_steps": 4, "batch_size": 8, "max_length": 32, "log": 1} | more.pop("train", {})
    return {"model": model_section(folder), "tasks": [task], "optim": {"lr": 1e-3}, "train": train, **more}


def resolve(tree: dict[str, Any]) -> Resolved:
    """The checked config."""
    return load.load(json.loads(json.dumps(tree)))


def run(tree: dict[str, Any], out: Path, **options: Any) -> RunDir:
    """Train as the settings say."""
    return train_run(resolve(tree), out, progress=Progress(quiet=True), **options)


def weights_of(folder: RunDir) -> dict[str, torch.Tensor]:
    """The weights of a finished run."""
    from safetensors.torch import load_file

    return load_file(folder.model / "model.safetensors")


def metrics_of(folder: RunDir) -> list[dict[str, Any]]:
    """metrics.jsonl without the fields that hold times."""
    timed = ("time", "seconds", "elapsed")
    return [{k: v for k, v in line.items() if k not in timed} for line in folder.metrics()]
