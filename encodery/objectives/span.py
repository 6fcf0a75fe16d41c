"""Where in a text the answer to a question begins and ends, and whether it is there at all.

simple  two independent logits per token (transformers' own …ForQuestionAnswering):
        ½ · (CE start + CE end);  null = s_0 + e_0
joint   ELECTRA's: the end is conditioned on the start, e_t = w · gelu(W [H_start; H_t] + b), and answerability is a
        question of its own, a = w' · gelu(W' [H_0; Σ softmax(s)_t H_t]):
        ½ · (CE start + CE end) + answerability · BCE(a, impossible);  null = a
An answer that is not in the window, or not in the text, has start = end = 0, the first token.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from transformers import AutoModelForQuestionAnswering

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs
from encodery.objectives._heads import HeadKind, TokenHead, drop_pooler
from encodery.objectives.base import Objective, Question
from encodery.objectives.classification import HIDDEN, wide

FORBIDDEN = -1e4  # added to the logits of tokens that cannot be an answer: their probability is 0 in float32


class Span(Objective):
    """Start and end of the answer in the text."""

    span_head: Literal["simple", "joint"] = "simple"
    """simple: transformers' own class; joint: ELECTRA's, the end conditioned on the start, with answerability."""
    mask_question: bool = True
    """Only tokens of the text (and the first token: no answer) may be chosen; false: any token, as in transformers."""
    impossible: bool = True
    """joint: also learn whether there is an answer."""
    answerability: float = Field(default=0.5, ge=0)
    """joint: weight of that."""
    inner: int = Field(default=512, ge=1)
    """joint: width of its two inner layers."""
    beam: int = Field(default=20, ge=1)
    """So many starts, and so many ends for each, are looked at when decoding."""
    head: HeadKind = "stock"
    """From model.head, whose other heads read whole texts: span_head chooses here."""
    head_dropout: float | None = None
    """Dropout before the simple head, where its architecture has one (from model.head_dropout)."""

    def build(self, encoder: Encoder, tokenizer: Any) -> "Spans":
        """A head with fresh weights."""
        if self.head != "stock":
            raise UserError(
                f"model.head: {self.head} reads whole texts; for spans the task has a head: simple or joint"
            )
        return Joint(self, encoder) if self.span_head == "joint" else Simple(self, encoder)


class Spans(Question):
    """What both heads share: masks, the loss, candidates."""

    options: Span

    def masked(self, rows: Tensor, batch: Batch) -> Tensor:
        """Logits [n, L]; tokens that cannot be chosen, and padding, get one that no softmax sees."""
        allowed, real = batch.rows(batch.targets["allowed"])
        return torch.where(real & (allowed == 1) if self.options.mask_question else real, wide(rows), FORBIDDEN)

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """One term: the sum over the sequences whose answer is known."""
        start, end = (
            F.cross_entropy(outputs[name], batch.targets[name], ignore_index=HIDDEN, reduction="none")
            for name in ("start", "end")
        )
        return {"loss": self.weighed((start + end) / 2, batch)}

    def weighed(self, each: Tensor, batch: Batch) -> Tensor:
        """The sum, with the weights of the examples."""
        return each.sum() if batch.weights is None else (each * batch.weights).sum()

    def counts(self, batch: Batch) -> dict[str, float]:
        """Sequences whose answer is known."""
        return {"loss": float((batch.targets["start"] != HIDDEN).sum())}

    def distance(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Symmetric Kullback-Leibler divergence of starts and of ends, the mean of both."""
        return self.divergence(a, b, batch) + self.divergence(b, a, batch)

    def divergence(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Kullback-Leibler divergence KL(a ‖ b) of starts and of ends, the mean of both."""
        start, end = (one_sided(a[name], b[name]) for name in ("start", "end"))
        return (start + end) / 2


def one_sided(x: Tensor, y: Tensor) -> Tensor:
    """Kullback-Leibler divergence of rows of logits."""
    return (x.softmax(1) * (x.log_softmax(1) - y.log_softmax(1))).sum(1)


class Simple(Spans):
    """The stock head."""

    def __init__(self, options: Span, encoder: Encoder):
        super().__init__()
        self.options = options
        self.head = TokenHead(encoder, 2, options.head_dropout, AutoModelForQuestionAnswering)

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """Logits of starts and ends, [n, L]."""
        logits, _ = batch.rows(self.head(encoder(batch)))
        return {name: self.masked(logits[..., i], batch) for i, name in enumerate(("start", "end"))}

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The best starts, for each of them the best ends (here the same for all), and the score of no answer."""
        starts, ends = (outputs[name].topk(min(self.options.beam, outputs[name].shape[1])) for name in ("start", "end"))
        shape = (*starts.indices.shape, ends.indices.shape[1])
        return {
            "starts": starts.indices,
            "start_scores": starts.values,
            "ends": ends.indices[:, None].expand(shape),
            "end_scores": ends.values[:, None].expand(shape),
            "null": outputs["start"][:, 0] + outputs["end"][:, 0],
        }


class Joint(Spans):
    """ELECTRA's head. All new layers are Glorot uniform with bias 0, without dropout."""

    def __init__(self, options: Span, encoder: Encoder):
        super().__init__()
        drop_pooler(encoder, keep=False)
        self.options = options
        width, inner = encoder.width, options.inner
        self.start = nn.Linear(width, 1)
        self.end_from_start, self.end_from_token = nn.Linear(width, inner, bias=False), nn.Linear(width, inner)
        self.end = nn.Linear(inner, 1)
        self.gist, self.impossible = nn.Linear(2 * width, inner), nn.Linear(inner, 1)
        bound = (6 / (2 * width + inner)) ** 0.5  # Glorot's for the whole matrix [H_start; H_t]
        for layer in (self.end_from_start, self.end_from_token):
            nn.init.uniform_(layer.weight, -bound, bound)
        for layer in (self.start, self.end, self.gist, self.impossible):
            nn.init.xavier_uniform_(layer.weight)
        for layer in (self.start, self.end_from_token, self.end, self.gist, self.impossible):
            nn.init.zeros_(layer.bias)

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """Start logits, end logits after the right start (while it is known), the logit of no answer."""
        rows, _ = batch.rows(encoder(batch))
        start = self.masked(self.start(rows)[..., 0], batch)
        gist = torch.einsum("nl,nlh->nh", start.softmax(1).to(rows.dtype), rows)
        null = self.impossible(F.gelu(self.gist(torch.cat([rows[:, 0], gist], 1))))[:, 0]
        outputs = {"start": start, "null": wide(null), "hidden": rows}
        if "start" in batch.targets:
            known = batch.targets["start"].clamp(min=0)
            outputs["end"] = self.ends(rows, known[:, None], batch)[:, 0]
        return outputs

    def ends(self, rows: Tensor, starts: Tensor, batch: Batch) -> Tensor:
        """End logits [n, starts, L] after each of the starts [n, starts]."""
        chosen = rows.gather(1, starts[..., None].expand(-1, -1, rows.shape[2]))
        first, token = self.end_from_start(chosen), self.end_from_token(rows)
        each = [self.end(F.gelu(first[:, k, None] + token))[..., 0] for k in range(starts.shape[1])]
        return torch.stack([self.masked(one, batch) for one in each], 1)

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Start and end, and answerability; a window without the answer of an answerable question is not impossible."""
        terms = super().losses(outputs, batch)
        if self.options.impossible and self.options.answerability:
            known = batch.targets["start"] != HIDDEN
            target = torch.nan_to_num(batch.targets["impossible"]).to(outputs["null"].dtype)
            each = F.binary_cross_entropy_with_logits(outputs["null"], target, reduction="none") * known
            terms["loss"] = terms["loss"] + self.options.answerability * self.weighed(each, batch)
        return terms

    def divergence(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """That of starts and ends, and that of the coin `there is no answer` with its weight."""
        x, y = a["null"], b["null"]
        coin = x.sigmoid() * (F.logsigmoid(x) - F.logsigmoid(y))
        coin = coin + (-x).sigmoid() * (F.logsigmoid(-x) - F.logsigmoid(-y))
        weight = self.options.answerability if self.options.impossible else 0.0
        return super().divergence(a, b, batch) + weight * coin

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The best starts, for each of them its best ends, as log-probabilities; the logit of no answer."""
        beam = min(self.options.beam, outputs["start"].shape[1])
        starts = outputs["start"].log_softmax(1).topk(beam)
        ends = self.ends(outputs["hidden"], starts.indices, batch).log_softmax(2).topk(beam)
        return {
            "starts": starts.indices,
            "start_scores": starts.values,
            "ends": ends.indices,
            "end_scores": ends.values,
            "null": outputs["null"],
        }
