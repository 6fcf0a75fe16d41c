"""Pictures from run directories, by matplotlib: for papers and for README pages."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encodery.rundir import RunDir


def curves(runs: Sequence[Path | str], out: Path) -> None:
    """Training loss and dev scores over steps, one line per run, one colour per task."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    colours: dict[str, str] = {}
    for path in runs:
        run = RunDir.open(path)
        task = str(run.info()["task"])
        new = task not in colours
        colour = colours.setdefault(task, f"C{len(colours)}")
        records = run.metrics()
        _line(left, records, "loss", colour, task if new else None)
        main = next((f"eval.{m}" for m in run.read_scores()["main"].values()), "")
        _line(right, records, main, colour, f"{task} {main.removeprefix('eval.')}" if new else None, marker="o")
    _dress([(left, "training loss"), (right, "dev score")], "step")
    figure.savefig(out)
    plt.close(figure)


def robustness(found: Mapping[str, Sequence[Mapping[str, float]]], main: str, title: str) -> bytes:
    """The headline score and the loss against the radius of an attack, one line per model, as SVG."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for number, (model, levels) in enumerate(found.items()):
        radii = [level["radius"] for level in levels]
        for axis, name in ((left, main), (right, "loss")):
            values = [level[name] for level in levels]
            axis.plot(radii, values, color=f"C{number % 10}", label=model, marker="o", alpha=0.8)
    _dress([(left, main), (right, "loss")], "radius")
    figure.suptitle(title, fontsize="medium")
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    plt.close(figure)
    return stream.getvalue()


def learning_curves(
    lines: Mapping[tuple[str, str], Mapping[str, Sequence[tuple[float, Sequence[float]]]]], title: str
) -> bytes:
    """A panel for each (metric, match): the mean over seeds against the part of the data, with a band of ± one
    standard deviation, one line per method, as SVG."""
    plt = _pyplot()
    across = len({match for _, match in lines})
    down = -(-len(lines) // across)
    figure, axes = plt.subplots(down, across, figsize=(4.5 * across, 3.2 * down), layout="constrained", squeeze=False)
    for axis, ((metric, match), methods) in zip(axes.flat, lines.items(), strict=False):
        for number, (method, points) in enumerate(methods.items()):
            x = [100 * fraction for fraction, _ in points]
            middle = [sum(values) / len(values) for _, values in points]
            spread = [_deviation(values) for _, values in points]
            axis.plot(x, middle, color=f"C{number % 10}", label=method, marker="o", markersize=3)
            low, high = ([m + sign * s for m, s in zip(middle, spread, strict=True)] for sign in (-1, 1))
            axis.fill_between(x, low, high, color=f"C{number % 10}", alpha=0.15, linewidth=0)
        _dress([(axis, f"{metric}, {match}-matched")], "% of the training set")
    figure.suptitle(title, fontsize="medium")
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    plt.close(figure)
    return stream.getvalue()


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return float((sum((v - mean) ** 2 for v in values) / max(len(values) - 1, 1)) ** 0.5)


def _pyplot() -> Any:
    """matplotlib without a window; equal figures are equal bytes."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "encodery"
    import matplotlib.pyplot as plt

    return plt


def _dress(axes: Sequence[tuple[Any, str]], along: str) -> None:
    for axis, title in axes:
        axis.set(title=title, xlabel=along)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)


def _line(
    axis: object, records: list[dict[str, float]], name: str, colour: str, label: str | None, marker: str = ""
) -> None:
    points = [(r["step"], r[name]) for r in records if r.get(name) is not None]
    axis.plot([p[0] for p in points], [p[1] for p in points], color=colour, label=label, marker=marker, alpha=0.8)  # type: ignore[attr-defined]
