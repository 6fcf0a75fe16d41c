"""The page's pictures for a paper: PDF, SVG and PNG by matplotlib, as wide as a column."""

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from encodery.core import files
from encodery.report.figures import _pyplot
from encodery.report.page import point_map
from encodery.report.page.chart import Chart, Dots, Heat, Picture

FORMATS = ("pdf", "svg", "png")
WIDTH, HEIGHT = 3.3, 2.3  # inches: a column of a two-column paper
LEGEND = 8
COLOURS = ("#0b6e6e", "#c8641b", "#4b5fb5", "#a63a6f", "#6b8e23", "#8a6d3b", "#2a8fbd", "#7a4fa3", "#b8912a", "#5d676c")
STYLE = {
    "font.size": 7, "axes.titlesize": 7.5, "axes.labelsize": 7, "legend.fontsize": 6, "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42,
    "axes.linewidth": 0.6, "lines.linewidth": 1.0, "text.parse_math": False,
}  # fmt: skip


def write(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Three files for each picture; those of an earlier page are replaced."""
    plt = _pyplot()
    with files.io_trouble(f"{folder} cannot be written", folder.parent):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    with plt.rc_context(STYLE):
        for picture in pictures:
            figure = _figure(plt, picture)
            written += [_save(figure, folder / f"{picture.id}.{ending}", ending) for ending in FORMATS]
            plt.close(figure)
    return written


def _figure(plt: Any, picture: Picture) -> Any:
    if isinstance(picture, Chart):
        return _chart(plt, picture)
    return _heat(plt, picture) if isinstance(picture, Heat) else _dots(plt, picture)


def _dots(plt: Any, dots: Dots) -> Any:
    """The points in the colours of their first column."""
    figure, axis = plt.subplots(figsize=(WIDTH, WIDTH), layout="constrained")
    style = {"s": 2, "alpha": 0.6, "linewidths": 0, "rasterized": True}
    name, values = next(iter(dots.columns.items()), ("", []))
    if not values:
        axis.scatter(dots.x, dots.y, color=COLOURS[0], **style)
    elif point_map.numeric(values):
        known = [float("nan") if value is None else float(value) for value in values]
        drawn = axis.scatter(dots.x, dots.y, c=known, cmap="viridis", **style)
        figure.colorbar(drawn, label=name, shrink=0.7)
    else:
        names = point_map.names_of(values)
        codes = np.array(point_map.codes_of(values, names))
        for code, label in enumerate(names):
            x, y = np.array(dots.x)[codes == code], np.array(dots.y)[codes == code]
            axis.scatter(x, y, color=COLOURS[code % 10], label=label if len(names) <= LEGEND else None, **style)
        if len(names) <= LEGEND:
            axis.legend(frameon=False, markerscale=3)
    for x, y, words in dots.names[:LEGEND]:
        axis.text(x, y, words, fontsize=5.5, ha="center", va="center")
    axis.set(title=dots.title, xlabel=dots.x_name, ylabel=dots.y_name)
    if not dots.x_name:
        axis.set(xticks=[], yticks=[])
    return figure


def _save(figure: Any, path: Path, ending: str) -> Path:
    stream = io.BytesIO()
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[ending]  # equal figures are equal bytes
    figure.savefig(stream, format=ending, dpi=300, metadata=dates)
    files.write_atomic(path, stream.getvalue())
    return path


def _chart(plt: Any, chart: Chart) -> Any:
    figure, axis = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
    named: set[str] = set()
    bars = [one for one in chart.series if one.kind == "bars"]
    feet: dict[Any, float] = {}  # where the next bar of a stack begins
    for series in chart.series:
        group = series.group or series.name
        label = None if group in named or series.shade is not None else group
        named.add(group)
        tint = plt.cm.viridis(1 - series.shade) if series.shade is not None else COLOURS[chart.colour(group) % 10]
        if series.kind == "bars":
            if chart.stacked:
                _stack(axis, series, feet, tint, label)
            else:
                _bars(axis, series, bars.index(series), len(bars), tint, label)
        elif series.kind == "points":
            axis.scatter(series.x, series.y, s=3, alpha=0.6, linewidths=0, color=tint, label=label)
        else:
            _line(axis, series, tint, label, len(chart.series))
    for level, name in chart.rules:
        axis.axhline(level, color="#b3401f", linewidth=0.7, linestyle="--", label=name)
    if chart.diagonal:
        low, high = axis.get_xlim()
        axis.plot([low, high], [low, high], color="#5d676c", linewidth=0.6, linestyle=":")
    for x, y, words in chart.marks:
        axis.annotate(words, (x, y), fontsize=5.5, xytext=(2, 0), textcoords="offset points", va="center")
    _dress(axis, chart)
    return figure


def _line(axis: Any, series: Any, tint: Any, label: str | None, many: int) -> None:
    marker = "o" if len(series.x) <= 15 and many <= 10 else None
    y = [float("nan") if value is None else value for value in series.y]
    style = {"linestyle": ":" if series.dashed else "-", "marker": marker, "markersize": 2}
    axis.plot(series.x, y, color=tint, label=label, alpha=1 if many <= 20 else 0.7, **style)
    if series.low:
        axis.fill_between(series.x, series.low, series.high, color=tint, alpha=0.15, linewidth=0)


def _bars(axis: Any, series: Any, place: int, of: int, tint: Any, label: str | None) -> None:
    width = 0.8 / of
    at = [i + (place - (of - 1) / 2) * width for i in range(len(series.x))]
    whiskers = None
    if series.low:
        whiskers = [
            [y - v for y, v in zip(series.y, series.low, strict=True)],
            [v - y for y, v in zip(series.y, series.high, strict=True)],
        ]
    axis.bar(at, series.y, width=width, color=tint, label=label, yerr=whiskers, error_kw={"linewidth": 0.6})
    axis.set_xticks(range(len(series.x)), series.x, rotation=30, ha="right", rotation_mode="anchor")


def _stack(axis: Any, series: Any, feet: dict[Any, float], tint: Any, label: str | None) -> None:
    """Numbers stay where they are; names stand series after the other."""
    low = [feet.get(x, 0.0) for x in series.x]
    width = min((b - a for a, b in pairwise(series.x)), default=1.0) if not isinstance(series.x[0], str) else 0.8
    axis.bar(series.x, series.y, bottom=low, width=width, color=tint, label=label)
    feet.update({x: a + (y or 0.0) for x, a, y in zip(series.x, low, series.y, strict=True)})
    if isinstance(series.x[0], str):
        axis.tick_params(axis="x", rotation=30)


def _dress(axis: Any, chart: Chart) -> None:
    axis.set(title=chart.title, xlabel=chart.x, ylabel=chart.y)
    if chart.log_y:
        axis.set_yscale("log")
    if chart.y_range:
        axis.set_ylim(*chart.y_range)
    if chart.bare:
        axis.set_yticks([])
        if not isinstance(chart.series[0].x[0], str):
            axis.set_xticks([])
        else:
            axis.tick_params(axis="x", rotation=30)
    labelled = axis.get_legend_handles_labels()[1]
    if 1 < len(labelled) <= LEGEND or chart.rules:
        axis.legend(frameon=False)


def _heat(plt: Any, picture: Heat) -> Any:
    size = (max(WIDTH, 0.55 * len(picture.columns) + 1), max(1.2, 0.32 * len(picture.rows) + 0.8))
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    low, high = picture.span
    cells = [[float("nan") if value is None else value for value in line] for line in picture.values]
    axis.imshow(cells, vmin=low, vmax=high, cmap="BrBG" if picture.signed else "BuGn", aspect="auto")
    for i, line in enumerate(picture.texts):
        for j, text in enumerate(line):
            share = (cells[i][j] - low) / (high - low)
            dark = picture.values[i][j] is not None and (abs(share - 0.5) > 0.35 if picture.signed else share > 0.65)
            axis.text(j, i, text, ha="center", va="center", fontsize=6, color="white" if dark else "black")
    axis.set_xticks(range(len(picture.columns)), picture.columns)
    axis.set_yticks(range(len(picture.rows)), picture.rows)
    axis.set(title=picture.title, xlabel=picture.x, ylabel=picture.y)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    return figure
