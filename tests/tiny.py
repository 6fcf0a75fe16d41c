"""Tiny models, tokenizers and tables for tests: a run takes a second."""

import csv
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "film",
    "bird",
    "runs",
    "sleeps",
    "sings",
    "good",
    "bad",
    "great",
    "awful",
    "very",
    "not",
    "and",
    "near",
    "here",
    "there",
    "dull",
    "bright",
]
SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
DISTILBERT = {"n_layers": 2, "dim": 32, "n_heads": 2, "hidden_dim": 64}


def vocabulary(folder: Path) -> Path:
    """A WordPiece vocabulary of a few words and all letters."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    path = folder / "vocab.txt"
    pieces = dict.fromkeys([*SPECIAL, *WORDS, *letters, *(f"##{x}" for x in letters), ".", ","])
    path.write_text("\n".join(pieces) + "\n")
    return path


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def sentences(count: int, start: int = 0) -> list[str]:
    """Different sentences of different lengths."""
    pool = WORDS
    found = []
    for i in range(start, start + count):
        length = 3 + (i * 7) % 9
        found.append(" ".join(pool[(i * 5 + j * (1 + i % 4)) % len(pool)] for j in range(length)))
    return found


def mood(text: str) -> str:
    return "pos" if "good" in text or "great" in text else "neg"


def single(folder: Path, train: int = 48, dev: int = 16) -> dict[str, Any]:
    """A task of single texts."""
    for name, texts in (("train", sentences(train)), ("dev", sentences(dev, 1000))):
        write_csv(folder / f"{name}.csv", ["text", "label"], [(text, mood(text)) for text in texts])
    return {"kind": "table", "name": "moods", "train": str(folder / "train.csv"), "dev": str(folder / "dev.csv")}


def pair(folder: Path) -> dict[str, Any]:
    """A task of pairs with three answers."""
    names = ("entailment", "neutral", "contradiction")
    texts = sentences(60)
    rows = [(a, b, names[i % 3]) for i, (a, b) in enumerate(itertools.pairwise(texts))]
    write_csv(folder / "pairs.csv", ["premise", "hypothesis", "label"], rows)
    task = {"kind": "table", "name": "pairs", "form": "pair", "train": str(folder / "pairs.csv")}
    return {**task, "text": "premise", "text2": "hypothesis", "labels": list(names)}


def multilabel(folder: Path) -> dict[str, Any]:
    rows = [(t, ",".join(w for w in ("cat", "dog", "good") if w in t.split())) for t in sentences(40)]
    write_csv(folder / "several.csv", ["text", "label"], rows)
    return {"kind": "table", "name": "several", "form": "multilabel", "train": str(folder / "several.csv")}


def regression(folder: Path) -> dict[str, Any]:
    write_csv(folder / "numbers.csv", ["text", "label"], [(t, len(t.split()) / 4) for t in sentences(40)])
    return {"kind": "table", "name": "numbers", "form": "regression", "train": str(folder / "numbers.csv")}


def model(folder: Path, kind: str = "bert", **more: Any) -> dict[str, Any]:
    """A new encoder of two narrow layers."""
    fields = dict(DISTILBERT if kind == "distilbert" else SMALL)
    if kind in ("electra", "albert"):
        fields["embedding_size"] = 16
    return {"new": {"kind": kind, "config": fields}, "tokenizer": str(vocabulary(folder)), **more}


def config(folder: Path, task: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Settings of a run of a few steps."""
    train = {"max_steps": 4, "batch_size": 8, "max_length": 32, "log": 1} | more.pop("train", {})
    return {"model": model(folder), "tasks": [task], "optim": {"lr": 1e-3}, "train": train, **more}


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
