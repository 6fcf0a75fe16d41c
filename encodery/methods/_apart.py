"""How far two answers to the same batch are: for methods that ask for consistency."""

from torch import Tensor

from encodery.data.batches import Batch
from encodery.models.model import Model, Outputs


def again(model: Model, batch: Batch, outputs: Outputs) -> Batch:
    """The batch for another pass whose answer is to be compared with these outputs."""
    found: Batch = model.question(batch.task).again(outputs, batch)
    return found


def distance(model: Model, batch: Batch, a: Outputs, b: Outputs, one_sided: bool = False) -> Tensor:
    """Sum over the examples of how far two answers are, with the weights of task and examples."""
    question = model.question(batch.task)
    apart: Tensor = (question.divergence if one_sided else question.distance)(a, b, batch)
    if batch.weights is not None:
        apart = apart * batch.weights
    return apart.sum() * model.weights.get(batch.task, 1.0)
