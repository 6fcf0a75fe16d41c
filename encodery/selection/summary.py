"""What a selection took beside what there was, and how much selections have in common; as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.core.text import markdown_table
from encodery.data.subset import Subset
from encodery.errors import UserError
from encodery.selectors.base import Pool
from encodery.tasks.base import Example

FILE = "selection.summary.json"
BINS = 20

Columns = Mapping[str, Mapping[str, str]]  # column → id → value


def words_in(example: Example) -> int:
    """Words of all its texts."""
    return sum(len(text.split()) for text in example.texts)


def summary(chosen: Subset, pool: Pool, columns: Columns | None = None) -> dict[str, Any]:
    """Rows, labels, lengths in words and columns, of the chosen rows and of the pool.

    Of an order of the whole pool also of its first tenth, since all of it is the pool again.
    """
    taken = set(chosen.ids)
    first = set(chosen.ids[: max(1, len(pool) // 10)]) if len(taken) == len(pool) else set()
    longest = max(map(words_in, pool.examples))
    edges = np.unique(np.linspace(0, longest + 1, min(BINS, longest + 1) + 1).astype(int))
    own = [example for example in pool.examples if example.id in taken]
    return {
        "format": 1,
        "task": chosen.meta.get("task"),
        "split": chosen.meta.get("split"),
        "kind": chosen.meta.get("selector", {}).get("kind"),
        "word_edges": edges.tolist(),
        "chosen": _about(own, edges, columns or {}),
        **({"first": _about([one for one in own if one.id in first], edges, columns or {})} if first else {}),
        "pool": _about(pool.examples, edges, columns or {}),
    }


def _about(examples: Sequence[Example], edges: np.ndarray, columns: Columns) -> dict[str, Any]:
    lengths = np.array([words_in(example) for example in examples])
    words = {"mean": float(lengths.mean()), "median": float(np.median(lengths)), "longest": int(lengths.max())}
    labels = Counter(example.label for example in examples if isinstance(example.label, str))
    return {
        "rows": len(examples),
        "labels": dict(labels.most_common()),
        "words": {**words, "counts": np.histogram(lengths, edges)[0].tolist()},
        "columns": {
            name: dict(Counter(values[example.id] for example in examples).most_common(20))
            for name, values in columns.items()
        },
    }


def write_summary(chosen: Subset, pool: Pool, folder: Path, columns: Columns | None = None) -> Path:
    """Beside selection.jsonl."""
    files.write_json(folder / FILE, summary(chosen, pool, columns))
    return folder / FILE


# How much selections have in common.


def overlap(paths: Sequence[str]) -> dict[str, Any]:
    """Shared rows of each pair of selections, their Jaccard similarity, and how many independent choices share."""
    chosen = [Subset.read(path) for path in paths]
    prints = {one.meta.get("fingerprint") for one in chosen}
    if len(prints) > 1:
        tasks = ", ".join(f"{path}: {one.made_from.name}" for path, one in zip(paths, chosen, strict=True))
        raise UserError(f"--overlap: these selections are of different rows, whose ids cannot be compared ({tasks})")
    pool = chosen[0].meta.get("pool")
    sets = [set(one.ids) for one in chosen]
    shared = [[len(a & b) for b in sets] for a in sets]
    return {
        "format": 1,
        "names": list(paths),
        "rows": [len(one) for one in sets],
        "pool": pool,
        "shared": shared,
        "jaccard": [[len(a & b) / len(a | b) for b in sets] for a in sets],
        "by_chance": [[len(a) * len(b) / pool for b in sets] for a in sets] if pool else None,
    }


def overlap_table(overlap: Mapping[str, Any]) -> str:
    """Shared rows, and in brackets what independent choices of these sizes share on average."""
    header = ["shared rows (by chance)", *overlap["names"]]
    lines = []
    for i, name in enumerate(overlap["names"]):
        cells = []
        for j in range(len(overlap["names"])):
            chance = f" ({overlap['by_chance'][i][j]:,.0f})" if overlap["by_chance"] and i != j else ""
            cells.append(f"{overlap['shared'][i][j]:,}{chance}")
        lines.append([name, *cells])
    return markdown_table(header, lines)
