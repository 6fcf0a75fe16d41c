"""Any column of the rows, for breakdowns."""

import pytest

from encodery.errors import UserError
from encodery.tasks.sources.columns import NONE, column, grouped, ordered
from encodery.tasks.table import Table


def table(folder, text, **more) -> Table:
    (folder / "a.csv").write_text(text)
    return Table.model_validate({"train": str(folder / "a.csv"), "dev": str(folder / "a.csv"), **more})


def test_columns_that_only_the_file_has(tmp_path):
    task = table(tmp_path, "key,text,label,source\nk1,a b,x,web\nk2,c d,y,\nk3,e f,x,mail\n", id="key")
    assert column(task, "train", "source") == {"k1": "web", "k2": NONE, "k3": "mail"}
    assert column(task, "train", "label") == {"k1": "x", "k2": "y", "k3": "x"}
    with pytest.raises(UserError, match="has no column genre; it has label, key, text, source"):
        column(task, "train", "genre")


def test_a_part_set_aside_has_the_columns_of_its_file(tmp_path):
    rows = "".join(f"text {i},{'xy'[i % 2]},s{i % 3}\n" for i in range(40))
    (tmp_path / "a.csv").write_text("text,label,source\n" + rows)
    task = Table.model_validate({"train": str(tmp_path / "a.csv")})
    found = column(task, "dev", "source")
    assert found
    assert all(value == f"s{int(id) % 3}" for id, value in found.items())
    assert found.keys() == {example.id for example in task.examples("dev")}


def test_reading_a_column_changes_no_digest(tmp_path):
    text = "text,label,source\na b,x,web\nc d,y,mail\n"
    task = table(tmp_path, text)
    before = task.origin("train").digest
    column(task, "train", "source")
    assert table(tmp_path, text).origin("train").digest == before


def test_many_numbers_become_quarters_and_many_words_are_refused():
    found = grouped({str(i): i / 2 for i in range(100)}, "length")
    assert sorted(set(found.values())) == ["12.5 to 25", "25 to 37.5", "37.5 and more", "below 12.5"]
    assert list(found.values()).count("below 12.5") == 25
    assert grouped({"a": None, "b": 2.0, "c": True}, "n") == {"a": NONE, "b": "2", "c": "true"}
    with pytest.raises(UserError, match="has 100 different values"):
        grouped({str(i): f"w{i}" for i in range(100)}, "text")


def test_parts_of_numbers_come_from_low_to_high_and_names_by_their_rows():
    found = grouped({str(i): None if i == 7 else i - 20 for i in range(100)}, "n")
    assert ordered(dict.fromkeys(reversed(found.values()), 25)) == [
        "below 5", "5 to 30", "30 to 55", "55 and more", NONE,
    ]  # fmt: skip
    assert ordered({"10": 5, "2": 9, NONE: 70, "-1": 1}) == ["-1", "2", "10", NONE]
    assert ordered({"fiction": 5, "below par": 9, "2 to go": 70}) == ["2 to go", "below par", "fiction"]
    assert ordered({"nan": 1, "inf": 2, "a to b": 3}) == ["a to b", "inf", "nan"]


@pytest.mark.real
def test_mnli_has_hard_and_genre(real_data):
    from encodery.inference.task_argument import named

    hard = column(named("glue/mnli", str(real_data)), "dev", "hard")
    assert sorted(set(hard.values())) == ["0", "1"]
    assert len(hard) == 9815
