"""Retraining curves as a table, JSON and pictures: mean and spread over seeds, area, data needed, against random."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from encodery.core import files
from encodery.core.files import file_name
from encodery.core.text import markdown_table
from encodery.report import figures, stats
from encodery.tasks.forms.metric_table import lower_is_better

RANDOM = "random"
MOST_LABELS = 12  # that the table of labels has room for
GOAL = 0.99  # of the score with all data
NOTE = (
    "± is the standard deviation over seeds (their number in brackets), the band of a picture Student's 95 % interval "
    "of the mean (none below three seeds); then the mean difference to random on the same seeds, with the p of a "
    "paired t-test, adjusted by Holm for all comparisons of its table. Area: mean height of the curve. `flat`: the "
    "intervals of all points have a level in common, so no share of the data can be named; `?`: fewer than three "
    "seeds at some point, so it is unknown whether the curve is flat."
)


@dataclass(frozen=True)
class Point:
    """One run of a curve."""

    method: str
    match: str
    fraction: float
    seed: int
    steps: int
    rows: int
    scores: Mapping[str, Mapping[str, float]]  # glue/mnli:dev -> accuracy -> 0.7
    alarms: tuple[str, ...] = ()
    asked: float | None = None  # the fraction of the file; `fraction` is the share that the rows have
    labels: Mapping[str, float] = field(default_factory=dict)  # share of each label among the rows


@dataclass(frozen=True)
class Curves:
    """All runs of a curve."""

    points: Sequence[Point]
    main: str  # glue/mnli:dev
    metric: Mapping[str, str]
    about: tuple[str, ...] = ()
    cautions: Mapping[str, str] = field(default_factory=dict)  # data -> what must stand beside every figure of it

    def label(self, data: str) -> str:
        """The data with its caution: `hans:dev (regenerated, not the published HANS)`."""
        return data + self.cautions.get(data, "")

    def values(self, method: str, match: str, fraction: float, data: str, metric: str) -> dict[int, float]:
        wanted = (method, match, fraction)
        return {
            p.seed: p.scores[data][metric]
            for p in self.points
            if (p.method, p.match, p.fraction) == wanted and metric in p.scores.get(data, {})
        }

    def line(self, method: str, match: str, data: str, metric: str) -> list[tuple[float, list[float]]]:
        """Fraction and the scores of all seeds."""
        found = ((f, self.values(method, match, f, data, metric)) for f in self.fractions)
        return [(fraction, list(values.values())) for fraction, values in found if values]

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys([RANDOM, *(p.method for p in self.points)]))

    @property
    def matches(self) -> list[str]:
        return list(dict.fromkeys(p.match for p in self.points))

    @property
    def fractions(self) -> list[float]:
        return sorted({p.fraction for p in self.points})

    @property
    def panels(self) -> list[tuple[str, str]]:
        """Data and metric of each picture: the headline of everything, and of HANS each heuristic."""
        names: dict[tuple[str, str], None] = {}
        for point in self.points:
            for data, scores in point.scores.items():
                inner = [n for n in scores if n.startswith(("entailed_", "non_entailed_", "mean_"))]
                names |= dict.fromkeys((data, n) for n in [self.metric.get(data, "accuracy"), *inner] if n in scores)
        return sorted(names, key=lambda panel: panel[0] != self.main)


def area(line: Sequence[tuple[float, Sequence[float]]]) -> float | None:
    """Mean height of the curve over the fractions that were tried: its area, divided by its width."""
    points = [(x, stats.mean(ys)) for x, ys in line]
    if len(points) < 2:
        return None
    whole = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
    return float(whole / (points[-1][0] - points[0][0]))


def needed(line: Sequence[tuple[float, Sequence[float]]], goal: float = GOAL, lower: bool = False) -> float | None:
    """The smallest fraction whose mean reaches 99 % of that with everything, between points by a straight line.

    Of a loss, which is better when lower, it may be a hundredth above.
    """
    points = [(x, -stats.mean(ys) if lower else stats.mean(ys)) for x, ys in line]
    if not points or points[-1][0] != 1.0:
        return None
    wanted = points[-1][1] / goal if lower else goal * points[-1][1]
    if points[0][1] >= wanted:
        return points[0][0]
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 < wanted <= y1:
            return float(x0 + (x1 - x0) * (wanted - y0) / (y1 - y0))
    return None


def flat(line: Sequence[tuple[float, Sequence[float]]]) -> bool | None:
    """Whether one level line runs through the intervals of all points; None where a point has fewer than three seeds,
    so that nobody can tell."""
    found = [stats.t_interval(ys) for _, ys in line]
    known = [interval for interval in found if interval is not None]
    if not known or len(known) < len(found):
        return None
    return max(low for low, _ in known) <= min(high for _, high in known)


def area_text(line: Sequence[tuple[float, Sequence[float]]]) -> str:
    """Times 100; nothing for a single point."""
    value = area(line)
    return "" if value is None else f"{100 * value:.1f}"


def needed_text(line: Sequence[tuple[float, Sequence[float]]], metric: str) -> str:
    """`43.1`; `flat` where the intervals allow a level curve, which has no such point; `43.1 ?` with too few seeds."""
    least, level = needed(line, lower=lower_is_better(metric)), flat(line)
    if least is None or level:
        return "" if least is None else "flat"
    return f"{100 * least:.1f}" + (" ?" if level is None else "")


@dataclass(frozen=True)
class Gap:
    """A method beside random at one fraction, on the seeds that both have."""

    mean: float
    interval: tuple[float, float] | None
    p: float | None
    p_holm: float | None = None  # over all comparisons of its table

    def __str__(self) -> str:
        """`+0.4 (p 0.31)`."""
        return f"{100 * self.mean:+.1f}" + (f" (p {self.p_holm:.2f})" if self.p_holm is not None else "")


def gaps_to_random(curves: Curves, match: str, data: str, metric: str) -> dict[tuple[str, float], Gap]:
    """Every method at every fraction but the whole, by (method, fraction); p after Holm over this table."""
    gap_of: dict[tuple[str, float], Gap] = {}
    for method in curves.methods:
        for fraction in curves.fractions:
            mine = curves.values(method, match, fraction, data, metric)
            theirs = curves.values(RANDOM, match, fraction, data, metric)
            gaps = [mine[seed] - theirs[seed] for seed in mine if seed in theirs]
            if gaps and method != RANDOM and fraction != 1.0:
                gap_of[method, fraction] = Gap(stats.mean(gaps), stats.t_interval(gaps), stats.paired_t(gaps))
    tested = {at: gap.p for at, gap in gap_of.items() if gap.p is not None}
    adjusted = zip(tested, stats.holm(list(tested.values())), strict=True)
    return gap_of | {at: replace(gap_of[at], p_holm=p) for at, p in adjusted}


def table(curves: Curves, match: str, data: str, metric: str) -> str:
    """A row for each method: scores by fraction, area, data needed."""
    shown = [f"{100 * fraction:.4g} %" for fraction in curves.fractions]
    header = [f"{metric}, {match}-matched", *shown, "area", "99 % of full at"]
    rows = []
    gaps = gaps_to_random(curves, match, data, metric)
    for method in curves.methods:
        line = dict(curves.line(method, match, data, metric))
        if not line:
            continue
        cells = []
        for fraction in curves.fractions:
            gap = gaps.get((method, fraction))
            cells.append(stats.percent(line[fraction]) + (f" {gap}" if gap else "") if fraction in line else "")
        whole = sorted(line.items())
        rows.append([method, *cells, area_text(whole), needed_text(whole, metric)])
    rows.append(["steps", *(_steps(curves, match, fraction) for fraction in curves.fractions), "", ""])
    return f"{curves.label(data)}\n\n{markdown_table(header, rows)}"


def _steps(curves: Curves, match: str, fraction: float) -> str:
    """Of all runs at a share; seeds that took different numbers of rows have different steps."""
    found = [p.steps for p in curves.points if (p.match, p.fraction) == (match, fraction)]
    return f"{min(found):,}" if min(found) == max(found) else f"{min(found):,} to {max(found):,}"


def label_table(curves: Curves) -> str | None:
    """The labels that each method takes beside those of all data (mean over seeds); None where there are none."""
    labels = next((p.labels for p in curves.points if p.fraction == 1.0 and p.labels), None)
    if labels is None or len(labels) > MOST_LABELS:
        return None
    header = [f"% {' / '.join(labels)}", *(f"{100 * fraction:.4g} %" for fraction in curves.fractions)]
    rows = [[method, *(_mix(curves, method, fraction, list(labels)) for fraction in curves.fractions)]
            for method in curves.methods]  # fmt: skip
    return f"labels\n\n{markdown_table(header, rows)}"


def _mix(curves: Curves, method: str, fraction: float, labels: Sequence[str]) -> str:
    """`41.2 / 58.8`."""
    mine = [p.labels for p in curves.points if (p.method, p.match, p.fraction) == (method, curves.matches[0], fraction)]
    return " / ".join(f"{100 * stats.mean([one.get(label, 0.0) for one in mine]):.1f}" for label in labels if mine)


def markdown(curves: Curves) -> str:
    """All tables: the headline first."""
    blocks = ["\n".join(curves.about)]
    blocks += [table(curves, match, *panel) for panel in curves.panels for match in curves.matches]
    blocks += [labels] if (labels := label_table(curves)) else []
    alarms: dict[str, int] = {}
    for point in curves.points:
        for sentence in dict.fromkeys(point.alarms):
            alarms[sentence] = alarms.get(sentence, 0) + 1
    blocks += [f"ALARM ({count} of {len(curves.points)} points): {s}" for s, count in list(alarms.items())[:10]]
    return "\n\n".join([*blocks, NOTE]) + "\n"


def plain(curves: Curves) -> dict[str, Any]:
    lines = []
    for data, metric in curves.panels:
        for match in curves.matches:
            for method in curves.methods:
                line = curves.line(method, match, data, metric)
                about = {"data": data, "metric": metric, "match": match, "method": method}
                level = flat(line)
                least = None if level else needed(line)
                lines.append({**about, "area": area(line), "needed": least, "flat": level, **_ends(line)})
    gaps = [
        {"data": data, "metric": metric, "match": match, "method": method, "fraction": fraction, **asdict(gap)}
        for data, metric in curves.panels
        for match in curves.matches
        for (method, fraction), gap in gaps_to_random(curves, match, data, metric).items()
    ]
    points = [asdict(point) for point in curves.points]
    first = {"about": list(curves.about), "cautions": dict(curves.cautions)}
    return {**first, "curves": lines, "against_random": gaps, "points": points}


def _ends(line: Sequence[tuple[float, Sequence[float]]]) -> dict[str, Any]:
    """The mean of each fraction and its interval."""
    each = [(fraction, stats.mean(values), stats.t_interval(values)) for fraction, values in line]
    return {"means": [{"fraction": x, "mean": y, "interval": interval} for x, y, interval in each]}


def write(folder: Path, curves: Curves) -> None:
    """curve.md, curve.json and pictures."""
    files.write_atomic(folder / "curve.md", markdown(curves))
    files.write_atomic(folder / "curve.json", json.dumps(plain(curves), indent=1) + "\n")
    by_data: dict[str, list[str]] = {}
    for data, metric in curves.panels:
        by_data.setdefault(data, []).append(metric)
    for data, metrics in by_data.items():
        lines = {
            (metric, match): {m: curves.line(m, match, data, metric) for m in curves.methods}
            for metric in metrics
            for match in curves.matches
        }
        name = file_name(data.replace(":", "-"))
        files.write_atomic(folder / f"curve-{name}.svg", figures.learning_curves(lines, curves.label(data)))
