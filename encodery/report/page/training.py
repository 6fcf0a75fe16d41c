"""Curves over steps: loss, dev score, rate, throughput; a line for each run, a colour for each configuration."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from encodery.report.page.chart import LINES, Chart, Section, Series, spread, thin
from encodery.report.page.found import Found
from encodery.report.page.html import figure, join, tag
from encodery.report.records import Record

Value = Callable[[Mapping[str, Any]], float | None]


def section(found: Found) -> Section | None:
    """The charts that have a line."""
    runs = drawn(found)
    charts = [
        chart(found, runs, "loss", "Training loss", "loss", of("loss"), smooth=True),
        chart(found, runs, "score", "Dev score on the way", "score", _score(runs), least=2),
        chart(found, runs, "lr", "Learning rate", "rate", of("lr")),
        chart(found, runs, "tokens_per_second", "Throughput", "tokens per second", _speed, smooth=True),
    ]
    shown = [one for one in charts if one.series]
    if not shown:
        return None
    many = len(found.records) - len(runs)
    words = (
        f"{len(runs)} of {len(found.records)} runs are drawn, evenly from the best to the worst." if many > 0 else ""
    )
    note = tag("p", words, class_="note") if words else ""
    return Section("training", "Training", join(note, tag("div", *map(figure, shown), class_="grid")), shown)


def drawn(found: Found) -> list[Record]:
    """At most as many runs as an eye follows, from the best to the worst."""
    if len(found.records) <= LINES:
        return list(found.records)
    return spread(sorted(found.records, key=_quality))


def _quality(record: Record) -> tuple[bool, float]:
    first = next(iter(record.main.items()), None)
    value = record.value(*first) if first else None
    return value is None, -(value or 0.0)


def of(name: str) -> Value:
    """The value of a key."""
    return lambda line: _number(line.get(name))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _speed(line: Mapping[str, Any]) -> float | None:
    tokens, seconds = _number(line.get("tokens")), _number(line.get("seconds"))
    return tokens / seconds if tokens is not None and seconds else None


def _score(runs: Sequence[Record]) -> Value:
    """The headline of an evaluation, whatever it is called: the first that any run has as its main metric.

    Of several tasks it is their mean; lines of single tasks would make one curve of many.
    """
    metrics = [metric for run in runs for metric in run.main.values()]
    names = [f"eval.{metric}" for metric in dict.fromkeys([*metrics, "mean"])]

    def value(line: Mapping[str, Any]) -> float | None:
        found = [] if "task" in line else [_number(line.get(name)) for name in names]
        return next((number for number in found if number is not None), None)

    return value


def chart(
    found: Found,
    runs: Sequence[Record],
    id: str,
    title: str,
    y: str,
    value: Value,
    *,
    smooth: bool = False,
    least: int = 1,
) -> Chart:
    """One line for each run, and the reference curves that fit."""
    series = [one for run in runs if (one := line(found, run, value, least))]
    for reference in found.references:
        if id in reference.curves:
            series.append(Series(reference.name, *thin(*reference.curves[id]), group="reference", dashed=True))
    return Chart(f"curve-{id.replace('_', '-')}", title, "step", y, series, smooth=smooth, palette=found.groups)


def line(found: Found, run: Record, value: Value, least: int = 1, group: str = "") -> Series | None:
    """A run's values over its steps."""
    points = [(one["step"], number) for one in found.metrics(run) if (number := value(one)) is not None]
    if len(points) < least:
        return None
    x, y = thin([step for step, _ in points], [number for _, number in points])
    state = "" if run.done else f" ({run.state})"
    return Series(f"{group or found.group(run)}, seed {run.seed}{state}", x, y, group or found.group(run))
