"""A corpus → a folder of blocks: one reader, many workers, shards that are the same whatever the number of workers.

recipe.json   what decides the content; written first, so that nobody continues something else
tokenizer/    the tokenizer, as a transformers folder
shards/       00000.safetensors …, each whole or not there
train/ dev/   where blocks begin, over all shards
report.json   what was read, left out and made
meta.json     the counts; written last
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import cache, files
from encodery.core.lock import RunLock
from encodery.core.signals import StopRequest
from encodery.data.corpus import shards
from encodery.data.corpus.blocks import BlockTable, OnProgress
from encodery.data.corpus.decontaminate import Seen, benchmark_sentences
from encodery.data.corpus.workers import NAMED, Batch, Job, Workers, made_by
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import Stopped, UserError
from encodery.tasks.base import Task
from encodery.tasks.corpus import Corpus
from encodery.tasks.sources.readers import BadRow

# The end of a preparation: where blocks begin over all shards, the report, and the counts that say it is done.


PARTS = ("shards", *shards.SPLITS, "tokenizer")  # folders of a preparation that its manifest lists


def bad_rows(folder: Path, bad: Sequence[BadRow]) -> None:
    """The lines that were left out, for a person to look at."""
    if bad:
        files.write_atomic(folder / "bad_rows.jsonl", "".join(json.dumps(asdict(row)) + "\n" for row in bad))


def finish(folder: Path, reading: "_Reading", recipe: dict[str, Any], pair: dict[str, Any]) -> None:
    """Join what the shards say; only lengths pass through memory, a shard at a time."""
    paths = [folder / "shards" / shards.name(i) for i in range(reading.shards)]
    for extra in set((folder / "shards").iterdir()) - set(paths):
        extra.unlink()
    full = recipe["corpus"]["blocks"] == "full"
    splits = {split: _join(folder, split, paths, full, recipe["max_length"]) for split in shards.SPLITS}
    counted = [shards.counts(path) for path in paths]
    files.write_json(folder / "report.json", _report(counted, splits, len(reading.bad)))
    meta = {
        "format": 1,
        "digest": files.digest_tree(folder / "shards"),
        "documents": sum(one["documents"] for one in counted),
        "shards": reading.shards,
        "sources": reading.documents,
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
    joined = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(size,))
    at = 0
    for some in arrays():
        joined[at : at + len(some)] = some
        at += len(some)
    joined.flush()


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
        yield f"() was removed {brackets // 2:,} times (drop_brackets)"
    for split, made in report["made"].items():
        lost = made["text_tokens_read"] - made["text_tokens_kept"]
        if lost:
            part = f"{lost / made['text_tokens_read']:.1%}"
            yield f"{split}: {lost:,} tokens ({part}) overflowed their blocks and are lost; keep_overflow keeps them"


VERSION = 1  # raise it when equal inputs give other blocks


def cached(
    corpus: Corpus,
    pieces: TokenizerPieces,
    max_length: int,
    on_progress: OnProgress | None = None,
    workers: Workers = None,
) -> Path:
    """The folder in the cache that holds the blocks; prepared now if it is not there, or waited for."""
    recipe, sentences = recipe_of(corpus, pieces, max_length)
    folder = files.cache_root() / "corpora" / files.digest(recipe)[:32]
    while not _is_whole(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = RunLock(folder)
        try:
            lock.acquire()
        except UserError:  # somebody prepares the same
            time.sleep(1)
            continue
        try:
            cache.repair(folder)
            _prepare(folder, corpus, pieces, recipe, sentences, on_progress, workers)
        finally:
            lock.release()
    return folder


def _is_whole(folder: Path) -> bool:
    """Whether everything is there, and as it was made."""
    return (folder / "meta.json").is_file() and not cache.damages(folder)


def prepare(
    folder: Path,
    corpus: Corpus,
    pieces: TokenizerPieces,
    max_length: int,
    on_progress: OnProgress | None = None,
    workers: Workers = None,
) -> dict[str, Any]:
    """Prepare into a folder, or go on there; the report."""
    recipe, sentences = recipe_of(corpus, pieces, max_length)
    folder.mkdir(parents=True, exist_ok=True)
    _require_same(folder, recipe)
    if not _is_whole(folder):
        with RunLock(folder):
            cache.repair(folder)
            _prepare(folder, corpus, pieces, recipe, sentences, on_progress, workers)
    report: dict[str, Any] = files.read_json(folder / "report.json")
    return report


def recipe_of(corpus: Corpus, pieces: TokenizerPieces, max_length: int) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """All that decides which blocks come out, and the sentences that no document may contain."""
    if corpus.prepared:
        raise UserError(f"{corpus.prepared} is prepared already")
    least = pieces.pair.extra + 2
    if max_length < least:
        raise UserError(f"train.max_length={max_length}: blocks need {least} tokens or more")
    sentences = benchmark_sentences(corpus.decontaminate, corpus.data)
    recipe = {
        "version": VERSION,
        "corpus": corpus.recipe(),
        "source": corpus.source(),
        "tokenizer": pieces.digest,
        "max_length": max_length,
        "benchmark": files.digest(sentences) if sentences else None,
    }
    return recipe, sentences


def _require_same(folder: Path, recipe: dict[str, Any]) -> None:
    """A folder goes on as it was begun."""
    path = folder / "recipe.json"
    if not path.is_file():
        others = [one.name for one in folder.iterdir() if not one.name.startswith(".")]
        if others:
            raise UserError(f"{folder} holds other files ({others[0]}); give a new or empty folder with -o")
        return
    old = files.read_json(path)
    flat_old, flat_new = ({**r["corpus"], **{k: v for k, v in r.items() if k != "corpus"}} for r in (old, recipe))
    other = sorted(key for key in {**flat_old, **flat_new} if flat_old.get(key) != flat_new.get(key))
    if other:
        raise UserError(f"{folder} was started with another {', '.join(other)}; give another folder with -o")


def _prepare(
    folder: Path,
    corpus: Corpus,
    pieces: TokenizerPieces,
    recipe: dict[str, Any],
    sentences: dict[str, list[str]],
    on_progress: OnProgress | None,
    workers: Workers,
) -> None:
    for one in (folder, folder / "shards"):
        one.mkdir(exist_ok=True)
        files.remove_leftovers(one)
    files.write_json(folder / "recipe.json", recipe)
    job = _job(folder, corpus, pieces, recipe["max_length"], sentences)
    reading = _Reading(corpus)
    with StopRequest() as stop:
        todo = (batch for batch in reading.batches() if not _is_done(folder, batch.shard, on_progress, reading))
        for batch in made_by(workers, job, todo):
            if on_progress:
                on_progress(reading.done.get(batch.shard), batch.characters)
            if stop.requested:
                raise Stopped(f"Stopped ({stop.signal_name}); run the same command again to resume.")
    if reading.shards == 0:
        raise UserError(f"{corpus.name}: it contains no documents")
    bad_rows(folder, reading.bad)
    with files.atomic_folder(folder / "tokenizer") as beside:
        pieces.tokenizer.save_pretrained(beside)
    finish(folder, reading, recipe, asdict(pieces.pair))


def _is_done(folder: Path, shard: int, on_progress: OnProgress | None, reading: "_Reading") -> bool:
    there = (folder / "shards" / shards.name(shard)).is_file()
    if there and on_progress:
        on_progress(reading.done.get(shard), 0)
    return there


def _job(
    folder: Path, corpus: Corpus, pieces: TokenizerPieces, max_length: int, sentences: dict[str, list[str]]
) -> Job:
    assert pieces.backend is not None
    form = pieces.pair
    if len({form.types[0], form.types[1], *form.between_types}) > 1 or form.types[2] != form.types[3]:
        raise UserError(f"tokenizer {pieces.tokenizer.name_or_path}: its type ids change inside a segment")
    highest = max(pieces.backend.get_vocab(with_added_tokens=True).values())
    return Job(
        str(folder),
        pieces.backend.to_str(),
        asdict(pieces.single),
        asdict(form),
        corpus.to_dict(),
        max_length,
        highest < 2**16,
        sentences,
    )


class _Reading:
    """Cuts the corpus into batches, one per shard, by characters: the same for any number of workers."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.bad: list[BadRow] = []
        self.done: dict[int, float | None] = {}  # shard -> share of the source up to its end
        self.shards = 0
        self.documents = [0] * corpus.entries  # that were read of each source
        documents = corpus.deduplicate in ("documents", "both")
        lines = corpus.deduplicate in ("lines", "both")
        self.seen_documents = Seen() if documents else None
        self.seen_lines = Seen() if lines else None

    def batches(self) -> Iterator[Batch]:
        """The documents of one shard after the other."""
        held: list[tuple[int, str]] = []
        entry = self.corpus.entry_of_files()
        number = size = 0
        share: float | None = None
        for item in self.corpus.read():
            if isinstance(item, BadRow):
                self._refuse(item)
                continue
            held.append((number, item.text))
            share = item.done
            self.documents[entry[item.file]] += 1
            number, size = number + 1, size + len(item.text)
            if size >= self.corpus.shard_size:
                yield self._batch(held, size, share)
                held, size = [], 0
        if held:
            yield self._batch(held, size, share)

    def _refuse(self, bad: BadRow) -> None:
        """Without leave to skip, the first bad line ends it; all others are looked up for the message."""
        self.bad.append(bad)
        if not self.corpus.skip_bad_rows:
            self.corpus.refuse_bad_rows()

    def _batch(self, held: list[tuple[int, str]], size: int, share: float | None) -> Batch:
        counts: Counter[str] = Counter(characters=size, documents=len(held), duplicates=0, duplicate_lines=0)
        if self.seen_documents is not None or self.seen_lines is not None:
            held = [(number, "\n".join(self.corpus.lines(text, counts))) for number, text in held]
        if self.seen_documents is not None:
            held = self._new_documents(held, counts)
        if self.seen_lines is not None:
            held = self._new_lines(held, counts)
        batch = Batch(self.shards, held, dict(counts))
        self.done[self.shards] = share
        self.shards += 1
        return batch

    def _new_documents(self, held: list[tuple[int, str]], counts: Counter[str]) -> list[tuple[int, str]]:
        assert self.seen_documents is not None
        fresh = self.seen_documents.new([text for _, text in held])
        kept = [one for one, new in zip(held, fresh, strict=True) if new or not one[1]]
        counts["duplicates"] = len(held) - len(kept)
        return kept

    def _new_lines(self, held: list[tuple[int, str]], counts: Counter[str]) -> list[tuple[int, str]]:
        assert self.seen_lines is not None
        lines = [text.split("\n") if text else [] for _, text in held]
        fresh = iter(self.seen_lines.new([line for some in lines for line in some]))
        kept = [[line for line in some if next(fresh)] for some in lines]
        counts["duplicate_lines"] = sum(map(len, lines)) - sum(map(len, kept))
        return [(number, "\n".join(some)) for (number, _), some in zip(held, kept, strict=True)]


