"""config.json of a folder with ELECTRA's span head: a type of its own, so that nothing opens it as something else."""

from typing import Any

from transformers import AutoConfig, PretrainedConfig


class JointSpanConfig(PretrainedConfig):  # type: ignore[misc]
    """The encoder's own config, and the head's width."""

    model_type = "encodery-joint-span"

    def __init__(self, encoder: dict[str, Any] | None = None, inner: int = 512, beam: int = 20, **kwargs: Any):
        self.encoder = encoder or {}
        self.inner, self.beam = inner, beam
        super().__init__(**kwargs)

    @property
    def encoder_config(self) -> Any:
        """That of the encoder alone."""
        fields = {key: value for key, value in self.encoder.items() if key != "model_type"}
        return AutoConfig.for_model(self.encoder["model_type"], **fields)


AutoConfig.register(JointSpanConfig.model_type, JointSpanConfig, exist_ok=True)
