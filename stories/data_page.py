"""Tables and picture of docs/results/data.md from stories/results/data.json, and that file from the folders of a curve.

    python stories/data_page.py collect runs/stories/data --clusters runs/stories/clusters/*
    python stories/data_page.py show    # the tables with their marks
    python stories/data_page.py page    # the tables into the page, and the picture

Whatever is finished is collected: some seeds, some parts, with or without HANS. Runs that an earlier file holds and the
folder does not stay in it.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from comparisons import Comparison, Measure, Run, comparisons_table, fill, read_json, within_marks, write_json
from pages import PAGES, RESULTS, Cell, bounds, gain, markdown, pyplot

from encodery.core import files
from encodery.data.label_mix import labels_of, shares_of
from encodery.data.subset import Subset
from encodery.inference.task_argument import TaskSplit, resolve_split
from encodery.report import records, stats
from encodery.runs.directory import RunDir
from encodery.selection.curve_parts import taken_of
from encodery.tasks.sources.columns import column

FILE = RESULTS / "data.json"
TASK, HANS, HARD = "glue/mnli", "hans:dev", "hard"
RANDOM, PARTS = "random", (0.1, 0.4)  # at which methods are tried
SIZES = (0.1, 0.2, 0.4, 0.7)  # of the random parts
METHODS = {
    RANDOM: "random",
    "stream": "one of each cluster in turn",
    "whole": "whole clusters",
    "el2n": "EL2N, highest",
    "el2n-below-top": "EL2N, without its top tenth",
    "ambiguous": "ambiguous",
    "easy": "easy",
    "hypothesis": "hypothesis-only fails",
}
COLOURS = {
    RANDOM: "#555c66", "stream": "#1f6feb", "whole": "#8ab4f8", "el2n": "#c0392b", "el2n-below-top": "#e67e22",
    "ambiguous": "#2a9d5c", "easy": "#b5a642", "hypothesis": "#7b5cd6",
}  # fmt: skip
HEURISTICS = {"lexical_overlap": "lexical overlap", "subsequence": "subsequence", "constituent": "constituent"}


# From folders to the file


class Pool(NamedTuple):
    """The rows that are chosen from, and those of dev that a hypothesis-only model gets wrong."""

    labels: Mapping[str, str]
    dev: TaskSplit
    hard: Mapping[str, str]


@cache
def pool_of(folder: str | None) -> Pool:
    """Of a data folder, read once."""
    dev = resolve_split(f"{TASK}:dev", folder)[0]
    return Pool(labels_of(dev.task.examples("train")), dev, column(dev.task, "dev", HARD))


def row(record: records.Record) -> dict[str, Any]:
    """What the page needs of a run."""
    entry, run = record.tree["tasks"][0], RunDir(record.path)
    pool = pool_of(record.tree.get("data"))
    part: dict[str, Any] = {"method": "all", "fraction": 1.0, "rows": len(pool.labels)}
    labels: Mapping[str, float] = shares_of(pool.labels.values())
    if entry["subset"]:
        folder = Path(entry["subset"])
        taken = taken_of(folder, Subset.read(folder), entry["fraction"], pool.labels)
        part = {"method": folder.name.rpartition("-seed-")[0], "fraction": entry["fraction"], "rows": taken.rows}
        labels = taken.labels
    scores = {data: rounded(of) for data, of in record.scores.items()}
    return {
        "run": record.name, **part, "seed": record.seed, "labels": rounded(labels), "scores": scores,
        "hard": hard_rows(run, pool), "subcases": subcases(run),
        "notes": sorted({note for notes in record.notes.values() for note in notes}),
        "alarms": {data: list(alarms) for data, alarms in record.alarms.items() if alarms},
        "seconds": round(record.seconds, 1) if record.seconds else None,
    }  # fmt: skip


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Short enough for a small file."""
    return {name: round(value, 5) for name, value in figures.items()}


