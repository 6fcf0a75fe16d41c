"""Which positions a masked language model is asked about, and what it is shown there.

Every choice is a function of (key of the step, example), so a step is corrupted in the same way however it is cut into
micro-batches, and resuming restores nothing. How many positions are asked is known before any forward pass.
"""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from encodery.core.options import Options
from encodery.data import rng
from encodery.data.batches import Batch, sent
from encodery.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SELECT, SHOW, RANDOM, SAMPLE = range(4)  # what the four numbers drawn for a token decide


class Masking(Options):
    """Which positions are predicted, and what the input shows there."""

    probability: float = Field(default=0.15, gt=0, lt=1)
    """Fraction of a sequence's tokens to predict."""
    final_probability: float | None = Field(default=None, gt=0, lt=1)
    """The fraction changes linearly from `probability` to this value, which it reaches at `final_step`. Held-out text
    always uses `probability`."""
    final_step: int | None = Field(default=None, ge=1)
    """Step at which `final_probability` is reached, such as the last step of the run."""
    positions: Literal["distinct", "bernoulli", "with_replacement"] = "distinct"
    """How positions are drawn. distinct: exactly round(fraction · tokens), at least 1; bernoulli: each position
    independently; with_replacement: as in Google's code."""
    cap: int | None = Field(default=None, ge=1)
    """Maximum number of positions per sequence. Google's code uses floor((probability + 0.005) · max_length)."""
    whole_words: Literal["no", "fairseq", "hf"] = "no"
    """Mask whole words. no: single tokens; fairseq: draw a fraction of the words, and replace all tokens of a word in
    the same way;
    hf: draw words until the fraction of tokens is reached."""
    mask: float = Field(default=0.85, ge=0, le=1)
    """Fraction of these positions that show the mask token."""
    random: float = Field(default=0.0, ge=0, le=1)
    """Fraction of these positions that show a random token. The rest show the original token."""

    @model_validator(mode="after")
    def _must_fit(self) -> Self:
        if self.mask + self.random > 1:
            raise ValueError(f"mask {self.mask} and random {self.random} are more than 1 together")
        if self.whole_words != "no" and (self.positions != "distinct" or self.cap is not None):
            raise ValueError("whole_words chooses words by itself; remove positions and cap")
        if (self.final_probability is None) != (self.final_step is None):
            raise ValueError("final_probability and final_step belong together: give both, or neither")
        return self

    def at(self, step: int) -> Self:
        """The masking of a step, with its own share."""
        if self.final_probability is None or self.final_step is None:
            return self
        done = min(1.0, step / self.final_step)
        share = self.probability + done * (self.final_probability - self.probability)
        return self.model_copy(update={"probability": share, "final_probability": None, "final_step": None})


class BertMasking(Masking):
    """As in BERT: 80 % mask token, 10 % random token, 10 % original token."""

    mask: float = Field(default=0.8, ge=0, le=1)
    """Fraction of these positions that show the mask token."""
    random: float = Field(default=0.1, ge=0, le=1)
    """Fraction of these positions that show a random token. The rest show the original token."""


class FullMasking(Masking):
    """As in AMOS: every predicted position shows the mask token."""

    mask: float = Field(default=1.0, ge=0, le=1)
    """Fraction of these positions that show the mask token."""


@dataclass(frozen=True)
class Vocabulary:
    """What masking must know of a tokenizer."""

    mask_id: int
    fixed: np.ndarray  # [V] of bool: never asked about
    inside: np.ndarray  # [V] of bool: goes on with the word before it
    ordinary: np.ndarray  # ids that may be shown at random


def vocabulary(tokenizer: "PreTrainedTokenizerBase", size: int) -> Vocabulary:
    """Special tokens and word beginnings of a tokenizer, for an embedding with `size` rows."""
    if tokenizer.mask_token_id is None:
        raise UserError("objective: this tokenizer has no mask token, so nothing can be masked")
    names = ("pad", "cls", "sep", "bos", "eos", "mask")
    named = [getattr(tokenizer, f"{name}_token_id", None) for name in names]
    fixed = np.zeros(size, dtype=bool)
    fixed[[one for one in named if one is not None]] = True
    pieces = {i: piece for piece, i in tokenizer.get_vocab().items() if i < size}
    special = set(tokenizer.all_special_ids)
    ordinary = np.asarray(sorted(i for i in pieces if i not in special), dtype=np.int64)
    return Vocabulary(tokenizer.mask_token_id, fixed, inside_words(pieces, special, size), ordinary)


