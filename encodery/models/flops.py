"""How much arithmetic training costs: a multiply-add is 2, a training step three forward passes.

Per token and layer 8h² (query, key, value, output) + 4hf (feed-forward; 6hf where it is gated) + 4hL (scores and
values; L no more than the window of a local layer). A lookup of embeddings costs nothing; Google's script counts it
as a product with all of the vocabulary, 2eV a token (`dense`), which makes ELECTRA look dearer beside MLM.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

TRAINING = 3  # forward, and twice that backward


@dataclass(frozen=True)
class Net:
    """The sizes that count."""

    width: int
    inner: int
    embedding: int
    vocabulary: int
    windows: tuple[int | None, ...]  # of each layer; None: attention to everything
    gated: bool = False

    def forward(self, lengths: np.ndarray, dense: bool = False) -> float:
        """The body, on sequences of these lengths."""
        h, tokens = self.width, float(lengths.sum())
        linear = 8 * h * h + (6 if self.gated else 4) * h * self.inner
        seen = sum(float((lengths * np.minimum(lengths, w or lengths)).sum()) for w in self.windows)
        project = 2 * self.embedding * h if self.embedding != h else 0
        lookup = 2 * self.embedding * self.vocabulary if dense else 0
        return tokens * (len(self.windows) * linear + project + lookup) + 4 * h * seen

    def guess(self, asked: float) -> float:
        """The head of a masked language model at so many positions."""
        return asked * 2 * self.embedding * (self.width + self.vocabulary)

    def detect(self, tokens: float, linear: bool = False) -> float:
        """ELECTRA's head at so many tokens; AMOS's is linear."""
        return tokens * 2 * self.width * (1 if linear else self.width + 1)


def net_of(config: Any) -> Net:
    """The sizes of a transformers encoder."""
    width = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or config.hidden_dim
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    local = getattr(config, "local_attention", None)
    windows = tuple(local if kind == "sliding_attention" else None for kind in kinds)
    embedding = getattr(config, "embedding_size", width)
    return Net(width, inner, embedding, config.vocab_size, windows, gated=config.model_type == "modernbert")


def mlm(net: Net, lengths: np.ndarray, asked: float, dense: bool = False) -> float:
    """A training step of a masked language model."""
    return TRAINING * (net.forward(lengths, dense) + net.guess(asked))


def electra(
    net: Net, generator: Net | None, lengths: np.ndarray, asked: float, dense: bool = False, linear: bool = False
) -> float:
    """A training step of ELECTRA; `linear`: the head for replaced tokens is one linear layer."""
    main = net.forward(lengths, dense) + net.detect(float(lengths.sum()), linear)
    beside = generator.forward(lengths, dense) + generator.guess(asked) if generator else 0.0
    return TRAINING * (main + beside)


def amos(
    net: Net, generator: Net, readouts: int, lengths: np.ndarray, asked: float, learned: bool = True,
    dense: bool = False, linear: bool = False,
) -> float:  # fmt: skip
    """A training step of AMOS: a head for each readout, and the product of samples and words if the mixture learns."""
    main = net.forward(lengths, dense) + net.detect(float(lengths.sum()), linear)
    product = asked * 2 * net.embedding * net.vocabulary if learned else 0.0
    return TRAINING * (main + generator.forward(lengths, dense) + readouts * generator.guess(asked) + product)


def labelled(config: Any, lengths: np.ndarray) -> float:
    """A training step with labels, whose heads cost next to nothing; 0 where the sizes go by other names."""
    try:
        return TRAINING * net_of(config).forward(lengths)
    except AttributeError:
        return 0.0


def step(objective: Any, config: Any, lengths: np.ndarray, done: int = 0) -> float:
    """A plain training step of a pretraining objective after `done` steps, on such lengths; 0 for any other one."""
    masking = getattr(getattr(objective, "options", None), "masking", None)
    if masking is None:
        return 0.0
    asked = float(np.maximum(np.rint(masking.at(done).probability * lengths), 1).sum())
    if not hasattr(objective, "generator"):
        return mlm(net_of(config), lengths, asked)
    generator = net_of(objective.generator.encoder.net.config) if objective.generator else None
    linear = config.model_type == "amos"  # the encoder with relative positions brings its own head
    if generator and hasattr(objective, "readouts"):
        learned = objective.mixture is not None and objective.options.reversal != 0
        return amos(net_of(config), generator, len(objective.readouts), lengths, asked, learned, linear=linear)
    return electra(net_of(config), generator, lengths, asked, linear=linear)
