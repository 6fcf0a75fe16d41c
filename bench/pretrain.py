"""B5: an ELECTRA-small pretraining step, against logits on all positions as electra_pytorch makes them.

The peer is transformers' own pair with shared embeddings: the generator's head on every position, the asked rows
taken from its logits afterwards, Gumbel noise for the samples, padded rows. Ours has the settings of a run that asks
for nothing. Peak memory is measured in a process per side. Before any timing both sides must give equal losses on equal
masks and samples.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from torch import nn
from transformers import ElectraForMaskedLM, ElectraForPreTraining

from encodery.config.schema import TOKEN_BUDGET_OF_TEXT, ModelOptions, NewModel, OptimOptions
from encodery.core import environment
from encodery.data.batches import Batch, Batches, MicroBatcher
from encodery.data.token_table import TokenTable, memory_table
from encodery.methods.base import Totals
from encodery.methods.plain import Plain
from encodery.models.encoder import new_encoder
from encodery.models.model import Model, prepare
from encodery.objectives.electra import Electra, written
from encodery.objectives.parts.masking import mask
from encodery.tasks.base import Features
from encodery.training.loop import count
from encodery.training.optim import Optimizer, Param

WORDS, CLS, SEP, MASK = 30522, 101, 102, 103
SIDES = ("ours", "peer")


class Tokenizer:
    """What a pretraining asks of BERT's tokenizer."""

    pad_token_id, cls_token_id, sep_token_id, mask_token_id = 0, CLS, SEP, MASK
    bos_token_id = eos_token_id = None
    all_special_ids = (0, 100, CLS, SEP, MASK)

    def __len__(self) -> int:
        return WORDS

    def get_vocab(self) -> dict[str, int]:
        return {f"w{i}": i for i in range(WORDS)}


def text(rows: int, length: int) -> TokenTable:
    """Full blocks of random words."""
    rng = np.random.default_rng(0)
    ids = [[CLS, *rng.integers(1000, WORDS, length - 2).tolist(), SEP] for _ in range(rows)]
    return memory_table(
        (Features(i, row, [0] * length, {}) for i, row in enumerate(ids)), [str(i) for i in range(rows)]
    )


class Ours:
    """Our step."""

    def __init__(self, args: argparse.Namespace, dropout: float | None = None):
        torch.manual_seed(0)
        options = ModelOptions(new=NewModel(kind="electra", size="small"), dropout=dropout, attention_dropout=dropout)
        self.encoder = new_encoder(options, Tokenizer())
        self.model = Model(self.encoder, {"t": Electra().build(self.encoder, Tokenizer())}).train()
        table = text(args.rows * 2, args.length)
        batcher = MicroBatcher(self.encoder.layout, self.encoder.form, args.budget)
        self.batches = Batches("t", table, np.arange(len(table)), args.rows, 1, 1, batcher)
        body = [Param(f"e.{n}", p, d) for n, p, d in self.encoder.named_depths()]
        heads = [Param(f"q.{n}", p, None) for n, p in self.model.questions.named_parameters()]
        self.optimizer = Optimizer([*body, *heads], OptimOptions(lr=1e-4), 12)

    def step(self, number: int) -> None:
        """One whole step."""
        micro = prepare(self.model, self.batches.at(number))
        Plain()(self.model, micro, Totals(count(self.model, micro)))
        self.optimizer.step(1.0)
        self.optimizer.zero_grad()


