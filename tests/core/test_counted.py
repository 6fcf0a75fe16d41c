"""Numbers with their noun, as people write them."""

import re
from pathlib import Path

import pytest

import encodery
from encodery.core.counted import are, counted, each


@pytest.mark.parametrize(
    ("number", "plain", "whole"),
    [
        (0, "0 rows", "all 0 rows"),
        (1, "1 row", "the only row"),
        (2, "2 rows", "both rows"),
        (1024, "1,024 rows", "all 1,024 rows"),
    ],
)
def test_a_number_and_its_noun_agree(number: int, plain: str, whole: str) -> None:
    assert (counted(number, "row"), each(number, "row")) == (plain, whole)
    assert are(number) == ("is" if number == 1 else "are")


def test_no_message_builds_a_plural_of_its_own() -> None:
    own = re.compile(r"""\{(['"])s\1 \* """)
    files = Path(encodery.__file__).parent.rglob("*.py")
    assert not [path.name for path in files if any(map(own.search, path.read_text(encoding="utf-8").splitlines()))]
