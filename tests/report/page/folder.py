"""A folder with everything that a page can show, made by hand: nothing is trained."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from encodery.report.examples import task_of
from encodery.rundir import RunDir
from encodery.tasks.base import Example
from tests.report.runs import tree
from tests.tiny import write_csv

# What would run, load something or break the page if any of it became markup (S5).
HOSTILE = [
    "<script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 2'>",
    "</script><script>window.broken = 3</script>",
    "<a href='javascript:window.broken=4'>touch</a>",
    '"><svg onload=window.broken=5>',
    "<!--<script> & %{x} ${7*7} {{7*7}} \u2028 ]]>",
]
LABELS = ("<b>yes</b>", "no</script>")
NEEDLE = "a heron in the reeds"


def hostile_task(folder: Path) -> dict[str, Any]:
    """Sentences and labels that are attacks, and one to search for."""
    rows = [(f"{text} number {i}", LABELS[i % 2]) for i, text in enumerate(HOSTILE * 5)]
    rows.append((NEEDLE, LABELS[0]))
    for name in ("train", "dev"):
        write_csv(folder / f"{name}.csv", ["text", "label"], rows)
    files = {name: str(folder / f"{name}.csv") for name in ("train", "dev")}
    return {"kind": "table", "name": "hostile", **files, "weight": 1.0, "objective": {}}


def answers(examples: Sequence[Example], labels: Sequence[str], share: float, seed: int) -> list[dict[str, Any]]:
    """Answers of which about this share is right."""
    draw = np.random.default_rng(seed)
    rows = []
    for example in examples:
        right = draw.random() < share
        said = str(example.label) if right else next(label for label in labels if label != example.label)
        chance = float(draw.uniform(0.5, 1.0))
        rest = (1 - chance) / (len(labels) - 1)
        rows.append(
            {"id": example.id, "prediction": said, "probabilities": {n: chance if n == said else rest for n in labels}}
        )
    return rows


def run(
    folder: Path,
    config: Mapping[str, Any],
    share: float,
    seed: int,
    *,
    steps: int = 40,
    more: Mapping[str, Any] | None = None,
) -> RunDir:
    """A finished run whose scores are those of its predictions."""
    task = task_of(config)
    made = RunDir.create(folder)
    made.write_config(json.dumps(config))
    origins = {name: {"digest": task.origin(name).digest, "rows": task.origin(name).rows} for name in ("train", "dev")}
    made.update_info(task=task.name, ended=None, data=origins, identity="0" * 64)
    examples = task.examples("dev")
    said = answers(examples, task.labels, share, seed)
    made.write_predictions(task.name, "dev", said)
    scores = task.score({one["id"]: one for one in said}, examples)
    every = {f"{task.name}:dev": scores, **{key: one["scores"] for key, one in (more or {}).items()}}
    main = {f"{task.name}:dev": "accuracy", **{key: one["main"] for key, one in (more or {}).items()}}
    for step in range(1, steps + 1):
        lr = 2e-5 * step / steps
        made.record(step, loss=math.exp(-step / 15) + seed / 50, tokens=1000 + step, seconds=0.5, lr=lr)
    for step in (steps // 2, steps):
        made.record(step, split="dev", **{"eval.accuracy": scores["accuracy"] * step / steps})
    made.write_scores(
        {"scores": every, "main": main, "majority": {}, "chosen": {}, "alarms": [f"loss 0.{seed}9 is near ln 3"]}
    )
    made.finish()
    return made


def whole(folder: Path) -> Path:
    """Runs of two tasks, good and bad ones, and every other kind of directory."""
    files = folder / "files"
    files.mkdir(parents=True)
    runs = folder / "runs"
    for kind, share in (("plain", 0.6), ("freelb", 0.8)):
        more = {"adv_lr": 0.1} if kind == "freelb" else {}
        for seed in (1, 2, 3):
            config = tree("toy/nli", seed, method={"kind": kind, **more}, model__name=HOSTILE[0])
            run(runs / f"nli-{kind}-{seed}", config, share, seed)
    entry = hostile_task(files)
    for lr, size in itertools.product((1e-5, 2e-5), (16, 32)):
        config = tree("table/hostile", 1, tasks=[entry], optim__lr=lr, train__batch_size=size, model__name=HOSTILE[2])
        run(runs / f"hostile-{lr:g}-{size}", config, 0.2 + lr * 1e4 + size / 400, 1)
    _bad_runs(runs)
    _pretraining(runs / "pretrained")
    _hans(runs / "nli-plain-1")
    _attack(folder / "attacked")
    _curve(folder / "curve")
    _embeddings(folder / "vectors")
    _heads(folder / "heads")
    return folder


def _bad_runs(runs: Path) -> None:
    """One failed, one was killed in the middle, one has a torn file, one is rubbish."""
    failed = RunDir.create(runs / "failed")
    failed.write_config(json.dumps(tree("toy/nli", 4, method={"kind": "plain"}, model__name=HOSTILE[0])))
    failed.update_info(task="toy/nli", ended={"state": "failed", "error": f"loss is NaN {HOSTILE[1]}"}, data={})
    killed = RunDir.create(runs / "killed")
    killed.write_config(json.dumps(tree("toy/nli", 5, method={"kind": "plain"}, model__name=HOSTILE[0])))
    killed.update_info(task="toy/nli", ended=None, data={})
    killed.record(1, loss=1.0, seconds=1.0, tokens=10)
    with open(killed.metrics_file.path, "a") as stream:
        stream.write('{"step": 2, "lo')
    torn = RunDir.create(runs / "torn")
    torn.write_config(json.dumps(tree("toy/nli", 6, method={"kind": "plain"}, model__name=HOSTILE[0])))
    (runs / "torn" / "run.json").write_text('{"task": "toy/n')
    (runs / "rubbish").mkdir()
    (runs / "rubbish" / "run.json").write_text("[]")


def _pretraining(folder: Path) -> None:
    made = RunDir.create(folder)
    made.write_config(json.dumps(tree("toy/corpus", 1)))
    made.update_info(task="toy/corpus", ended=None, data={}, identity="0" * 64)
    for step in range(10, 310, 10):
        parts = {"loss.toy/corpus/discriminator": 20 / step, "loss.toy/corpus/generator": 50 / step}
        made.record(step, loss=60 / step, tokens=500, seconds=0.1, lr=1e-4, flops=2e12 * step, **parts)
        made.record(step, split="dev", **{"eval.share_1": 0.4, "eval.share_2": 0.6, "eval.auc": 0.7})
    made.record(300, **{"probe.toy/sentiment.accuracy": 0.7})
    made.write_scores(
        {"scores": {"toy/corpus:dev": {"loss": 1.0}}, "main": {"toy/corpus:dev": "loss"}, "majority": {}, "chosen": {},
         "alarms": []}
    )  # fmt: skip
    made.finish()


def _hans(path: Path) -> None:
    """As `evaluate --on toy/hans` leaves it."""
    made = RunDir(path)
    cell = {"accuracy": 0.7, "right": 7, "rows": 10, "interval": [0.5, 0.9]}
    names = ("lexical_overlap", "subsequence", "constituent")
    report = {side: dict.fromkeys(names, cell) for side in ("entailed", "non_entailed")}
    report["subcases"] = {f"case-{i}": cell for i in range(14)}
    (made.predictions / "toy-hans-dev.report.json").write_text(json.dumps(report))
    known = made.read_scores()
    known["evaluations"] = {"toy/hans:dev": {"scores": {"accuracy": 0.7}, "main": "accuracy"}}
    made.write_scores(known)


def _attack(folder: Path) -> None:
    levels = [{"radius": r, "loss": 0.5 + r, "accuracy": 0.9 - r / 2} for r in (0.0, 0.1, 0.3, 1.0)]
    about = {"data": "toy/nli:dev", "main": "accuracy", "attack": "pgd", "steps": 5, "norm": "l2"}
    (folder / "attacks").mkdir(parents=True)
    (folder / "attacks" / "toy-nli-dev-pgd-5-l2.json").write_text(
        json.dumps({**about, "models": {"a": levels, "b": levels}})
    )
    (folder / "attacks" / "torn.json").write_text("{")


def _curve(folder: Path) -> None:
    points = [
        {"method": method, "match": "epochs", "fraction": fraction, "seed": seed, "steps": 10, "rows": 10,
         "scores": {"toy/nli:dev": {"accuracy": 0.5 + fraction / 4 + seed / 100}}, "alarms": []}
        for method in ("random", HOSTILE[1]) for fraction in (0.1, 0.5, 1.0) for seed in (1, 2)
    ]  # fmt: skip
    folder.mkdir()
    curves = [{"data": "toy/nli:dev", "metric": "accuracy", "match": "epochs", "method": "random"}]
    (folder / "curve.json").write_text(json.dumps({"about": ["2,000 rows"], "curves": curves, "points": points}))


def _embeddings(folder: Path) -> None:
    """Of toy/sentiment's dev set."""
    task = task_of({"tasks": [{"name": "toy/sentiment"}], "data": None})
    examples = task.examples("dev")
    draw = np.random.default_rng(0)
    folder.mkdir()
    np.save(folder / "vectors.npy", draw.normal(size=(len(examples), 8)).astype(np.float32), allow_pickle=False)
    (folder / "ids.json").write_text(json.dumps([example.id for example in examples]))
    meta = {"task": "toy/sentiment", "split": "dev", "rows": task.origin("dev").digest, "site": "cls", "layer": 2}
    (folder / "meta.json").write_text(json.dumps(meta))


