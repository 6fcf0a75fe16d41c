"""Tables and picture of docs/results/tasks.md from stories/results/tasks.json, and that file from the run folders.

    python stories/tasks_page.py collect --pairs RUNS/pairs --study RUNS/gradts --vectors RUNS/vectors
    python stories/tasks_page.py show    # the tables with their marks
    python stories/tasks_page.py page    # the tables into the page, and the picture

Whatever is finished is collected; each part may be missing. What an earlier file holds and the folders lack stays.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from comparisons import Comparison, Run, comparisons_table, fill, read_json, within_marks, write_json
from pages import PAGES, RESULTS, Cell, markdown, pyplot

from encodery.core import files
from encodery.core.rank_correlation import correlations
from encodery.data.embeddings import Embeddings
from encodery.report import records, stats
from encodery.runs.head_matrices import Importance
from encodery.tasks.forms import metrics

FILE = RESULTS / "tasks.json"
TASKS = {
    "glue/stsb": "STS-B", "glue/mrpc": "MRPC", "glue/qnli": "QNLI", "glue/cola": "CoLA", "glue/rte": "RTE",
    "glue/sst2": "SST-2", "glue/qqp": "QQP", "glue/mnli": "MNLI",
}  # fmt: skip
PRIMARIES = ("glue/stsb", "glue/mrpc", "glue/qnli")
# Rows of the published training sets: what one would know of a task before any training.
SIZES = {
    "glue/stsb": 5749, "glue/mrpc": 3668, "glue/qnli": 104743, "glue/cola": 8551, "glue/rte": 2490, "glue/sst2": 67349,
    "glue/qqp": 363846, "glue/mnli": 392702,
}  # fmt: skip
COLOURS = {"glue/stsb": "#1f6feb", "glue/mrpc": "#c98a2b", "glue/qnli": "#2a9d5c"}
DRAWS = 10_000  # permutations behind the p of a rank correlation
REGRETS = (1, 3)


# From folders to the file


def run_of(record: records.Record) -> dict[str, Any]:
    """What the page needs of a run of one task or two."""
    return {
        "run": record.name, "tasks": record.task.split(" + "), "seed": record.seed, "main": dict(record.main),
        "longer": (record.variant or "").endswith("-longer"),
        "scores": {data: {name: round(value, 6) for name, value in of.items()} for data, of in record.scores.items()},
        "seconds": round(record.seconds, 1) if record.seconds else None,
    }  # fmt: skip


def heads_of(folder: Path, norm: Any = "l1") -> dict[str, Any]:
    """Kendall's tau between the head importance of every task and seed with that of every other."""
    stored = [Importance.open(path.parent) for path in sorted(folder.glob("*/meta.json"))]
    stored = [one for one in stored if not one.folder.name.endswith("-all")]
    if not stored:
        return {}
    named = [[one.name, int(one.folder.name.rpartition("-seed-")[2])] for one in stored]
    flat = np.stack([one.matrix(norm).ravel() for one in stored])
    taus = [[round(float(tau), 4) for tau in line] for line in correlations(flat, flat)]
    return {"of": named, "heads": flat.shape[1], "tau": taus}


def study_of(folder: Path) -> dict[str, Any]:
    """Rankings, trials and strategies of a finished study; nothing of one that is still at work."""
    if not (folder / "gradts.json").is_file():
        return {}
    stored = files.read_json(folder / "gradts.json")
    return {key: stored[key] for key in ("rankings", "trials", "rows", "notes")}


def cosines_of(folder: Path) -> dict[str, dict[str, float]]:
    """The cosine of the mean vectors of two training sets."""
    means = {}
    for path in sorted(folder.glob("*/meta.json")):
        vectors = Embeddings.open(path.parent)
        mean = np.asarray(vectors.vectors, np.float64).mean(0)
        means[str(vectors.meta["task"])] = mean / np.linalg.norm(mean)
    return {a: {b: round(float(means[a] @ means[b]), 5) for b in means if b != a} for a in means}


