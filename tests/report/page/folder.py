"""A folder with everything that a page can show, made by hand: nothing is trained."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from encodery.report.examples import task_of
from encodery.runs.directory import RunDir
from encodery.tasks.base import Example
from tests.report.runs import tree
from tests.toolbox.tasks import write_csv

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
    made.mark_done()
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
    for seed in (1, 2):
        dynamics(runs / f"nli-plain-{seed}", "toy/nli", seed)
    slices(runs / "nli-freelb-1", "toy/nli")
    for place, kind in enumerate(("clusters", "random")):
        selection(folder / "selections" / kind, kind, "toy/nli", place)
    clusters(folder / "selections" / "clusters", 5)
    out_of_fold(folder / "folds", "toy/nli")
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
    made.mark_done()


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


def dynamics(run: Path, task: str, seed: int, looks: int = 4) -> None:
    """As `train.dynamics: eval` leaves them: every seventh row is never learnt, the others little by little."""
    whole = task_of({"tasks": [{"name": task}], "data": None})
    examples = whole.examples("train")
    labels = list(whole.labels)
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(looks, len(examples), len(labels))).astype(np.float32)
    gold = np.array([labels.index(str(example.label)) for example in examples])
    turned = np.where(np.arange(len(gold)) % 7 == 3, (gold + 1) % len(labels), gold)
    for look in range(looks):
        logits[look, np.arange(len(gold)), turned] += 1.5 * look
    (run / "dynamics").mkdir()
    np.save(run / "dynamics" / "logits.npy", logits, allow_pickle=False)
    (run / "dynamics" / "ids.json").write_text(json.dumps([example.id for example in examples]))
    (run / "dynamics" / "meta.json").write_text(json.dumps({"labels": labels, "record": "eval"}))


def slices(run: Path, task: str) -> None:
    """As `evaluate --by genre` leaves them."""
    cells = [
        {"value": value, "rows": 40 + i, "scores": {"accuracy": 0.6 + i / 10}, "low": 0.5 + i / 10, "high": 0.9}
        for i, value in enumerate((HOSTILE[0], "letters", "speech"))
    ]  # fmt: skip
    about = {"format": 1, "task": task, "split": "dev", "metric": "accuracy", "by": {"genre": cells}}
    (run / "predictions" / f"{task.replace('/', '-')}-dev.slices.json").write_text(json.dumps(about))


def selection(folder: Path, kind: str, task: str, place: int) -> None:
    """As `encodery select` leaves it: a third of the rows."""
    whole = task_of({"tasks": [{"name": task}], "data": None})
    examples = whole.examples("train")
    chosen = examples[place::3] if place < 2 else examples[::3]
    folder.mkdir(parents=True)
    lines = [{"id": e.id, "rank": i, "score": 1 / (1 + i), "cluster": int(i) % 5} for i, e in enumerate(chosen)]
    (folder / "selection.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shares = {label: 1 / len(whole.labels) for label in whole.labels}
    meta = {"format": 1, "selector": {"kind": kind, "k": 5}, "seed": 1, "task": task, "split": "train"}
    meta |= {"pool": len(examples), "notes": [HOSTILE[1]], "labels": {"chosen": shares, "pool": shares}}
    (folder / "selection.meta.json").write_text(json.dumps(meta))
    words = {"mean": 8.5, "median": 8, "longest": 20, "counts": [3, 5, 1]}
    part = {"rows": len(chosen), "labels": shares, "words": words, "columns": {}}
    summary = {"format": 1, "task": task, "split": "train", "kind": kind, "chosen": part, "pool": part}
    (folder / "selection.summary.json").write_text(json.dumps({**summary, "word_edges": [0, 5, 10, 20]}))


def clusters(folder: Path, count: int, points: int = 300) -> None:
    """As `encodery select --analyse` leaves them."""
    draw = np.random.default_rng(1)
    task = task_of({"tasks": [{"name": "toy/nli"}], "data": None})
    examples = list(itertools.islice(itertools.cycle(task.examples("train")), points))
    where = draw.integers(count, size=points)
    shown = [{"id": e.id, "label": e.label, "distance": 0.5, "texts": list(e.texts)} for e in examples[:3]]
    each = [
        {"cluster": number, "size": int((where == number).sum()), "purity": 0.5 + number / 50,
         "labels": {str(label): 10 + number for label in task.labels}, "groups": {},
         "nearest": shown, "farthest": shown, "shared": number, "columns": {"genre": {HOSTILE[0]: 3, "letters": 4}},
         "words": [{"word": HOSTILE[2], "log_odds": 3.0, "count": 4}, {"word": "heron", "log_odds": 2.0, "count": 2}]}
        for number in range(count)
    ]  # fmt: skip
    tried = [
        {"k": k, "inertia": 100 / k, "silhouette": 0.3 - k / 100, "stability": 0.9 - k / 50, "stability_sd": 0.02}
        for k in (2, 5, 10)
    ]  # fmt: skip
    about = {
        "format": 2, "task": "toy/nli", "split": "train", "rows": points, "clusters_found": count, "empty": 0,
        "size": {"median": 60.0, "largest": 80, "smallest": 40}, "purity": 0.5, "purity_by_chance": 0.4,
        "silhouette": 0.2, "notes": [], "k": count, "k_choice": tried, "clusters": each,
    }  # fmt: skip
    (folder / "clusters.json").write_text(json.dumps(about))
    x, y = np.cos(where) + draw.normal(0, 0.2, points), np.sin(where) + draw.normal(0, 0.2, points)
    drawn = {
        "format": 1, "how": "pca", "explained": 0.31, "of": 2 * points, "ids": [f"{e.id}" for e in examples],
        "x": x.tolist(), "y": y.tolist(), "cluster": where.tolist(),
        "columns": {"label": [str(e.label) for e in examples], "genre": [HOSTILE[i % 2] for i in range(points)]},
        "texts": [f"{HOSTILE[i % 6]} point {i}" for i in range(points)],
    }  # fmt: skip
    (folder / "map.json").write_text(json.dumps(drawn))


def out_of_fold(folder: Path, task: str) -> None:
    """As `train --folds` leaves its predictions: every ninth label is contradicted."""
    whole = task_of({"tasks": [{"name": task}], "data": None})
    labels = list(whole.labels)
    folder.mkdir()
    lines = []
    for i, example in enumerate(whole.examples("train")):
        own = labels.index(str(example.label))
        said = labels[(own + (i % 9 == 0)) % len(labels)]
        chances = {name: 0.9 if name == said else 0.1 / (len(labels) - 1) for name in labels}
        lines.append(
            {"id": example.id, "fold": i % 3, "label": example.label, "prediction": said, "probabilities": chances}
        )
    (folder / "out_of_fold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


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
