"""A corpus → a folder of blocks: one reader, many workers, shards that are the same whatever the number of workers.

recipe.json   what decides the content; written first, so that nobody continues something else
tokenizer/    the tokenizer, as a transformers folder
shards/       00000.safetensors …, each whole or not there
train/ dev/   where blocks begin, over all shards
report.json   what was read, left out and made
meta.json     the counts; written last
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from encodery import cache, files
from encodery.data import finish, shards
from encodery.data.blocks import Tick
from encodery.data.crew import Workers, made_by
from encodery.data.decontaminate import Seen, benchmark_sentences
from encodery.data.pieces import TokenizerPieces
from encodery.data.worker import Batch, Job
from encodery.errors import Stopped, UserError
from encodery.lock import RunLock
from encodery.signals import StopRequest
from encodery.tasks.corpus import Corpus
from encodery.tasks.readers import BadRow

VERSION = 1  # raise it when equal inputs give other blocks


def cached(
    corpus: Corpus, pieces: TokenizerPieces, max_length: int, tick: Tick | None = None, workers: Workers = None
) -> Path:
    """The folder in the cache that holds the blocks; prepared now if it is not there, or waited for."""
    recipe, sentences = recipe_of(corpus, pieces, max_length)
    folder = files.cache_root() / "corpora" / _digest(recipe)[:32]
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
            _prepare(folder, corpus, pieces, recipe, sentences, tick, workers)
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
    tick: Tick | None = None,
    workers: Workers = None,
) -> dict[str, Any]:
    """Prepare into a folder, or go on there; the report."""
    recipe, sentences = recipe_of(corpus, pieces, max_length)
    folder.mkdir(parents=True, exist_ok=True)
    _require_same(folder, recipe)
    if not _is_whole(folder):
        with RunLock(folder):
            cache.repair(folder)
            _prepare(folder, corpus, pieces, recipe, sentences, tick, workers)
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
        "benchmark": _digest(sentences) if sentences else None,
    }
    return recipe, sentences


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _require_same(folder: Path, recipe: dict[str, Any]) -> None:
    """A folder goes on as it was begun."""
    path = folder / "recipe.json"
    if not path.is_file():
        others = [one.name for one in folder.iterdir() if not one.name.startswith(".")]
        if others:
            raise UserError(f"{folder} holds other things ({others[0]}); give a new or empty folder with -o")
        return
    old = files.read_json(path)
    flat_old, flat_new = ({**r["corpus"], **{k: v for k, v in r.items() if k != "corpus"}} for r in (old, recipe))
    other = sorted(key for key in {**flat_old, **flat_new} if flat_old.get(key) != flat_new.get(key))
    if other:
        raise UserError(f"{folder} was begun with another {', '.join(other)}; give another folder with -o")


def _prepare(
    folder: Path,
    corpus: Corpus,
    pieces: TokenizerPieces,
    recipe: dict[str, Any],
    sentences: dict[str, list[str]],
    tick: Tick | None,
    workers: Workers,
) -> None:
    for one in (folder, folder / "shards"):
        one.mkdir(exist_ok=True)
        files.remove_leftovers(one)
    files.write_json(folder / "recipe.json", recipe)
    job = _job(folder, corpus, pieces, recipe["max_length"], sentences)
    reading = _Reading(corpus)
    with StopRequest() as stop:
        todo = (batch for batch in reading.batches() if not _is_done(folder, batch.shard, tick, reading, batch))
        for batch in made_by(workers, job, todo):
            if tick:
                tick(reading.done.get(batch.shard), batch.characters)
            if stop.requested:
                raise Stopped(f"Stopped ({stop.signal_name}); run the same command again and it goes on.")
    if reading.shards == 0:
        raise UserError(f"{corpus.name}: there is no document in it")
    finish.bad_rows(folder, reading.bad)
    with files.atomic_folder(folder / "tokenizer") as beside:
        pieces.tokenizer.save_pretrained(beside)
    finish.finish(folder, reading.shards, recipe, asdict(pieces.pair), len(reading.bad))


def _is_done(folder: Path, shard: int, tick: Tick | None, reading: "_Reading", batch: Batch) -> bool:
    there = (folder / "shards" / shards.name(shard)).is_file()
    if there and tick:
        tick(reading.done.get(shard), 0)
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
        corpus.plain(),
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
        documents = corpus.deduplicate in ("documents", "both")
        lines = corpus.deduplicate in ("lines", "both")
        self.seen_documents = Seen() if documents else None
        self.seen_lines = Seen() if lines else None

    def batches(self) -> Iterator[Batch]:
        """The documents of one shard after the other."""
        held: list[tuple[int, str]] = []
        number = size = 0
        share: float | None = None
        for item in self.corpus.read():
            if isinstance(item, BadRow):
                self._refuse(item)
                continue
            held.append((number, item.text))
            share = item.done
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
