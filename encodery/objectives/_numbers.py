"""Arithmetic that all questions share."""

import torch
from torch import Tensor


def wide(logits: Tensor) -> Tensor:
    """At least float32: exponents in half precision overflow."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
