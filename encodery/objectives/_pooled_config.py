"""config.json of a classifier that reads a mean or a maximum: a type of its own, so that nothing reads first tokens."""

from typing import Any

from transformers import AutoConfig, PretrainedConfig


class PooledConfig(PretrainedConfig):  # type: ignore[misc]
    """The encoder's own config, and how the vectors of its tokens become one."""

    model_type = "encodery-pooled"

    def __init__(self, encoder: dict[str, Any] | None = None, pooling: str = "mean", **kwargs: Any):
        self.encoder = encoder or {}
        self.pooling = pooling
        super().__init__(**kwargs)

    @property
    def encoder_config(self) -> Any:
        """That of the encoder alone."""
        fields = {key: value for key, value in self.encoder.items() if key != "model_type"}
        return AutoConfig.for_model(self.encoder["model_type"], **fields)


AutoConfig.register(PooledConfig.model_type, PooledConfig, exist_ok=True)
