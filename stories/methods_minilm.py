"""Plain training, FreeLB, R-Drop and SMART on real GLUE tasks with a small encoder, several seeds, equal settings.

    ENCODERY_DATA=... python stories/methods_minilm.py --out runs/stories/methods [--tasks mrpc,cola] [--seeds 3]

FreeLB and SMART look within the same ball, `--ball`: a tenth of what is published for RoBERTa-large, at which this
encoder learns nothing. `longer` is plain training with as many backward passes as FreeLB has (more epochs, its own
schedule): what the same time buys without a method. Runs go task by task and seed by seed, so that what is there at any
moment is a whole comparison; finished ones are not repeated. Time is CPU seconds of this process per step, without
evaluation.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encodery.report import stats

SETTINGS = ["optim.lr=2e-4", "optim.warmup=0.1", "optim.weight_decay=0.01", "optim.eps=1e-6", "optim.clip=1.0"]
SETTINGS += ["train.max_length=128", "train.evaluate=end", "train.log=5"]
PASSES = 3  # of FreeLB
METHODS = ("plain", "freelb", "rdrop", "smart", "longer")
# Forward and backward passes of a step; of SMART's, one backward goes to the perturbation alone.
COST = {"plain": "1 / 1", "freelb": "3 / 3", "rdrop": "2 / 2", "smart": "4 / 3", "longer": "1 / 1, 3 × the steps"}


def options(name: str, ball: float) -> dict[str, Any]:
    """The settings of a method."""
    if name == "freelb":  # as published, in proportion: 0.1, 0.1, 0.3
        step = round(ball / 3, 9)
        return {"kind": "freelb", "steps": PASSES, "adv_lr": step, "init_mag": step, "max_norm": ball}
    if name == "smart":
        # Published strengths (1e-5, linf) do nothing here. The ball is FreeLB's, one ascent reaches its edge, the start
        # is small (a twentieth of the ball for 50 tokens), and λ = 3 is the middle of the published {1, 3, 5}.
        start = round(ball / 3000, 9)
        return {"kind": "smart", "norm": "l2", "max_norm": ball, "adv_lr": ball, "init_mag": start, "weight": 3.0}
    return {"kind": "rdrop", "weight": 0.5} if name == "rdrop" else {"kind": "plain"}


def train(task: str, name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One run, or what it gave if it is done already."""
    from encodery.config import load
    from encodery.core.progress import Progress
    from encodery.training.run import train_run

    out = args.out / task / name / f"seed-{seed}"
    epochs = args.epochs * (PASSES if name == "longer" else 1)
    words = [*SETTINGS, *(f"method.{key}={value}" for key, value in options(name, args.ball).items()), f"seed={seed}"]
    words += [f"model.name={args.model}", f"train.epochs={epochs}", f"tasks.fraction={args.fraction}"]
    words += [f"train.batch_size={args.batch}", f"threads={args.threads}", "device=cpu"]
    resolved = load.load(f"recipe:glue/{task}/minilm-l3", words)
    marks: list[float] = []
    run = train_run(resolved, out, progress=Progress(every=60), watch=lambda _: marks.append(time.process_time()))
    if len(marks) > 1:
        (out / "seconds.json").write_text(json.dumps((marks[-1] - marks[0]) / (len(marks) - 1)))
    rows = [json.loads(line) for line in run.predictions_path(f"glue/{task}", "dev").read_text().splitlines()]
    gold = {example.id: example.label for example in resolved.tasks[0][0].examples("dev")}
    scores = run.read_scores()
    metrics = run.metrics()
    return {
        "scores": scores["scores"][f"glue/{task}:dev"],
        "main": scores["main"][f"glue/{task}:dev"],
        "majority": scores["majority"][f"glue/{task}:dev"],
        "right": {row["id"]: row["prediction"] == gold[row["id"]] for row in rows},
        "steps": metrics[-1]["step"],
        "seconds": json.loads((out / "seconds.json").read_text()),
        "notes": {key: value for key, value in metrics[-1].items() if key.startswith("method.")},
    }


