"""Tables and pictures of docs/results/ from the small files of stories/results/, so that no figure is typed by hand.

    python stories/pages.py pretraining

A page holds the marks <!-- table --> … <!-- /table -->; what is between them is written here, the rest by people.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from encodery.report import stats
from encodery.report.groups import AVERAGES

ROOT = Path(__file__).parents[1]
RESULTS, PAGES = ROOT / "stories" / "results", ROOT / "docs" / "results"

# Of stories/petit.yaml: (task, rows) -> words, metric, what published BERT-Tiny gets on all rows (GLUE).
PETIT_TASKS = {
    ("tag/pos", 500): ("UD EWT parts of speech, 500 sentences", "accuracy", None),
    ("glue/sst2", 1000): ("SST-2, 1,000 rows", "accuracy", None),
    ("glue/stsb", 5749): ("STS-B", "spearman", 73.6),
    ("glue/mrpc", 3668): ("MRPC", "accuracy", None),
    ("glue/sst2", 10000): ("SST-2, 10,000 rows", "accuracy", 83.2),
    ("glue/qnli", 9998): ("QNLI, 9,998 rows", "accuracy", 81.5),
    ("glue/mnli", 10000): ("MNLI, 10,000 rows", "accuracy", 70.2),
}
ARMS = {
    "random": "random weights",
    "embeddings": "word embeddings after 29.3 M tokens, random layers",
    "petit-29M": "petit after 29.3 M tokens",
    "petit": "petit",
    "minilm": "MiniLM-L6",
}


class Cell(NamedTuple):
    """The scores of one arm on one task, by seed, times 100."""

    scores: Mapping[int, float]

    def __str__(self) -> str:
        """Mean ± sd (n)."""
        values = list(self.scores.values())
        if not values:
            return ""
        spread = stats.sd(values)
        return f"{stats.mean(values):.1f}" + (f" ± {spread:.1f}" if spread is not None else "") + f" ({len(values)})"


# Of stories/glue.yaml, in GLUE's order: variant -> words, the metric that counts.
GLUE_TASKS = {
    "cola": ("CoLA", "mcc"),
    "sst2": ("SST-2, 5,000 rows", "accuracy"),
    "mrpc": ("MRPC", "accuracy"),
    "stsb": ("STS-B", "spearman"),
    "qqp": ("QQP, 5,000 rows; 1,000 of train as dev", "accuracy"),
    "mnli": ("MNLI, 5,000 rows", "accuracy"),
    "qnli": ("QNLI, 5,000 rows", "accuracy"),
    "rte": ("RTE", "accuracy"),
}


def read(file: Path) -> dict[tuple[str, int], dict[str, Cell]]:
    """Task and rows -> arm -> scores."""
    gathered: dict[tuple[str, int], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for run in json.loads(file.read_text(encoding="utf-8"))["runs"]:
        key, arm = (run["task"], run["rows"]), run["variant"]
        gathered[key][arm][run["seed"]] = 100 * run["scores"][f"{key[0]}:dev"][PETIT_TASKS[key][1]]
    return {key: {arm: Cell(dict(sorted(seeds.items()))) for arm, seeds in by.items()} for key, by in gathered.items()}


def gain(a: Cell, b: Cell) -> tuple[str, float | None]:
    """The mean difference on the same seeds with its 95 % interval, and the p of the paired test."""
    differences = [a.scores[seed] - b.scores[seed] for seed in sorted(a.scores.keys() & b.scores.keys())]
    if not differences:
        return "", None
    interval = stats.t_interval(differences)
    words = f"{stats.mean(differences):+.1f}" + (f" [{interval[0]:+.1f}, {interval[1]:+.1f}]" if interval else "")
    return words, stats.paired_t(differences)


class Simple(NamedTuple):
    """What a task gives without an encoder: how, and the scores."""

    how: str
    cell: Cell

    def __str__(self) -> str:
        return f"{self.cell} {self.how}".replace(" (1)", "")  # where nothing is drawn there is one score


def simple_scores() -> Any:
    """What stories/simple_baselines.py found."""
    return json.loads((RESULTS / "simple.json").read_text(encoding="utf-8"))


def simple(key: tuple[str, int]) -> Simple:
    """Of stories/simple_baselines.py, or the majority baseline that every run stores."""
    found, (task, rows) = simple_scores(), key
    if task == "glue/sst2":
        return Simple("TF-IDF", Cell({int(seed): 100 * value for seed, value in found[task][str(rows)].items()}))
    if task == "glue/stsb":  # the majority baseline of a correlation says nothing
        return Simple("words shared", Cell({0: 100 * found[task]["words shared"]["spearman"]}))
    runs = [run for run in json.loads((RESULTS / "petit.json").read_text(encoding="utf-8"))["runs"]
            if (run["task"], run["rows"]) == key and run["variant"] == "petit"]  # fmt: skip
    metric = PETIT_TASKS[key][1]
    values = {run["seed"]: 100 * run["majority"][f"{task}:dev"][metric] for run in runs}
    return Simple("commonest tag of a word" if task == "tag/pos" else "majority",
                  Cell(values if task == "tag/pos" else dict(list(values.items())[:1])))  # fmt: skip


def pretraining_table(found: Mapping[tuple[str, int], Mapping[str, Cell]]) -> str:
    """A row for each task that was run."""
    tasks = [key for key in PETIT_TASKS if "petit" in found.get(key, {})]
    gains = [gain(found[key].get("petit", Cell({})), found[key].get("random", Cell({}))) for key in tasks]
    tested = [p for _, p in gains if p is not None]
    adjusted = iter(stats.holm(tested))
    arms = [arm for arm in ARMS if arm != "petit-29M" and any(arm in found[key] for key in tasks)]
    named = [ARMS[arm] for arm in arms]
    head = [
        "task",
        "metric",
        "no encoder",
        *named,
        "petit - random",
        "p (Holm)",
        "BERT-Tiny, test, all rows, best of 20",
    ]
    lines = [head]
    for key, (words, p) in zip(tasks, gains, strict=True):
        name, metric, published = PETIT_TASKS[key]
        cells = [str(found[key].get(arm, Cell({}))) for arm in arms]
        holm = None if p is None else next(adjusted)
        shown = "" if holm is None else "< 0.001" if holm < 0.001 else f"{holm:.3f}"
        lines.append(
            [name, metric, str(simple(key)), *cells, words, shown, "" if published is None else f"*{published}*"]
        )
    return markdown(lines)


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Student's interval; with too few values nothing but the mean."""
    centre = stats.mean(values)
    return stats.t_interval(values) or (centre, centre)