def collect(pairs: Path | None, study: Path | None, vectors: Path | None) -> None:
    """Read, merge, write."""
    stored: dict[str, Any] = dict(read_json(FILE))
    runs = {run["run"]: run for run in stored.get("runs", [])}
    read, remarks = records.read([pairs]) if pairs else ([], [])
    runs |= {record.name: run_of(record) for record in read if record.done}
    stored["runs"] = sorted(runs.values(), key=lambda run: (len(run["tasks"]), run["tasks"], run["seed"]))
    if study:
        stored["heads"] = heads_of(study / "heads") or stored.get("heads", {})
        stored["study"] = study_of(study) or stored.get("study", {})
    if vectors:
        stored["cosines"] = cosines_of(vectors) or stored.get("cosines", {})
    write_json(FILE, stored)
    waiting = sum(not record.done for record in read)
    print(*remarks, f"{len(runs)} finished runs in {FILE}, {waiting} not finished", sep="\n")


# What a pair really brings


def scores_of(runs: Sequence[Run], primary: str, tasks: set[str], longer: bool = False) -> Cell:
    """The dev scores of a primary task by seed, of the runs on exactly these tasks, times 100."""
    data, by_seed = f"{primary}:dev", dict[int, float]()
    for run in runs:
        if set(run["tasks"]) == tasks and run["longer"] == longer and data in run["scores"]:
            by_seed[run["seed"]] = 100 * run["scores"][data][run["main"][data]]
    return Cell(dict(sorted(by_seed.items())))


def gains_of(runs: Sequence[Run], primary: str, longer: bool = False) -> dict[str, Comparison]:
    """A primary with each auxiliary task beside the primary alone, or alone with as many updates as a pair has."""
    alone = scores_of(runs, primary, {primary}, longer)
    base = f"{TASKS[primary]} alone" + (", twice the epochs" if longer else "")
    every = {name: scores_of(runs, primary, {primary, name}) for name in TASKS if name != primary}
    compared = {name: Comparison(f"{TASKS[primary]} + {TASKS[name]}", base, scores, alone)
                for name, scores in every.items()}  # fmt: skip
    return {name: comparison for name, comparison in compared.items() if comparison.differences}


def all_gains(runs: Sequence[Run], longer: bool = False) -> dict[str, dict[str, Comparison]]:
    """By primary; those that have runs."""
    return {primary: gains for primary in PRIMARIES if (gains := gains_of(runs, primary, longer))}


def control_of(runs: Sequence[Run], primary: str) -> Comparison | None:
    """What as many updates as a pair has bring without any other task."""
    longer, alone = (scores_of(runs, primary, {primary}, more) for more in (True, False))
    name = TASKS[primary]
    found = Comparison(f"{name} alone, twice the epochs", f"{name} alone", longer, alone)
    return found if found.differences else None


# What could have foretold it

Guess = Callable[[str, str], float | None]  # primary, candidate -> a number that is larger for a better candidate


def tau_of(stored: Mapping[str, Any]) -> Guess:
    """GradTS: the tau of both tasks' heads in one seed, mean over seeds."""
    heads = stored.get("heads") or {"of": [], "tau": []}
    place = {(name, seed): i for i, (name, seed) in enumerate(heads["of"])}
    seeds = sorted({seed for _, seed in place})

    def guess(primary: str, name: str) -> float | None:
        both = [(place[primary, seed], place[name, seed]) for seed in seeds
                if (primary, seed) in place and (name, seed) in place]  # fmt: skip
        return stats.mean([heads["tau"][i][j] for i, j in both]) if both else None

    return guess


def guesses(stored: Mapping[str, Any]) -> dict[str, Guess]:
    """What ranks the candidates, by its name."""
    cosines = stored.get("cosines") or {}
    return {
        "GradTS (tau of head importance)": tau_of(stored),
        "set size (published rows)": lambda primary, name: float(SIZES[name]),
        "cosine of mean embeddings": lambda primary, name: cosines.get(primary, {}).get(name),
    }


class Ranked(NamedTuple):
    """How well a ranking foretells the gains of a primary's candidates."""

    spearman: float
    regret: Mapping[int, float]