def inside_words(pieces: dict[int, str], special: set[int], size: int) -> np.ndarray:
    """Pieces that go on with a word: those with `##` (WordPiece), or those without the `▁` or `Ġ` of a beginning."""
    inside = np.zeros(size, dtype=bool)
    marks = {mark: sum(piece.startswith(mark) for piece in pieces.values()) for mark in ("##", "▁", "Ġ")}
    common = max(marks, key=marks.__getitem__)
    for i, piece in pieces.items():
        inside[i] = i not in special and piece.startswith(common) == (common == "##")
    return inside


@dataclass(frozen=True)
class Masked:
    """What is shown, and what is asked. A position may be asked twice (with_replacement)."""

    ids: Tensor  # shown, in the batch's layout
    cells: Tensor  # [K] the asked positions among the flattened cells of the layout
    truth: Tensor  # [K] what stood there
    sequence: Tensor  # [K] which sequence of the batch it is in
    uniform: Tensor  # [K] a number in [0, 1] for each, to sample by
    hidden: Tensor  # [K] of bool: whether it shows the mask

    def to(self, device: torch.device) -> "Masked":
        """The same on another device."""
        return Masked(*(sent(getattr(self, one.name), device) for one in fields(self)))

    def gather(self, hidden: Tensor) -> Tensor:
        """The vectors of the asked positions: [K, …]."""
        return hidden.flatten(0, 1).index_select(0, self.cells)


def prepared(batch: Batch, options: Masking, vocabulary: Vocabulary) -> Batch:
    """The batch with its masked positions, drawn on the host and brought to where it is."""
    made, device = mask(batch.host, options, vocabulary), batch.inputs["input_ids"].device
    return replace(batch, masked=made if device.type == "cpu" else made.to(device))


def mask(batch: Batch, options: Masking, vocabulary: Vocabulary) -> Masked:
    """The batch as the masked language model sees it."""
    if batch.masked is not None:
        return batch.masked  # type: ignore[no-any-return]
    ids = batch.inputs["input_ids"]
    text = _text(batch)
    options = options.at(batch.step)
    token, drawn = _choose(text, options, vocabulary)
    shown = ids.flatten().clone()
    cells = batch.layout.cells[_put(token, ids)]
    truth = shown[cells]
    random = (drawn[:, SHOW] >= options.mask) & (drawn[:, SHOW] < options.mask + options.random)
    other = vocabulary.ordinary[(drawn[random, RANDOM] * len(vocabulary.ordinary)).astype(np.int64)]
    shown[cells[_put(np.flatnonzero(random), ids)]] = _put(other, ids)
    hidden = _put(np.flatnonzero(drawn[:, SHOW] < options.mask), ids)
    shown[cells[hidden]] = vocabulary.mask_id  # last: it wins where one is asked twice
    sequence, uniform = _put(text.sequence[token], ids), _put(drawn[:, SAMPLE].astype(np.float32), ids)
    return Masked(shown.view_as(ids), cells, truth, sequence, uniform, shown[cells] == vocabulary.mask_id)


def count(batch: Batch, options: Masking, vocabulary: Vocabulary) -> int:
    """How many positions are asked about."""
    if batch.masked is not None:
        return len(batch.masked.cells)
    return len(_choose(_text(batch), options.at(batch.step), vocabulary)[0])


def _put(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.device)