def pyplot() -> Any:
    """matplotlib without a screen, whose files do not change with the time of day."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "encodery"
    import matplotlib.pyplot as plt

    return plt


def pretraining_picture(found: Mapping[tuple[str, int], Mapping[str, Cell]], out: Path) -> None:
    """A line for each task: means of the arms with 95 % intervals."""
    plt = pyplot()
    tasks = [key for key in PETIT_TASKS if "petit" in found.get(key, {})]
    figure, axis = plt.subplots(figsize=(7.5, 0.55 * len(tasks) + 1.2), layout="constrained")
    colours = {
        "random": "#8a8f98", "embeddings": "#c98a2b", "petit-29M": "#8ab4f8", "petit": "#1f6feb", "minilm": "#2a9d5c",
    }  # fmt: skip
    written: set[tuple[int, int, int]] = set()  # line, side, place: covered numbers are in the table
    for arm in ("petit", "random", "minilm", "embeddings", "petit-29M"):  # whose number is written first
        colour = colours[arm]
        shown = [(i, found[key][arm]) for i, key in enumerate(tasks) if arm in found[key]]
        for i, cell in shown:
            values = list(cell.scores.values())
            low, high = bounds(values)
            axis.plot([low, high], [i, i], color=colour, linewidth=2, alpha=0.5)
        centres = [stats.mean(list(cell.scores.values())) for _, cell in shown]
        if shown:
            axis.plot(
                centres, [i for i, _ in shown], "o", color=colour, label=ARMS[arm], zorder=3 if arm == "random" else 2
            )
        for centre, (i, _) in zip(centres, shown, strict=True):
            above = -9 if arm in ("random", "embeddings", "petit-29M") else 7
            if any((i, above, round(centre) + near) in written for near in range(-3, 4)):
                continue
            written.add((i, above, round(centre)))
            axis.annotate(f"{centre:.1f}", (centre, i), (0, above), textcoords="offset points", ha="center",
                          va="top" if above < 0 else "bottom", color=colour, fontsize=8)  # fmt: skip
    without = [stats.mean(list(simple(key).cell.scores.values())) for key in tasks]
    axis.plot(without, range(len(tasks)), "x", color="#c0392b", label="no encoder", zorder=4)
    axis.set_ylim(-0.5, len(tasks) - 0.5)
    axis.set_xlabel("dev score × 100, mean over seeds with its 95 % interval")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8, reverse=True)
    save(figure, axis, [PETIT_TASKS[key][0] for key in tasks], out)


def save(figure: Any, axis: Any, lines: Sequence[str], out: Path) -> None:
    """A picture with a named line for each task, the first at the top."""
    axis.set_yticks(range(len(lines)), lines)
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


def replace(page: Path, name: str, text: str) -> None:
    """What is between the marks of a page."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")