def hard_rows(run: RunDir, pool: Pool) -> dict[str, Any]:
    """Accuracy on the rows of dev by the column `hard`, from the stored predictions."""
    marks: dict[str, list[bool]] = defaultdict(list)
    predictions = run.read_predictions(TASK, "dev")
    for example in pool.dev.task.examples("dev"):
        marks[pool.hard[example.id]].append(predictions[example.id]["prediction"] == example.label)
    return {value: {"rows": len(of), "accuracy": round(sum(of) / len(of), 5)} for value, of in sorted(marks.items())}


def subcases(run: RunDir) -> dict[str, float]:
    """Accuracy on each subcase of HANS; nothing where the run was not evaluated on it yet."""
    path = run.predictions_path("hans", "dev").with_suffix(".report.json")
    cells = files.read_json(path)["subcases"] if path.is_file() else {}
    return {name: round(cell["accuracy"], 4) for name, cell in cells.items()}


def clusters_of(folder: Path) -> dict[str, Any]:
    """The analysis of a clustering in short: without examples, a dozen words of each cluster at most."""
    stored = files.read_json(folder / "clusters.json")
    kept = ("rows", "k", "clusters_found", "size", "purity", "purity_by_chance", "silhouette", "labels", "columns")
    each = [
        {
            "cluster": one["cluster"], "size": one["size"], "labels": one["labels"], "p_holm": one.get("p_holm"),
            "words": [word["word"] for word in one["words"]][:12], "columns": one.get("columns", {}),
            "difficulty": rounded(one.get("difficulty") or {}), "shared": one.get("shared"),
        }
        for one in stored["clusters"]
    ]  # fmt: skip
    return {
        "name": folder.name, **{key: stored[key] for key in kept if key in stored}, "k_choice": stored["k_choice"],
        "difficulty": stored.get("difficulty"), "notes": stored["notes"], "clusters": each,
    }  # fmt: skip


def collect(folder: Path, clusters: Sequence[Path]) -> None:
    """Read, merge, write."""
    read, remarks = records.read([folder])
    earlier = read_json(FILE)
    runs = {run["run"]: run for run in earlier.get("runs", [])}
    runs |= {record.name: row(record) for record in read if record.done}
    analyses = {one["name"]: one for one in earlier.get("clusters", [])}
    analyses |= {path.name: clusters_of(path) for path in clusters}
    ordered = sorted(runs.values(), key=lambda run: (run["fraction"], run["method"], run["seed"]))
    write_json(FILE, {"runs": ordered, "clusters": list(analyses.values())})
    waiting = sum(not record.done for record in read)
    bare = sum(HANS not in run["scores"] for run in ordered)
    print(*remarks, f"{len(ordered)} finished runs in {FILE}, {bare} without HANS; {waiting} not finished", sep="\n")


# From the file to tables


def of_dev(metric: str) -> Measure:
    """A score on the matched dev set, times 100."""
    return Measure(metric, lambda run: hundredfold(run["scores"].get(f"{TASK}:dev", {}).get(metric)))


def of_hans(metric: str, name: str) -> Measure:
    """A score on HANS, times 100."""
    return Measure(name, lambda run: hundredfold(run["scores"].get(HANS, {}).get(metric)))


def hundredfold(value: float | None) -> float | None:
    """Times 100, if there is a value."""
    return None if value is None else 100 * value


MATCHED = of_dev("accuracy")._replace(name="matched accuracy")
ON_HARD = Measure("accuracy on hard rows", lambda run: hundredfold(run["hard"].get("1", {}).get("accuracy")))
ON_HANS = of_hans("accuracy", "accuracy on HANS, regenerated")
MEASURES = [MATCHED, ON_HARD, ON_HANS]
HALVES = [
    of_hans(f"{half}_{name}", f"{words} {shown}")
    for half, words in (("entailed", "entailed"), ("non_entailed", "non-entailed"))
    for name, shown in HEURISTICS.items()
]