@dataclass(frozen=True)
class _Text:
    """The tokens of a batch, sequence by sequence, and where its random numbers come from."""

    tokens: np.ndarray  # [T]
    lengths: np.ndarray  # [n]
    sequence: np.ndarray  # [T]
    rows: np.ndarray  # [n] ids of the examples
    noise: int

    def drawn(self) -> np.ndarray:
        """Four numbers in [0, 1) for each token."""
        return rng.per_token(rng.key(self.noise, "mask"), self.rows, self.lengths, 4)

    def ranks(self, sequence: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Order by score within each sequence, and the place of each in it; `sequence` ascends."""
        order = np.lexsort((score, sequence))
        starts = np.searchsorted(sequence, np.arange(len(self.lengths)))
        return order, np.arange(len(sequence)) - starts[sequence]

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sums over each sequence."""
        return np.bincount(self.sequence, values, len(self.lengths)).astype(np.int64)


def _text(batch: Batch) -> _Text:
    host = batch.host
    tokens, lengths = host.tokens(host.inputs["input_ids"]).cpu().numpy(), batch.layout.host_lengths
    return _Text(tokens, lengths, np.repeat(np.arange(len(lengths)), lengths), batch.ids.numpy(), batch.noise)


def _choose(text: _Text, options: Masking, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """The asked tokens, and the four numbers drawn for each of them."""
    free = ~vocabulary.fixed[text.tokens]
    if options.positions == "with_replacement":
        return _with_replacement(text, options, free)
    drawn = text.drawn()
    if options.whole_words != "no":
        return _words(text, options, free & vocabulary.inside[text.tokens], free, drawn)
    if options.positions == "bernoulli":
        token = np.flatnonzero(free & (drawn[:, SELECT] < options.probability))
    else:
        order, rank = text.ranks(text.sequence, np.where(free, drawn[:, SELECT], 2.0))
        token = np.sort(order[rank < _wanted(text, options, free)[text.sequence]])
    return token, drawn[token]


def _wanted(text: _Text, options: Masking, free: np.ndarray) -> np.ndarray:
    """How many positions each sequence is asked about: a share of its tokens, at least 1, of those that are free."""
    share = np.rint(options.probability * text.lengths).astype(np.int64)
    most = share if options.cap is None else np.minimum(share, options.cap)
    found: np.ndarray = np.minimum(np.maximum(most, 1), text.sums(free))
    return found


def _with_replacement(text: _Text, options: Masking, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Google's way: each position is drawn anew, so that one may come twice."""
    there = text.sums(free)
    share = np.rint(options.probability * text.lengths).astype(np.int64)
    most = np.maximum(share if options.cap is None else np.minimum(share, options.cap), 1) * (there > 0)
    longest = int(most.max(initial=0))
    drawn = rng.uniform(rng.key(text.noise, "mask again"), text.rows, longest * 4).reshape(-1, longest, 4)
    begin = np.cumsum(there) - there
    place = begin[:, None] + (drawn[:, :, SELECT] * there[:, None]).astype(np.int64)
    used = np.arange(longest) < most[:, None]
    return np.flatnonzero(free)[place[used]], drawn[used]


def _words(
    text: _Text, options: Masking, inside: np.ndarray, free: np.ndarray, drawn: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Whole words. A word begins after a special token, at the start, and wherever its piece says so."""
    follows = np.r_[False, free[:-1] & (text.sequence[1:] == text.sequence[:-1])]
    first = np.flatnonzero(free & ~(inside & follows))
    word = np.cumsum(np.isin(np.arange(len(free)), first))[free] - 1  # of each free token
    sequence, score = text.sequence[first], drawn[first, SELECT]
    if options.whole_words == "fairseq":
        chosen = _share_of_words(text, options, sequence, score)
    else:
        chosen = _words_up_to(text, options, sequence, score, np.bincount(word, minlength=len(first)))
    token = np.flatnonzero(free)[chosen[word]]
    found = drawn[token]
    if options.whole_words == "fairseq":  # one way of showing for all pieces of a word
        found[:, SHOW] = drawn[first[word[chosen[word]]], SHOW]
    return token, found


def _share_of_words(text: _Text, options: Masking, sequence: np.ndarray, score: np.ndarray) -> np.ndarray:
    """floor(share · words + u) words of each sequence, at least 1."""
    words = np.bincount(sequence, minlength=len(text.lengths))
    extra = rng.uniform(rng.key(text.noise, "words"), text.rows, 1)[:, 0]
    wanted = np.maximum(np.floor(options.probability * words + extra), 1)
    order, rank = text.ranks(sequence, score)
    chosen = np.zeros(len(sequence), dtype=bool)
    chosen[order[rank < wanted[sequence]]] = True
    return chosen


def _words_up_to(
    text: _Text, options: Masking, sequence: np.ndarray, score: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Words in random order until max(1, round(share · tokens)) tokens are covered; those too long are passed over."""
    left = np.maximum(np.rint(options.probability * text.lengths).astype(np.int64), 1)
    chosen = np.zeros(len(sequence), dtype=bool)
    order, rank = text.ranks(sequence, score)
    for place in order:
        if size[place] <= left[sequence[place]]:
            chosen[place] = True
            left[sequence[place]] -= size[place]
    served = np.bincount(sequence, chosen, len(text.lengths)) > 0
    chosen[order[(rank == 0) & ~served[sequence]]] = True  # every word was too long: one all the same
    return chosen
