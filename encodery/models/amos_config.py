"""The config of AMOS's encoder, by itself: AutoConfig wants it before torch is there."""

from transformers import AutoConfig, PreTrainedConfig


class AmosConfig(PreTrainedConfig):  # type: ignore[misc]
    """Sizes of base; `rel_pos_bins` and `max_rel_pos` in the words of Microsoft's files.

    A wide `relative_initializer_range` (3) lets every head begin with places of its own to look at: small encoders with
    few steps leave the frequencies of words several times sooner.
    """

    model_type = "amos"
    attribute_map = {"embedding_size": "hidden_size"}  # always the same here

    vocab_size: int = 32768
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 0
    rel_pos_bins: int = 32
    max_rel_pos: int = 128
    initializer_range: float = 0.02
    relative_initializer_range: float | None = None  # of the biases of relative positions; None: as all weights
    layer_norm_eps: float = 1e-5
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | None = 2
    is_decoder: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True


AutoConfig.register(AmosConfig.model_type, AmosConfig, exist_ok=True)
