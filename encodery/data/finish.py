"""The end of a preparation: where blocks begin over all shards, the report, and the counts that say it is done."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from encodery import cache, files
from encodery.data import shards
from encodery.data.worker import NAMED
from encodery.tasks.readers import BadRow

PARTS = ("shards", *shards.SPLITS, "tokenizer")  # folders of a preparation that its manifest lists


def bad_rows(folder: Path, bad: Sequence[BadRow]) -> None:
    """The lines that were left out, for a person to look at."""
    if bad:
        files.write_atomic(folder / "bad_rows.jsonl", "".join(json.dumps(asdict(row)) + "\n" for row in bad))


def finish(folder: Path, number: int, recipe: dict[str, Any], pair: dict[str, Any], bad: int) -> None:
    """Join what the shards say; only lengths pass through memory, a shard at a time."""
    paths = [folder / "shards" / shards.name(i) for i in range(number)]
    for extra in set((folder / "shards").iterdir()) - set(paths):
        extra.unlink()
    full = recipe["corpus"]["blocks"] == "full"
    splits = {split: _join(folder, split, paths, full, recipe["max_length"]) for split in shards.SPLITS}
    counted = [shards.counts(path) for path in paths]
    files.write_json(folder / "report.json", _report(counted, splits, bad))
    meta = {
        "format": 1,
        "digest": files.digest_tree(folder / "shards"),
        "documents": sum(one["documents"] for one in counted),
        "shards": number,
        "blocks": recipe["corpus"]["blocks"],
        "max_length": recipe["max_length"],
        "tokenizer": recipe["tokenizer"],
        "second_type": pair["types"][2],
        "splits": splits,
    }
    names = [path for part in PARTS for path in sorted((folder / part).iterdir())]
    cache.complete(folder, ["report.json", *(path.relative_to(folder).as_posix() for path in names)], meta)


def _join(folder: Path, split: str, paths: Sequence[Path], full: bool, max_length: int) -> dict[str, Any]:
    """Write train/ or dev/; its counts."""
    tokens = [len(shards.mapped(path)[f"{split}.ids"]) for path in paths]
    counts: Counter[str] = Counter()
    longest = 0
    for lengths in _each(paths, f"{split}.lengths"):
        counts["rows"] += len(lengths)
        counts["full"] += int((lengths >= max_length).sum())
        longest = max(longest, int(lengths.max(initial=0)))
    rows = counts["rows"]
    with files.atomic_folder(folder / split) as beside:
        for name, dtype in (("lengths", np.int32), ("first", np.int32), ("document", np.int64)):
            _copy(beside / f"{name}.npy", rows, dtype, lambda name=name: _each(paths, f"{split}.{name}"))  # type: ignore[misc]
        _sums(beside / "starts.npy", rows, lambda: _each(paths, f"{split}.lengths"))
        if full:
            pieces = sum(len(one) for one in _each(paths, f"{split}.pieces"))
            _sums(beside / "piece_bounds.npy", rows, lambda: _each(paths, f"{split}.piece_counts"))
            _sums(beside / "piece_starts.npy", pieces, lambda: _each(paths, f"{split}.pieces"))
    documents = sum(shards.counts(path)[f"{split}_documents"] for path in paths)
    found = {"rows": rows, "examples": documents, "tokens": sum(tokens), "longest": longest, "full": counts["full"]}
    return {**found, "targets": [], "shard_tokens": tokens}


def _each(paths: Sequence[Path], name: str) -> Iterator[np.ndarray]:
    return (shards.mapped(path)[name] for path in paths)


def _copy(path: Path, size: int, dtype: Any, arrays: Callable[[], Iterator[np.ndarray]]) -> None:
    if not size:  # nothing can be mapped in an empty file
        np.save(path, np.zeros(0, dtype), allow_pickle=False)
        return
    whole = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(size,))
    at = 0
    for some in arrays():
        whole[at : at + len(some)] = some
        at += len(some)
    whole.flush()


def _sums(path: Path, size: int, arrays: Callable[[], Iterator[np.ndarray]]) -> None:
    """0, a, a + b, …: where each begins, and the end."""

    def running() -> Iterator[np.ndarray]:
        total = 0
        yield np.zeros(1, np.int64)
        for some in arrays():
            sums = np.cumsum(some, dtype=np.int64) + total
            total = int(sums[-1]) if len(sums) else total
            yield sums

    _copy(path, size + 1, np.int64, running)


def _report(counted: Sequence[dict[str, Any]], splits: dict[str, dict[str, Any]], bad: int) -> dict[str, Any]:
    total: Counter[str] = Counter()
    dirty = [one for counts in counted for one in counts["contaminated"]]
    for counts in counted:
        total.update({key: value for key, value in counts.items() if key != "contaminated"})
    return {
        "read": {"documents": total["documents"], "characters": total["characters"], "bad_rows": bad},
        "left_out": {
            "empty_documents": total["empty"],
            "duplicate_documents": total["duplicates"],
            "duplicate_lines": total["duplicate_lines"],
            "short_lines": total["short_lines"],
            "short_characters": total["short_characters"],
            "bracket_characters": total["bracket_characters"],
            "contaminated_documents": dict(sorted(Counter(task for _, task, _ in dirty).items())),
            "first_contaminated": [
                {"document": number, "task": task, "sentence": sentence} for number, task, sentence in dirty[:NAMED]
            ],
        },
        "made": {
            split: {
                "documents": about["examples"],
                "blocks": about["rows"],
                "full_blocks": about["full"],
                "tokens": about["tokens"],
                "text_tokens_read": total[f"{split}_text_tokens"],
                "text_tokens_kept": total[f"{split}_kept_tokens"],
            }
            for split, about in splits.items()
        },
    }


def loss_lines(report: dict[str, Any]) -> Iterator[str]:
    """What of the text is in no block, for people; folders of earlier versions did not count cleaned lines."""
    read, left = report["read"], report["left_out"]
    short, brackets = left.get("short_characters", 0), left.get("bracket_characters", 0)
    if short:
        part = short / max(read["characters"], 1)
        yield f"{left['short_lines']:,} lines shorter than min_line were left out ({part:.1%} of the characters)"
    if brackets:
        yield f"() was taken out {brackets // 2:,} times (drop_brackets)"
    for split, made in report["made"].items():
        lost = made["text_tokens_read"] - made["text_tokens_kept"]
        if lost:
            part = f"{lost / made['text_tokens_read']:.1%}"
            yield f"{split}: {lost:,} tokens ({part}) overflowed their blocks and are lost; keep_overflow keeps them"
