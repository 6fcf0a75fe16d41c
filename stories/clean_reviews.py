"""From a CSV to a cleaner, smaller training set: the journey of docs/data-selection.md, and what it is worth.

    ENCODERY_DATA=... python stories/clean_reviews.py --out runs/stories/clean

Draws phrases of SST-2, exchanges a tenth of their labels, and runs the five commands of the page on them. Then it
counts how many of the exchanged labels were found, by `confident` and by `aum`, and trains on all rows, on the cleaned
ones and on as many random ones, with several seeds. Run again = go on. Figures: results.json; pictures: report.html.
"""

import argparse
import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from encodery.cli import main as encodery
from encodery.core.label_errors import auc
from encodery.data.subset import Subset
from encodery.report import records, stats

LABELS = ("negative", "positive")
SHORT = 10  # words from which a phrase is called long
POOL = ("--pool.dev", "dev.csv", "--pool.file")


def main() -> None:
    """Make the files, clean, compare, look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ["ENCODERY_DATA"]).resolve()
    parser.add_argument("--out", type=Path, default=Path("runs/stories/clean"))
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--share", type=float, default=0.1, help="of the labels that are exchanged")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", type=Path, default=data / "models/paraphrase-MiniLM-L3-v2-fp16")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = ["--model", str(args.model.resolve()), "--train.epochs", "3", "--train.max_length", "64"]
    model += ["--optim.lr", "1e-4", "--quiet"]
    os.chdir(args.out)
    wrong = make(data / "glue", args.rows, args.share)
    clean(model)
    compare(model, args.seeds)
    look(args.model.resolve())
    text = json.dumps(results(wrong), indent=1)
    Path("results.json").write_text(text + "\n")
    print(text)


def run(*words: str) -> None:
    """One command."""
    print("$ encodery", *words, flush=True)
    if encodery(list(words)):
        raise SystemExit(1)


def make(glue: Path, rows: int, share: float) -> set[str]:
    """reviews.csv with exchanged labels and dev.csv with its own; the ids of the rows that were exchanged."""
    known = pq.read_table(glue / "sst2_train.parquet").to_pylist()
    known = [row for row in known if len(row["sentence"].split()) >= 4]
    draw = np.random.default_rng(1)
    kept = [known[place] for place in sorted(draw.choice(len(known), rows, replace=False))]
    turned = set(draw.choice(rows, round(share * rows), replace=False).tolist())
    write("reviews.csv", [line(row, f"{row['idx']}", i in turned) for i, row in enumerate(kept)])
    dev = pq.read_table(glue / "sst2_dev.parquet").to_pylist()
    write("dev.csv", [line(row, f"dev-{row['idx']}", False) for row in dev])
    return {str(kept[place]["idx"]) for place in turned}


def line(row: dict[str, Any], id: str, turned: bool) -> list[str]:
    """id, text, label, length."""
    text = row["sentence"].strip()
    return [id, text, LABELS[row["label"] ^ turned], "short" if len(text.split()) < SHORT else "long"]


def write(name: str, rows: list[list[str]]) -> None:
    """Runs know their data by content: the same rows again change nothing."""
    with Path(name).open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["id", "text", "label", "length"], *rows])


def clean(model: list[str]) -> None:
    """The five commands."""
    run("data", "check", "reviews.csv", "--dev", "dev.csv")
    dedup = ["--selector.kind", "dedup", "--selector.against", "dev", "--export", "unique.csv"]
    run("select", *POOL, "reviews.csv", *dedup, "-o", "selections/unique")
    run("train", "unique.csv", *model, "--folds", "3", "-o", "runs/folds")
    flagged = ["--selector.kind", "confident", "--selector.flagged", "true", "--runs", "runs/folds"]
    run("select", *POOL, "unique.csv", *flagged, "--export", "clean.csv", "-o", "selections/clean")
    run("train", "--tasks.file", "clean.csv", "--tasks.dev", "dev.csv", *model, "-o", "runs/after/seed-1")


def compare(model: list[str], seeds: int) -> None:
    """All rows and as many random ones, beside the cleaned ones; suspects by both kinds."""
    count = str(len(Subset.read(Path("selections/clean")).ids))
    run("select", *POOL, "reviews.csv", "--count", count, "--export", "random.csv", "-o", "selections/random")
    for seed in range(1, seeds + 1):
        for name, file in (("before", "reviews.csv"), ("random", "random.csv"), ("after", "clean.csv")):
            files = ["--tasks.file", file, "--tasks.dev", "dev.csv", "--seed", str(seed)]
            more = ["--train.dynamics", "eval"] if name == "before" else []
            run("train", *files, *model, *more, "-o", f"runs/{name}/seed-{seed}")
    suspects = ["--selector.pick", "suspects"]
    runs = ",".join(f"runs/before/seed-{seed}" for seed in range(1, seeds + 1))
    for name, chosen in (("aum-1", "runs/before/seed-1"), ("aum", runs)):
        run("select", *POOL, "reviews.csv", "--selector.kind", "aum", *suspects, "--runs", chosen,
            "-o", f"selections/{name}")  # fmt: skip
    by_folds = ["--selector.kind", "confident", *suspects, "--runs", "runs/folds"]
    run("select", *POOL, "unique.csv", *by_folds, "-o", "selections/confident")


def look(model: Path) -> None:
    """Clusters, slices, and the page."""
    clusters = ["--selector.kind", "clusters", "--selector.k", "12", "--embed.model", str(model)]
    run("select", *POOL, "reviews.csv", *clusters, "--embed.site", "mean", "--analyse", "--map", "tsne",
        "--by", "length", "--runs", "runs/before/seed-1", "-o", "selections/clusters")  # fmt: skip
    for name in ("before", "after"):
        run("evaluate", f"runs/{name}/seed-1", "--on", "dev.csv", "--by", "length", "--quiet")
    run("report", "runs", "selections", "-o", "report.html", "--title", "1,500 phrases, a tenth of the labels wrong")


def results(wrong: set[str]) -> dict[str, Any]:
    """What was found, and the scores of the runs."""
    found = {name: of_suspects(name, wrong) for name in ("aum-1", "aum", "confident")}
    scores = {}
    for name in ("before", "random", "after"):
        read, _ = records.read([Path("runs") / name])
        own = [(one, f"{one.task}:dev") for one in read]  # not the evaluation on dev.csv, which has the same rows
        values = [value for one, data in own if (value := one.value(data, one.main[data])) is not None]
        scores[name] = {"mean": stats.mean(values), "sd": stats.sd(values), "n": len(values), "values": values}
    left = {name: rows_of(name, wrong) for name in ("unique", "clean", "random")}
    return {"suspects": found, "accuracy": scores, "selections": left}


def of_suspects(name: str, wrong: set[str]) -> dict[str, float]:
    """AUC over all rows, and the share of exchanged rows among as many first ones as were exchanged."""
    ids = Subset.read(Path("selections") / name).ids
    bad = np.array([id in wrong for id in ids])
    precision = float(bad[: int(bad.sum())].mean())
    return {"rows": len(ids), "exchanged": int(bad.sum()), "auc": auc(-np.arange(len(ids), dtype=float), bad),
            "precision": precision}  # fmt: skip


def rows_of(name: str, wrong: set[str]) -> dict[str, int]:
    """How many rows a selection has, and how many of them were exchanged."""
    ids = Subset.read(Path("selections") / name).ids
    return {"rows": len(ids), "exchanged": sum(id in wrong for id in ids)}


if __name__ == "__main__":
    main()
