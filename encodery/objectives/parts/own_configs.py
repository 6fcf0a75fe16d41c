"""config.json of folders whose head transformers does not have: types of their own, so that nothing misreads them."""

from typing import Any

from transformers import AutoConfig, PretrainedConfig


class OwnConfig(PretrainedConfig):  # type: ignore[misc]
    """The encoder's own config inside that of the head."""

    def __init__(self, encoder: dict[str, Any] | None = None, **kwargs: Any):
        self.encoder = encoder or {}
        super().__init__(**kwargs)

    @property
    def encoder_config(self) -> Any:
        """That of the encoder alone."""
        fields = {key: value for key, value in self.encoder.items() if key != "model_type"}
        return AutoConfig.for_model(self.encoder["model_type"], **fields)


class JointSpanConfig(OwnConfig):
    """ELECTRA's span head, and its width."""

    model_type = "encodery-joint-span"

    def __init__(self, encoder: dict[str, Any] | None = None, inner: int = 512, beam: int = 20, **kwargs: Any):
        self.inner, self.beam = inner, beam
        super().__init__(encoder, **kwargs)


class PooledConfig(OwnConfig):
    """A classifier that reads a mean or a maximum of the vectors of all tokens."""

    model_type = "encodery-pooled"

    def __init__(self, encoder: dict[str, Any] | None = None, pooling: str = "mean", **kwargs: Any):
        self.pooling = pooling
        super().__init__(encoder, **kwargs)


for config in (JointSpanConfig, PooledConfig):
    AutoConfig.register(config.model_type, config, exist_ok=True)