def ranked_by(guessed: Mapping[str, float], gains: Mapping[str, float]) -> Ranked:
    """Spearman over the candidates, and how far the best of the first k is below the best of all."""
    names = [name for name in gains if name in guessed]
    order = sorted(names, key=lambda name: -guessed[name])
    best = max(gains[name] for name in names)
    regret = {k: best - max(gains[name] for name in order[:k]) for k in REGRETS}
    return Ranked(spearman([guessed[name] for name in names], [gains[name] for name in names]), regret)


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Of two lists in the same order."""
    return float(metrics.spearman(np.array(a), np.array(b)))


def chance_of(gains: Mapping[str, float]) -> Ranked:
    """A ranking by lot: exactly, over all sets of k candidates."""
    values = list(gains.values())
    regret = {k: max(values) - stats.mean([max(some) for some in combinations(values, min(k, len(values)))])
              for k in REGRETS}  # fmt: skip
    return Ranked(0.0, regret)


def on_other_seeds(gains: Mapping[str, Comparison], place: int) -> tuple[dict[str, float], dict[str, float]]:
    """The mean gains of the other seeds, and those of one: how far the order repeats at all."""
    whole = {name: c.differences for name, c in gains.items() if len(c.differences) > max(place, 1)}
    others = {name: stats.mean([*of[:place], *of[place + 1 :]]) for name, of in whole.items()}
    return others, {name: of[place] for name, of in whole.items()}


def p_of(guessed: Mapping[str, Mapping[str, float]], gains: Mapping[str, Mapping[str, float]]) -> float:
    """How often candidates in random order, within each primary, have as high a mean Spearman."""
    rng = np.random.default_rng(0)
    pairs = [(np.array([guessed[p][n] for n in of if n in guessed[p]]), np.array([v for n, v in of.items()
             if n in guessed[p]])) for p, of in gains.items()]  # fmt: skip
    seen = sum(spearman(list(a), list(b)) for a, b in pairs)
    ranks = [(a.argsort().argsort(), b.argsort().argsort()) for a, b in pairs]
    drawn = np.zeros(DRAWS)
    for a, b in ranks:
        shuffled = rng.permuted(np.tile(a, (DRAWS, 1)), axis=1)
        drawn += 1 - 6 * ((shuffled - b) ** 2).sum(1) / (len(b) * (len(b) ** 2 - 1))
    return float((1 + (drawn >= seen - 1e-9).sum()) / (1 + DRAWS))


# Tables


def pair_table(stored: Mapping[str, Any]) -> str:
    """The true gain of every pair, and what could have foretold it."""
    gains, ways = all_gains(stored["runs"]), guesses(stored)
    shown = ["tau", "rows", "cosine"]
    compared, added = list[Comparison](), [shown, ["---"] * len(shown)]
    for primary, by_name in gains.items():
        if control := control_of(stored["runs"], primary):
            compared.append(control)
            added.append([""] * len(shown))
        for name, comparison in by_name.items():
            values = [way(primary, name) for way in ways.values()]
            forms = ("{:.3f}", "{:,.0f}", "{:.3f}")
            compared.append(comparison)
            added.append(["" if v is None else form.format(v) for form, v in zip(forms, values, strict=True)])
    table = comparisons_table("trained on", "the primary's score", compared, stats.paired_t).splitlines()
    return "\n".join(f"{line} {' | '.join(more)} |" for line, more in zip(table, added, strict=True))


def updates_table(runs: Sequence[Run]) -> str:
    """Every pair beside the primary alone with as many updates."""
    compared = [c for by_name in all_gains(runs, longer=True).values() for c in by_name.values()]
    return comparisons_table("trained on", "the primary's score", compared, stats.paired_t)


def level_table(runs: Sequence[Run]) -> str:
    """The scores themselves: each primary alone, alone for longer, and with its best and its worst auxiliary."""
    lines = [["primary", "metric", "alone", "alone, twice the epochs", "with its best auxiliary", "with its worst"]]
    for primary, gains in all_gains(runs).items():
        metric = next(run["main"][f"{primary}:dev"] for run in runs if f"{primary}:dev" in run["main"])
        order = sorted(gains, key=lambda name: stats.mean(gains[name].differences))
        ends = [f"{gains[name].scores} {TASKS[name]}" for name in (order[-1], order[0])]
        alone = [str(scores_of(runs, primary, {primary}, longer)) for longer in (False, True)]
        lines.append([TASKS[primary], metric, *alone, *ends])
    return markdown(lines)


def ranking_table(stored: Mapping[str, Any]) -> str:
    """How well each way ranks the candidates by their true gain: Spearman, and regret at 1 and 3."""
    comparisons = all_gains(stored["runs"])
    gains = {p: {name: stats.mean(c.differences) for name, c in of.items()} for p, of in comparisons.items()}
    rows: dict[str, dict[str, Ranked]] = {}
    ps: dict[str, float] = {}
    for words, way in guesses(stored).items():
        guessed = {p: {n: v for n in of if (v := way(p, n)) is not None} for p, of in gains.items()}
        enough = {p: of for p, of in gains.items() if len(guessed[p].keys() & of.keys()) > max(REGRETS)}
        if enough:
            rows[words] = {p: ranked_by(guessed[p], of) for p, of in enough.items()}
            ps[words] = p_of(guessed, enough)
    rows["chance"] = {p: chance_of(of) for p, of in gains.items()}
    rows |= ceiling(comparisons)
    adjusted = dict(zip(ps, stats.holm(list(ps.values())), strict=True))
    shown = list(gains)
    lines = [["ranked by", *(f"Spearman, {TASKS[p]}" for p in shown), "mean", "p", "p (Holm)",
              *(f"regret at {k}, points" for k in REGRETS)]]  # fmt: skip
    for words, by_primary in rows.items():
        if not by_primary:
            continue
        mine = [f"{by_primary[p].spearman:+.2f}" if p in by_primary else "" for p in shown]
        mean = stats.mean([one.spearman for one in by_primary.values()])
        regrets = [f"{stats.mean([one.regret[k] for one in by_primary.values()]):.2f}" for k in REGRETS]
        tested = [f"{ps[words]:.3f}", f"{adjusted[words]:.3f}"] if words in ps else ["", ""]
        lines.append([words, *mine, f"{mean:+.2f}", *tested, *regrets])
    return markdown(lines)


def ceiling(comparisons: Mapping[str, Mapping[str, Comparison]]) -> dict[str, dict[str, Ranked]]:
    """The gains of one seed, foretold by those of the other seeds, mean over the seeds."""
    found: dict[str, Ranked] = {}
    for primary, of in comparisons.items():
        fewest = min(len(c.differences) for c in of.values())
        each = [ranked_by(*on_other_seeds(of, place)) for place in range(fewest)] if fewest > 1 else []
        if each and len(of) > max(REGRETS):
            regret = {k: stats.mean([one.regret[k] for one in each]) for k in REGRETS}
            found[primary] = Ranked(stats.mean([one.spearman for one in each]), regret)
    return {"the gains of the other seeds (one seed's gains foretold)": found}


def stability_table(heads: Mapping[str, Any]) -> str:
    """Tau of a task's heads between seeds, beside that with other tasks in the same seed and in other seeds."""
    kinds = ("own, other seeds", "other tasks, same seed", "other tasks, other seeds")
    gathered: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for i, (name, seed) in enumerate(heads["of"]):
        for j, (other, other_seed) in enumerate(heads["of"]):
            if i != j:
                kind = kinds[0] if name == other else kinds[1] if seed == other_seed else kinds[2]
                gathered[name][kind].append(heads["tau"][i][j])
    lines = [["task", *(f"tau with {kind}" for kind in kinds)]]
    for name in (name for name in TASKS if name in gathered):
        lines.append([TASKS[name], *(spread(gathered[name][kind]) for kind in kinds)])
    lines.append(["all tasks", *(spread([tau for of in gathered.values() for tau in of[kind]]) for kind in kinds)])
    return markdown(lines)


