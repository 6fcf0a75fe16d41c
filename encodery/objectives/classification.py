"""Classification, multi-label classification and regression on one vector per sequence.

single      cross-entropy with class weights w and label smoothing s, as torch has it:
            Σ (1−s)·w_y·(−log p_y) + s/C·Σ_c w_c·(−log p_c), over Σ w_y
multilabel  binary cross-entropy, mean over the labels of an example
regression  squared error
With a teacher there is a second term, `distill` (parts/distill.py).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from encodery.config.schema import AnyPooling
from encodery.data.batches import Batch
from encodery.data.layouts import upcast
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.model import Outputs
from encodery.objectives.base import Objective, ObjectiveModule
from encodery.objectives.parts.distill import TEACHER, Distill
from encodery.objectives.parts.heads import HeadKind, SanHead, answer, build_head, drop_pooler
from encodery.tasks.base import HIDDEN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Classification(Objective):
    """Predicts one label, several labels or a number for a text or a pair of texts."""

    form: Literal["single", "multilabel", "regression"] = "single"
    """single: exactly one label; multilabel: any number of labels; regression: a number."""
    labels: list[str] = []
    """Label names in the order of the outputs. Empty for regression."""
    low: float | None = None
    """regression: lowest value. Predictions are clamped to it."""
    high: float | None = None
    """regression: highest value. Predictions are clamped to it."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of the target that is spread evenly over all labels."""
    class_weights: Literal["balanced"] | list[float] | None = None
    """Weights of the classes in the loss. balanced: n / (number of classes · rows of the class), from the training set;
    or one number per label."""
    pool: Literal["mean", "max"] | None = None
    """For long texts read in windows: how the logits of the windows are combined."""
    distill: Distill = Distill()
    """How the predictions of the teacher are learnt."""
    head: HeadKind = "stock"
    """Architecture of the head. Default: model.head. san: MT-DNN's stochastic answer network, for classifying pairs."""
    pooling: AnyPooling = "auto"
    """Pooling. Default: model.pooling. san reads every token."""
    san_turns: int = Field(default=5, ge=1)
    """san: number of reasoning steps over the first text."""
    san_turn_dropout: float = Field(default=0.1, ge=0, lt=1)
    """san: fraction of these steps that is dropped during training."""
    head_dropout: float | None = None
    """Dropout of the head. Default: model.head_dropout."""

    @property
    def outputs(self) -> int:
        """Size of the output vector."""
        return 1 if self.form == "regression" else len(self.labels)

    def fitted(self, targets: Mapping[str, np.ndarray]) -> Self:
        """Turn `balanced` into numbers."""
        if self.class_weights != "balanced" or self.form != "single":
            return self
        labels = np.asarray(targets["label"])
        counts = np.bincount(labels[labels >= 0], minlength=len(self.labels))
        if (counts == 0).any():
            raise UserError(
                f"tasks.objective.class_weights: no training row has the label {self.labels[int(counts.argmin())]!r}"
            )
        return self.model_copy(update={"class_weights": [float(w) for w in counts.sum() / (len(counts) * counts)]})

    def build(self, encoder: Encoder, tokenizer: "PreTrainedTokenizerBase") -> "Classifier":
        if self.class_weights is not None and self.form != "single":
            raise UserError(f"tasks.objective.class_weights: they need single labels, not {self.form}")
        if isinstance(self.class_weights, list) and len(self.class_weights) != len(self.labels):
            raise UserError(
                f"tasks.objective.class_weights: {len(self.class_weights)} numbers for {len(self.labels)} labels"
            )
        if isinstance(self.class_weights, list) and not (min(self.class_weights) >= 0 < max(self.class_weights)):
            raise UserError(
                f"tasks.objective.class_weights: {self.class_weights}: all must be 0 or more, and at least one above 0"
            )
        if self.label_smoothing and self.form == "regression":
            raise UserError("tasks.objective.label_smoothing: is for labels; leave it out of a regression")
        config = encoder.net.config
        names = self.labels or ["LABEL_0"]
        config.id2label = dict(enumerate(names))
        config.label2id = {name: i for i, name in enumerate(names)}
        config.problem_type = {"single": "single_label_classification", "multilabel": "multi_label_classification"}.get(
            self.form, "regression"
        )
        return Classifier(self, encoder, getattr(tokenizer, "sep_token_id", None))


