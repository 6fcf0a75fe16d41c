"""Where in a text the answer to a question begins and ends, and whether it is there at all.

simple  two independent logits per token (transformers' own …ForQuestionAnswering):
        ½ · (CE start + CE end);  null = s_0 + e_0
joint   ELECTRA's: the end is conditioned on the start, e_t = w · gelu(W [H_start; H_t] + b), and answerability is a
        question of its own, a = w' · gelu(W' [H_0; Σ softmax(s)_t H_t]):
        ½ · (CE start + CE end) + answerability · BCE(a, impossible);  null = a
An answer that is not in the window, or not in the text, has start = end = 0, the first token.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from transformers import AutoModelForQuestionAnswering

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs
from encodery.objectives.base import Objective, ObjectiveModule
from encodery.objectives.parts.heads import HeadKind, TokenHead, drop_pooler
from encodery.objectives.parts.joint_span import JointHead, JointSpanForQuestionAnswering, load_joint, masked
from encodery.tasks.base import HIDDEN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Span(Objective):
    """Predicts the start and end of an answer in a text."""

    span_head: Literal["simple", "joint"] = "simple"
    """simple: the class in transformers; joint: as in ELECTRA, where the end is conditioned on the start and
    answerability is predicted too."""
    mask_question: bool = True
    """Only tokens of the context, and the first token (no answer), may be chosen. false: any token, as in
    transformers."""
    impossible: bool = True
    """joint: also learn whether the question has an answer."""
    answerability: float = Field(default=0.5, ge=0)
    """joint: weight of the answerability loss."""
    inner: int = Field(default=512, ge=1)
    """joint: size of its two hidden layers."""
    beam: int = Field(default=20, ge=1)
    """Beam size: number of starts, and of ends for each start, that decoding considers."""
    head: HeadKind = "stock"
    """Not used for spans; span_head sets the head."""
    head_dropout: float | None = None
    """Dropout before the simple head, if its architecture has one. Default: model.head_dropout."""

    def build(self, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> "Spans":
        if self.head != "stock":
            raise UserError(
                f"model.head: {self.head} reads whole texts; for spans the task has a head: simple or joint"
            )
        return Joint(self, encoder) if self.span_head == "joint" else Simple(self, encoder)


class Spans(ObjectiveModule):
    """What both heads share: masks, the loss, candidates."""

    options: Span

    def allowed(self, batch: Batch) -> Tensor:
        """Which tokens may be chosen [n, L]: never padding."""
        allowed, real = batch.rows(batch.targets["allowed"])
        return real & (allowed == 1) if self.options.mask_question else real

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
        allowed = self.allowed(batch)
        return {name: masked(logits[..., i], allowed) for i, name in enumerate(("start", "end"))}

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
    """ELECTRA's head."""

    def __init__(self, options: Span, encoder: Encoder):
        super().__init__()
        drop_pooler(encoder, keep=False)
        self.options = options
        self.joint = JointHead(encoder.width, options.inner)

    def last_layers(self) -> list[nn.Linear]:
        """Those of the start, the end, and no answer."""
        return [self.joint.start, self.joint.end, self.joint.impossible]

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """Start logits, end logits after the right start (while it is known), the logit of no answer."""
        rows, _ = batch.rows(encoder(batch))
        allowed = self.allowed(batch)
        start = self.joint.starts(rows, allowed)
        outputs = {"start": start, "null": self.joint.null(rows, start), "hidden": rows}
        if "start" in batch.targets:
            known = batch.targets["start"].clamp(min=0)
            outputs["end"] = self.joint.ends(rows, known[:, None], allowed)[:, 0]
        return outputs

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
        starts, ends = self.joint.best(outputs["hidden"], outputs["start"], self.allowed(batch), self.options.beam)
        return {
            "starts": starts.indices,
            "start_scores": starts.values,
            "ends": ends.indices,
            "end_scores": ends.values,
            "null": outputs["null"],
        }

    def save(self, folder: Path, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> Path:
        """A folder that AutoModelForQuestionAnswering opens as our own class, once encodery is imported."""
        JointSpanForQuestionAnswering.around(encoder.net, self.joint, self.options.beam).save_pretrained(folder)
        return folder

    def load_heads(self, encoder: Encoder, folder: Path) -> list[str]:
        """The weights that `save` wrote; nothing may be lacking."""
        return load_joint(self.joint, folder)