def spread(values: Sequence[float]) -> str:
    """Mean, lowest and highest."""
    return f"{stats.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else ""


def strategy_table(study: Mapping[str, Any]) -> str:
    """None, all, thres and trial: what they chose, what it brought, and what it cost."""
    head = ["primary", "strategy", "with", "metric", "score", "against single-task", "p (Holm)", "runs", "seconds"]
    lines = [head]
    for row in study["rows"]:
        scores = Cell({int(seed): 100 * value for seed, value in row["scores"].items()})
        difference = ""
        if row["strategy"] != "none" and row["gain"] is not None:
            low_high = f" [{100 * row['interval'][0]:+.1f}, {100 * row['interval'][1]:+.1f}]" if row["interval"] else ""
            difference = f"{100 * row['gain']:+.1f}{low_high}"
        chosen = ", ".join(TASKS.get(name, name) for name in row["tasks"]) or "(alone)"
        p = "" if row["p_holm"] is None else f"{row['p_holm']:.3f}"
        lines.append([
            TASKS[row["primary"]], row["strategy"], chosen, row["metric"], str(scores), difference, p,
            str(row["trainings"]), f"{row['seconds']:,.0f}",
        ])  # fmt: skip
    return markdown(lines)


def blocks(stored: Mapping[str, Any]) -> dict[str, str]:
    """The tables by the names of their marks; those that there are results for."""
    made = {}
    if stored.get("heads"):
        made["stability"] = stability_table(stored["heads"])
    if all_gains(stored.get("runs", [])):
        made |= {"levels": level_table(stored["runs"]), "pairs": pair_table(stored)}
        if all_gains(stored["runs"], longer=True):
            made["updates"] = updates_table(stored["runs"])
        made["rankings"] = ranking_table(stored)
    if stored.get("study"):
        made["strategies"] = strategy_table(stored["study"])
    return made


