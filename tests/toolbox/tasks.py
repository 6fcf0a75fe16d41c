"""Tables of a few rows in files, as tasks of every form."""

import csv
import itertools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.toolbox.vocabulary import ENGLISH, WORDS

GOOD, BAD = WORDS[:8], WORDS[8:16]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def sentences(count: int, start: int = 0) -> list[str]:
    """Different sentences of different lengths."""
    pool = ENGLISH
    found = []
    for i in range(start, start + count):
        length = 3 + (i * 7) % 9
        found.append(" ".join(pool[(i * 5 + j * (1 + i % 4)) % len(pool)] for j in range(length)))
    return found


def mood(text: str) -> str:
    return "pos" if "good" in text or "great" in text else "neg"


def single_task(folder: Path, train: int = 48, dev: int = 16) -> dict[str, Any]:
    """A task of single texts."""
    for name, texts in (("train", sentences(train)), ("dev", sentences(dev, 1000))):
        write_csv(folder / f"{name}.csv", ["text", "label"], [(text, mood(text)) for text in texts])
    return {"kind": "table", "name": "moods", "train": str(folder / "train.csv"), "dev": str(folder / "dev.csv")}


def pair_task(folder: Path) -> dict[str, Any]:
    """A task of pairs with three answers."""
    names = ("entailment", "neutral", "contradiction")
    texts = sentences(60)
    rows = [(a, b, names[i % 3]) for i, (a, b) in enumerate(itertools.pairwise(texts))]
    write_csv(folder / "pairs.csv", ["premise", "hypothesis", "label"], rows)
    task = {"kind": "table", "name": "pairs", "form": "pair", "train": str(folder / "pairs.csv")}
    return {**task, "text": "premise", "text2": "hypothesis", "labels": list(names)}


def multilabel_task(folder: Path) -> dict[str, Any]:
    rows = [(t, ",".join(w for w in ("cat", "dog", "good") if w in t.split())) for t in sentences(40)]
    write_csv(folder / "several.csv", ["text", "label"], rows)
    return {"kind": "table", "name": "several", "form": "multilabel", "train": str(folder / "several.csv")}


def regression_task(folder: Path) -> dict[str, Any]:
    write_csv(folder / "numbers.csv", ["text", "label"], [(t, len(t.split()) / 4) for t in sentences(40)])
    return {"kind": "table", "name": "numbers", "form": "regression", "train": str(folder / "numbers.csv")}


def parquet(folder: Path, stem: str, **columns: Sequence[Any]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{stem}.parquet")
    return folder


def glue_nli(folder: Path, stem: str, count: int, hidden: bool = False, start: int = 0, **names: str) -> Path:
    """Rows of an entailment set in a data folder; label ids as on the hub."""
    texts = sentences(count + 1, start)
    first, second = names.get("first", "premise"), names.get("second", "hypothesis")
    labels = [-1 if hidden else i % 3 for i in range(count)]
    columns = {first: texts[:-1], second: texts[1:], "label": labels, "idx": list(range(count))}
    return parquet(folder / "glue", stem, **columns)


def write_rows(path: Path, n: int, seed: int, noise: bool = False) -> Path:
    """A CSV of texts whose label says whether they hold words of one kind; with noise the label means nothing."""
    rng = random.Random(seed)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for _ in range(n):
            label = rng.random() < 0.5
            kind = rng.choice([GOOD, BAD]) if noise else (GOOD if label else BAD)
            text = [rng.choice(WORDS[16:]) for _ in range(rng.randint(1, 8))]
            text.insert(rng.randrange(len(text) + 1), rng.choice(kind))
            writer.writerow([" ".join(text), "good" if label else "bad"])
    return path
