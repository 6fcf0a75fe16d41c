"""How new weights begin: as transformers makes them, or as Google's ELECTRA did."""

from typing import Literal

from torch import nn

Init = Literal["hf", "google"]
GLOROT = ("embeddings_project", "dense_prediction")  # layers that Google's code gave no initialiser: Glorot uniform


def start(module: nn.Module, how: Init, deviation: float = 0.02) -> None:
    """google: truncated normal (cut at two deviations), projections and the last layer Glorot uniform, biases 0.

    hf leaves the weights as transformers made them.
    """
    if how == "hf":
        return
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            if name.rpartition(".")[2] in GLOROT:
                nn.init.xavier_uniform_(part.weight)
            else:
                nn.init.trunc_normal_(part.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
