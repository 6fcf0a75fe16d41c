"""What the tests of tables and pages share."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from encodery.core import near_duplicates

KNOWN: dict[Any, list[Any]] = {}


@pytest.fixture(autouse=True, scope="module")
def near_duplicates_are_found_once() -> Iterator[None]:
    """Most pages here are of toy/nli: comparing its rows takes a second, and gives the same each time."""
    real = near_duplicates.pairs

    def pairs(texts: Sequence[Any], others: Sequence[Any] | None = None, *more: Any) -> list[Any]:
        key = (tuple(texts), None if others is None else tuple(others), *more)
        if key not in KNOWN:
            KNOWN[key] = real(texts, others, *more)
        return list(KNOWN[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_duplicates, "pairs", pairs)
        yield
