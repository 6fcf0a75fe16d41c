"""What a visitor with GPUs can run and send back, in one command: `make bench-gpu`.

Sections: equality (draws, attention and losses on the device, against numpy, groups and a CPU), steps (bf16, against
transformers' Trainer with its best settings), pretraining (MLM and ELECTRA: tokens per second and MFU), the FreeLB
factor, host time, 1 to n devices, and the tests of several processes. Each is a process of its own, and survives the
failure of another. A table is printed and everything is written to one JSON file. Its figures are worth something on an
idle machine only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import Spread

HERE = Path(__file__).parent
sys.path.insert(1, str(HERE.parent))  # small encoders of the tests
TESTS_OF_PROCESSES = (
    "tests/distributed/test_comm.py", "tests/distributed/test_overlap.py", "tests/models/test_sharding.py",
)  # fmt: skip
LENGTHS = (66, 0.45)  # mean and spread of RTE's, the longest of the sets that docs/results.md has
STILL = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0}
SKIP = 5
SIZES = {
    "base": {},
    "tiny": {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64},
}


def tree_of(folder: Path, kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """A run of ours: fine-tuning with labels, or pretraining on full blocks."""
    family, size = ("electra", "small") if kind == "electra" else ("bert", "base")
    new: dict[str, Any] = {"kind": family, "size": size, "config": SIZES[args.size]}
    labels = {"kind": "table", "name": "steps", **dict.fromkeys(("train", "dev"), str(folder / "train.jsonl"))}
    corpus = {"name": "corpus", "files": str(folder / "text.txt"), "objective": {"kind": kind}}
    length, rows = (512, 32) if kind in ("mlm", "electra") else (128, 32)
    return {
        "model": {"new": new, "tokenizer": str(folder / "vocab.txt")},
        "tasks": [corpus if kind in ("mlm", "electra") else labels],
        "method": {"kind": "freelb", "steps": 3, "log_attack": 0} if kind == "freelb" else {"kind": "plain"},
        "train": {
            "batch_size": rows, "max_length": min(length, args.length), "max_steps": 1 << 20, "evaluate": "never",
            "keep_at": [], "precision": "bf16", "compile": args.compile,
        },
        "device": "cuda",
    }  # fmt: skip


def write_data(folder: Path, rows: int) -> None:
    common.synthetic(folder, rows, *LENGTHS)
    rng = np.random.default_rng(2)
    texts = (" ".join(f"w{w}" for w in rng.integers(0, 30000, 510)) for _ in range(rows))
    (folder / "text.txt").write_text("\n\n".join(texts) + "\n")


def speed(folder: Path, kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """Seconds a step, tokens per second, MFU, peak memory and the back ends of attention of our loop."""
    import torch

    from encodery.config import load
    from encodery.training import build
    from encodery.training.loop import train
    from encodery.training.utilisation import peak_of

    resolved = load.load(tree_of(folder, kind, args))
    made = build.build(resolved, build.find_inputs(resolved))
    steps = train(
        made.model, made.method, made.batches, made.optimizer, made.schedule, made.state, resolved.config.optim.clip
    )
    for _ in range(SKIP):
        report = next(steps)
    report.wait()
    torch.cuda.synchronize()
    flops, begin, tokens = made.state.flops, time.perf_counter(), 0
    for _ in range(args.steps):
        report = next(steps)
        tokens += report.tokens
    report.wait()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    peak = args.peak_tflops * 1e12 if args.peak_tflops else peak_of(torch.device("cuda"), "bf16", False)
    spent = made.state.flops - flops
    return {
        "ms a step": 1000 * seconds / args.steps, "tokens/s": tokens / seconds,
        "MFU": spent / seconds / peak if peak and spent else None, "GB": torch.cuda.max_memory_allocated() / 1e9,
        "attention": made.attention, "loss": report.loss,
    }  # fmt: skip


def of_trainer(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Trainer on the same texts: bf16, fused AdamW, sequences grouped by length, pinned memory, workers."""
    import transformers
    from peer import Stamps

    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    config = transformers.BertConfig(vocab_size=len(tokenizer), **SIZES[args.size])
    model = transformers.BertForSequenceClassification(config)  # its attention is torch's own (sdpa) by default
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    rows = [{**tokenizer(one["text"], truncation=True, max_length=128), "labels": int(one["label"])} for one in lines]
    stamps = Stamps(time.perf_counter)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), per_device_train_batch_size=32, max_steps=SKIP + args.steps, save_strategy="no",
        logging_strategy="no", eval_strategy="no", report_to=[], disable_tqdm=True, bf16=True,
        optim="adamw_torch_fused",
        train_sampling_strategy="group_by_length", dataloader_num_workers=args.workers, torch_compile=args.compile,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, transformers.DataCollatorWithPadding(tokenizer), rows, callbacks=[stamps]
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return {"ms a step": 1000 * (stamps.times[-1] - stamps.times[SKIP - 1]) / args.steps}


