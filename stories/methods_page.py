"""Tables and picture of docs/results/methods.md from stories/results/freelb.json and freelb_grid.json.

python stories/methods_page.py
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comparisons import Comparison, Measure, Run, comparisons_table, paired, read_json
from pages import PAGES, RESULTS, Cell, bounds, gain, markdown, pyplot, replace

from encodery.report import stats

ARMS = {
    "plain": "plain",
    "longer": "plain, 3 × the epochs",
    "noise": "noise only (K = 1), inside the ball",
    "edge": "noise only (K = 1), as long as the ball's radius",
    "freelb": "FreeLB, K = 3",
    "clean": "FreeLB, K = 3, with the clean loss",
    "rdrop": "R-Drop",
}
COLOURS = {
    "longer": "#8a8f98",
    "noise": "#c98a2b",
    "edge": "#a86a1b",
    "freelb": "#1f6feb",
    "clean": "#7b5cd6",
    "rdrop": "#2a9d5c",
}


def score(data: str, metric: str) -> Callable[[Run], float | None]:
    """A stored score times 100, or as it is if it is a loss."""
    factor = 1 if metric == "nll" else 100

    def read(run: Run) -> float | None:
        value = run["scores"].get(data, {}).get(metric)
        return None if value is None else factor * value

    return read


def attacked(radius: float) -> Callable[[Run], float | None]:
    """Accuracy under PGD at a radius, in token norms, times 100."""

    def read(run: Run) -> float | None:
        levels = [level for attack in run["attacks"] for level in attack["levels"]]
        return next((100 * level["accuracy"] for level in levels if math.isclose(level["radius"], radius)), None)

    return read


SICK = [
    Measure("accuracy", score("nli/sick:test", "accuracy")),
    Measure("log loss", score("nli/sick:test", "nll"), lower=True),
    Measure("ECE", score("nli/sick:test", "ece"), lower=True),
    Measure("accuracy under PGD, 0.03", attacked(0.03)),
    Measure("accuracy under PGD, 0.1", attacked(0.1)),
    Measure("accuracy on SNLI", score("nli/snli:dev", "accuracy")),
]
LOSS = Measure("log loss × 100", lambda run: None if (loss := SICK[1].of(run)) is None else 100 * loss, lower=True)
HELD_OUT = {
    "grid": Measure("accuracy", score("nli/sick:holdout", "accuracy")),
    "grid-loss": Measure("log loss", score("nli/sick:holdout", "nll"), lower=True),
}
SST2 = [
    Measure("accuracy", score("glue/sst2:dev", "accuracy")),
    Measure("log loss", score("glue/sst2:dev", "nll"), lower=True),
    Measure("ECE", score("glue/sst2:dev", "ece"), lower=True),
]


def cells(runs: Sequence[Run], measure: Measure) -> dict[str, Cell]:
    """The values of a measure for each arm, by seed."""
    by_arm: dict[str, dict[int, float]] = defaultdict(dict)
    for run in runs:
        value = measure.of(run)
        if value is not None:
            by_arm[run["variant"]][run["seed"]] = value
    return {arm: Cell(dict(sorted(by_arm[arm].items()))) for arm in ARMS if arm in by_arm}


def spelled(cell: Cell | None, measure: Measure) -> str:
    """Mean ± sd (n), with three digits for a loss."""
    if cell is None or not measure.name.startswith("log loss"):
        return str(cell or "")
    values = list(cell.scores.values())
    spread = stats.sd(values)
    return f"{stats.mean(values):.3f}" + ("" if spread is None else f" ± {spread:.3f}") + f" ({len(values)})"


def scores_table(runs: Sequence[Run], measures: Sequence[Measure]) -> str:
    """A row for each arm: every measure."""
    by_measure = [cells(runs, measure) for measure in measures]
    shown = [i for i, by_arm in enumerate(by_measure) if by_arm]
    lines = [["training", *(measures[i].name for i in shown)]]
    for arm, name in ARMS.items():
        if any(arm in by_arm for by_arm in by_measure):
            lines.append([name, *(spelled(by_measure[i].get(arm), measures[i]) for i in shown)])
    return markdown(lines)


def differences_table(runs: Sequence[Run], measure: Measure) -> str:
    """Every arm against plain training and against as much plain training: interval, p over sign flips after Holm."""
    by_arm = cells(runs, measure)
    compared = [(arm, base) for base in ("plain", "longer") for arm in by_arm if arm not in ("plain", base)]
    pairs = [Comparison(ARMS[arm], ARMS[base], by_arm[arm], by_arm[base]) for arm, base in compared if base in by_arm]
    return comparisons_table("training", measure.name, pairs)


def gains_table(runs: Sequence[Run], measures: Sequence[Measure]) -> str:
    """A row for each arm: its mean difference to plain training in every measure, with Student's 95 % interval.

    A star where the paired t-test finds it after Holm's correction over the whole table.
    """
    by_measure = {measure.name: by_arm for measure in measures if "plain" in (by_arm := cells(runs, measure))}
    gains = {(arm, name): gain(by_arm[arm], by_arm["plain"])
             for name, by_arm in by_measure.items() for arm in by_arm if arm != "plain"}  # fmt: skip
    ps = {place: p for place, (_, p) in gains.items() if p is not None}
    found = {place for place, p in zip(ps, stats.holm(list(ps.values())), strict=True) if p < 0.05}
    lines = [["training", *by_measure, "seeds"]]
    for arm, words in ARMS.items():
        if any((arm, name) in gains for name in by_measure):
            least = min(len(by_arm[arm].scores) for by_arm in by_measure.values() if arm in by_arm)
            shown = [
                gains.get((arm, name), ("", None))[0] + ("*" if (arm, name) in found else "") for name in by_measure
            ]
            lines.append([words, *shown, str(least)])
    return markdown(lines)


def grid_table(runs: Sequence[Run], measure: Measure) -> str:
    """A row for each step and ball: a measure of the hold-out for each batch size, plain training first."""
    gathered: dict[tuple[float, float], dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        settings, value = run["settings"], measure.of(run)
        if value is not None:
            key = (settings.get("method.adv_lr", 0), settings.get("method.max_norm", 0))
            gathered[key][settings["train.batch_size"]][run["seed"]] = value
    means = {(key, size): stats.mean(list(by_seed.values()))
             for key, by_size in gathered.items() for size, by_seed in by_size.items()}  # fmt: skip
    tried = [mean for ((adv_lr, _), _), mean in means.items() if adv_lr]
    best = min(tried) if measure.lower else max(tried)
    sizes = sorted({size for _, size in means})
    lines = [["adv_lr", "init_mag = max_norm", *(f"batch {size}" for size in sizes)]]
    for key in sorted(gathered):
        figures = []
        for size in sizes:
            text = spelled(Cell(gathered[key][size]), measure) if (key, size) in means else ""
            figures.append(f"**{text}**" if key[0] and means.get((key, size)) == best else text)
        lines.append([str(key[0]) if key[0] else "plain", str(key[1]) if key[1] else "", *figures])
    return markdown(lines)


def picture(runs: Sequence[Run], measures: Sequence[Measure], out: Path) -> None:
    """A panel for each measure: the difference of every arm to plain training, seeds as ticks, mean and interval."""
    plt = pyplot()
    panels = {measure: differences for measure in measures if (differences := to_plain(runs, measure))}
    arms = [arm for arm in ARMS if any(arm in differences for differences in panels.values())]
    figure, axes = plt.subplots(1, len(panels), figsize=(2.5 * len(panels) + 1.8, 2.8), layout="constrained",
                                sharey=True, squeeze=False)  # fmt: skip
    for axis, (measure, differences) in zip(axes[0], panels.items(), strict=True):
        limit = widest(differences)
        for i, arm in enumerate(arms):
            if arm in differences:
                arm_line(axis, i, differences[arm], COLOURS[arm], limit)
        axis.axvline(0, color="#555", linewidth=0.8)
        axis.set_xlim(-limit, limit)
        axis.set_title(measure.name + (": less is better" if measure.lower else ""), fontsize=9)
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_yticks(range(len(arms)), [ARMS[arm] for arm in arms], fontsize=8)
    axes[0][0].set_ylim(len(arms) - 0.5, -0.7)
    figure.supxlabel("points more than plain training on the same rows: seeds, mean, 95 % interval", fontsize=9)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


def to_plain(runs: Sequence[Run], measure: Measure) -> dict[str, list[float]]:
    """The differences of every other arm to plain training."""
    by_arm = cells(runs, measure)
    differences = {arm: paired(cell, by_arm["plain"]) for arm, cell in by_arm.items() if "plain" in by_arm}
    return {arm: values for arm, values in differences.items() if values and arm != "plain"}


def widest(differences: Mapping[str, Sequence[float]]) -> float:
    """How far a panel reaches: what is many times as far as the other arms stands at its edge."""
    ends = sorted(max(map(abs, bounds(values))) for values in differences.values())
    return 1.25 * (ends[-2] if len(ends) > 1 and ends[-1] > 3 * ends[-2] else ends[-1])


def arm_line(axis: Any, row: int, values: Sequence[float], colour: str, limit: float) -> None:
    """Seeds, mean and interval of an arm; an arrow where it is outside of the panel."""
    centre, (low, high) = stats.mean(values), bounds(values)
    if abs(centre) > limit:
        text = f"{centre:+.1f} →" if centre > 0 else f"← {centre:+.1f}"
        axis.annotate(text, (limit if centre > 0 else -limit, row), ha="right" if centre > 0 else "left",
                      va="center", fontsize=8, color=colour)  # fmt: skip
        return
    axis.plot(values, [row] * len(values), "|", color=colour, markersize=8, alpha=0.5)
    axis.plot([low, high], [row, row], color=colour, linewidth=3, alpha=0.5)
    axis.plot(centre, row, "o", color=colour)
    axis.annotate(f"{centre:+.1f}", (centre, row), (0, 6), textcoords="offset points", ha="center", fontsize=8,
                  color=colour)  # fmt: skip


def stored(name: str) -> list[Run]:
    """The runs of a small file of results; none where it is not there yet."""
    runs: list[Run] = read_json(RESULTS / name).get("runs", [])
    return runs


def main() -> None:
    """Write what there are results for."""
    page, runs, grid = PAGES / "methods.md", stored("freelb.json"), stored("freelb_grid.json")
    sick = [run for run in runs if run["task"] == "nli/sick"]
    sst2 = [run for run in runs if run["task"] == "glue/sst2"]
    if grid:
        for name, measure in HELD_OUT.items():
            replace(page, name, grid_table(grid, measure))
    if sick:
        replace(page, "sick", scores_table(sick, SICK))
        replace(page, "sick-differences", differences_table(sick, SICK[0]))
        replace(page, "sick-gains", gains_table(sick, [SICK[0], LOSS, *SICK[2:]]))
        picture(sick, [SICK[0], LOSS, SICK[2], SICK[4], SICK[5]], PAGES.parent / "images" / "methods.svg")
    if sst2:
        replace(page, "sst2", scores_table(sst2, SST2) + "\n\n" + differences_table(sst2, SST2[0]))
    print("docs/results: methods")


if __name__ == "__main__":
    main()