class Classifier(ObjectiveModule):
    """The head and its loss."""

    weights: Tensor | None

    def __init__(self, options: Classification, encoder: Encoder, separator: int | None = None):
        super().__init__()
        self.options = options
        self.head = self.thinker(encoder, separator) if options.head == "san" else self.plain(encoder)
        given = options.class_weights
        self.register_buffer("weights", torch.tensor(given) if isinstance(given, list) else None, persistent=False)

    def plain(self, encoder: Encoder) -> nn.Module:
        """A head that reads one vector."""
        options = self.options
        return build_head(options.head, encoder, options.outputs, options.head_dropout, options.pooling)

    def thinker(self, encoder: Encoder, separator: int | None) -> nn.Module:
        options = self.options
        if separator is None or options.form != "single":
            raise UserError("tasks.objective.head: san needs single labels, and a tokenizer with a separator")
        if options.pooling != "auto":
            raise UserError("tasks.objective.pooling: the head san reads every token of both texts; remove pooling")
        drop_pooler(encoder, keep=False)
        rate = 0.1 if options.head_dropout is None else options.head_dropout
        return SanHead(encoder, options.outputs, rate, separator, options.san_turns, options.san_turn_dropout)

    def forward(self, encoder: Encoder, batch: Batch) -> Outputs:
        """Logits [n, outputs], a row for each text."""
        logits = answer(self.head, encoder, batch)
        return {"logits": batch.per_example(logits, self.options.pool) if self.options.pool else logits}

    def of_example(self, values: Tensor, batch: Batch) -> Tensor:
        """Values of sequences as values of texts, whose windows all have the same."""
        return batch.per_example(values, "max") if self.options.pool else values

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The sum over the examples whose label is known; with a teacher also that over all it has answered."""
        each = self.per_example(upcast(outputs["logits"]), self.of_example(batch.targets["label"], batch))
        if batch.weights is not None:
            each = each * self.of_example(batch.weights, batch)
        if TEACHER not in batch.targets:
            return {"loss": each.sum()}
        teacher = self.of_example(batch.targets[TEACHER], batch)
        taught = self.options.distill.apart(upcast(outputs["logits"]), teacher, self.options.form)
        return {"loss": each.sum(), "distill": taught.sum() * self.options.distill.weight}

    def per_example(self, logits: Tensor, label: Tensor) -> Tensor:
        """Loss of each example, zero where the label is hidden."""
        options = self.options
        if options.form == "single":
            return F.cross_entropy(
                logits,
                label,
                self.weights,
                ignore_index=HIDDEN,
                reduction="none",
                label_smoothing=options.label_smoothing,
            )
        labelled = ~torch.isnan(label) if label.dim() == 1 else ~torch.isnan(label).any(1)
        target = torch.nan_to_num(label).to(logits.dtype)
        if options.form == "regression":
            return (logits[:, 0] - target).square() * labelled
        smooth = options.label_smoothing
        target = target * (1 - smooth) + smooth / 2
        return F.binary_cross_entropy_with_logits(logits, target, reduction="none").mean(1) * labelled

    def counts(self, batch: Batch) -> dict[str, float]:
        """Examples with a known label, each by the weight of its class."""
        label = self.of_example(batch.targets["label"], batch)
        taught = {"distill": float(len(label))} if TEACHER in batch.targets else {}
        if self.options.form == "single":
            labelled = label != HIDDEN
            weights = None if self.weights is None else self.weights.to(label.device)
            weight = labelled.float() if weights is None else weights[label.clamp(min=0)] * labelled
            return {"loss": float(weight.sum(dtype=torch.float64)), **taught}
        labelled = ~torch.isnan(label) if label.dim() == 1 else ~torch.isnan(label).any(1)
        return {"loss": float(labelled.sum()), **taught}

    def distance(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Symmetric Kullback-Leibler divergence of the two answers; squared difference for regression."""
        return self.shared(self.apart(upcast(a["logits"]), upcast(b["logits"])), batch)

    def shared(self, each: Tensor, batch: Batch) -> Tensor:
        """A text's distance is shared by its windows: one number per sequence, and the sum stays right."""
        if not self.options.pool or batch.group is None:
            return each
        return (each / torch.bincount(batch.group))[batch.group]

    def apart(self, x: Tensor, y: Tensor) -> Tensor:
        """The distance of logits, one per row."""
        if self.options.form == "regression":
            return (x - y).square().sum(1)
        if self.options.form == "multilabel":  # independent coins: the divergences add up
            return ((x.sigmoid() - y.sigmoid()) * (x - y)).sum(1)
        return ((x.softmax(1) - y.softmax(1)) * (x.log_softmax(1) - y.log_softmax(1))).sum(1)

    def divergence(self, a: Outputs, b: Outputs, batch: Batch) -> Tensor:
        """Kullback-Leibler divergence KL(a ‖ b); half the squared difference for regression."""
        x, y = upcast(a["logits"]), upcast(b["logits"])
        if self.options.form == "multilabel":
            yes = x.sigmoid() * (F.logsigmoid(x) - F.logsigmoid(y))
            both = (yes + (-x).sigmoid() * (F.logsigmoid(-x) - F.logsigmoid(-y))).sum(1)
            return self.shared(both, batch)
        if self.options.form == "single":
            return self.shared((x.softmax(1) * (x.log_softmax(1) - y.log_softmax(1))).sum(1), batch)
        return super().divergence(a, b, batch)

    def answers(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Logits; every window of a text gets those of the text."""
        logits = upcast(outputs["logits"])
        return {"logits": logits[batch.example_of_sequence] if self.options.pool else logits}
