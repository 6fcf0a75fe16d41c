"""A part of the rows set aside, the same for equal seeds: stratified by label, or whole groups at a time."""

import hashlib
from collections.abc import Sequence

from encodery.errors import UserError
from encodery.tasks.base import Example


def set_aside(examples: Sequence[Example], fraction: float, seed: int) -> tuple[list[Example], list[Example]]:
    """(the rest, the part set aside), both in file order. Groups are kept whole where examples have them."""
    grouped = any(e.group is not None for e in examples)
    chosen = _by_group(examples, fraction, seed) if grouped else _by_label(examples, fraction, seed)
    if not 0 < len(chosen) < len(examples):
        what = f"the groups of {len(examples)} rows" if grouped else f"{len(examples)} rows"
        raise UserError(f"{what} are too few to set {fraction:g} of them aside; name a dev file")
    rest = [e for i, e in enumerate(examples) if i not in chosen]
    return rest, [e for i, e in enumerate(examples) if i in chosen]


def _draw(seed: int, key: str) -> bytes:
    """A number that looks random, from the seed and a name alone."""
    return hashlib.blake2b(f"{seed}:{key}".encode(errors="surrogatepass"), digest_size=8).digest()


def _by_label(examples: Sequence[Example], fraction: float, seed: int) -> set[int]:
    """Evenly spaced rows of those sorted by label, then at random: each label (or range of numbers) gives its share."""
    order = sorted(range(len(examples)), key=lambda i: (_stratum(examples[i]), _draw(seed, examples[i].id)))
    return {row for place, row in enumerate(order) if round((place + 1) * fraction) > round(place * fraction)}


def _stratum(example: Example) -> tuple[float, str]:
    if isinstance(example.label, float):
        return example.label, ""
    return 0.0, repr(sorted(example.label) if isinstance(example.label, tuple) else example.label)


def _by_group(examples: Sequence[Example], fraction: float, seed: int) -> set[int]:
    """Whole groups in random order until the part is full; a row without a group is a group of its own."""
    groups: dict[str, list[int]] = {}
    for i, example in enumerate(examples):
        groups.setdefault(f"g{example.group}" if example.group is not None else f"r{example.id}", []).append(i)
    chosen: set[int] = set()
    for name in sorted(groups, key=lambda name: _draw(seed, name)):
        if len(chosen) >= fraction * len(examples):
            break
        chosen.update(groups[name])
    return chosen
