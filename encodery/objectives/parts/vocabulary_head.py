"""The head of a masked language model: the architecture's own class in transformers, its matrix the word embeddings."""

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM

from encodery.errors import UserError
from encodery.models.encoder import Encoder, quiet
from encodery.models.pretrained import from_config, from_folder
from encodery.objectives.parts.heads import drop_pooler
from encodery.objectives.parts.stock_heads import require_same
from encodery.objectives.parts.stock_reader import StockModel, StockReader


class VocabularyHead(nn.Module):
    """Vectors for the product with the word embeddings, and the bias that is added to it."""

    def __init__(self, encoder: Encoder):
        super().__init__()
        if type(encoder.net.config) not in AutoModelForMaskedLM._model_mapping:
            raise UserError(f"objective: transformers has no masked language model of {encoder.kind}")
        drop_pooler(encoder, keep=False)
        with torch.device("meta"):  # only the head is wanted: the encoder's weights are there already
            stock = from_config(AutoModelForMaskedLM, encoder.net.config)
        prefix = stock.base_model_prefix
        for name, part in [(n, p) for n, p in stock.named_children() if n != prefix]:
            self.add_module(name, part.to_empty(device="cpu"))
        for part in self.modules():
            if part is not self:
                stock._init_weights(part)
        for parameter in self.parameters(recurse=True):
            if parameter.ndim == 1 and len(parameter) == encoder.net.config.vocab_size:
                nn.init.zeros_(parameter)
        encoder.begin(self)
        setattr(stock, prefix, encoder.net)
        stock.tie_weights()
        self.hidden = [stock]  # in a list: the encoder must not be registered twice
        self.readers = [StockReader(stock, encoder, "net")]
        require_same(encoder, stock, self._logits_of, "objective")

    def _logits_of(self, hidden: Tensor, _mask: Tensor) -> dict[str, Tensor]:
        vectors = self.readers[0].vectors(hidden.flatten(0, 1))
        return {"logits": (vectors @ self.weight.t() + self.bias).view(*hidden.shape[:2], -1)}

    @property
    def stock(self) -> StockModel:
        """The transformers model that this head and the encoder make together."""
        return self.hidden[0]

    @property
    def saved(self) -> StockModel:
        """The model that is written to disk."""
        return self.stock

    def forward(self, hidden: Tensor) -> Tensor:
        """Vectors [K, e]; only of the positions that are asked about."""
        return self.readers[0].vectors(hidden, self.training)

    @property
    def weight(self) -> Tensor:
        """The matrix [V, e]: the word embeddings."""
        weight: Tensor = self.stock.get_output_embeddings().weight
        return weight

    @property
    def bias(self) -> Tensor:
        """[V]; zero where the architecture has none."""
        bias: Tensor | None = self.stock.get_output_embeddings().bias
        if bias is not None:
            return bias
        size = len(self.weight)  # some classes add a bias of their own after the product
        others = (p for p in self.parameters() if p.shape == (size,))
        return next(others, self.weight.new_zeros(size))

    def load(self, folder: Path) -> frozenset[str]:
        """Take over the head of a saved masked language model; its tensors' names, none where the folder has none."""
        with quiet():
            other, report = from_folder(
                AutoModelForMaskedLM, folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True
            )
        prefix = other.base_model_prefix
        if any(not name.startswith(f"{prefix}.") for name in report["missing_keys"]):
            return frozenset()
        own = {n: p for n, p in other.state_dict().items() if not n.startswith(f"{prefix}.")}
        self.load_state_dict(own)
        return frozenset(own)
