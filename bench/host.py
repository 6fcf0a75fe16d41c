"""Host time: milliseconds of Python and launches for a step, where arithmetic is next to nothing.

The encoder has 12 layers of width 16, the batch is 32 × 128 tokens, all of equal length. On a CPU attention over 128
tokens is still arithmetic, so a batch of 2 × 8 tokens is measured too: as many launches, and next to nothing else.
Sides: ours, transformers' Trainer and a bare loop over the stock model, each in a process of its own, interleaved round
by round; plain training, FreeLB with 3 passes (which Trainer has not) and masked language modelling. Goals: at most
half of Trainer's time, at most 1.3 times the bare loop's. `--ahead` adds ours with the next step prepared in a thread,
which is off on CPUs unless it pays; `--profile` prints where ours spends its time. `--dropout 0` leaves out our dropout
for CPUs, which saves arithmetic by more launches; GPUs have torch's own.
"""

import argparse
import cProfile
import json
import pstats
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
from common import Spread

WORDS, ROWS, SKIP = 1000, 512, 3
FIELDS: dict[str, Any] = {
    "num_hidden_layers": 12, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 128,
}  # fmt: skip


class Shape(NamedTuple):
    """Rows of a batch, tokens of a row."""

    rows: int
    length: int


SHAPES = (Shape(32, 128), Shape(2, 8))


def shape_of(text: str) -> Shape:
    """`32x128`."""
    rows, length = map(int, text.split("x"))
    return Shape(rows, length)


KINDS = {"plain": ("ours", "trainer", "bare"), "freelb": ("ours", "bare"), "mlm": ("ours", "trainer", "bare")}


def write_data(folder: Path, length: int) -> None:
    """Texts of exactly so many words, with labels and as a corpus, and a vocabulary of few words."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{w}" for w in rng.integers(0, WORDS, length - 2)) for _ in range(ROWS)]
    rows = [json.dumps({"text": text, "label": str(i % 2)}) for i, text in enumerate(texts)]
    (folder / "train.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "text.txt").write_text("\n\n".join(texts) + "\n")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, *(f"w{i}" for i in range(WORDS))]) + "\n")


def tree_of(folder: Path, shape: Shape, kind: str, device: str) -> dict[str, Any]:
    """The config of a side of ours."""
    data = str(folder / "train.jsonl")
    table = {"kind": "table", "train": data, "dev": data, "name": "host"}
    corpus = {"name": "corpus", "files": str(folder / "text.txt"), "objective": {"kind": "mlm"}}
    train = {"batch_size": shape.rows, "max_length": shape.length, "evaluate": "never", "max_steps": 1 << 20}
    return {
        "model": {"new": {"kind": "bert", "config": FIELDS}, "tokenizer": str(folder / "vocab.txt")},
        "tasks": [corpus if kind == "mlm" else table],
        "method": {"kind": "freelb", "steps": 3, "log_attack": 0} if kind == "freelb" else {"kind": "plain"},
        "train": {**train, "precision": "fp32" if device == "cpu" else "bf16", "keep_at": []},
        "device": device,
    }


Step = Callable[[], Any]


def ours(folder: Path, shape: Shape, kind: str, device: str, ahead: bool | None) -> Step:
    """Encodery's own loop, exactly as a run calls it."""
    from encodery.config import load
    from encodery.training import build
    from encodery.training.loop import train

    resolved = load.load(tree_of(folder, shape, kind, device))
    made = build.build(resolved, build.find_inputs(resolved))
    steps = train(
        made.model, made.method, made.batches, made.optimizer, made.schedule, made.state, resolved.config.optim.clip,
        ahead=ahead,
    )  # fmt: skip
    return lambda: next(steps)


def stock(folder: Path, kind: str) -> tuple[Any, Any, list[dict[str, Any]]]:
    """The stock model, its tokenizer, and the same rows as Trainer wants them."""
    import transformers

    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    config = transformers.BertConfig(vocab_size=len(tokenizer), **FIELDS)
    known = {"mlm": transformers.BertForMaskedLM}
    model = known.get(kind, transformers.BertForSequenceClassification)(config)
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    rows: list[dict[str, Any]] = []
    for line in lines:
        made = tokenizer(line["text"], truncation=True, max_length=FIELDS["max_position_embeddings"])
        rows.append(dict(made) if kind == "mlm" else {**made, "labels": int(line["label"])})
    return model, tokenizer, rows