def picture(stored: Mapping[str, Any], out: Path) -> None:
    """A row for each primary, a column for each way of guessing: the true gain of every pair over what was guessed.

    Large points are means, small ones seeds. Dashed: what as many updates on the primary's own rows bring.
    """
    plt = pyplot()
    gains, ways = all_gains(stored["runs"]), guesses(stored)
    shown = {words: way for words, way in ways.items() if any(way(p, n) is not None for p in gains for n in gains[p])}
    size = (3.9 * len(shown), 2.6 * len(gains))
    figure, axes = plt.subplots(
        len(gains), len(shown), figsize=size, layout="constrained", sharey="row", sharex="col", squeeze=False
    )
    for row, (primary, by_name) in zip(axes, gains.items(), strict=True):
        for axis, (words, way) in zip(row, shown.items(), strict=True):
            panel(axis, primary, by_name, way)
            if control := control_of(stored["runs"], primary):
                axis.axhline(stats.mean(control.differences), color="#c0392b", linestyle="--", linewidth=1.2)
            if words.startswith("set size"):
                axis.set_xscale("log")
        row[0].set_ylabel(f"{TASKS[primary]}: points gained", fontsize=9)
    for axis, words in zip(axes[-1], shown, strict=True):
        axis.set_xlabel(words, fontsize=9)
    figure.suptitle("Gain of each pair over the task alone; dashed: the task alone, twice the epochs", fontsize=10)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


def panel(axis: Any, primary: str, gains: Mapping[str, Comparison], way: Guess) -> None:
    """The gains of one primary over one way of guessing, with the Spearman correlation of both."""
    guessed = {name: value for name in gains if (value := way(primary, name)) is not None}
    means = {name: stats.mean(gains[name].differences) for name in guessed}
    for name, at in guessed.items():
        colour, each = COLOURS[primary], gains[name].differences
        axis.plot([at] * len(each), each, ".", color=colour, markersize=4, alpha=0.45)
        axis.plot(at, means[name], "o", color=colour, markersize=6)
        axis.annotate(TASKS[name], (at, means[name]), (5, 2), textcoords="offset points", fontsize=7.5, color="#333")
    axis.axhline(0, color="#555", linewidth=0.8)
    axis.margins(x=0.14)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if len(means) > 1:
        rank = ranked_by(guessed, means).spearman
        axis.set_title(f"rank correlation {rank:+.2f}", fontsize=8, loc="right", color="#333")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    collecting = verbs.add_parser("collect", help="what is finished into the small file")
    for name in ("pairs", "study", "vectors"):
        collecting.add_argument(f"--{name}", type=Path)
    verbs.add_parser("show", help="print the tables with their marks")
    verbs.add_parser("page", help="write the tables into the page, and the picture")
    args = parser.parse_args()
    if args.verb == "collect":
        return collect(args.pairs, args.study, args.vectors)
    stored = read_json(FILE)
    if args.verb == "show":
        return print(within_marks(blocks(stored)))
    fill(PAGES / "tasks.md", blocks(stored))
    picture(stored, PAGES.parent / "images" / "tasks.svg")
    print("docs/results: tasks")


if __name__ == "__main__":
    main()
