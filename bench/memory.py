"""B14: peak memory of training against the size of the data set and the token budget; each run in its own process.

The sets are files with the first rows of the real one. What may grow with them are the rows as text and a few bytes
per row; the memory-mapped token table counts as resident only while its pages are used, so anonymous memory is reported
beside the resident peak. Pretraining reads a corpus of random words, once, 4 and 16 times as long, prepared before the
measurement begins.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common

SIZES = (1000, 10_000, 67_349)
BUDGETS = (2048, 8192)
DOCUMENTS = (500, 2000, 8000)  # of ten lines
TEXT = "corpus"  # begins the name of a file of documents


def child(file: str, budget: int, args: argparse.Namespace) -> None:
    """Train a few steps and print the peak, in megabytes: after building, and at the end."""
    import torch

    from encodery.config import load
    from encodery.training import build, optim
    from encodery.training.loop import TrainState, train

    torch.set_num_threads(args.threads)
    resolved = load.load(tree_of(file, budget, args))
    built = build.build(resolved, build.find_inputs(resolved))
    ready, state = peak(), TrainState(args.steps, budget=budget)
    method = resolved.method.start(built.model)  # type: ignore[attr-defined]
    optimizer = build.make_optimizer(built.model, resolved.config)
    schedule = optim.schedule(resolved.config.optim, 1000)
    for _ in train(built.model, method, built.batches, optimizer, schedule, state):
        pass
    print(json.dumps({"built MB": ready, "peak MB": peak(), "anonymous MB": anonymous()}))


def tree_of(file: str, budget: int, args: argparse.Namespace) -> dict[str, Any]:
    """The config of a run on a file of rows, or of a pretraining on a file of documents."""
    tree = common.run_config(common.find_model(args.model), args.tasks[0], token_budget=budget, batch_size=args.batch)
    if not Path(file).name.startswith(TEXT):
        return {**tree, "tasks": [{"kind": "table", "train": file, "dev": file}]}
    vocab = str(Path(file).with_name("vocab.txt"))
    model = {"new": {"kind": "electra", "size": "mini"}, "tokenizer": vocab}
    return {**tree, "model": model, "tasks": [{"name": "corpus", "files": file, "objective": {"kind": "electra"}}]}


def peak() -> int:
    """Largest resident set of this process so far, in megabytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit >> 20


def anonymous() -> int | None:
    """Memory that is not a mapped file, now, in megabytes; None where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("RssAnon")), None)


def write_rows(args: argparse.Namespace, folder: Path) -> dict[int, Path]:
    """Files with the first rows of the task, by their number."""
    from encodery.config import load

    task = load.load(common.run_config(common.find_model(args.model), args.tasks[0])).tasks[0][0]
    examples = task.examples("train")
    sizes = sorted({min(size, len(examples)) for size in SIZES})
    for size in sizes:
        lines = (json.dumps({"text": " ".join(e.texts), "label": e.label}) for e in examples[:size])
        (folder / f"{size}.jsonl").write_text("\n".join(lines) + "\n")
    return {size: folder / f"{size}.jsonl" for size in sizes}


def write_documents(args: argparse.Namespace, folder: Path) -> list[Path]:
    """Files of documents, and their blocks in the cache: what is measured is training."""
    from encodery.config import load
    from encodery.training.prepare import prepare_run

    common.synthetic(folder, DOCUMENTS[-1] * 10, 20, 0.5)
    lines = (folder / "train.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    documents = ["\n".join(texts[i : i + 10]) for i in range(0, len(texts), 10)]
    paths = []
    for size in DOCUMENTS:
        path = folder / f"{TEXT}-{size}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents[:size]))
        list(prepare_run(load.load(tree_of(str(path), BUDGETS[0], args)), None, 1, lambda *_: None))
        paths.append(path)
    return paths


def measure(args: argparse.Namespace, file: Path, budget: int) -> dict[str, Any]:
    """One run in a fresh process."""
    words = ["--child", str(file), str(budget), "--steps", str(args.steps), "--batch", str(args.batch)]
    words += ["--model", str(args.model)] if args.model else []
    words += ["--tasks", args.tasks[0], "--threads", str(args.threads)]
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    what = "pretraining" if file.name.startswith(TEXT) else args.tasks[0]
    return {"set": what, "rows": int(file.stem.rpartition("-")[2]), "token budget": budget, **figures}


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.options(__doc__ or "", tasks=("glue/sst2",), steps=6)
    parser.add_argument("--batch", type=int, default=512, help="examples in a step: more than a budget holds")
    parser.add_argument("--child", nargs=2, metavar=("FILE", "BUDGET"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        child(args.child[0], int(args.child[1]), args)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ENCODERY_CACHE"] = str(Path(folder, "cache"))
        files = write_rows(args, Path(folder))
        smallest = files[min(files)]
        pairs = [(file, BUDGETS[0]) for file in files.values()] + [(smallest, budget) for budget in BUDGETS[1:]]
        texts = write_documents(args, Path(folder))
        pairs += [(file, BUDGETS[0]) for file in texts] + [(texts[0], budget) for budget in BUDGETS[1:]]
        rows = [measure(args, *pair) for pair in pairs]
    title = "B14: peak memory of training; goal: the rows do not matter, the token budget does"
    common.show(title if common.find_model(args.model) else f"{title} (SYNTHETIC data and encoder)", rows)
    common.write("memory", args, {"results": rows})


if __name__ == "__main__":
    main()