def collator(kind: str, tokenizer: Any) -> Any:
    from transformers import DataCollatorForLanguageModeling, DataCollatorWithPadding

    return DataCollatorForLanguageModeling(tokenizer) if kind == "mlm" else DataCollatorWithPadding(tokenizer)


def bare(folder: Path, shape: Shape, kind: str, device: str) -> Step:
    """What a person would write: a loop over the stock model, fused AdamW, clipping."""
    import torch

    model, tokenizer, rows = stock(folder, kind)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    collate, order = collator(kind, tokenizer), np.random.default_rng(0)
    starts = cycle(range(0, ROWS - shape.rows + 1, shape.rows))

    def batch() -> dict[str, Any]:
        begin = next(starts)
        chosen = order.permutation(ROWS)[: shape.rows] if begin == 0 else np.arange(begin, begin + shape.rows)
        return {name: value.to(device) for name, value in collate([rows[i] for i in chosen]).items()}

    def passes(inputs: dict[str, Any]) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
            if kind != "freelb":
                model(**inputs).loss.backward()
                return
            words = model.get_input_embeddings()
            delta = torch.zeros(*inputs["input_ids"].shape, FIELDS["hidden_size"], device=device).uniform_(-0.01, 0.01)
            for _ in range(3):
                delta = delta.detach().requires_grad_()
                handle = words.register_forward_hook(lambda _m, _g, out, delta=delta: out + delta)
                (model(**inputs).loss / 3).backward()
                handle.remove()
                grad = delta.grad
                assert grad is not None
                delta = delta + 0.1 * grad / grad.flatten(1).norm(dim=1).clamp(min=1e-30)[:, None, None]

    def step() -> None:
        passes(batch())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def trainer(folder: Path, shape: Shape, kind: str, device: str) -> Callable[[int], Iterator[float]]:
    """Trainer's own loop: times at the ends of its steps."""
    import transformers
    from peer import Stamps

    model, tokenizer, rows = stock(folder, kind)

    def steps(count: int) -> Iterator[float]:
        stamps = Stamps(common.clock("wall"))
        arguments = transformers.TrainingArguments(
            output_dir=str(folder / "out"), per_device_train_batch_size=shape.rows, max_steps=SKIP + count,
            save_strategy="no", logging_strategy="no", eval_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=device == "cpu", bf16=device != "cpu", max_grad_norm=1.0, optim="adamw_torch_fused",
            dataloader_pin_memory=device != "cpu",
        )  # fmt: skip
        made = transformers.Trainer(model, arguments, collator(kind, tokenizer), rows, callbacks=[stamps])
        made.remove_callback(transformers.PrinterCallback)
        made.train()
        return iter([stamps.times[SKIP - 1], stamps.times[-1]])

    return steps


def seconds(job: dict[str, Any], kind: str, steps: int, state: dict[str, Any]) -> float:
    """A step of one kind, over so many of them."""
    side, folder, shape, device = job["side"], Path(job["folder"]), Shape(*job["shape"]), job["device"]
    if side == "trainer":
        begin, end = state.setdefault("run", trainer(folder, shape, kind, device))(steps)
        return (end - begin) / steps
    if "step" not in state:
        ahead = {"ahead": True, "ours": None}.get(side)
        made = bare(folder, shape, kind, device) if side == "bare" else ours(folder, shape, kind, device, ahead)
        state["step"] = made
    step, now = state["step"], common.clock("wall")
    for _ in range(SKIP):
        step()
    begin = now()
    for _ in range(steps):
        step()
    return (now() - begin) / steps


def work(job: dict[str, Any]) -> None:
    """A process with one side: a kind and a number of steps a line, seconds a step as the answer."""
    import logging
    import os
    import warnings

    import torch

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(job["threads"])
    set_fields(job["dropout"], job["layers"])
    out, states = os.fdopen(os.dup(1), "w"), dict[str, dict[str, Any]]()
    os.dup2(2, 1)
    for line in sys.stdin:
        kind, steps = line.split()
        print(seconds(job, kind, int(steps), states.setdefault(kind, {})), file=out, flush=True)


def set_fields(dropout: float, layers: int) -> None:
    """The encoder of all sides of this process."""
    FIELDS.update(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, num_hidden_layers=layers)


