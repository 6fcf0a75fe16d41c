"""What tests let the process with pretend GPUs do: whole runs, by the settings of the cover."""

import json
from pathlib import Path
from typing import Any

from tests.training.test_forms import ranking

SMALL = {"train_rows": 16, "dev_rows": 4, "test_rows": 4}
NARROW = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
CORPUS = {"name": "toy/corpus", "documents": 20, "held_out": 0.2}
PRETRAINING = {"mlm": "bert", "electra": "electra", "amos": "amos"}  # objective -> encoder


def settings(folder: str, case: dict[str, str], device: str = "cuda", **train: Any) -> dict[str, Any]:
    """A run of four steps: {"method", "objective", "precision", "layout"}."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    kind = PRETRAINING.get(case["objective"], "bert")
    fields = NARROW | ({"embedding_size": 16} if kind == "electra" else {})
    options = {"max_steps": 4, "batch_size": 8, "max_length": 32, "log": 2, "evaluate": "end", **train}
    tree: dict[str, Any] = {
        "model": {"new": {"kind": kind, "config": fields}, "tokenizer": "toy"},
        "tasks": tasks(place, case["objective"]),
        "method": {"kind": case["method"]},
        "optim": {"lr": 1e-3},
        "train": {**options, "precision": case["precision"], "layout": case["layout"]},
        "device": device,
    }
    if len(tree["tasks"]) > 1:
        tree["mix"] = {"kind": "shuffled", "per_step": 1} if case["method"] == "freeat" else {"kind": "together"}
    return tree


def tasks(folder: Path, objective: str) -> list[dict[str, Any]]:
    """Labelled tasks of all forms in one run, or a corpus."""
    if objective in PRETRAINING:
        return [{**CORPUS, "objective": {"kind": objective}}]
    pairs = [{"name": "toy/nli", **SMALL}]
    if objective == "classification":
        return pairs
    words = [{"name": "toy/pos", **SMALL}, {"name": "toy/qa", "stride": 6, **SMALL}]
    if objective in ("tagging", "spans"):
        return words[:1] if objective == "tagging" else words[1:]
    return [*pairs, {"name": "toy/similarity", **SMALL}, *words, ranking(folder)]


def train(tree: dict[str, Any], out: str) -> dict[str, Any]:
    """A run to its end: what became of it."""
    import encodery as en

    path = en.train(tree, out).path
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    info = json.loads((path / "run.json").read_text())
    return {
        "done": (path / "DONE").exists(),
        "losses": [line["loss"] for line in lines if "loss" in line],
        "norms": [line["norm"] for line in lines if "norm" in line],
        "run": info,
    }


def stop_and_resume(tree: dict[str, Any], out: str, at: int) -> dict[str, Any]:
    """The same run, killed after a step and begun again."""
    from tests.toolbox.runs import run

    def kill(report: Any) -> None:
        if report.step == at:
            raise KeyboardInterrupt

    try:
        run(tree, Path(out), watch=kill)
    except KeyboardInterrupt:
        return train(tree, out)
    raise AssertionError("the run was not killed")
