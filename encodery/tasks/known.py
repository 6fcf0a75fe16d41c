"""What is known of a published set: a row of the tables in glue.py, nli.py, tag.py and squad.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tsv:
    """An official tab-separated file: its name, and the names of its columns (`header`: they are not in the file)."""

    file: str
    texts: tuple[str, ...]
    label: str | None = None
    header: tuple[str, ...] | None = None
    listed: tuple[str, bool] | None = None  # only rows whose two ids are (or are not) in the file of this name


@dataclass(frozen=True)
class Known:
    """A published set: how its rows look in every layout."""

    name: str  # how its Parquet files begin
    texts: tuple[str, ...]  # columns in Parquet and, unless `hub_texts` says otherwise, on the hub
    labels: tuple[str, ...]  # in the order of the hub's label ids; empty: a number
    counts: Mapping[str, int | None]  # split -> official number of rows
    repository: str
    configuration: str | None = None
    hub_splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # where they are not the usual ones
    hub_texts: tuple[str, ...] = ()
    hub_revision: str | None = None
    room: str = "glue"  # folder of its Parquet files
    folders: tuple[str, ...] = ()  # official TSV folder, in all usual spellings
    tsv: Mapping[str, tuple[Tsv, ...]] = field(default_factory=dict)
    id: str = "idx"
    bounds: tuple[float, float] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)  # other spellings of label names
    skip_short: bool = False  # the official file has malformed rows, which everybody skips
    skip_unlabelled: bool = False  # rows on which annotators did not agree
    stand_in: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # split -> (Parquet stem, its note)
    undivided: str | None = None  # Parquet stem of a file without splits
    divide_by: str | None = None  # column whose equal values stay on one side of our own split
    extra: tuple[str, ...] = ()  # columns that are kept where a file has them, for looking at the rows