def section_steps(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    mine, theirs = speed(folder, "plain", args), of_trainer(folder, args)
    return {"ours": mine, "Trainer": theirs, "times faster": theirs["ms a step"] / mine["ms a step"]}


def section_pretraining(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    return {kind: speed(folder, kind, args) for kind in ("mlm", "electra")}


def section_freelb(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    rounds = [[speed(folder, kind, args)["ms a step"] for kind in ("plain", "freelb")] for _ in range(args.rounds)]
    return {"factor": str(Spread.of([freelb / plain for plain, freelb in rounds])), "goal": "<= 2.9"}


def section_equality(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Draws against numpy's, the kernels of attention against groups on the same device, and losses against a CPU's."""
    return {"draws": equal_draws(), "attention": equal_attention(), "losses": equal_losses(folder, args)}


def equal_draws() -> dict[str, Any]:
    import torch

    from encodery.data import rng, tensor_rng

    ids, keys = np.arange(10_000), [rng.key(1, name) for name in ("radius", "angle")]
    here = [rng.uniform(key, ids, 8) for key in keys]
    there = [tensor_rng.uniform(key, torch.from_numpy(ids).cuda(), 8) for key in keys]
    uniform = all(np.array_equal(a, b.cpu().numpy()) for a, b in zip(here, there, strict=True))
    gap = float(np.abs(rng.normal(here[0], here[1]) - tensor_rng.normal(there[0], there[1]).cpu().numpy()).max())
    if not uniform or gap > 1e-6:
        raise RuntimeError(f"draws differ: uniform equal {uniform}, normal by {gap:.1e}")
    return {"uniform": "equal to the bit", "normal": gap}


def equal_attention() -> dict[str, Any]:
    """Largest difference of hidden states and of gradients, beside the largest number, between kernels and groups."""
    import torch

    from encodery.models import packed
    from encodery.models.packed import Choice

    choose, gaps = packed.choose, dict[str, Any]()
    for family in ("bert", "modernbert"):
        for dtype, bound in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
            packed.choose = lambda _: Choice("groups")
            wanted = passed(family, dtype)
            packed.choose = choose
            pairs = zip(passed(family, dtype), wanted, strict=True)
            gap = max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs)
            gaps[f"{family} {str(dtype).removeprefix('torch.')}"] = gap
            if not gap < bound:
                raise RuntimeError(f"attention of {family} in {dtype} differs from groups by {gap:.1e}")
    return gaps


def passed(family: str, dtype: Any) -> list[Any]:
    """Hidden states and gradients of a small encoder on sequences of many lengths."""
    import torch

    from tests.toolbox.models import batcher_for, random_table, small_encoder

    encoder = small_encoder(family, "packed").to("cuda")
    lengths = [60, 58, 50, 40, 23, 17, 9, 9, 5, 2, 1]
    batcher = replace(batcher_for(encoder), device=torch.device("cuda"))
    batch = batcher.batch(random_table(lengths), np.arange(len(lengths)), "t", 0)
    with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
        hidden = batch.tokens(encoder(batch)).float()
    hidden.square().mean().backward()
    return [hidden.detach(), *(p.grad for p in encoder.parameters() if p.grad is not None)]


def equal_losses(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Three steps in fp32 without dropout, here and on the CPU."""
    from encodery.config import load
    from encodery.training import build
    from encodery.training.loop import train

    losses = {}
    for device in ("cpu", "cuda"):
        tree = tree_of(folder, "plain", argparse.Namespace(size="tiny", length=64, compile=False))
        tree["model"] |= STILL
        tree["train"]["precision"], tree["device"] = "fp32", device
        resolved = load.load(tree)
        made = build.build(resolved, build.find_inputs(resolved))
        steps = train(made.model, made.method, made.batches, made.optimizer, made.schedule, made.state)
        losses[device] = [next(steps).loss for _ in range(3)]
    gap = max(abs(a - b) for a, b in zip(losses["cpu"], losses["cuda"], strict=True))
    if not gap < 1e-3:
        raise RuntimeError(f"losses differ: {losses}")
    return {"largest difference": gap}


def section_processes(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """1 to n devices on one global batch: how long a step takes, and that the losses are those of one."""
    import torch

    counts = [n for n in (1, 2, 4, 8, 16) if n <= torch.cuda.device_count()]
    found = {count: of_processes(folder, args, count) for count in counts}
    gaps = {n: max(abs(a - b) for a, b in zip(found[1][1], losses, strict=True)) for n, (_, losses) in found.items()}
    if not max(gaps.values()) < 0.1:
        raise RuntimeError(f"losses of several devices differ from those of one by {gaps}")
    seconds = {n: each for n, (each, _) in found.items()}
    return {
        f"{n} device(s)": {"ms a step": 1000 * each, "times faster": seconds[1] / each, "losses differ by": gaps[n]}
        for n, each in seconds.items()
    }


def of_processes(folder: Path, args: argparse.Namespace, count: int) -> tuple[float, list[float]]:
    """Seconds of a step after the first few, and the losses, of a run without dropout by so many devices."""
    tree = tree_of(folder, "mlm", args)
    tree["model"] |= STILL
    tree["train"] |= {"max_steps": SKIP + args.steps, "log": SKIP}
    config = folder / f"processes-{count}.json"
    config.write_text(json.dumps(tree))
    words = [sys.executable, "-m", "encodery", "train", str(config), "-o", str(folder / f"run-{count}"), "--quiet"]
    words += ["--processes", str(count)] if count > 1 else []
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False, cwd=HERE.parent)
    if done.returncode:
        raise RuntimeError(f"{count} process(es) ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    lines = [json.loads(line) for line in (folder / f"run-{count}" / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "loss" in line]
    first, last = logged[0], logged[-1]
    return (last["elapsed"] - first["elapsed"]) / (last["step"] - first["step"]), [line["loss"] for line in logged]


def section_host(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    out = folder / "host-figures.json"
    words = [sys.executable, str(HERE / "host.py"), "--device", "cuda", "--rounds", str(args.rounds), "--out", str(out)]
    less = ["--layers", "1", "--shapes", "2x8"] if args.size == "tiny" else []
    subprocess.run([*words, "--steps", str(args.steps), *less], check=True, cwd=HERE, stdout=sys.stderr)
    found = json.loads(out.read_text())
    found.pop("about")
    return {kind: {name: str(Spread(**each)) for name, each in figures.items()} for kind, figures in found.items()}


def section_tests(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The suite's own tests of several processes, on this machine's CPUs."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args.tests], cwd=HERE.parent, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
    if done.returncode:
        raise RuntimeError(f"tests failed: {last}\n{done.stdout[-3000:]}")
    return {"passed": last}


SECTIONS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "equality": section_equality, "steps": section_steps, "pretraining": section_pretraining,
    "freelb": section_freelb, "host": section_host, "processes": section_processes,
    "tests": section_tests,
}  # fmt: skip


def about_machine() -> dict[str, Any]:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"devices": names, "torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=list(SIZES), default="base", help="tiny: to rehearse")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--workers", type=int, default=4, help="of Trainer's loader")
    parser.add_argument("--compile", action="store_true", help="torch.compile on both sides")
    parser.add_argument("--peak-tflops", type=float, help="of a device that is in no table")
    parser.add_argument(
        "--tests", nargs="+", default=TESTS_OF_PROCESSES, help="what the section tests runs; less: to rehearse"
    )
    parser.add_argument("--minutes", type=float, default=60, help="most minutes of a section")
    parser.add_argument("--out", type=Path, default=common.RESULTS / "gpu.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser


def one_device() -> dict[str, str]:
    """The first device alone: with several Trainer would copy its model to all of them at every step."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return {**os.environ, "CUDA_VISIBLE_DEVICES": first}


def run_section(name: str, folder: Path, words: Sequence[str], minutes: float) -> dict[str, Any]:
    """A section in a process of its own: what it found, or why it failed."""
    answer = folder / f"{name}.json"
    command = [sys.executable, str(Path(__file__)), *words, "--one", name, "--folder", str(folder)]
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=HERE, text=True, stderr=subprocess.PIPE, check=False, timeout=60 * minutes,
            env=dict(os.environ) if name == "processes" else one_device(),
        )  # fmt: skip
        failed = done.stderr.strip()[-2000:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        failed = f"not done after {minutes:g} minutes"
    spent = {"seconds": round(time.perf_counter() - begin, 1)}
    return {"FAILED": failed or "it ended without an answer", **spent} if failed or not answer.is_file() else {
        **json.loads(answer.read_text()), **spent,
    }  # fmt: skip


def lines_of(name: str, found: dict[str, Any], above: str = "") -> list[dict[str, str]]:
    """A section as rows of the table."""
    rows: list[dict[str, str]] = []
    for key, value in found.items():
        if isinstance(value, dict):
            rows += lines_of(name, value, f"{above}{key} ")
        else:
            shown = f"{value:,.4g}" if isinstance(value, float) else str(value)
            rows.append({"section": name, "figure": f"{above}{key}", "value": shown.splitlines()[-1] if shown else ""})
    return rows


def main() -> int:
    args = arguments().parse_args()
    if args.one:
        answer = SECTIONS[args.one](args.folder, args)
        (args.folder / f"{args.one}.json").write_text(json.dumps(answer))
        return 0
    import torch

    if not torch.cuda.is_available():
        print("There is no GPU here: nothing was measured.", file=sys.stderr)
        return 2
    results: dict[str, Any] = {"machine": about_machine(), "options": {k: str(v) for k, v in vars(args).items()}}
    with tempfile.TemporaryDirectory() as name:
        write_data(Path(name), max(64, 32 * 4))
        for section in args.sections:
            print(f"{section} …", file=sys.stderr, flush=True)
            results[section] = run_section(section, Path(name), sys.argv[1:], args.minutes)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(results, indent=1) + "\n")  # after each: what is done is not lost
    rows = [row for section in args.sections for row in lines_of(section, results[section])]
    common.show(", ".join(results["machine"]["devices"]), rows)
    failed = [section for section in args.sections if "FAILED" in results[section]]
    print(f"\nsend back {args.out}" + (f"; FAILED: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
