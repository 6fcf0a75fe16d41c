"""A linear probe: what a frozen encoder already knows of a task, seen while it is pretrained.

Features are the mean of the last layer over a sequence, standardised (of two texts apart: u, v and |u - v|); on them
a softmax (or several logistic, or a least-squares) regression with a little weight decay is fitted to the end. No
dropout, no draws: equal encoders give equal scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from encodery.data.batches import MicroBatcher, in_order
from encodery.data.token_table import TokenTable, token_table
from encodery.data.tokenizer import TokenizerPieces
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.tasks.base import Example, Task
from encodery.training.task_data import first_dev

DECAY = 1e-3  # on standardised features
ITERATIONS = 200


@dataclass(frozen=True)
class Probe:
    """A task ready to be probed: the tokens of both splits, in one table each, or in one for each text of a pair."""

    task: Task
    form: str
    tables: Mapping[str, Sequence[TokenTable]]
    dev: str

    def scores(self, encoder: Encoder, batcher: MicroBatcher) -> dict[str, float]:
        """Fit on train, answer dev."""
        x, answers = self.fit(encoder, batcher)
        outputs = (x @ answers).tolist()
        table = self.tables[self.dev][0]
        ids = table.example_ids
        rows = [{"id": ids[int(e)], "logits": o} for e, o in zip(table.example, outputs, strict=True)]
        return self.task.score(self.task.decode(rows), self.task.examples(self.dev))

    def fit(self, encoder: Encoder, batcher: MicroBatcher) -> tuple[Tensor, Tensor]:
        """Features of dev (with a column of ones), and the weights that train gives."""
        x, dev = (
            compared([features(encoder, table, batcher) for table in self.tables[split]])
            for split in ("train", self.dev)
        )
        mean, scale = x.mean(0), x.std(0).clamp(min=1e-6)
        found = [with_one((f - mean) / scale) for f in (x, dev)]
        labels = torch.from_numpy(np.array(self.tables["train"][0].targets["label"]))
        return found[1], regression(found[0], labels, self.form, max(len(self.task.labels), 1))


def prepare(task: Task, pieces: TokenizerPieces, length: int, train_rows: int, apart: bool = False) -> Probe:
    """Tokenise what a probe needs; of a long training set the first rows."""
    form = task.objective().get("form")
    dev = first_dev(task)
    if not task.labelled or form is None or dev is None:
        raise UserError(f"probe.tasks: {task.name} has no labels or no dev split, so nothing can be probed")
    rows = {"train": task.examples("train")[:train_rows], dev: task.examples(dev)}
    tables = {
        split: [token_table(task, split, pieces, length, side) for side in sides(examples, apart)]
        for split, examples in rows.items()
    }
    return Probe(task, form, tables, dev)


def sides(examples: Sequence[Example], apart: bool) -> list[Sequence[Example]]:
    """The examples as they are; or each text of a pair as an example of its own."""
    if not apart or len(examples[0].texts) == 1:
        return [examples]
    return [[replace(example, texts=(example.texts[i],)) for example in examples] for i in range(2)]


def compared(each: Sequence[Tensor]) -> Tensor:
    """Of one text its vector, of two u, v and |u - v| (Reimers and Gurevych 2019): [n, h] or [n, 3 h]."""
    if len(each) == 1:
        return each[0]
    u, v = each
    return torch.cat([u, v, (u - v).abs()], 1)


@torch.no_grad()
def features(encoder: Encoder, table: TokenTable, batcher: MicroBatcher) -> Tensor:
    """Mean of the last layer over each sequence, in the order of the table: [n, h] in float64 on the CPU."""
    was_training = encoder.training
    encoder.eval()
    means = torch.zeros(len(table), encoder.width, dtype=torch.float64)
    try:
        for batch in in_order(table, batcher, "probe"):
            means[batch.ids] = batch.per_sequence(encoder(batch).float(), "mean").double().cpu()
    finally:
        encoder.train(was_training)
    return means


def with_one(x: Tensor) -> Tensor:
    """A last column of ones, for the bias."""
    return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)


def regression(x: Tensor, labels: Tensor, form: str, outputs: int) -> Tensor:
    """Weights [h + 1, outputs] of least loss plus DECAY / 2 · |w|² (the bias is free)."""
    penalty = torch.full((x.shape[1], 1), DECAY, dtype=x.dtype)
    penalty[-1] = 0
    if form == "regression":
        matrix = x.t() @ x / len(x) + torch.diag(penalty[:, 0] + 1e-9)
        found: Tensor = torch.linalg.solve(matrix, x.t() @ labels.to(x)[:, None] / len(x))
        return found
    weights = torch.zeros(x.shape[1], outputs, dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = x @ weights
        if form == "single":
            each = F.cross_entropy(logits, labels)
        else:
            each = F.binary_cross_entropy_with_logits(logits, labels.to(x), reduction="none").mean(1).mean()
        value = each + (penalty * weights.square()).sum() / 2
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()


def plain(found: Mapping[str, Mapping[str, float]], mains: Mapping[str, str]) -> dict[str, Any]:
    """Scores of several tasks as fields of a record: `probe.toy/nli.accuracy`."""
    return {f"probe.{task}.{mains[task]}": scores[mains[task]] for task, scores in found.items()}


def run(probes: Sequence[Probe], encoder: Encoder, batcher: MicroBatcher) -> dict[str, Any]:
    """All probes at this moment."""
    return plain(
        {p.task.name: p.scores(encoder, batcher) for p in probes}, {p.task.name: p.task.main_metric for p in probes}
    )