# What the figures say


def table(task: str, found: Mapping[str, Mapping[int, dict[str, Any]]]) -> str:
    """One row a method, over the seeds that all methods have."""
    seeds = sorted(set.intersection(*(set(runs) for runs in found.values())))
    plain = [found["plain"][seed] for seed in seeds]
    main = plain[0]["main"]
    names = [name for name in plain[0]["scores"] if name not in ("ece", "brier", "nll")]
    header = ["task", "method", *names, f"{main} against plain (p)", "against longer (p)", "McNemar against plain"]
    header += ["passes a step", "steps", "CPU s a step", "CPU s in all"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for name in found:
        runs = [found[name][seed] for seed in seeds]
        scores = [spell([run["scores"][metric] for run in runs]) for metric in names]
        against = [difference(runs, [found[base][s] for s in seeds], main) for base in ("plain", "longer")]
        seconds = [run["seconds"] for run in runs]
        cells = [task, name, *scores, *against, won_and_lost(runs, plain), COST[name], runs[0]["steps"]]
        cells += [f"{statistics.fmean(seconds):.2f}", f"{statistics.fmean(seconds) * runs[0]['steps']:.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    easy = "  ".join(f"{name} {100 * value:.1f}" for name, value in plain[0]["majority"].items() if name in names)
    return "\n".join([*lines, "", f"{task}: seeds {', '.join(map(str, seeds))}; majority: {easy}"])


def difference(runs: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]], metric: str) -> str:
    """`+0.4 (0.61)`: the mean over seeds, and the p of the paired t-test."""
    if runs == base:
        return ""
    gaps = [a["scores"][metric] - b["scores"][metric] for a, b in zip(runs, base, strict=True)]
    p = stats.paired_t(gaps)
    return f"{100 * stats.mean(gaps):+.1f}" + (f" ({p:.2f})" if p is not None else "")


def won_and_lost(runs: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> str:
    """`12:9 (0.66), …`: examples that only the one or only the other gets right, and McNemar's exact p, seed by seed.

    The seeds share their examples, so they are not added up."""
    if runs == base:
        return ""
    each = []
    for ours, theirs in ((a["right"], b["right"]) for a, b in zip(runs, base, strict=True)):
        won = sum(right and not theirs[id] for id, right in ours.items())
        lost = sum(theirs[id] and not right for id, right in ours.items())
        each.append(f"{won}:{lost} ({stats.mcnemar(won, lost):.2f})")
    return ", ".join(each)


def spell(values: Sequence[float]) -> str:
    """`81.2 ± 0.4 (3)`."""
    sd = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{sd} ({len(values)})"


def main() -> None:
    """Train what is not trained yet; after every comparison that is whole, write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/stories/methods"))
    parser.add_argument("--tasks", default="mrpc,cola")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=1.5)
    parser.add_argument("--ball", type=float, default=0.03, help="largest perturbation of a sequence (l2)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--fraction", type=float, default=1.0, help="of the training rows, drawn at random")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--model", type=Path, default=Path(os.environ["ENCODERY_DATA"]) / "models/paraphrase-MiniLM-L3-v2-fp16"
    )
    args = parser.parse_args()
    names = args.methods.split(",")
    found: dict[str, dict[str, dict[int, Any]]] = {t: {n: {} for n in names} for t in args.tasks.split(",")}
    for task, by_name in found.items():
        for seed in range(1, args.seeds + 1):
            for name in names:
                by_name[name][seed] = train(task, name, seed, args)
            write(args.out, found)


def write(out: Path, found: Mapping[str, Mapping[str, Mapping[int, Any]]]) -> None:
    """Figures as JSON, tables as Markdown, of what is whole."""
    whole = {task: runs for task, runs in found.items() if all(runs.values())}
    (out / "result.json").write_text(json.dumps(whole, indent=1))
    text = "\n\n".join(table(task, runs) for task, runs in whole.items())
    (out / "table.md").write_text(text + "\n")
    print(text, flush=True)


if __name__ == "__main__":
    main()
