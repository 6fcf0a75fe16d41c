"""An encoder with 8-bit weights through ONNX Runtime, on CPUs: exported and quantised when it is asked for."""

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder, quiet

NEEDED = "int8: needs ONNX Runtime: pip install 'encodery[onnx]'"


class Layer(nn.Module):
    """The hidden states of one layer, as plain tensors in and out."""

    def __init__(self, net: nn.Module, layer: int | None):
        super().__init__()
        self.net, self.layer = net, layer

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """[n, L, width]."""
        more = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        found = self.net(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=self.layer is not None, **more
        )
        hidden: Tensor = found.last_hidden_state if self.layer is None else found.hidden_states[self.layer]
        return hidden


def quantised(encoder: Encoder, layer: int) -> Callable[[Batch], Tensor]:
    """Hidden states of a layer for a batch in rows, from quantised weights."""
    if encoder.layout == "packed":
        raise UserError("int8: ONNX Runtime reads rows; open the encoder with layout rows")
    session = opened(Layer(encoder.net, None if layer == encoder.layers else layer).eval(), encoder.form.types)
    names = {one.name for one in session.get_inputs()}

    def hidden(batch: Batch) -> Tensor:
        given = {name: batch.inputs[name].numpy() for name in names}
        return torch.from_numpy(session.run(None, given)[0])

    return hidden


def opened(module: nn.Module, types: bool) -> Any:
    """Export, quantise (weights once, activations on the fly) and open; nothing stays on the disk."""
    try:
        import onnxruntime as ort
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise UserError(NEEDED) from None
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        export(module, types, plain)
        # 7 bits: without the newest instructions 8-bit products overflow. Word embeddings stay as they are, and each
        # column has its own scale: both bring the vectors much nearer to the exact ones.
        with quiet_logging():
            quantize_dynamic(
                plain, small, op_types_to_quantize=["MatMul"], per_channel=True, reduce_range=True,
                weight_type=QuantType.QInt8,
            )  # fmt: skip
        options = ort.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        return ort.InferenceSession(str(small), options, providers=["CPUExecutionProvider"])


@contextmanager
def quiet_logging() -> Iterator[None]:
    """The quantiser advises on the root logger; nothing of it concerns us."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def export(module: nn.Module, types: bool, path: Path) -> None:
    """To ONNX, with any number of rows of any length."""
    net: Any = module.net
    net.set_attn_implementation("eager")
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    example = torch.ones(2, 8, dtype=torch.int64)
    axes = {name: {0: "rows", 1: "length"} for name in [*names, "hidden"]}
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, (example,) * len(names), str(path), input_names=names, output_names=["hidden"],
                dynamic_axes=axes, dynamo=False, opset_version=17,
            )  # fmt: skip
    except ModuleNotFoundError:
        raise UserError(NEEDED) from None
