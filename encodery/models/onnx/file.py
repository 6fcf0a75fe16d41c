"""A module as an ONNX file: written, quantised, opened. Embeddings and exports go this one way (extra `onnx`)."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from encodery.core.extras import install
from encodery.errors import UserError
from encodery.models.encoder import quiet

NEEDED = f"ONNX needs two more packages: {install('onnx')}"
OPSET = 17


def require_packages() -> None:
    """Both, before anything is computed: torch's exporter has an error of its own for a missing one."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise UserError(NEEDED) from None


class Named(nn.Module):
    """A transformers model as plain tensors in, and its named outputs out."""

    def __init__(self, net: nn.Module, outputs: Sequence[str]):
        super().__init__()
        self.net, self.outputs = net, tuple(outputs)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        """A tensor for each name."""
        more = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        found = self.net(input_ids=input_ids, attention_mask=attention_mask, **more)
        return tuple(found[name] for name in self.outputs)


def input_names(types: bool) -> list[str]:
    """What a model is given."""
    return ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]


def write(module: nn.Module, types: bool, outputs: Sequence[str], path: Path) -> None:
    """To ONNX, for any number of rows of any length. `module.net` is the transformers model inside."""
    require_packages()
    net: Any = module.net
    net.set_attn_implementation("eager")
    names = input_names(types)
    axes = {name: {0: "rows", 1: "length"} for name in names}
    module.eval()  # a wrapper that was made just now is in training mode, and would keep dropout
    example = (torch.ones(2, 8, dtype=torch.int64),) * len(names)
    with torch.no_grad():
        shapes = module(*example)
    for name, found in zip(outputs, shapes if isinstance(shapes, tuple) else (shapes,), strict=True):
        axes[name] = {0: "rows", 1: "length"} if found.dim() > 1 and found.shape[1] == 8 else {0: "rows"}
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, example, str(path), input_names=names, output_names=list(outputs), dynamic_axes=axes,
            dynamo=False, opset_version=OPSET,
        )  # fmt: skip


def quantise(plain: Path, small: Path, vocabulary: int, closer: bool = False) -> None:
    """Weights in 8 bits once, activations on the fly.

    Of a weight 7 bits are used: without the newest instructions 8-bit products overflow. Each column has its own scale,
    word embeddings stay as they are, and `onnx_even` prepares what would lose most. `closer`: more stays in float32.
    """
    require_packages()
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from encodery.models.onnx.smooth import even_out

    even = small.with_name(f".{small.name}.even")
    try:
        exact = even_out(plain, even, vocabulary, closer)
        with quiet_logging():
            quantize_dynamic(
                even, small, op_types_to_quantize=["MatMul"], per_channel=True, reduce_range=True,
                weight_type=QuantType.QInt8, nodes_to_exclude=exact,
            )  # fmt: skip
    finally:
        even.unlink(missing_ok=True)


def session(path: Path) -> Any:
    """Open a file for computing on the CPU, with as many threads as torch has."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise UserError(NEEDED) from None
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@contextmanager
def quiet_logging() -> Iterator[None]:
    """The quantiser advises on the root logger; nothing of it concerns us."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
