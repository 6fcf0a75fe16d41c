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
    """How a teacher's answers are learnt, where the task names one."""

    weight: float = Field(default=1.0, ge=0)
    """Weight of the teacher's answers; that of the labels is 1."""
    temperature: float = Field(default=1.0, gt=0)
    """Logits of both are divided by it; the loss is multiplied by its square, so that gradients keep their size."""
    loss: Literal["kl", "mse"] = "kl"
    """kl: divergence of the answers; mse: mean squared difference of the logits (MT-DNN). Numbers: always mse."""

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
