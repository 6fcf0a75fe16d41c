"""Learning from a teacher's logits (Hinton, Vinyals and Dean 2015, arXiv 1503.02531), as a term beside the labels'.

kl   weight · T² · KL(softmax(teacher / T) ‖ softmax(student / T)), as a mean over the examples
mse  weight · mean over the outputs of (teacher − student)²
"""

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from encodery.core.options import Options

TEACHER = "teacher"  # the target that a teacher's logits are


class Distill(Options):
    """How the predictions of a task's teacher are learnt."""

    weight: float = Field(default=1.0, ge=0)
    """Weight of the distillation loss, relative to 1 for the labels."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature that divides the logits of teacher and student. The loss is multiplied by its square, so that
    gradients keep their size."""
    loss: Literal["kl", "mse"] = "kl"
    """kl: divergence of the probabilities; mse: mean squared error of the logits, as in MT-DNN. Regression always uses
    mse."""

    def apart(self, logits: Tensor, teacher: Tensor, form: str) -> Tensor:
        """How far each answer is from the teacher's."""
        teacher = teacher.to(logits.dtype)
        if form == "regression" or self.loss == "mse":
            return (logits - teacher).square().mean(1)
        x, y, square = teacher / self.temperature, logits / self.temperature, self.temperature**2
        if form == "multilabel":  # independent coins, the mean over them as for labels
            yes = x.sigmoid() * (F.logsigmoid(x) - F.logsigmoid(y))
            return (yes + (-x).sigmoid() * (F.logsigmoid(-x) - F.logsigmoid(-y))).mean(1) * square
        return (x.softmax(1) * (x.log_softmax(1) - y.log_softmax(1))).sum(1) * square
