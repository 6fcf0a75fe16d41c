"""MLM, ELECTRA and AMOS at equal FLOPs on real text: probes on the way, fine-tuned scores at the end, random weights.

    ENCODERY_DATA=... python stories/pretrain_compare.py --out runs/stories/pretraining [--objectives mlm,electra]

Same encoder, vocabulary (trained on the text), blocks, data order, length, batch, optimiser and learning rate. Each
objective gets as many steps as fit into the same arithmetic, and a schedule over just those. What is done is not done
again, so other objectives and ablations can be added later.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(os.environ["ENCODERY_DATA"])
PROBED = {"glue/cola": "mcc", "glue/sst2": "accuracy", "glue/mrpc": "accuracy"}
SHARES = (6.25, 12.5, 25.0, 50.0, 100.0)
PRETRAIN = ["threads=1", "device=cpu", "train.log=100", "train.save=2 min", "train.evaluate=end"]
FINETUNE = ["threads=1", "device=cpu", "optim.lr=1e-3", "optim.warmup=0.1", "optim.weight_decay=0.01"]
FINETUNE += [
    "model.dropout=0.1",
    "model.attention_dropout=0.1",
    "optim.clip=1.0",
    "train.batch_size=32",
    "train.max_length=64",
    "train.evaluate=end",
]
TASKS: dict[str, list[str]] = {
    "glue/cola": ["train.epochs=5"],
    "glue/sst2": ["train.epochs=2", "tasks.count=20000"],
    "glue/mrpc": ["train.epochs=5"],
}
# What a name means: a recipe, and settings on top of it (ablations of AMOS change one key each).
NAMES: dict[str, list[str]] = {
    "mlm": ["recipe:pretrain/mlm-nano"],
    "electra": ["recipe:pretrain/electra-nano"],
    "amos": ["recipe:pretrain/amos-nano"],
    "amos-no-reversal": ["recipe:pretrain/amos-nano", "tasks.objective.reversal=1"],
    "amos-fixed-mixture": ["recipe:pretrain/amos-nano", "tasks.objective.mixture=fixed"],
}


# Pretraining


def text_ready(out: Path, args: argparse.Namespace) -> tuple[Path, Path]:
    """A vocabulary of this text, and its blocks."""
    from encodery.cli import main as encodery

    tokenizer, blocks, files = out / "tokenizer", out / "blocks", DATA / "text/pretrain_docs.parquet"
    if not tokenizer.exists():
        encodery(["tokenizer", "--corpus.files", str(files), "--vocab_size", str(args.words), "-o", str(tokenizer)])
    if not (blocks / "meta.json").exists():
        words = ["--tasks.name", "corpus", "--tasks.files", str(files), "--tasks.held_out", "0.01"]
        words += ["--model.tokenizer", str(tokenizer), "--train.max_length", str(args.length), "-o", str(blocks)]
        encodery(["prepare", NAMES["mlm"][0], *words])
    return tokenizer, blocks


def settings(name: str, seed: int, out: Path, args: argparse.Namespace, steps: int) -> Any:
    """The resolved config of one pretraining."""
    from encodery.config import load

    recipe, *more = NAMES[name]
    tokenizer, blocks = text_ready(out, args)
    words = [*PRETRAIN, *more, "tasks.name=corpus", f"tasks.prepared={blocks}", f"model.tokenizer={tokenizer}"]
    words += [f"train.max_length={args.length}", f"train.batch_size={args.batch}", f"train.max_steps={steps}"]
    words += [f"seed={seed}", f"probe.tasks=[{', '.join(PROBED)}]", f"train.keep_at={list(SHARES[:-1])}"]
    return load.load(recipe, words)


def step_cost(name: str, out: Path, args: argparse.Namespace) -> float:
    """FLOPs of an average training step."""
    from encodery.training import build
    from encodery.training.loop import cost_of

    resolved = settings(name, 1, out, args, 10)
    built = build.build(resolved, build.find_inputs(resolved))
    return float(np.mean([sum(cost_of(built.model, batch) for batch in built.batches.at(i)) for i in range(20)]))


def pretrain(name: str, seed: int, out: Path, args: argparse.Namespace) -> Path:
    """One pretraining, or where it is."""
    from encodery.core.progress import Progress
    from encodery.training.run import train_run

    folder = out / name / f"seed-{seed}"
    if not (folder / "DONE").exists():
        budget = args.steps * step_cost("mlm", out, args)
        steps = round(budget / step_cost(name, out, args))
        began = time.process_time()
        train_run(settings(name, seed, out, args, steps), folder, progress=Progress(every=60))
        (folder / "seconds.json").write_text(json.dumps(time.process_time() - began))
    return folder


# Scores


def random_probe(seed: int, out: Path, args: argparse.Namespace) -> dict[str, float]:
    """The same encoder before its first step."""
    from encodery.training import build, linear_probe

    resolved = settings("mlm", seed, out, args, 10)
    built = build.build(resolved, build.find_inputs(resolved))
    return linear_probe.run(built.probes, built.model.encoder, built.batcher)


def probes(folder: Path) -> Iterator[tuple[float, dict[str, float]]]:
    """FLOPs so far and scores, at every look on the way."""
    spent = 0.0
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        spent = record.get("flops", spent)
        found = {key: value for key, value in record.items() if key.startswith("probe.")}
        if found:
            yield spent, found


def untrained(tokenizer: Path) -> dict[str, Any]:
    """How the encoder of the recipes begins."""
    from encodery.config import load

    words = ["tasks.name=corpus", f"tasks.files={tokenizer}", f"model.tokenizer={tokenizer}"]
    found = load.load(NAMES["mlm"][0], words).config.model.new
    assert found is not None
    return dict(found.to_dict())


def finetune(model: str, name: str, seed: int, out: Path, tokenizer: Path) -> dict[str, float]:
    """Dev scores of a model on every task."""
    from encodery.config import load
    from encodery.core.progress import Progress
    from encodery.training.run import train_run

    found = {}
    for task, more in TASKS.items():
        words = [*FINETUNE, *more, f"tasks.name={task}", f"seed={seed}"]
        if model == "random":
            words += [f"model.new={json.dumps(untrained(tokenizer))}", f"model.tokenizer={tokenizer}"]
        else:
            words += [f"model.name={model}"]
        folder = out / "finetuned" / name / f"seed-{seed}" / task.replace("/", "-")
        run = train_run(load.load(None, words), folder, progress=Progress(every=60))
        found[task] = run.read_scores()["scores"][f"{task}:dev"][PROBED[task]]
    return found


def collect(name: str, seed: int, out: Path, args: argparse.Namespace) -> dict[str, Any]:
    """All figures of one pretraining (or of random weights), kept in a file."""
    kept = out / name / f"seed-{seed}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    tokenizer, _ = text_ready(out, args)
    result: dict[str, Any]
    if name == "random":
        result = {"probes": [[0.0, random_probe(seed, out, args)]], "fine-tuned": {}}
        result["fine-tuned"] = finetune("random", name, seed, out, tokenizer)
    else:
        folder = pretrain(name, seed, out, args)
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        trained = [record for record in records if "flops" in record]
        result = {
            "probes": list(probes(folder)), "steps": trained[-1]["step"], "flops": trained[-1]["flops"],
            "tokens": trained[-1]["step"] * statistics.fmean(r["tokens"] for r in trained),
            "seconds": json.loads((folder / "seconds.json").read_text()),
            "held out": [r for r in records if "split" in r][-1],
            "fine-tuned": finetune(str(folder), name, seed, out, tokenizer),
        }  # fmt: skip
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(result, indent=1))
    return result


# What the figures say


def spell(values: Sequence[float]) -> str:
    """`61.2 ± 0.4 (2)`."""
    sd = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{sd} ({len(values)})"


def last_probes(runs: Sequence[Mapping[str, Any]], task: str) -> list[float]:
    """The probe of one task at the end."""
    return [run["probes"][-1][1][f"probe.{task}.{PROBED[task]}"] for run in runs]


def tables(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The end of every pretraining, and the probes on the way."""
    names = [task.split("/")[1] for task in PROBED]
    head = ["weights", "steps", "tokens (M)", "TFLOPs", "CPU min"]
    head += [f"{name}, probe" for name in names] + [f"{name}, fine-tuned" for name in names]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, runs in found.items():
        first = runs[0]
        cost = ["", "", "", ""]
        if "steps" in first:
            seconds = statistics.fmean(run["seconds"] for run in runs)
            cost = [f"{first['steps']:,}", f"{first['tokens'] / 1e6:.1f}", f"{first['flops'] / 1e12:.1f}"]
            cost += [f"{seconds / 60:.1f}"]
        scores = [spell(last_probes(runs, task)) for task in PROBED]
        scores += [spell([run["fine-tuned"][task] for run in runs]) for task in PROBED]
        lines.append("| " + " | ".join([name, *cost, *scores]) + " |")
    return "\n".join([*lines, "", *curve(found)])


