"""Documents of a corpus, one after the other: text files, jsonl, Parquet, sets of the hub. Memory holds one at a time.

A reader yields documents and bad rows as they come, so that one broken line of a large corpus is named, not lost.
"""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from encodery.core import remote_files
from encodery.core.files import cache_root
from encodery.core.text import first_line, kind_and_line
from encodery.errors import UserError
from encodery.tasks.sources.readers import (
    Bad,
    BadRow,
    decoded,
    json_object,
    parquet_column,
    raw_shown,
    shown,
    without_mark,
)
from encodery.tasks.sources.rows import text_of

Format = Literal["auto", "lines", "document", "jsonl", "parquet"]
BATCH = 64  # rows of Parquet that are held at once
ENDINGS = {".txt": "lines", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class Document(NamedTuple):
    """A text whose lines are sentences or paragraphs."""

    text: str
    location: str  # file and line where it begins, for messages
    done: float | None  # share of the source that lies behind it, if that is known
    file: int = 0  # number of its file among those that are read


Documents = Iterator[Document | BadRow]


def expand(names: Sequence[str], root: Path) -> list[Path]:
    """Files, folders (all files below) and patterns with `*`, in the order given and sorted within each.

    Addresses such as `s3://…` are fetched into the cache.
    """
    paths: dict[Path, None] = {}
    for name in names:
        if remote_files.is_remote(name):
            paths.update(dict.fromkeys(remote_files.fetched([name], cache_root())))
            continue
        path = root / Path(name).expanduser()
        if any(mark in name for mark in "*?["):
            some = sorted(p for p in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if p.is_file())
        elif path.is_dir():
            some = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        else:
            some = [path] if path.is_file() else []
        if not some:
            raise UserError(f"files: {path} does not exist or holds no file")
        paths.update(dict.fromkeys(some))
    return list(paths)


def format_of(path: Path, given: Format) -> str:
    """How a file is read; `auto` goes by its ending, with or without .gz."""
    if given != "auto":
        return given
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if ending.lower() not in ENDINGS:
        raise UserError(f"{path}: set format: lines, document, jsonl or parquet")
    return ENDINGS[ending.lower()]


def from_files(paths: Sequence[Path], given: Format, column: str) -> Documents:
    """The documents of all files, in order."""
    kinds = [format_of(path, given) for path in paths]  # all of them, before an hour has gone into the first
    sizes = [path.stat().st_size for path in paths]
    behind, total = 0, max(sum(sizes), 1)
    for number, (path, kind, size) in enumerate(zip(paths, kinds, sizes, strict=True)):
        try:
            for item, place in _reader(path, kind, column):
                done = (behind + min(place, size)) / total
                yield item._replace(done=done, file=number) if isinstance(item, Document) else item
        except OSError as error:  # gzip's own errors are among them
            raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
        behind += size


_Placed = Iterator[tuple[Document | BadRow, int]]  # with the byte of the file up to which was read


def _reader(path: Path, kind: str, column: str) -> _Placed:
    if kind == "parquet":
        return _parquet(path, column)
    if kind == "jsonl":
        return _jsonl(path, column)
    return _lines(path, one_document=kind == "document")


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes, int]]:
    with path.open("rb") as file:
        stream = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        for number, raw in enumerate(stream, 1):
            raw = without_mark(path, raw) if number == 1 else raw
            yield number, raw.removesuffix(b"\n").removesuffix(b"\r"), file.tell() if number % 64 == 0 else 0


def _lines(path: Path, one_document: bool) -> _Placed:
    """One sentence a line; an empty line ends the document, unless the file as a whole is one."""
    held: list[str] = []
    begin = at = 0
    for number, raw, place in _raw_lines(path):
        at = place or at
        try:
            line = decoded(raw).strip()
        except Bad as bad:
            yield BadRow(str(path), number, None, bad.why, raw_shown(raw)), at
            continue
        if line:
            begin = begin if held else number
            held.append(line)
        elif held and not one_document:
            yield Document("\n".join(held), f"{path}, line {begin}", None), at
            held = []
    if held:
        yield Document("\n".join(held), f"{path}, line {begin}", None), at


def _jsonl(path: Path, column: str) -> _Placed:
    at = 0
    for number, raw, place in _raw_lines(path):
        at = place or at
        if not raw.strip():
            continue
        try:
            yield Document(text_of(json_object(decoded(raw)), column), f"{path}, line {number}", None), at
        except Bad as bad:
            yield BadRow(str(path), number, bad.column, bad.why, raw_shown(raw)), at


def _parquet(path: Path, column: str) -> _Placed:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        if column not in file.schema_arrow.names:
            raise UserError(f'{path}: there is no column "{column}"; it has {", ".join(file.schema_arrow.names)}')
        rows, size, number = max(file.metadata.num_rows, 1), path.stat().st_size, 0
        for batch in file.iter_batches(BATCH, columns=[column]):
            for value in parquet_column(batch.column(0)):
                number += 1
                yield _of_value(str(path), number, column, value), size * number // rows
    except pa.ArrowException as error:
        raise UserError(f"{path}: is not a readable Parquet file ({first_line(error)})") from error


def _of_value(file: str, number: int, column: str, value: Any) -> Document | BadRow:
    try:
        return Document(text_of({column: value}, column), f"{file}, row {number}", None)
    except Bad as bad:
        return BadRow(file, number, bad.column, bad.why, shown(value))


def from_hub(
    repository: str, configuration: str | None, split: str, commit: str, column: str, stream: bool
) -> Documents:
    """The documents of a set on the hub at a commit; streamed, nothing is kept on this disk."""
    from datasets import load_dataset

    name = f"hub:{repository}/{configuration or ''}:{split}"
    try:
        data = load_dataset(repository, configuration, split=split, revision=commit, streaming=stream)
        rows = data.info.splits[split].num_examples if data.info.splits and split in data.info.splits else None
        for number, row in enumerate(data, 1):
            if column not in row:
                raise UserError(f'{name}: there is no column "{column}"; it has {", ".join(row)}')
            item = _of_value(name, number, column, row[column])
            done = min(number / rows, 1.0) if rows else None
            yield item._replace(done=done) if isinstance(item, Document) else item
    except UserError:
        raise
    except Exception as error:  # the hub's client raises a zoo: offline, DNS, time-out, a broken download
        raise UserError(f"{name}: the hub could not provide it ({kind_and_line(error)})") from error


def hub_commit(repository: str, revision: str | None) -> str:
    """The commit that a branch or tag stands for now."""
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(repository, revision=revision, timeout=10).sha)
    except Exception as error:  # as above
        raise UserError(
            f"corpus {repository}: the hub could not be reached ({kind_and_line(error)}); put its files on this disk "
            "and name them with files:"
        ) from error
