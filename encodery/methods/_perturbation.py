"""What methods that perturb embeddings share: where, how large, how it is drawn, how it climbs.

A perturbation is kept as one row per real token, [T, width], sequence by sequence, so padding has none and the layout
does not matter. Norms are per sequence (or per token) and in double. Losses are divided by the totals of the whole
step, so gradients are tiny by nature: their norms are clamped at 1e-30.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from encodery.data.batches import Batch
from encodery.errors import UserError
from encodery.methods._notes import loss_notes, size_notes
from encodery.methods._scale import Preview, Scale, embedding_scales, preview, unit_of
from encodery.methods.base import (
    ActiveMethod,
    Method,
    Totals,
    add,
    detached,
    each,
    normal_per_token,
    note,
    per_token,
    seed_dropout,
    step_of,
)  # fmt: skip
from encodery.methods.plain import Plain
from encodery.models.model import Model, Outputs, Terms
from encodery.models.perturb import Site, Words

SMALLEST = 1e-30
Norm = Literal["l2", "linf"]
Scope = Literal["example", "token"]


@dataclass(frozen=True)
class Space:
    """The perturbations of one micro-batch: which tokens may move, and how lengths are measured."""

    batch: Batch
    free: Tensor  # [T] of bool
    width: int
    norm: Norm
    scope: Scope

    @property
    def groups(self) -> Tensor:
        """For each token the number of the ball it lives in: its sequence, or itself."""
        sequence = self.batch.layout.sequence_of_token
        return sequence if self.scope == "example" else torch.arange(len(sequence), device=sequence.device)

    @property
    def count(self) -> int:
        """How many balls there are."""
        return len(self.batch) if self.scope == "example" else len(self.free)

    def zero(self) -> Tensor:
        return torch.zeros(len(self.free), self.width, device=self.free.device)

    def draw(self, size: float) -> Tensor:
        """Uniform noise. l2: each number is at most size / √(numbers of the ball); linf: at most size."""
        if not size:
            return self.zero()
        noise = per_token(self.batch, self.width, "shift") * 2 - 1
        if self.norm == "l2":
            tokens = self.sums(self.free.to(upcast(self.free)))[:, None]
            noise = noise / (tokens.clamp(min=1) * self.width).sqrt()
        return self.keep(noise * size)

    def normal(self, size: float) -> Tensor:
        """Gaussian noise of this standard deviation, by Box and Muller from two draws a number."""
        return self.keep(normal_per_token(self.batch, self.width) * size)

    def keep(self, values: Tensor) -> Tensor:
        """As a perturbation: float32, zero on tokens that must not move, without a graph."""
        return (values * self.free[:, None]).float().detach()

    def sums(self, per_token: Tensor) -> Tensor:
        """For each token the sum over its ball."""
        empty = per_token.new_zeros(self.count)
        return empty.index_add(0, self.groups, per_token)[self.groups]

    def norms(self, values: Tensor) -> Tensor:
        """For each token the norm of its ball, in double."""
        order = 2.0 if self.norm == "l2" else float("inf")
        each: Tensor = torch.linalg.vector_norm(values.detach(), order, dim=1, dtype=upcast(values))
        if self.norm == "l2":
            return self.sums(each.square()).sqrt()
        return each.new_zeros(self.count).scatter_reduce(0, self.groups, each, "amax")[self.groups]

    def unit(self, grad: Tensor) -> Tensor:
        """The gradient with norm 1; zero where it is zero. For linf it is divided by its largest number, no sign."""
        grad = grad.detach().to(upcast(grad)) * self.free[:, None]
        return grad / self.norms(grad).clamp(min=SMALLEST)[:, None]

    def project(self, values: Tensor, radius: float | None) -> Tensor:
        """Back into the ball; None or 0: there is none."""
        if not radius:
            return values
        if self.norm == "linf":
            return values.clamp(-radius, radius)
        factor = (radius / self.norms(values).clamp(min=SMALLEST)).clamp(max=1)
        return values * factor.to(values.dtype)[:, None]

    def climb(self, delta: Tensor, grad: Tensor, rate: float, radius: float | None) -> Tensor:
        """One ascent: shift + rate · unit gradient, projected. Norms are in double, what they scale need not be."""
        grad = grad.detach() * self.free[:, None]
        rates = (rate / self.norms(grad).clamp(min=SMALLEST)).to(delta.dtype)[:, None]
        return self.keep(self.project(torch.addcmul(delta.detach(), grad, rates), radius))

    def ascend(self, delta: Tensor, grad: Tensor, rate: float, radius: float) -> Tensor:
        """`climb` in the steepest direction of the norm: for linf that is the gradient's sign."""
        return self.climb(delta, grad.sign() if self.norm == "linf" else grad, rate, radius)

    def sizes(self, values: Tensor) -> Tensor:
        """l2 norm of each sequence, whatever the balls are: for the log."""
        squares: Tensor = torch.linalg.vector_norm(values.detach(), dim=1, dtype=upcast(values)).square()
        return squares.new_zeros(len(self.batch)).index_add(0, self.batch.layout.sequence_of_token, squares).sqrt()


