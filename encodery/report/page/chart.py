"""A picture as data: drawn by plotly in the page (assets/page.js) and by matplotlib on paper (print_figures.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

POINTS = 200  # of a line: more than a screen shows
LINES = 60  # of a chart: more than an eye follows

Number = float | None
Value = str | float | None  # of a point of a map


@dataclass(frozen=True)
class Series:
    """A line, bars or points. Series of one group share a colour and one entry in the legend."""

    name: str
    x: Sequence[Any]
    y: Sequence[Number]
    group: str = ""
    kind: Literal["line", "bars", "points"] = "line"
    low: Sequence[float] = ()  # a band around a line, or the whiskers of bars
    high: Sequence[float] = ()
    text: Sequence[str] = ()  # shown when a point is touched
    dashed: bool = False
    shade: float | None = None  # 0 to 1: a place on the scale of colours instead of the group's colour


@dataclass(frozen=True)
class Chart:
    """Axes and what is drawn on them."""

    id: str
    title: str
    x: str
    y: str
    series: Sequence[Series]
    rules: Sequence[tuple[float, str]] = ()  # level lines with a name
    smooth: bool = False  # the page offers a slider
    log_y: bool = False
    bare: bool = False  # axes whose numbers mean nothing
    y_range: tuple[float, float] | None = None
    diagonal: bool = False
    note: str = ""
    marks: Sequence[tuple[Any, float, str]] = ()  # words at a place
    palette: Sequence[str] = ()  # groups in the order of their colours, where several charts share them
    stacked: bool = False  # bars stand on each other

    @property
    def groups(self) -> list[str]:
        """What the legend names."""
        here = dict.fromkeys(one.group or one.name for one in self.series)
        return [name for name in self.palette if name in here] + [name for name in here if name not in self.palette]

    def colour(self, group: str) -> int:
        """The number of a group's colour."""
        return [*self.palette, *(name for name in self.groups if name not in self.palette)].index(group)


# Widths in a table of coloured cells, in pixels; a cell holds `12 (100%)`.
LETTER, CELL, PADDING, HALF = 8.2, 9, 26, 380


@dataclass(frozen=True)
class Heat:
    """A table of numbers with coloured cells."""

    id: str
    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Number]]
    texts: Sequence[Sequence[str]]
    x: str = ""
    y: str = ""
    low: float | None = None
    high: float | None = None
    note: str = ""
    hints: Sequence[Sequence[str]] = ()  # shown when a cell is touched
    signed: bool = False  # gains and losses: values below zero have the other colour

    @property
    def dense(self) -> bool:
        """Whether there are so many columns that all must be small, and their names turned."""
        return len(self.columns) > 8

    @property
    def turned(self) -> bool:
        """Whether names of columns must be turned to fit: their longest words are wider than half a page."""
        words = [max(map(len, name.split()), default=0) for name in self.columns]
        wide = sum(LETTER * max(length, CELL) + PADDING for length in words) > HALF
        return self.dense or (wide and max(words, default=0) > CELL)

    @property
    def span(self) -> tuple[float, float]:
        """Where the colours begin and end."""
        found = [value for line in self.values for value in line if value is not None]
        low = min(found, default=0.0) if self.low is None else self.low
        high = max(found, default=1.0) if self.high is None else self.high
        return low, high if high > low else low + 1.0


@dataclass(frozen=True)
class Dots:
    """Points with texts, and columns that they can be coloured by; the first column is shown first."""

    id: str
    title: str
    ids: Sequence[str]
    x: Sequence[float]
    y: Sequence[float]
    columns: Mapping[str, Sequence[Value]]
    texts: Sequence[str] = ()
    x_name: str = ""  # axes without a name have no numbers either
    y_name: str = ""
    note: str = ""
    of: int | None = None  # points before thinning
    fixed: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # ranges of axes and columns
    names: Sequence[tuple[float, float, str]] = ()  # words at a place, the most important first


Picture = Chart | Heat | Dots


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    body: str  # HTML
    pictures: Sequence[Picture] = field(default_factory=tuple)


def thin(x: Sequence[float], y: Sequence[float], most: int = POINTS) -> tuple[list[float], list[float]]:
    """At most so many points: each the mean of its neighbours, so that no single step is chosen by chance."""
    if len(x) <= most:
        return list(x), list(y)
    edges = [len(x) * i // most for i in range(most + 1)]
    parts = [slice(a, b) for a, b in pairwise(edges)]
    return [x[part.stop - 1] for part in parts], [sum(y[part]) / (part.stop - part.start) for part in parts]


def spread(values: Sequence[Any], most: int = LINES) -> list[Any]:
    """At most so many of a sequence, evenly, first and last included."""
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def plain(chart: Chart) -> dict[str, Any]:
    """What the page's script reads; numbers to five digits, names and texts with entities instead of < and &."""
    return {
        "x": escaped(chart.x), "y": escaped(chart.y), "smooth": chart.smooth, "logY": chart.log_y, "bare": chart.bare,
        "range": chart.y_range, "diagonal": chart.diagonal, "stacked": chart.stacked,
        "groups": [escaped(name) for name in chart.groups],
        "colours": [chart.colour(name) for name in chart.groups],
        "marks": [[escaped(x) if isinstance(x, str) else x, y, escaped(text)] for x, y, text in chart.marks],
        "rules": [[level, escaped(name)] for level, name in chart.rules],
        "series": [_series(one, chart.groups) for one in chart.series],
    }  # fmt: skip


def _series(series: Series, groups: Sequence[str]) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "name": escaped(series.name), "group": groups.index(series.group or series.name), "kind": series.kind,
        "x": [escaped(v) if isinstance(v, str) else short(v) for v in series.x], "y": [short(v) for v in series.y],
    }  # fmt: skip
    if series.low:
        drawn |= {"low": [short(v) for v in series.low], "high": [short(v) for v in series.high]}
    if series.text:
        drawn["text"] = [escaped(text) for text in series.text]
    if series.shade is not None:
        drawn["shade"] = short(series.shade)
    return drawn | ({"dashed": True} if series.dashed else {})


def short(value: Number) -> Number:
    """Five digits; whole numbers stay whole; what is no number is a gap."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return value if isinstance(value, int) else float(f"{value:.5g}")


def escaped(text: str) -> str:
    """plotly reads some tags and entities in its texts: these letters stand for themselves."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
