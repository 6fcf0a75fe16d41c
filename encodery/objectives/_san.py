"""The SAN head of MT-DNN (Liu et al. 2018, arXiv 1804.07888): an answer to a pair, thought over several times.

h_0 = Σ softmax(w · y) y over the second text y;  for t = 0 … K − 1 over the first text x:
    α = softmax(x · W h_t);  c = Σ α x;  p_t = softmax(V [c; h_t; |c − h_t|; c ⊙ h_t]);  h_{t+1} = GRU(c, h_t)
The answer is log of the mean of p_t, in which turns are dropped while training (never all of an example). It is a
logarithm of probabilities: cross-entropy on it is exact, temperatures and squared differences mean something else.
"""

import torch
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.models.encoder import Encoder

FAR = -1e9  # the score of a token that may not be looked at


class SanHead(nn.Module):
    """Several looks at the first text, each with what was read of the second one in mind."""

    def __init__(self, encoder: Encoder, outputs: int, dropout: float, separator: int, turns: int, turn_dropout: float):
        super().__init__()
        if outputs < 2:
            raise UserError("objective.head: san chooses between labels; for numbers and rankings use another head")
        width = encoder.width
        self.separator, self.turns, self.turn_dropout = separator, turns, turn_dropout
        self.dropout = nn.Dropout(dropout)
        self.begin, self.look = nn.Linear(width, 1), nn.Linear(width, width)
        self.think, self.out = nn.GRUCell(width, width), nn.Linear(4 * width, outputs)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Log-probabilities [n, outputs]."""
        rows, _ = batch.rows(hidden)
        first, second = self.texts(batch)
        state = mean_by(self.begin(rows)[..., 0], rows, second)
        turns = []
        for _ in range(self.turns):
            seen = mean_by((rows * self.look(state)[:, None]).sum(2), rows, first)
            both = torch.cat([seen, state, (seen - state).abs(), seen * state], 1)
            turns.append(self.out(self.dropout(both)).softmax(1))
            state = self.think(seen, self.dropout(state))
        stacked = torch.stack(turns, 1)
        return (stacked * self.kept(stacked)).mean(1).clamp(min=1e-30).log()

    def texts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Which tokens are of the first text, and which of the second; of an empty text its separators."""
        ids, real = batch.rows(batch.inputs["input_ids"])
        ends = (ids == self.separator) & real
        passed = ends.long().cumsum(1)
        place = torch.arange(ids.shape[1], device=ids.device)
        first = real & (passed == 0) & (place > 0)
        second = real & (passed > 0) & ~ends
        if int(ends.sum(1).max()) < 2:  # a pair has a separator after each text, even after an empty one
            raise UserError(f"objective.head: san reads pairs of texts, and {batch.task} has single ones")
        return tuple(torch.where(t.any(1, keepdim=True), t, ends) for t in (first, second))  # type: ignore[return-value]

    def kept(self, turns: Tensor) -> Tensor:
        """Which turns count [n, turns, 1]: while training some are dropped, but one of each example always stays."""
        if not self.training or not self.turn_dropout:
            return torch.ones_like(turns[..., :1])
        drawn, always = torch.rand((2, *turns.shape[:2]), device=turns.device)
        kept = (drawn >= self.turn_dropout).to(turns.dtype)
        kept = kept.scatter(1, always.argmax(1, keepdim=True), 1.0)
        scaled: Tensor = kept[..., None] / (1 - self.turn_dropout)
        return scaled


def mean_by(scores: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    """The mean of the rows' tokens by the softmax of their scores, over those that may be looked at."""
    shares = scores.masked_fill(~mask, FAR).softmax(1)
    return (shares[..., None] * rows).sum(1)
