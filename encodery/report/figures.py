"""Pictures from run directories, by matplotlib: for papers and for README pages."""

import io
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from encodery.report import stats

LEGEND = 40  # characters of a name in a legend; longer ones leave no room for the curves


def robustness(by_model: Mapping[str, Sequence[Mapping[str, float]]], main: str, title: str) -> bytes:
    """The headline score and the loss against the radius of an attack, one line per model, as SVG."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for number, (label, levels) in enumerate(zip(legend_names(list(by_model)), by_model.values(), strict=True)):
        radii = [level["radius"] for level in levels]
        for axis, name in ((left, main), (right, "loss")):
            values = [level[name] for level in levels]
            axis.plot(radii, values, color=f"C{number % 10}", label=label, marker="o", alpha=0.8)
    _dress([(left, main), (right, "loss")], "radius")
    figure.suptitle(title, fontsize="medium")
    return _svg(plt, figure)


def legend_names(paths: Sequence[str]) -> list[str]:
    """Folders named by as many of their last parts as tell them apart; the middle of a long name is left out."""
    parts = [PurePath(path).parts for path in paths]
    deepest = max(map(len, parts))
    for count in range(1, deepest + 1):
        tails = ["/".join(part[-count:]) for part in parts]
        if len(set(tails)) == len(set(parts)):
            break
    short = [tail if len(tail) <= LEGEND else f"{tail[: LEGEND // 2 - 1]}…{tail[-LEGEND // 2 :]}" for tail in tails]
    numbered = [f"{number}: {name}" for number, name in enumerate(short, start=1)]
    return short if len(set(short)) == len(set(parts)) else numbered


def learning_curves(
    lines: Mapping[tuple[str, str], Mapping[str, Sequence[tuple[float, Sequence[float]]]]], title: str
) -> bytes:
    """A panel for each (metric, match): the mean over seeds against the part of the data, with a band of its 95 %
    interval (from three seeds on), one line per method, as SVG."""
    plt = _pyplot()
    across = len({match for _, match in lines})
    down = -(-len(lines) // across)
    figure, axes = plt.subplots(down, across, figsize=(4.5 * across, 3.2 * down), layout="constrained", squeeze=False)
    for axis, ((metric, match), methods) in zip(axes.flat, lines.items(), strict=False):
        for number, (method, points) in enumerate(methods.items()):
            x = [100 * fraction for fraction, _ in points]
            middle = [sum(values) / len(values) for _, values in points]
            axis.plot(x, middle, color=f"C{number % 10}", label=method, marker="o", markersize=3)
            low, high = stats.band([values for _, values in points])
            if low:
                axis.fill_between(x, low, high, color=f"C{number % 10}", alpha=0.15, linewidth=0)
        _dress([(axis, f"{metric}, {match}-matched")], "% of the training set")
    figure.suptitle(title, fontsize="medium")
    return _svg(plt, figure)


def cluster_sizes(sizes: Sequence[int], purity: Sequence[float]) -> bytes:
    """Sizes of clusters from the largest on, and the purity of each against its size, as SVG."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.bar(range(len(sizes)), sorted(sizes, reverse=True), width=1.0)
    left.set(title="rows of each cluster", xlabel="cluster, by size")
    right.scatter(sizes, purity, s=8, alpha=0.6)
    right.set(title="share of the commonest label", xlabel="rows of the cluster", ylim=(0, 1.02))
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    return _svg(plt, figure)


def cluster_map(points: Any, clusters: Sequence[int], labels: Sequence[str], how: str) -> bytes:
    """The same points twice, coloured by cluster and by label, as SVG."""
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    left.scatter(points[:, 0], points[:, 1], c=clusters, cmap="tab20", s=4, linewidths=0)
    left.set(title=f"{how}, by cluster")
    for number, label in enumerate(sorted(set(labels))):
        mine = [i for i, one in enumerate(labels) if one == label]
        right.scatter(points[mine, 0], points[mine, 1], s=4, linewidths=0, color=f"C{number % 10}", label=label)
    right.set(title=f"{how}, by label")
    right.legend(frameon=False, markerscale=3)
    for axis in (left, right):
        axis.set(xticks=[], yticks=[])
    return _svg(plt, figure)


def heat_map(names: Sequence[str], values: Any, title: str) -> bytes:
    """Correlations of all pairs, with their numbers, as SVG."""
    plt = _pyplot()
    size = 1.8 + 0.55 * len(names)
    figure, axis = plt.subplots(figsize=(size + 1, size), layout="constrained")
    image = axis.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    axis.set(xticks=range(len(names)), yticks=range(len(names)), title=title)
    axis.set_xticklabels(names, rotation=45, ha="right", fontsize="small")
    axis.set_yticklabels(names, fontsize="small")
    for row in range(len(names)):
        for column in range(len(names)):
            dark = abs(values[row][column]) > 0.6
            colour = "white" if dark else "black"
            axis.text(column, row, f"{values[row][column]:.2f}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, shrink=0.8)
    return _svg(plt, figure)


def head_maps(matrices: Mapping[str, Any]) -> bytes:
    """The importance of every head, layers down and heads across, a panel for each task, as SVG."""
    plt = _pyplot()
    across = min(4, len(matrices))
    down = -(-len(matrices) // across)
    figure, axes = plt.subplots(down, across, figsize=(2.6 * across, 2.4 * down), layout="constrained", squeeze=False)
    for axis in axes.flat[len(matrices) :]:
        axis.set_visible(False)
    for axis, (name, matrix) in zip(axes.flat, matrices.items(), strict=False):
        axis.imshow(matrix, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        axis.set(title=name, xlabel="head", ylabel="layer")
    return _svg(plt, figure)


def _svg(plt: Any, figure: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    plt.close(figure)
    return stream.getvalue()


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