def cell(runs: Sequence[Run], measure: Measure) -> Cell:
    """The values of a measure by seed."""
    values = {run["seed"]: measure.of(run) for run in runs}
    return Cell({seed: value for seed, value in sorted(values.items()) if value is not None})


class Group(NamedTuple):
    """A method at a part of the pool: its runs, and random choice of as many rows with the same seeds."""

    method: str
    fraction: float
    runs: Sequence[Run]
    beside: Sequence[Run]


def groups_of(runs: Sequence[Run], fraction: float) -> list[Group]:
    """The methods at a part. What took fewer rows than it could stands beside as many random rows."""
    by_seed = {(run["seed"], run["rows"]): run for run in runs if run["method"] == RANDOM}
    groups = []
    for method in METHODS:
        mine = [run for run in runs if run["method"] == method and run["fraction"] == fraction]
        beside = [by_seed[run["seed"], run["rows"]] for run in mine if (run["seed"], run["rows"]) in by_seed]
        groups.append(Group(method, fraction, mine, beside))
    return [group for group in groups if group.runs]


def shown_rows(runs: Sequence[Run]) -> str:
    """`2,400`, or `2,371 to 2,399`."""
    least, most = min(run["rows"] for run in runs), max(run["rows"] for run in runs)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def label_names(runs: Sequence[Run]) -> list[str]:
    """All labels that there are; a choice may lack some."""
    return sorted({name for run in runs for name in run["labels"]})


def label_mix(runs: Sequence[Run], names: Sequence[str]) -> str:
    """`33.2 / 28.1 / 38.7`, mean over seeds."""
    return " / ".join(f"{100 * stats.mean([run['labels'].get(name, 0.0) for run in runs]):.1f}" for name in names)


def size_table(runs: Sequence[Run]) -> str:
    """Random parts of the pool: a row for each part, every measure with its interval over seeds."""
    parts = sorted({run["fraction"] for run in runs if run["method"] == "all" or is_asked(run)})
    lines = [["random part", "rows", *(f"{measure.name} [95 % interval]" for measure in MEASURES)]]
    for fraction in parts:
        some = [run for run in runs if run["fraction"] == fraction and run["method"] in (RANDOM, "all")]
        if some:
            lines.append([f"{100 * fraction:g} %", shown_rows(some), *(spelled(cell(some, m)) for m in MEASURES)])
    return markdown(lines)


def is_asked(run: Run) -> bool:
    """Whether a random part is one of the fractions of the file, and not beside a method that took fewer rows."""
    return run["method"] == RANDOM and run["fraction"] in SIZES


def spelled(values: Cell) -> str:
    """Mean ± sd (n), and Student's interval from three seeds on."""
    interval = stats.t_interval(list(values.scores.values()))
    return str(values) + (f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval else "")


def selection_table(runs: Sequence[Run], fraction: float) -> str:
    """Every method at a part: its rows, their labels, and each measure with the difference to random."""
    labels = label_names(runs)
    head = ["method", "rows", f"% {' / '.join(labels)}", *(f"{measure.name}, against random" for measure in MEASURES)]
    lines = [head]
    for group in groups_of(runs, fraction):
        figures = []
        for measure in MEASURES:
            scores, beside = cell(group.runs, measure), cell(group.beside, measure)
            difference = "" if group.method == RANDOM else gain(scores, beside)[0]
            figures.append(f"{scores} {difference}".strip())
        lines.append([METHODS[group.method], shown_rows(group.runs), label_mix(group.runs, labels), *figures])
    return markdown(lines)


def differences_table(runs: Sequence[Run], measure: Measure) -> str:
    """Every choice against as many random rows, all parts in one table, p of the paired t-test after Holm."""
    compared = []
    for fraction in PARTS:
        for group in groups_of(runs, fraction):
            if group.method != RANDOM:
                names = f"{METHODS[group.method]}, {100 * fraction:g} %", "random"
                compared.append(Comparison(*names, cell(group.runs, measure), cell(group.beside, measure)))
    return comparisons_table("choice", measure.name, compared, stats.paired_t)