def upcast(tensor: Tensor) -> torch.dtype:
    """Double, where the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


class Perturbation(Method):
    """Options of all methods that perturb embeddings."""

    site: Site = "word"
    """Where the perturbation is added. word: to the word embeddings; embedding_output: to the output of the embedding
    layer, after positions, layer norm and dropout; normalised: before that layer norm, in units of each token's
    standard deviation."""
    norm: Norm = "l2"
    """Norm of the perturbation: l2, or linf (the largest absolute value)."""
    norm_scope: Scope = "example"
    """What the norm bound applies to. example: the whole sequence; token: each token on its own."""
    scale: Scale = "absolute"
    """Unit of this method's lengths. absolute, or token_norm: multiples of the mean norm of a token at the site before
    training (of that norm / √hidden size where a length applies to each component, as in linf)."""
    perturb_special_tokens: bool = True
    """Also perturb special tokens such as [CLS] and [SEP]."""
    consistent_dropout: bool = True
    """Use the same dropout masks in all passes of a step."""
    start_step: int = Field(default=0, ge=0)
    """Train without the method before this step."""
    log_attack: int = Field(default=100, ge=0)
    """At the first attack and every N steps, also log the clean loss (at the cost of a forward pass, unless the method
    has one) and the size of the perturbation relative to the norm of the token embeddings and to their nearest
    neighbours. Unless 0, the run also starts with a line on how much the perturbations raise the loss before training.
    0: log only what costs nothing."""

    lengths: ClassVar[tuple[str, ...]] = ()  # keys that are lengths in the method's norm
    numbers: ClassVar[tuple[str, ...]] = ()  # keys that are sizes of single numbers, whatever the norm

    def start(self, model: Model) -> ActiveMethod:
        """What takes the steps of a run; what cannot work is refused before the first of them."""
        self.require(model)
        return self.sized(model)

    def sized(self, model: Model) -> Self:
        """The same method with absolute lengths, from the weights that a run begins with: on resume these again."""
        if self.scale == "absolute":
            return self
        factors = dict.fromkeys(self.lengths, unit_of(model.encoder, self.site, self.norm))
        factors |= dict.fromkeys(self.numbers, unit_of(model.encoder, self.site, "linf"))
        found: dict[str, Any] = {key: getattr(self, key) for key in factors}
        sizes = {key: value and value * factors[key] for key, value in found.items()}
        return self.model_copy(update={**sizes, "scale": "absolute"})

    @property
    def reach(self) -> float:
        """The longest perturbation there can be, in the method's norm; 0: there is none."""
        return 0.0

    def preview(self, model: Model, batch: Batch) -> Preview | None:
        """What the perturbations do to the loss of a model that was not trained for them."""
        return preview(self.sized(model), model, batch) if self.log_attack else None

    def require(self, model: Model) -> None:
        """There must be a place for perturbations in this encoder."""
        model.encoder.require_site(self.site)
        self.special_ids(model)

    def special_ids(self, model: Model) -> Sequence[int]:
        """Tokens that must not move."""
        if self.perturb_special_tokens:
            return ()
        if not model.encoder.special_ids:
            raise UserError("method.perturb_special_tokens: this tokenizer names no special tokens")
        return model.encoder.special_ids

    def watches(self, step: int) -> bool:
        """Whether this is a step for the costly part of the log: the first attack, and every so many steps."""
        return self.log_attack > 0 and (step == self.start_step + 1 or step % self.log_attack == 0)

    def __call__(self, model: Model, micro: Sequence[Batch], totals: Totals) -> Terms:
        if self.scale != "absolute":
            raise TypeError("lengths relative to the encoder: use what start(model) returns")
        if step_of(micro, totals) < self.start_step:
            return Plain()(model, micro, totals)
        return each(self.on_batch, model, micro, totals)

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        raise NotImplementedError

    def space(self, model: Model, batch: Batch) -> Space:
        """Where this micro-batch's perturbations live."""
        tokens = batch.tokens(batch.inputs["input_ids"])
        free = torch.ones_like(tokens, dtype=torch.bool)
        for special in self.special_ids(model):  # a few numbers of the host: no copy
            free &= tokens != special
        return Space(batch, free, model.encoder.site_width(self.site), self.norm, self.norm_scope)

    def run(
        self,
        model: Model,
        batch: Batch,
        delta: Tensor | None,
        draw: int = 0,
        words: Words | None = None,
        detach: bool = False,
    ) -> tuple[Outputs, Terms]:
        """A forward pass with a perturbation; `draw` counts only where dropout may differ."""
        seed_dropout(batch, 0 if self.consistent_dropout else draw)
        if delta is None:
            return model(batch)  # type: ignore[no-any-return]
        masks = words.draws.shared() if words and self.consistent_dropout else nullcontext()
        with masks, model.encoder.perturbed(batch.layout.from_tokens(delta), self.site, detach, words):
            return model(batch)  # type: ignore[no-any-return]

    def costly_notes(self, model: Model, space: Space, delta: Tensor, clean: bool = True) -> Terms:
        """The costly part of the log: the clean loss, and the size of the perturbation in terms of embeddings."""
        batch, notes = space.batch, Terms()
        if not self.watches(batch.step + 1):
            return notes
        if clean:
            with torch.no_grad():
                add(notes, loss_notes("loss_clean", model, batch, self.run(model, batch, None)[1]))
        per_token = space.sizes(delta) / batch.layout.lengths.sqrt()  # root mean square over the tokens
        if self.site == "normalised":  # there every token has norm √width, and words have no distances
            add(notes, note("delta_per_embedding_norm", (per_token / space.width**0.5).sum(), len(batch)))
            return notes
        norms, gaps = embedding_scales(model, batch)
        add(notes, note("delta_per_embedding_norm", (per_token / norms).sum(), len(batch)))
        add(notes, note("delta_per_neighbour_distance", (per_token / gaps).sum(), len(batch)))
        return notes