def profile(folder: Path, shape: Shape, kind: str, args: argparse.Namespace) -> None:
    """Where ours spends its time: the 25 functions with most of their own."""
    step = ours(folder, shape, kind, args.device, None)
    for _ in range(SKIP):
        step()
    found = cProfile.Profile()
    found.enable()
    for _ in range(args.steps):
        step()
    found.disable()
    print(f"\n{kind}, {shape.rows} x {shape.length}: {args.steps} steps")
    pstats.Stats(found).sort_stats("tottime").print_stats(25)


Sides = dict[str, "subprocess.Popen[str]"]


def measure(kind: str, started: Sides, args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of every side that has this kind, and the ratios, round by round."""
    sides = {side: process for side, process in started.items() if side in (*KINDS[kind], "ahead")}
    rounds = [{side: ask(process, kind, args.steps) for side, process in sides.items()} for _ in range(args.rounds)]
    figures = {f"{side}, ms": Spread.of([1000 * each[side] for each in rounds]) for side in sides}
    ratios = {
        f"ours / {side}": Spread.of([each["ours"] / each[side] for each in rounds]) for side in sides if side != "ours"
    }
    return {**figures, **ratios}


@contextmanager
def started(shape: Shape, folder: Path, args: argparse.Namespace) -> Iterator[Sides]:
    """A process for each side that some kind has."""
    names = dict.fromkeys([*(side for kind in args.kinds for side in KINDS[kind]), *(["ahead"] if args.ahead else [])])
    sides = {side: start(side, shape, folder, args) for side in ([] if args.profile else names)}
    try:
        yield sides
    finally:
        for process in sides.values():
            assert process.stdin
            process.stdin.close()
            process.wait()


def start(side: str, shape: Shape, folder: Path, args: argparse.Namespace) -> "subprocess.Popen[str]":
    where = {"folder": str(folder), "device": args.device, "threads": args.threads}
    job = {"side": side, "shape": shape, **where, "dropout": args.dropout, "layers": args.layers}
    words = [sys.executable, "-W", "ignore", __file__, "--worker", json.dumps(job)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: "subprocess.Popen[str]", kind: str, steps: int) -> float:
    assert process.stdin
    assert process.stdout
    print(kind, steps, file=process.stdin, flush=True)
    if not (said := process.stdout.readline()):
        raise RuntimeError(f"a side ended with exit code {process.wait()}, see above: {process.args}")
    return float(said)


GOALS = {"ours / trainer": 0.5, "ours / bare": 1.3}


def main() -> None:
    parser = common.options(__doc__ or "", rounds=5, steps=20)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: then host time alone, nothing is waited for")
    parser.add_argument("--ahead", action="store_true", help="also ours with a thread that prepares the next step")
    parser.add_argument("--profile", action="store_true", help="where ours spends its time, instead of measuring")
    parser.add_argument("--dropout", type=float, default=0.1, metavar="RATE", help="of all sides")
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, help="rows and tokens: 32x128")
    parser.add_argument("--layers", type=int, default=FIELDS["num_hidden_layers"], help="fewer: to rehearse")
    parser.add_argument("--out", type=Path, help="where the figures go; default bench/results/host.json")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker))
    data: dict[str, Any] = {}
    set_fields(args.dropout, args.layers)
    for shape in args.shapes:
        with tempfile.TemporaryDirectory() as name:
            write_data(Path(name), shape.length)
            with started(shape, Path(name), args) as sides:
                for kind in args.kinds:
                    if args.profile:
                        profile(Path(name), shape, kind, args)
                        continue
                    figures = measure(kind, sides, args)
                    data[f"{kind}, {shape.rows} x {shape.length}"] = figures
                    show(kind, shape, figures, args)
    if data:
        common.write("host", args, data)


def show(kind: str, shape: Shape, figures: dict[str, Any], args: argparse.Namespace) -> None:
    """A table of one kind; goals were set for the large batch."""
    rows = [
        {"figure": k, "value": v, "goal": f"<= {GOALS[k]}" if k in GOALS else "", "met": met(k, v)}
        for k, v in figures.items()
    ]
    title = f"{kind}: host time of a step of {shape.rows} x {shape.length} tokens, {args.device}"
    common.show(f"{title}, {args.threads} thread(s)", rows)


def met(figure: str, value: Spread) -> str:
    return "" if figure not in GOALS else "yes" if value.median <= GOALS[figure] else "no"


if __name__ == "__main__":
    main()
