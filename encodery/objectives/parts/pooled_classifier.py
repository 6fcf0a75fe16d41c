"""The class under which transformers' Auto classes open a classifier that reads the mean or maximum of the tokens."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from encodery.data.layouts import Rows
from encodery.models.pretrained import from_config
from encodery.objectives.parts.own_configs import PooledConfig
from encodery.objectives.parts.stock_reader import StockReader

LABELS = ("id2label", "label2id", "problem_type")  # what a pipeline and a loss read in a config


class PooledForSequenceClassification(PreTrainedModel):  # type: ignore[misc]
    """The parts of the architecture's own class under their own names; only what goes into its head differs."""

    config_class = PooledConfig
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: PooledConfig):
        super().__init__(config)
        self._adopt(from_config(AutoModelForSequenceClassification, config.encoder_config))
        self.post_init()

    def _adopt(self, stock: PreTrainedModel) -> None:
        self.base_model_prefix = stock.base_model_prefix
        for name, part in stock.named_children():
            setattr(self, name, part)
        self._readers = [StockReader(stock, self, "base_model")]  # in a list: no part of it is registered twice

    @classmethod
    def around(cls, stock: PreTrainedModel, pooling: str) -> "PooledForSequenceClassification":
        """A model of the architecture's own class that is there already."""
        encoder = stock.base_model.config
        labels = {name: getattr(encoder, name) for name in LABELS}
        with torch.device("meta"):
            whole = cls(PooledConfig(encoder.to_dict(), pooling, **labels))
        whole._adopt(stock)
        return whole

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **more: Any,
    ) -> SequenceClassifierOutput:
        """Logits; with labels the loss too, as in transformers' classes."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        given = {"input_ids": input_ids, "inputs_embeds": inputs_embeds, "attention_mask": attention_mask, **types}
        hidden = self.base_model(**given, **more).last_hidden_state
        mask = torch.ones_like(hidden[..., 0]) if attention_mask is None else attention_mask
        pooled = Rows(mask.bool()).per_sequence(hidden, self.config.pooling)
        logits = self._readers[0](pooled[:, None], training=self.training).logits
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)


AutoModelForSequenceClassification.register(PooledConfig, PooledForSequenceClassification, exist_ok=True)
