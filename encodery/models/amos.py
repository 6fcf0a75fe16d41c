"""AMOS's encoder as a transformers model: BERT's blocks, absolute positions, and one bias by distance for all layers.

It has no segments, and its head for replaced tokens is one linear layer. transformers has no such class, so this one
is registered with its Auto classes (see `auto_register.py`); folders hold safetensors and need no remote code.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.models.auto import modeling_auto
from transformers.models.electra.modeling_electra import (
    ElectraClassificationHead,
    ElectraGeneratorPredictions,
    ElectraLayer,
    ElectraSelfAttention,
)
from transformers.utils.output_capturing import capture_outputs

from encodery.data.batches import sent
from encodery.models.amos_config import AmosConfig


def buckets(length: int, bins: int, furthest: int) -> Tensor:
    """The row of the bias for each (query, key): near distances one by one, further ones by their logarithm.

    A direction has bins / 2 - 1 rows besides the middle, half of them exact; unlike T5 it rounds up.
    """
    place = torch.arange(length)
    distance = place[None] - place[:, None]
    side = bins // 2
    exact = side // 2
    far = torch.log(distance.abs().clamp(min=1) / exact) / math.log((furthest - 1) / exact) * (side - 1 - exact)
    bucket = torch.where(distance.abs() < exact, distance.abs(), exact + torch.ceil(far).long()).clamp(max=side - 1)
    return bucket * distance.sign() + side - 1


class AmosEmbeddings(nn.Module):
    """Words and positions, a norm, dropout."""

    def __init__(self, config: Any):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, input_ids: Tensor | None, position_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> Tensor:
        """Positions count from 0 unless given."""
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(words.shape[1], device=words.device)[None]
        found: Tensor = self.dropout(self.LayerNorm(words + self.position_embeddings(position_ids)))
        return found


class AmosEncoder(nn.Module):
    """The blocks."""

    def __init__(self, config: Any):
        super().__init__()
        self.layer = nn.ModuleList([ElectraLayer(config, layer_idx=i) for i in range(config.num_hidden_layers)])

    def forward(self, hidden: Tensor, attention_mask: Tensor | None, **more: Any) -> Tensor:
        """One after the other."""
        for layer in self.layer:
            hidden = layer(hidden, attention_mask, **more)
        return hidden


class AmosPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What all classes share."""

    config_class = AmosConfig
    base_model_prefix = "amos"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": ElectraLayer, "attentions": ElectraSelfAttention}