def pretraining() -> None:
    """docs/results/pretraining.md."""
    found = read(RESULTS / "petit.json")
    replace(PAGES / "pretraining.md", "table", pretraining_table(found))
    pretraining_picture(found, PAGES.parent / "images" / "pretraining.svg")


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table whose first line is its head."""
    head, *body = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))


def scores_of(runs: Sequence[Mapping[str, Any]], task: str, metric: str) -> Cell:
    """Dev scores of a task by seed; runs of encodery name the split, those of Trainer have one."""
    found = {run["seed"]: run["scores"].get(f"{task}:dev", run["scores"]) for run in runs if run["task"] == task}
    return Cell({seed: 100 * scores[metric] for seed, scores in sorted(found.items())})


def glue_scores(found: Mapping[str, Cell], majority: Mapping[str, float]) -> str:
    """Mean, spread, best and worst seed of every task that was run."""
    lines = [["task", "metric", "mean ± sd (n)", "95 % interval", "best", "worst", "majority"]]
    for name, (words, metric) in GLUE_TASKS.items():
        if name not in found:
            continue
        values = list(found[name].scores.values())
        interval = stats.t_interval(values)
        spelled = f"{interval[0]:.1f} to {interval[1]:.1f}" if interval else ""
        extremes = [f"{max(values):.1f}", f"{min(values):.1f}"]
        lines.append([words, metric, str(found[name]), spelled, *extremes, f"{majority[name]:.1f}"])
    return markdown(lines)


class Pair(NamedTuple):
    """Two arms beside each other on a task of GLUE: on the same seeds, or (Trainer) on others."""

    task: str
    first: str
    a: Cell
    second: str
    b: Cell
    paired: bool

    def difference(self) -> tuple[float, tuple[float, float] | None]:
        """The mean difference and its interval."""
        values, others = list(self.a.scores.values()), list(self.b.scores.values())
        if not self.paired:
            return stats.mean(values) - stats.mean(others), stats.t_interval(values, others)
        both = [self.a.scores[seed] - self.b.scores[seed] for seed in self.a.scores.keys() & self.b.scores.keys()]
        return stats.mean(both), stats.t_interval(both)


def glue_differences(pairs: Sequence[Pair]) -> str:
    """A line for each pair: the difference with its interval."""
    lines = [["task", "metric", "A", "B", "A: mean ± sd (n)", "B: mean ± sd (n)", "A - B, 95 % interval"]]
    for pair in pairs:
        if not (pair.a.scores and pair.b.scores):
            continue
        centre, interval = pair.difference()
        words = f"{centre:+.1f}" + (f" [{interval[0]:+.1f}, {interval[1]:+.1f}]" if interval else "")
        lines.append([*GLUE_TASKS[pair.task], pair.first, pair.second, str(pair.a), str(pair.b), words])
    return markdown(lines)


def glue_picture(found: Mapping[str, Cell], majority: Mapping[str, float], pairs: Sequence[Pair], out: Path) -> None:
    """A line for each task: every seed, mean with interval, the majority baseline; beside it what was compared."""
    plt = pyplot()
    names = [name for name in GLUE_TASKS if name in found]
    figure, (axis, beside) = plt.subplots(1, 2, figsize=(11.5, 0.5 * len(names) + 1.2), layout="constrained",
                                          width_ratios=[1.6, 1])  # fmt: skip
    for i, name in enumerate(names):
        values = list(found[name].scores.values())
        axis.plot(bounds(values), [i, i], color="#1f6feb", linewidth=2, alpha=0.5)
        axis.plot(values, [i] * len(values), "|", color="#1f6feb", markersize=9, label="a seed" if not i else None)
        axis.plot(stats.mean(values), i, "o", color="#1f6feb", label="mean, 95 % interval" if not i else None)
        axis.plot(majority[name], i, "x", color="#8a8f98", label="majority baseline" if not i else None)
        axis.annotate(f"{stats.mean(values):.1f}", (stats.mean(values), i), (0, 7), textcoords="offset points",
                      ha="center", color="#1f6feb", fontsize=8)  # fmt: skip
    if "stsb" in names:
        frozen = simple_scores()["glue/stsb"]["MiniLM-L6, cosine"]["spearman"]
        axis.plot(
            100 * frozen, names.index("stsb"), "D", color="#2a9d5c", markersize=5, label="without fine-tuning: cosine"
        )
    axis.set_ylim(-0.7, len(names) - 0.4)
    axis.set_xlabel("dev score × 100")
    axis.legend(loc="upper center", bbox_to_anchor=(0.4, 1.14), ncols=4, frameon=False, fontsize=8)
    differences_panel(beside, [pair for pair in pairs if pair.a.scores and pair.b.scores])
    lines = [f"{GLUE_TASKS[name][0]} ({GLUE_TASKS[name][1]}), n = {len(found[name].scores)}" for name in names]
    save(figure, axis, lines, out)


def differences_panel(axis: Any, pairs: Sequence[Pair]) -> None:
    """Each difference with its interval, and a line at none."""
    for i, pair in enumerate(pairs):
        centre, interval = pair.difference()
        low, high = interval or (centre, centre)
        axis.plot([low, high], [i, i], color="#1f6feb", linewidth=2, alpha=0.5)
        axis.plot(centre, i, "o", color="#1f6feb")
        axis.annotate(f"{centre:+.1f}", (centre, i), (0, 7), textcoords="offset points", ha="center", color="#1f6feb",
                      fontsize=8)  # fmt: skip
    axis.axvline(0, color="#555", linewidth=0.8)
    names = [f"{GLUE_TASKS[pair.task][0]}: {pair.first}\n- {pair.second}" for pair in pairs]
    axis.set_yticks(range(len(pairs)), names, fontsize=8)
    axis.set_ylim(len(pairs) - 0.4, -0.6)
    axis.set_xlabel("difference, 95 % interval")
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


class Scores(NamedTuple):
    """A stored run as the rules of GLUE's averages read it."""

    stored: Mapping[str, Mapping[str, float]]

    def value(self, data: str, metric: str) -> float | None:
        """A score; None where there is none."""
        return self.stored.get(data, {}).get(metric)