def corpus_table(
    task: Task,
    split: str,
    pieces: TokenizerPieces,
    max_length: int,
    on_progress: OnProgress | None = None,
    workers: Workers = None,
) -> BlockTable:
    """The blocks of a split: of a prepared folder, of the cache, or prepared now into the cache.

    `tick(share, characters)` hears of progress while it is prepared; the share is None where the end is not known.
    """
    assert isinstance(task, Corpus)
    if task.prepared:
        table = BlockTable(task.prepared_folder, split)
        task.origin(split)  # says what is missing
        cache.require_intact(table.folder, "run the `encodery prepare` command that wrote it again to repair it")
        _require_fit(table, pieces, max_length)
        return table
    from encodery.data.corpus.prepare import cached

    return BlockTable(cached(task, pieces, max_length, on_progress, workers), split)


def _require_fit(table: BlockTable, pieces: TokenizerPieces, max_length: int) -> None:
    if table.about["tokenizer"] != pieces.digest:
        raise UserError(
            f"prepared: {table.folder} was made with another tokenizer; give model.tokenizer={table.folder}/tokenizer, "
            "or prepare it again"
        )
    if table.about["max_length"] != max_length:
        length = table.about["max_length"]
        raise UserError(
            f"prepared: {table.folder} has blocks of {length} tokens and the run wants {max_length}; "
            f"set train.max_length={length}, or prepare it again"
        )