class OneStep(Perturbation):
    """Options of methods with a clean pass that gives the direction, and an adversarial one."""

    clean_weight: float = Field(default=1.0, ge=0)
    """Weight of the clean loss, relative to 1 for the adversarial loss. The weights are normalised to sum to 1."""

    @property
    def share(self) -> float:
        """Weight of the clean loss, of 1."""
        return self.clean_weight / (1 + self.clean_weight)

    def delta(self, space: Space, grad: Tensor) -> Tensor:
        """The perturbation that follows from the gradient at the clean embeddings."""
        raise NotImplementedError

    def on_batch(self, model: Model, batch: Batch, totals: Totals) -> Terms:
        """One micro-batch, a perturbation for each sequence."""
        space, summed = self.space(model, batch), Terms()
        here, part, words = space.zero().requires_grad_(), totals.times(self.share or 1.0), Words()
        grad = self.first(model, batch, part, here, summed, words)
        delta = self.delta(space, grad)
        add(summed, size_notes(space, part, 1, here, grad))
        self.second(model, batch, totals, delta, summed, words)
        words.settle()
        add(summed, size_notes(space, part, 2, delta, None))
        add(summed, self.costly_notes(model, space, delta, clean=False))
        return summed

    def first(
        self, model: Model, batch: Batch, part: Totals, wanted: Tensor, summed: Terms, words: Words | None = None
    ) -> Tensor:
        """The clean pass: the gradient of what is to be moved. The weights get theirs only if the pass counts."""
        _, terms = self.run(model, batch, None if isinstance(wanted, nn.Parameter) else wanted, 0, words)
        if self.share:
            add(summed, detached(terms), self.share)
            part.mean(terms).backward()  # type: ignore[no-untyped-call]
            grad = wanted.grad
        else:
            (grad,) = torch.autograd.grad(part.mean(terms), wanted)
        add(summed, loss_notes("loss_clean", model, batch, detached(terms)))
        assert grad is not None
        return grad

    def second(
        self,
        model: Model,
        batch: Batch,
        totals: Totals,
        delta: Tensor | None,
        summed: Terms,
        words: Words | None = None,
    ) -> None:
        _, terms = self.run(model, batch, delta, 1, words)
        totals.times(1 - self.share).mean(terms).backward()  # type: ignore[no-untyped-call]
        add(summed, detached(terms), 1 - self.share)
        add(summed, loss_notes("loss_adv", model, batch, detached(terms)))