def _heads(folder: Path) -> None:
    """As `encodery heads` and `encodery gradts` leave them."""
    for number, task in enumerate(("glue/rte", "glue/mrpc")):
        place = folder / f"h{number}"
        place.mkdir(parents=True)
        np.save(place / "task.npy", np.random.default_rng(number).random((2, 4)), allow_pickle=False)
        meta = {"task": task, "split": "train", "estimator": "mask", "model": "x", "layers": 2, "heads": 4}
        (place / "meta.json").write_text(json.dumps(meta))
    names = ["glue/rte", HOSTILE[1]]
    matrices = {"1": {"names": names, "kind": "kendall", "norm": "l1", "values": [[1.0, -0.2], [-0.2, 1.0]]}}
    (folder / "gradts.json").write_text(json.dumps({"matrices": matrices}))


def many(folder: Path, count: int, rows: int, lines: int = 300) -> Path:
    """A sweep of 50 configurations, its files written plainly: five hundred runs would otherwise wait for the disk."""
    texts = [(f"sentence {i} of the set", ("yes", "no")[i % 2]) for i in range(rows)]
    entry = {"kind": "table", "name": "big", "weight": 1.0, "objective": {}}
    entry |= {name: str(write_csv(folder / f"{name}.csv", ["text", "label"], texts)) for name in ("train", "dev")}
    task = task_of(tree("table/big", 1, tasks=[entry]))
    examples, origin = task.examples("dev"), {"digest": task.origin("dev").digest, "rows": rows}
    for number in range(count):
        path = folder / "runs" / f"run-{number}"
        (path / "predictions").mkdir(parents=True)
        size, lr, seed = 8 * (1 + number % 5), 1e-5 * (1 + number // 5 % 10), 1 + number // 50
        config = tree("table/big", seed, tasks=[entry], optim__lr=lr, train__batch_size=size)
        said = answers(examples, task.labels, 0.5 + number / (2 * count), number)
        scores = {
            "table/big:dev": {
                "accuracy": sum(a["prediction"] == e.label for a, e in zip(said, examples, strict=True)) / rows
            }
        }
        steps = [
            {"step": i, "loss": 1 / (1 + i), "lr": lr, "tokens": 1000, "seconds": 0.1} for i in range(1, lines + 1)
        ]
        told = {"scores": scores, "main": {"table/big:dev": "accuracy"}, "majority": {}, "chosen": {}, "alarms": []}
        texts_of = {
            "config.yaml": json.dumps(config), "scores.json": json.dumps(told), "DONE": "{}",
            "run.json": json.dumps({"task": "table/big", "ended": None, "data": {"dev": origin}, "identity": "0" * 64}),
            "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in steps),
            "predictions/table-big-dev.jsonl": "".join(json.dumps(line) + "\n" for line in said),
        }  # fmt: skip
        for name, text in texts_of.items():
            (path / name).write_text(text)
    return folder / "runs"
