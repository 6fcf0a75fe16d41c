"""An encoder with 8-bit weights through ONNX Runtime, on CPUs: exported and quantised when it is asked for."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder
from encodery.models.onnx import file


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
    """Hidden states of a layer for a batch in rows, from quantised weights; nothing stays on the disk."""
    if encoder.layout == "packed":
        raise UserError("int8: ONNX Runtime reads rows; open the encoder with layout rows")
    module = Layer(encoder.net, None if layer == encoder.layers else layer)
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        file.write(module, encoder.form.types, ["hidden"], plain)
        file.quantise(plain, small, encoder.net.config.vocab_size, closer=True)
        session = file.session(small)
    names = file.input_names(encoder.form.types)

    def hidden(batch: Batch) -> Tensor:
        given = {name: batch.inputs[name].numpy() for name in names}
        return torch.from_numpy(session.run(None, given)[0])

    return hidden
