"""Curves over steps, task by task: loss, dev score, rate, throughput, use of a GPU.

A line a run, a colour a configuration.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from encodery.report.page.chart import LINES, Chart, Section, Series, spread, thin
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, choice, figure, join, tag
from encodery.report.records import Record
from encodery.tasks.forms import metric_table

Value = Callable[[Mapping[str, Any]], float | None]


def section(page: PageData) -> Section | None:
    """The charts that have a line, task by task: losses of different tasks are not comparable."""
    by_task: dict[str, list[Record]] = {}
    for record in page.records:
        by_task.setdefault(record.task or "own task", []).append(record)
    charts: list[Chart] = []
    panels: list[tuple[str, Html]] = []
    for task, records in by_task.items():
        runs = drawn(records)
        shown = [one for one in _charts(page, runs, f"-{len(panels)}" if panels else "") if one.series]
        if shown:
            panels.append((task, _panel(shown, len(runs), len(records))))
            charts += shown
    return Section("training", "Training", choice("training-task", "Task", panels), charts) if panels else None


def _charts(page: PageData, runs: Sequence[Record], suffix: str) -> list[Chart]:
    return [
        chart(page, runs, "loss", "Training loss", "loss", of("loss"), smooth=True, suffix=suffix),
        chart(page, runs, "score", "Dev score in training", "score", _score(runs, page.metric), least=2, suffix=suffix),
        chart(page, runs, "lr", "Learning rate", "rate", of("lr"), suffix=suffix),
        chart(page, runs, "masked", "Share of masked words", "share", of("masked"), suffix=suffix),
        chart(page, runs, "tokens_per_second", "Throughput", "tokens per second", _speed, smooth=True, suffix=suffix),
        chart(page, runs, "mfu", "Model FLOPs utilisation", "share of the peak rate", of("mfu"), suffix=suffix),
        chart(page, runs, "memory", "Peak memory", "GB", _gigabytes, suffix=suffix),
    ]


def _panel(shown: Sequence[Chart], drawn: int, whole: int) -> Html:
    words = f"{drawn} of {whole} runs are drawn, evenly from the best to the worst." if whole > drawn else ""
    return join(tag("p", words, class_="note") if words else "", tag("div", *map(figure, shown), class_="grid"))


def drawn(records: Sequence[Record]) -> list[Record]:
    """At most as many runs as an eye follows, from the best to the worst."""
    return list(records) if len(records) <= LINES else spread(sorted(records, key=_quality))


def _quality(record: Record) -> tuple[bool, float]:
    first = next(iter(record.main.items()), None)
    value = record.value(*first) if first else None
    return value is None, -(value or 0.0)


def of(name: str) -> Value:
    """The value of a key."""
    return lambda line: _number(line.get(name))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _gigabytes(line: Mapping[str, Any]) -> float | None:
    found = _number(line.get("memory"))
    return None if found is None else found / 1e9


def _speed(line: Mapping[str, Any]) -> float | None:
    tokens, seconds = _number(line.get("tokens")), _number(line.get("seconds"))
    return tokens / seconds if tokens is not None and seconds else None


def _score(runs: Sequence[Record], asked: str | None = None) -> Value:
    """The headline of an evaluation, whatever it is called: what is asked for, else the first main metric of a run.

    Of several tasks it is their mean; lines of single tasks would make one curve of many.
    """
    metrics = [*([metric_table.spelled(asked)] if asked else []), *(name for run in runs for name in run.main.values())]
    names = [f"eval.{metric}" for metric in dict.fromkeys([*metrics, "mean"])]

    def value(line: Mapping[str, Any]) -> float | None:
        found = [] if "task" in line else [_number(line.get(name)) for name in names]
        return next((number for number in found if number is not None), None)

    return value


def chart(
    page: PageData,
    runs: Sequence[Record],
    id: str,
    title: str,
    y: str,
    value: Value,
    *,
    smooth: bool = False,
    least: int = 1,
    suffix: str = "",
) -> Chart:
    """One line for each run, and the reference curves that fit."""
    series = [one for run in runs if (one := line(page, run, value, least))]
    for reference in page.references:
        if id in reference.curves:
            series.append(Series(reference.name, *thin(*reference.curves[id]), group="reference", dashed=True))
    return Chart(f"curve-{id.replace('_', '-')}{suffix}", title, "step", y, series, smooth=smooth, palette=page.groups)


def line(page: PageData, run: Record, value: Value, least: int = 1, group: str = "") -> Series | None:
    """A run's values over its steps."""
    points = [(one["step"], number) for one in page.metrics(run) if (number := value(one)) is not None]
    if len(points) < least:
        return None
    x, y = thin([step for step, _ in points], [number for _, number in points])
    state = "" if run.done else f" ({run.state})"
    return Series(f"{group or page.group(run)}, seed {run.seed}{state}", x, y, group or page.group(run))
