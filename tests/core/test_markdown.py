from encodery.core.markdown import markdown_table


def test_a_table_has_a_line_for_each_row() -> None:
    assert markdown_table(["a", "b"], [["1", 2]]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_a_table_without_rows_keeps_its_header() -> None:
    assert markdown_table(["a"], []) == "| a |\n|---|"


def test_bars_and_line_ends_in_a_cell_do_not_end_it() -> None:
    assert markdown_table(["label"], [["yes|no"], ["two\nlines"]]).splitlines()[2:] == ["| yes\\|no |", "| two lines |"]