class AmosModel(AmosPreTrainedModel):
    """The encoder."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.embeddings = AmosEmbeddings(config)
        self.encoder = AmosEncoder(config)
        self.relative_attention_bias = nn.Embedding(config.rel_pos_bins, config.num_attention_heads)
        self.bias_rows: Tensor | None = None
        self.gradient_checkpointing = False
        self.post_init()

    def begin_places(self) -> None:
        """Where heads look at first, if the config says how far apart they begin."""
        deviation = self.config.relative_initializer_range
        if deviation is not None:
            nn.init.normal_(self.relative_attention_bias.weight, std=deviation)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings.word_embeddings = value

    def position_bias(self, length: int) -> Tensor:
        """What is added to the scores: [heads, length, length]."""
        table: Tensor = self.relative_attention_bias.weight
        return F.embedding(self.rows_of_bias(length, table.device), table).permute(2, 0, 1)

    def rows_of_bias(self, length: int, device: torch.device) -> Tensor:
        """`buckets`, which a host computes and a device would wait for: brought there once, for all lengths."""
        if self.bias_rows is None or self.bias_rows.device != device or len(self.bias_rows) < length:
            most = max(length, self.config.max_position_embeddings)
            with torch.inference_mode(False):  # a later pass may have a gradient
                self.bias_rows = sent(buckets(most, self.config.rel_pos_bins, self.config.max_rel_pos), device)
        return self.bias_rows[:length, :length]

    @capture_outputs  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        groups: Any = None,
        **more: Any,
    ) -> BaseModelOutput:
        """Hidden states; `groups` say where sequences lie in a packed row (encodery's layout)."""
        hidden = self.embeddings(input_ids, position_ids, inputs_embeds)
        if groups is not None:
            bias = self.position_bias(max(group.longest for group in groups))
            hidden = self.encoder(hidden, None, groups=groups, position_bias=bias, **more)
            return BaseModelOutput(last_hidden_state=hidden)
        mask = self.position_bias(hidden.shape[1])[None].to(hidden.dtype)
        if attention_mask is not None:
            mask = mask.masked_fill(attention_mask[:, None, None] == 0, torch.finfo(hidden.dtype).min)
        return BaseModelOutput(last_hidden_state=self.encoder(hidden, mask, **more))


class AmosDetectorHead(nn.Module):
    """One linear layer: whether a token was replaced."""

    def __init__(self, config: Any):
        super().__init__()
        self.dense_prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of each vector; above 0: replaced."""
        logits: Tensor = self.dense_prediction(hidden).squeeze(-1)
        return logits


class AmosForPreTraining(AmosPreTrainedModel):
    """The discriminator. 1 = replaced."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.amos = AmosModel(config)
        self.discriminator_predictions = AmosDetectorHead(config)
        self.post_init()

    def forward(self, *args: Any, labels: Tensor | None = None, **more: Any) -> TokenClassifierOutput:
        """Logits [n, L]; tokens with label -100 do not count."""
        logits = self.discriminator_predictions(self.amos(*args, **more).last_hidden_state)
        loss = None
        if labels is not None:
            loss = F.binary_cross_entropy_with_logits(logits[labels >= 0], labels[labels >= 0].to(logits))
        return TokenClassifierOutput(loss=loss, logits=logits)


class AmosForMaskedLM(AmosPreTrainedModel):
    """The generator, read out at its top."""

    _tied_weights_keys = {"generator_lm_head.weight": "amos.embeddings.word_embeddings.weight"}

    def __init__(self, config: Any):
        super().__init__(config)
        self.amos = AmosModel(config)
        self.generator_predictions = ElectraGeneratorPredictions(config)
        self.generator_lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        """The output matrix, which is that of the words, and its bias."""
        return self.generator_lm_head

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.generator_lm_head = value

    def forward(self, *args: Any, labels: Tensor | None = None, **more: Any) -> MaskedLMOutput:
        """Logits [n, L, V]; positions with label -100 are not asked about."""
        logits = self.generator_lm_head(self.generator_predictions(self.amos(*args, **more).last_hidden_state))
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return MaskedLMOutput(loss=loss, logits=logits)


class AmosForSequenceClassification(AmosPreTrainedModel):
    """The first token through a layer of the same width, gelu, and a linear layer, as in Microsoft's port."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.amos = AmosModel(config)
        self.classifier = ElectraClassificationHead(config)
        self.post_init()

    def forward(self, *args: Any, labels: Tensor | None = None, **more: Any) -> SequenceClassifierOutput:
        """Logits [n, labels]; one label is a number (squared error), several are classes."""
        logits = self.classifier(self.amos(*args, **more).last_hidden_state)
        loss = None
        if labels is not None and self.config.num_labels == 1:
            loss = F.mse_loss(logits.flatten(), labels.flatten().to(logits))
        elif labels is not None:
            loss = F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class AmosForTokenClassification(AmosPreTrainedModel):
    """A linear layer on every token."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.amos = AmosModel(config)
        rate = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if rate is None else rate)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, *args: Any, labels: Tensor | None = None, **more: Any) -> TokenClassifierOutput:
        """Logits [n, L, labels]."""
        logits = self.classifier(self.dropout(self.amos(*args, **more).last_hidden_state))
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return TokenClassifierOutput(loss=loss, logits=logits)


class AmosForQuestionAnswering(AmosPreTrainedModel):
    """Start and end of an answer, each by itself."""

    def __init__(self, config: Any):
        super().__init__(config)
        self.amos = AmosModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self, *args: Any, start_positions: Tensor | None = None, end_positions: Tensor | None = None, **more: Any
    ) -> QuestionAnsweringModelOutput:
        """Logits of start and end [n, L]."""
        start, end = self.qa_outputs(self.amos(*args, **more).last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = (F.cross_entropy(start, start_positions) + F.cross_entropy(end, end_positions)) / 2
        return QuestionAnsweringModelOutput(loss=loss, start_logits=start, end_logits=end)


for purpose, ours in {
    "": AmosModel, "ForPreTraining": AmosForPreTraining, "ForMaskedLM": AmosForMaskedLM,
    "ForSequenceClassification": AmosForSequenceClassification,
    "ForTokenClassification": AmosForTokenClassification, "ForQuestionAnswering": AmosForQuestionAnswering,
}.items():  # fmt: skip
    getattr(modeling_auto, f"AutoModel{purpose}").register(AmosConfig, ours, exist_ok=True)
