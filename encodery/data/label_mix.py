"""Which labels a choice of rows takes, beside those of the pool: hard rows of one label alone make another task."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from encodery.tasks.base import Example

MOST = 12  # labels that are listed


def labels_of(examples: Iterable[Example]) -> dict[str, str]:
    """Id to label, of the rows that have one label (not a number, not several)."""
    return {example.id: example.label for example in examples if isinstance(example.label, str)}


def shares_of(labels: Iterable[str]) -> dict[str, float]:
    """The share of each label, by name."""
    counts = Counter(labels)
    return {label: counts[label] / counts.total() for label in sorted(counts)}


def about(pool: Mapping[str, float], chosen: Mapping[str, float]) -> str | None:
    """`labels: entailment 41.2 % (pool 33.4 %), …`; None where rows have no labels."""
    if not pool:
        return None
    most = set(sorted(pool, key=lambda label: -abs(chosen.get(label, 0.0) - pool[label]))[:MOST])
    each = [f"{one} {100 * chosen.get(one, 0.0):.1f} % (pool {100 * pool[one]:.1f} %)" for one in pool if one in most]
    more = f", and {len(pool) - len(most)} that differ less" if len(pool) > len(most) else ""
    return f"labels: {', '.join(each)}{more}"


def meta(pool: Mapping[str, float], chosen: Mapping[str, float]) -> dict[str, Any]:
    """For a meta file; empty where rows have no labels."""
    return {"labels": {"chosen": dict(chosen), "pool": dict(pool)}} if pool else {}