def hans_table(runs: Sequence[Run]) -> str:
    """HANS by heuristic: every method at the smallest part, and everything."""
    lines = [["trained on", *(measure.name for measure in HALVES)]]
    for words, some in arms(runs):
        lines.append([words, *(str(cell(some, measure)) for measure in HALVES)])
    return markdown(lines)


def subcase_table(runs: Sequence[Run]) -> str:
    """HANS by subcase: means over seeds."""
    shown = arms(runs)
    names = list(dict.fromkeys(name for _, some in shown for run in some for name in run["subcases"]))
    lines = [["subcase", *(words for words, _ in shown)]]
    for name in names:
        values = [[100 * run["subcases"][name] for run in some if name in run["subcases"]] for _, some in shown]
        lines.append([f"`{name}`", *(f"{stats.mean(of):.1f}" if of else "" for of in values)])
    return markdown(lines)


def arms(runs: Sequence[Run]) -> list[tuple[str, Sequence[Run]]]:
    """What HANS is shown for: the methods at the smallest part, and all rows."""
    few = [(f"{METHODS[group.method]}, {100 * PARTS[0]:g} %", group.runs) for group in groups_of(runs, PARTS[0])]
    everything = [run for run in runs if run["method"] == "all"]
    return [*few, *([("all rows", everything)] if everything else [])]


def k_table(analysis: Mapping[str, Any]) -> str:
    """How stable and how separate the clusters are, for each number of them."""
    lines = [["clusters", "stability (adjusted Rand index, mean ± sd)", "silhouette", "inertia"]]
    for one in analysis["k_choice"]:
        sd = "" if one.get("stability_sd") is None else f" ± {one['stability_sd']:.2f}"
        figures = [f"{one['stability']:.2f}{sd}", f"{one['silhouette']:.3f}", f"{one['inertia']:.1f}"]
        lines.append([str(one["k"]), *figures])
    return markdown(lines)


def cluster_table(analysis: Mapping[str, Any], most: int = 20) -> str:
    """The clusters whose labels are farthest from the pool's first: size, labels, error, typical words."""
    labels, rows = list(analysis["labels"]), analysis["rows"]

    def apart(one: Mapping[str, Any]) -> float:
        expected = {name: one["size"] * analysis["labels"][name] / rows for name in labels}
        return float(sum(abs(one["labels"].get(name, 0) - expected[name]) for name in labels))

    lines = [["cluster", "rows", "% " + " / ".join(labels), "p of its labels (Holm)", "% wrong", "typical words"]]
    for one in sorted(analysis["clusters"], key=apart, reverse=True)[:most]:
        mix = " / ".join(f"{100 * one['labels'].get(name, 0) / one['size']:.0f}" for name in labels)
        error = one["difficulty"].get("error")
        lines.append([
            str(one["cluster"]), f"{one['size']:,}", mix, "" if one["p_holm"] is None else f"{one['p_holm']:.3f}",
            "" if error is None else f"{100 * error:.0f}", f"`{', '.join(one['words'][:6])}`".replace("|", "\\|"),
        ])  # fmt: skip
    return markdown(lines)


def cluster_block(analysis: Mapping[str, Any]) -> str:
    """A sentence of figures and both tables."""
    size = analysis["size"]
    told = (
        f"{analysis['clusters_found']} clusters of {analysis['rows']:,} rows, the largest {size['largest']:,}, "
        f"the median one {size['median']:g}; label purity {analysis['purity']:.3f} "
        f"(by chance {analysis['purity_by_chance']:.3f})."
    )
    return "\n\n".join([told, k_table(analysis), cluster_table(analysis)])