def glue_averages(by_variant: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A row for each rule of averaging, over the seeds that all its tasks have; the leaderboard's without WNLI."""
    lines = [["rule", "mean ± sd (n)", "seeds"]]
    for rule, parts in AVERAGES.items():
        scores = {task: {run["seed"]: part(Scores(run["scores"])) for run in by_variant.get(task, [])}  # type: ignore[arg-type]
                  for task, part in parts.items() if task != "wnli"}  # fmt: skip
        seeds = sorted(set.intersection(*(set(some) for some in scores.values())))
        cell = Cell({seed: 100 * stats.mean([float(some[seed] or 0) for some in scores.values()]) for seed in seeds})
        words = rule.removeprefix("GLUE average (").removesuffix(")") + (", without WNLI" if "wnli" in parts else "")
        lines.append([words, str(cell), ", ".join(f"{value:.1f}" for value in cell.scores.values())])
    return markdown(lines)


def glue() -> None:
    """docs/results/glue.md."""
    runs = json.loads((RESULTS / "glue.json").read_text(encoding="utf-8"))["runs"]
    by_variant: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        by_variant[run["variant"]].append(run)
    arms = {name: scores_of(some, f"glue/{name.removesuffix('-first')}", GLUE_TASKS[name.removesuffix("-first")][1])
            for name, some in by_variant.items()}  # fmt: skip
    found = {name: arms[name] for name in GLUE_TASKS if name in arms}
    majority = {name: 100 * by_variant[name][0]["majority"][f"glue/{name}:dev"][GLUE_TASKS[name][1]] for name in found}
    trainer = RESULTS / "glue_trainer.json"
    peers = json.loads(trainer.read_text(encoding="utf-8"))["runs"] if trainer.is_file() else []
    none = Cell({})
    pairs = [
        Pair(name, "mean pooling", arms.get(name, none), "first token", arms.get(f"{name}-first", none), True)
        for name in ("mrpc", "stsb")
    ] + [
        Pair(name, "encodery, first token", arms.get(f"{name}-first", none), "Trainer",
         scores_of(peers, f"glue/{name}", GLUE_TASKS[name][1]), False)
        for name in ("mrpc", "stsb")
    ]  # fmt: skip
    replace(PAGES / "glue.md", "table", glue_scores(found, majority))
    replace(PAGES / "glue.md", "differences", glue_differences(pairs))
    replace(PAGES / "glue.md", "averages", glue_averages(by_variant))
    glue_picture(found, majority, pairs, PAGES.parent / "images" / "glue.svg")


# Of stories/squad.yaml: metric -> words. "Usual threshold": an answer wherever its score beats that of "no answer".
SQUAD_METRICS = {
    "exact": "exact, usual threshold",
    "f1": "F1, usual threshold",
    "best_f1": "F1 at the best threshold, found on dev itself",
    "has_answer_exact": "exact of questions with an answer",
    "has_answer_f1": "F1 of questions with an answer",
    "no_answer_exact": "exact of questions without an answer",
}
SQUAD_HEADS = {"simple": "simple head", "joint": "joint head"}


def squad_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """A row for each metric: both heads, and what needs no model."""
    dev = f"{runs[0]['task']}:dev"
    heads = {run["variant"]: run["scores"][dev] for run in runs}
    shown = [head for head in SQUAD_HEADS if head in heads]
    lines = [["metric", *(SQUAD_HEADS[head] for head in shown), "always no answer"]]
    for metric, words in SQUAD_METRICS.items():
        simplest = runs[0]["majority"].get(dev, {}).get(metric)
        values = [heads[head][metric] for head in shown] + [simplest]
        lines.append([words, *("" if value is None else f"{100 * value:.1f}" for value in values)])
    return markdown(lines)


def squad() -> None:
    """The questions of docs/results/glue.md."""
    runs = json.loads((RESULTS / "squad.json").read_text(encoding="utf-8"))["runs"]
    replace(PAGES / "glue.md", "squad", squad_table(runs))


# Of stories/objectives.yaml: what petit was trained on further.
LEGS = {"petit": "29.3 M tokens, not trained further", "mlm": "masked words", "electra": "ELECTRA", "amos": "AMOS"}


def objectives_table(found: Mapping[tuple[str, int], Mapping[str, Cell]]) -> str:
    """A row for each task: the legs, and what each brought on the same seeds."""
    tasks = [key for key in PETIT_TASKS if any(arm in found.get(key, {}) for arm in list(LEGS)[1:])]
    legs = [arm for arm in LEGS if any(arm in found[key] for key in tasks)]
    compared = [(arm, "petit") for arm in legs if arm != "petit"]
    compared += [(arm, "mlm") for arm in legs if arm not in ("petit", "mlm")]
    gains = {(key, a, b): gain(found[key].get(a, Cell({})), found[key].get(b, Cell({})))
             for key in tasks for a, b in compared}  # fmt: skip
    tested = [place for place, (_, p) in gains.items() if p is not None]
    holm = dict(zip(tested, stats.holm([gains[place][1] or 0.0 for place in tested]), strict=True))
    lines = [["task", "metric", *(LEGS[arm] for arm in legs)]]
    for key in tasks:
        lines.append([*PETIT_TASKS[key][:2], *(str(found[key].get(arm, Cell({}))) for arm in legs)])
    differences = [["difference on the same seeds", *(PETIT_TASKS[key][0] for key in tasks)]]
    for a, b in compared:
        shown = []
        for key in tasks:
            p = holm.get((key, a, b))
            shown.append(gains[key, a, b][0] + ("" if p is None else ", p < 0.001" if p < 0.001 else f", p {p:.2f}"))
        differences.append([f"{LEGS[a]} - {LEGS[b].split(',')[0]}", *shown])
    return markdown(lines) + "\n\n" + markdown(differences)


def stability_table(found: Mapping[tuple[str, int], Mapping[str, Cell]]) -> str:
    """How much fine-tuning seeds of one encoder differ."""
    lines = [["task", "weights", "mean", "sd", "highest", "lowest", "seeds"]]
    for key in (key for key in PETIT_TASKS if key in found):
        for arm, cell in ((arm, found[key][arm]) for arm in STARTS if arm in found[key]):
            values = list(cell.scores.values())
            spread = stats.sd(values)
            figures = [stats.mean(values), spread, max(values), min(values)]
            shown = ["" if value is None else f"{value:.1f}" for value in figures]
            lines.append([PETIT_TASKS[key][0], STARTS[arm].name, *shown, str(len(values))])
    return markdown(lines)


class Start(NamedTuple):
    """Weights that were fine-tuned: what they are called, and what their pretraining cost in all."""

    name: str
    flops: float
    colour: str


# 520 steps of masked words are 4.24 M tokens and 8.6e13 FLOPs; the legs of stories/objectives.yaml cost as much each.
LEG, PER_TOKEN = 8.6e13, 8.6e13 / 4.24e6
STARTS = {
    "random": Start("random weights", 0.0, "#8a8f98"),
    "petit-15M": Start("masked words, 14.6 M tokens", 14.6e6 * PER_TOKEN, "#1f6feb"),
    "petit-29M": Start("masked words, 29.3 M tokens", 29.3e6 * PER_TOKEN, "#1f6feb"),
    "mlm": Start("29.3 M tokens + a leg of masked words", 29.3e6 * PER_TOKEN + LEG, "#1f6feb"),
    "electra": Start("29.3 M tokens + a leg of ELECTRA", 29.3e6 * PER_TOKEN + LEG, "#c98a2b"),
    "amos": Start("29.3 M tokens + a leg of AMOS", 29.3e6 * PER_TOKEN + LEG, "#2a9d5c"),
    "petit": Start("masked words, 98 M tokens (petit)", 98e6 * PER_TOKEN, "#1f6feb"),
}


def flops_picture(found: Mapping[tuple[str, int], Mapping[str, Cell]], out: Path) -> None:
    """A panel for each task: score against the arithmetic of the pretraining, with 95 % intervals over seeds."""
    plt = pyplot()
    tasks = [key for key in PETIT_TASKS if "electra" in found.get(key, {})]
    figure, axes = plt.subplots(1, len(tasks), figsize=(3.4 * len(tasks), 3.4), layout="constrained", squeeze=False)
    for axis, key in zip(axes[0], tasks, strict=True):
        line = [(STARTS[arm].flops / 1e14, stats.mean(list(found[key][arm].scores.values())))
                for arm in ("petit-15M", "petit-29M", "petit") if arm in found[key]]  # fmt: skip
        axis.plot(*zip(*line, strict=True), color=STARTS["mlm"].colour, linewidth=1, alpha=0.6)
        if "random" in found[key]:  # in words: to scale it would hide what the others differ by
            words = f"random weights: {stats.mean(list(found[key]['random'].scores.values())):.1f}"
            axis.annotate(words, (0.98, 0.02), xycoords="axes fraction", ha="right", fontsize=8, color="#8a8f98")
        for arm, start in STARTS.items():
            if arm in found[key] and arm != "random":
                flops_point(axis, start, list(found[key][arm].scores.values()), shift=SHIFTS.get(arm, 0.0))
        axis.set_title(f"{PETIT_TASKS[key][0]}\n{PETIT_TASKS[key][1]}", fontsize=9)
        axis.set_xscale("log")
        axis.set_xticks([3, 6, 10, 20], ["3", "6", "10", "20"])
        axis.minorticks_off()
        axis.set_xlabel("pretraining, 1e14 FLOPs", fontsize=9)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("dev score × 100", fontsize=9)
    handles = {kind: axes[0][0].plot([], [], "o", color=STARTS[arm].colour)[0] for kind, arm in KINDS.items()}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


KINDS = {"masked words": "petit", "ELECTRA": "electra", "AMOS": "amos"}
SHIFTS = {"mlm": -0.12, "amos": 0.12}  # three legs of equal cost, drawn side by side


def flops_point(axis: Any, start: Start, values: Sequence[float], shift: float) -> None:
    """Mean and interval over seeds."""
    at, (low, high) = start.flops / 1e14 + shift, bounds(values)
    axis.plot([at, at], [low, high], color=start.colour, linewidth=2, alpha=0.5)
    axis.plot(at, stats.mean(values), "o", color=start.colour, markersize=5)


def objectives() -> None:
    """The part of docs/results/pretraining.md about masked words, ELECTRA and AMOS from the same weights."""
    found, before = read(RESULTS / "objectives.json"), read(RESULTS / "petit.json")
    for key, by in found.items():
        by["petit"] = before[key]["petit-29M"]  # what the legs began with
    replace(PAGES / "pretraining.md", "objectives", objectives_table(found))
    every = {key: {**found.get(key, {}), **before[key]} for key in before}
    replace(PAGES / "pretraining.md", "stability", stability_table(every))
    flops_picture(every, PAGES.parent / "images" / "pretraining-flops.svg")


PAGES_MADE: Mapping[str, Any] = {"pretraining": pretraining, "objectives": objectives, "glue": glue, "squad": squad}


def main(names: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="+", choices=sorted(PAGES_MADE))
    for name in parser.parse_args(names).page:
        PAGES_MADE[name]()
        print(f"docs/results: {name}")


if __name__ == "__main__":
    main()