def curve(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Probes against compute."""
    head = ["share of the compute", *(f"{n}: {t.split('/')[1]}" for n in found if n != "random" for t in PROBED)]
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for place, share in enumerate(SHARES):
        cells = []
        for name, runs in found.items():
            if name == "random":
                continue
            for task, metric in PROBED.items():
                cells.append(spell([run["probes"][place][1][f"probe.{task}.{metric}"] for run in runs]))
        yield "| " + " | ".join([f"{share} %", *cells]) + " |"


def main() -> None:
    """Pretrain, fine-tune, and write the tables after every pretraining."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/stories/pretraining"))
    parser.add_argument("--objectives", default="mlm,electra")
    parser.add_argument("--once", default="", help="objectives that get the first seed alone, such as ablations")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5000, help="of MLM; the others get what costs as much")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--words", type=int, default=2048, help="pieces of the vocabulary")
    args = parser.parse_args()
    names, once = ["random", *args.objectives.split(",")], [name for name in args.once.split(",") if name]
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name in [*names, *(once if seed == args.first_seed else [])]:
            found.setdefault(name, []).append(collect(name, seed, args.out, args))
            text = tables(found)
            (args.out / "table.md").write_text(text + "\n")
            print(text, flush=True)


if __name__ == "__main__":
    main()
