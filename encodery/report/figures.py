"""Pictures from run directories, by matplotlib: for papers and for README pages."""

from collections.abc import Sequence
from pathlib import Path

from encodery.rundir import RunDir


def curves(runs: Sequence[Path | str], out: Path) -> None:
    """Training loss and dev scores over steps, one line per run, one colour per task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

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
    for axis, title in ((left, "training loss"), (right, "dev score")):
        axis.set(title=title, xlabel="step")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    figure.savefig(out)
    plt.close(figure)


def _line(
    axis: object, records: list[dict[str, float]], name: str, colour: str, label: str | None, marker: str = ""
) -> None:
    points = [(r["step"], r[name]) for r in records if r.get(name) is not None]
    axis.plot([p[0] for p in points], [p[1] for p in points], color=colour, label=label, marker=marker, alpha=0.8)  # type: ignore[attr-defined]