def picture(runs: Sequence[Run], out: Path) -> None:
    """A panel for each measure: random parts as a line with its band, choices as points with their intervals."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(MEASURES), figsize=(4.1 * len(MEASURES), 4.2), layout="constrained")
    random = [run for run in runs if run["method"] == "all" or is_asked(run)]
    for axis, measure in zip(axes, MEASURES, strict=True):
        line = [(100 * x, list(cell([r for r in random if r["fraction"] == x], measure).scores.values()))
                for x in sorted({run["fraction"] for run in random})]  # fmt: skip
        line = [(x, values) for x, values in line if values]
        places = [x for x, _ in line]
        axis.plot(
            places, [stats.mean(values) for _, values in line], "o-", color=COLOURS[RANDOM], label=METHODS[RANDOM]
        )
        low, high = stats.band([values for _, values in line])
        if low:
            axis.fill_between(places, low, high, color=COLOURS[RANDOM], alpha=0.15, linewidth=0)
        for fraction in PARTS:
            choices_at(axis, groups_of(runs, fraction), measure)
        if measure is ON_HANS:  # not zoomed in until chance looks like an effect
            axis.axhline(50, color="#8a8f98", linewidth=1, linestyle=":")
            axis.set_ylim(min(40, axis.get_ylim()[0]), max(60, axis.get_ylim()[1]))
        axis.set_xscale("log")
        axis.set_xticks(places, [f"{x:g}" for x in places], minor=False)
        axis.minorticks_off()
        axis.set_title(measure.name, fontsize=9)
        axis.set_xlabel("% of the rows", fontsize=9)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    named = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


def choices_at(axis: Any, groups: Sequence[Group], measure: Measure) -> None:
    """The methods at a part, side by side around its place."""
    chosen = [group for group in groups if group.method != RANDOM]
    for i, group in enumerate(chosen):
        values = list(cell(group.runs, measure).scores.values())
        if not values:
            continue
        at = 100 * group.fraction * 1.04 ** (i - (len(chosen) - 1) / 2)  # the axis is logarithmic
        low, high = bounds(values)
        colour = COLOURS[group.method]
        axis.plot([at, at], [low, high], color=colour, linewidth=2, alpha=0.5)
        axis.plot(at, stats.mean(values), "D", color=colour, markersize=5, label=METHODS[group.method])


def blocks(stored: Mapping[str, Any]) -> dict[str, str]:
    """The tables by the names of their marks; those that there are results for."""
    runs = stored.get("runs", [])
    made = {"sizes": size_table(runs)} if runs else {}
    for fraction in PARTS:
        if any(group.method != RANDOM for group in groups_of(runs, fraction)):
            made[f"choices-{100 * fraction:g}"] = selection_table(runs, fraction)
    if len({run["seed"] for run in runs}) > 2:  # fewer have neither an interval nor a test
        made |= {"differences": differences_table(runs, MATCHED), "differences-hans": differences_table(runs, ON_HANS)}
    if any(run["subcases"] for run in runs):
        made |= {"hans": hans_table(runs), "subcases": subcase_table(runs)}
    return made | {f"clusters-{one['name']}": cluster_block(one) for one in stored.get("clusters", [])}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    collecting = verbs.add_parser("collect", help="the finished runs of a curve into the small file")
    collecting.add_argument("folder", type=Path)
    collecting.add_argument("--clusters", nargs="*", type=Path, default=[], help="folders of `select --analyse`")
    verbs.add_parser("show", help="print the tables with their marks")
    verbs.add_parser("page", help="write the tables into the page, and the picture")
    args = parser.parse_args()
    if args.verb == "collect":
        return collect(args.folder, args.clusters)
    stored = read_json(FILE)
    if args.verb == "show":
        return print(within_marks(blocks(stored)))
    fill(PAGES / "data.md", blocks(stored))
    picture(stored["runs"], PAGES.parent / "images" / "data.svg")
    print("docs/results: data")


if __name__ == "__main__":
    main()