class Peer:
    """Transformers' pair, as electra_pytorch uses it."""

    def __init__(self, ours: Ours):
        question = ours.model.objective("t")
        self.ours, self.question = ours, question
        config = ours.encoder.net.config
        small = question.generator.encoder.net.config
        self.generator, self.discriminator = ElectraForMaskedLM(plain(small)), ElectraForPreTraining(plain(config))
        self.discriminator.electra.load_state_dict(ours.encoder.net.state_dict())
        self.discriminator.discriminator_predictions.load_state_dict(question.detect.state_dict())
        self.generator.electra.load_state_dict(question.generator.encoder.net.state_dict())
        own = {k: v for k, v in question.generator.head.state_dict().items() if not k.endswith("lm_head.weight")}
        self.generator.load_state_dict(own, strict=False)
        self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.tie_weights()
        self.both = nn.ModuleList([self.generator, self.discriminator]).train()
        self.optimizer = torch.optim.AdamW(self.both.parameters(), lr=1e-4, fused=True)

    def losses(self, batch: Batch, samples: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Both losses as means; samples are drawn by Gumbel noise unless they are given."""
        masked = mask(batch, self.question.options.masking, self.question.vocabulary)
        attention = batch.inputs["attention_mask"]
        logits = self.generator(masked.ids, attention_mask=attention).logits  # of every position
        asked = logits.flatten(0, 1)[masked.cells]
        if samples is None:
            noise = -torch.log(-torch.log(torch.rand_like(asked) + 1e-9) + 1e-9)
            samples = (asked.detach() + noise).argmax(1)
        fake = written(batch, masked, samples)
        first = nn.functional.cross_entropy(asked, masked.truth)
        replaced = (fake != batch.inputs["input_ids"]).long()
        return first, self.discriminator(fake, attention_mask=attention, labels=replaced).loss

    def batch(self, number: int) -> Batch:
        """The rows of our step, padded (they are all of one length)."""
        form = replace(self.ours.batches.batcher, layout="padded", budget=1 << 30)
        return replace(self.ours.batches, batcher=form).at(number)[0]

    def step(self, number: int) -> None:
        """One whole step."""
        first, second = self.losses(self.batch(number))
        (first + 50 * second).backward()
        nn.utils.clip_grad_norm_(self.both.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def plain(config: Any) -> Any:
    """The config with transformers' own attention."""
    fields = {k: v for k, v in config.to_dict().items() if not k.startswith("_") and k != "model_type"}
    return type(config)(**fields)


def difference(args: argparse.Namespace) -> float:
    """Largest difference of the two losses on the same masks and samples, without dropout."""
    ours = Ours(args, dropout=0.0)
    peer = Peer(ours)
    question, micro = ours.model.objective("t"), ours.batches.at(0)
    totals: dict[str, float] = {}
    samples = {}
    with torch.no_grad():
        for batch in micro:
            outputs, terms = ours.model(batch)
            for (_, name), value in terms.items():
                totals[name] = totals.get(name, 0.0) + float(value)
            for i, row in enumerate(batch.ids.tolist()):
                samples[row] = outputs["sample"][outputs["sequence"] == i]
        whole = peer.batch(0)
        given = torch.cat([samples[row] for row in whole.ids.tolist()])
        first, second = peer.losses(whole, given)
    counts = question.counts(whole)
    ours_both = totals["generator"] / counts["generator"], totals["discriminator"] / counts["discriminator"] / 50
    return max(abs(ours_both[0] - float(first)), abs(ours_both[1] - float(second)))


def peak(args: argparse.Namespace, side: str) -> float:
    """Peak memory of a few steps of one side above what stood before, in megabytes, in a process of its own."""
    words = [sys.executable, __file__, "--child", side, "--rows", str(args.rows), "--length", str(args.length)]
    words += ["--budget", str(args.budget), "--threads", str(args.threads)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def child(args: argparse.Namespace) -> None:
    """Two steps of one side; prints how far its resident size rose above what stood before them."""
    ours = Ours(args)
    if args.child == "ours":
        environment.keep()  # as every run on a CPU does
    side: Any = Peer(ours) if args.child == "peer" else ours
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far (Linux)
    before = resident("VmRSS")
    for number in range(2):
        side.step(number)
    print(json.dumps((resident("VmHWM") - before) / 1024))


def resident(name: str) -> int:
    """Kilobytes of this process: now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


def rounds(args: argparse.Namespace, sides: dict[str, Callable[[int], None]]) -> dict[str, list[float]]:
    """Seconds of a step of each side, turn by turn."""
    now = common.clock(args.clock)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(args.rounds + 1):  # the first round warms up
        for name, step in sides.items():
            begin = now()
            for _ in range(args.steps):
                step(number)
            found[name] += [(now() - begin) / args.steps] if number else []
    return found


def main() -> int:
    parser = common.options(__doc__ or "", rounds=5, steps=1)
    parser.add_argument("--rows", type=int, default=32, help="sequences in a step; the published recipe has 128")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--budget", type=int, default=TOKEN_BUDGET_OF_TEXT, help="our tokens in a micro-batch")
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.child:
        child(args)
        return 0
    far = difference(args)
    assert far < 1e-5, f"the two sides differ by {far:.1e}"
    environment.keep()  # both sides have it, in one process
    ours = Ours(args)
    times = rounds(args, {"ours": ours.step, "peer": Peer(ours).step})
    memory = {side: peak(args, side) for side in SIDES}
    ratios = sorted(p / o for o, p in zip(times["ours"], times["peer"], strict=True))
    result = {
        "rows": args.rows, "length": args.length, "loss difference": far, "seconds": times,
        "speed": float(np.median(ratios)), "spread": [ratios[0], ratios[-1]],
        "memory": memory, "memory ratio": memory["ours"] / memory["peer"],
    }  # fmt: skip
    print(f"ELECTRA-small, {args.rows} × {args.length}, losses equal to {far:.1e}")
    print(f"  speed  {result['speed']:.2f}× ({ratios[0]:.2f} to {ratios[-1]:.2f})   goal ≥ 1.5×")
    print(f"  memory {memory['ours']:.0f} MB against {memory['peer']:.0f} MB   goal ≤ half")
    common.write("pretrain", args, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
