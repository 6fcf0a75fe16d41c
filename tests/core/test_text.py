"""Numbers with their noun as people write them, and Markdown tables."""

import re
from pathlib import Path

import pytest

import encodery
from encodery.core.text import are, counted, each, markdown_table


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


def test_a_table_has_a_line_for_each_row() -> None:
    assert markdown_table(["a", "b"], [["1", 2]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_a_table_without_rows_keeps_its_header() -> None:
    assert markdown_table(["a"], []) == "| a |\n|---|"


def test_bars_and_line_ends_in_a_cell_do_not_end_it() -> None:
    assert markdown_table(["label"], [["yes|no"], ["two\nlines"]]).splitlines()[2:] == ["| yes\\|no |", "| two lines |"]