Ascend = Callable[[Space, Tensor, int], Tensor]  # the next perturbation, after a pass at this one; number of the pass


class Attack(Perturbation):
    """Options of methods that climb the loss in several passes."""

    steps: int = Field(default=3, ge=1)
    """K, the number of forward and backward passes per update. `ascent_steps: K - 1` means the same."""
    adv_lr: float = Field(default=0.1, ge=0)
    """Step size of the ascent."""
    init_mag: float = Field(default=0.1, ge=0)
    """Size of the random initial perturbation, whose mean l2 norm is init_mag / √3. 0: start at the clean
    embeddings."""
    max_norm: float | None = Field(default=0.3, ge=0)
    """Maximum norm of the perturbation after each ascent step. The random start is not projected. null or 0: no
    limit."""
    clean_weight: float = Field(default=0.0, ge=0)
    """Weight of an additional clean pass, relative to 1 for the adversarial passes. The weights are normalised to sum
    to 1."""

    lengths: ClassVar[tuple[str, ...]] = ("adv_lr", "init_mag", "max_norm")

    @property
    def reach(self) -> float:
        """From the random start as far as the ascents go, within the ball."""
        way = self.adv_lr * (self.steps - 1)
        return max(self.init_mag, min(self.init_mag + way, self.max_norm or float("inf")))

    @model_validator(mode="before")
    @classmethod
    def _ascent_steps(cls, given: object) -> object:
        return with_alias(given)

    def clean(self, model: Model, batch: Batch, totals: Totals) -> tuple[Terms, Totals, float]:
        """The clean pass, if there is one; then what is left for the adversarial ones: totals and weight."""
        summed, rest = Terms(), 1 / (1 + self.clean_weight)
        if self.clean_weight:
            terms = self.descend(model, batch, totals.times(1 - rest), None)
            add(summed, terms, 1 - rest)
            add(summed, loss_notes("loss_clean", model, batch, terms))
        return summed, totals.times(rest), rest

    def descend(
        self,
        model: Model,
        batch: Batch,
        totals: Totals,
        delta: Tensor | None,
        draw: int = 0,
        words: Words | None = None,
    ) -> Terms:
        """A pass whose gradient goes to the weights (and to the perturbation, if it asks for one)."""
        _, terms = self.run(model, batch, delta, draw, words)
        totals.mean(terms).backward()  # type: ignore[no-untyped-call]
        return detached(terms)

    def averaged(self, model: Model, batch: Batch, totals: Totals, ascend: Ascend) -> Terms:
        """The mean gradient over all passes, at perturbations that climb between them: FreeLB and its kin."""
        space = self.space(model, batch)
        summed, left, weight = self.clean(model, batch, totals)
        delta, part, words = space.draw(self.init_mag), left.times(1 / self.steps), Words()
        for k in range(1, self.steps + 1):
            last = k == self.steps
            delta.requires_grad_(not last)
            terms = self.descend(model, batch, part, delta, k - 1, words)
            add(summed, terms, weight / self.steps)
            add(summed, loss_notes("loss_adv" if last else f"loss_{k}", model, batch, terms))
            add(summed, size_notes(space, part, k, delta, delta.grad))
            if not last:
                delta = ascend(space, delta, k)
        words.settle()
        add(summed, self.costly_notes(model, space, delta, clean=not self.clean_weight))
        return summed

    def climb(self, space: Space, delta: Tensor, grad: Tensor | None) -> Tensor:
        """One ascent with these options."""
        assert grad is not None
        return space.climb(delta, grad, self.adv_lr, self.max_norm)


def with_alias(given: object) -> object:
    """`ascent_steps: 2` is `steps: 3`; both together are refused."""
    if not isinstance(given, dict) or "ascent_steps" not in given:
        return given
    if "steps" in given:
        raise ValueError("give steps (all passes) or ascent_steps (one less), not both")
    ascents = given["ascent_steps"]
    if not isinstance(ascents, int) or isinstance(ascents, bool) or ascents < 0:
        raise ValueError("ascent_steps: expected a whole number, 0 or more")
    return {**{key: value for key, value in given.items() if key != "ascent_steps"}, "steps": ascents + 1}
