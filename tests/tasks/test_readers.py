import contextlib
import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.errors import UserError
from encodery.tasks.sources.readers import read, refuse
from encodery.tasks.sources.rows import file_digest
from encodery.tasks.table import Table

STRANGE = [
    'say "hello',
    '"',
    '""',
    '"a" b',
    "N/A",
    "null",
    "NaN",
    "",
    " blanks ",
    "lone\rreturn",
    "line\u2028separator\u2029\x85\x0b\x0c\x1c",
    "nul\x00byte",
    "\ufeffmark inside",
    "tabs none, commas, yes",
    "𝔘nicode 🙂",
]
cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), max_size=12)


def put(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def values(sheet, column="text"):
    assert not sheet.bad
    return [row.values[column] for row in sheet.rows]


def as_tsv(rows, end="\n"):
    return end.join(["text\tlabel", *(f"{text}\t1" for text in rows)]) + end


def as_jsonl(rows, end="\n"):
    return "".join(json.dumps({"text": text, "label": 1}, ensure_ascii=False) + end for text in rows)


def as_csv(rows, end="\n"):
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=end)
    writer.writerow(["text", "label"])
    writer.writerows([text, 1] for text in rows)
    return out.getvalue()


WRITERS = {"tsv": as_tsv, "jsonl": as_jsonl, "csv": as_csv}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_R11_every_legal_row_arrives(tmp_path, kind, end, mark):
    sheet = read(put(tmp_path, f"a.{kind}", mark + WRITERS[kind](STRANGE, end)))
    assert values(sheet) == STRANGE
    assert [row.line for row in sheet.rows] == list(range(1, 16)) if kind == "jsonl" else list(range(2, 17))


def test_R11_every_legal_row_arrives_from_parquet(tmp_path):
    pq.write_table(pa.table({"text": STRANGE, "other": STRANGE}), tmp_path / "a.parquet")
    sheet = read(tmp_path / "a.parquet", columns=["text"])
    assert values(sheet) == STRANGE
    assert sheet.columns == ("text", "other")


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_R11_a_line_of_ten_megabytes_arrives(tmp_path, kind):
    rows = ["x" * 10_000_000, "y"]
    assert values(read(put(tmp_path, f"a.{kind}", WRITERS[kind](rows)))) == rows


@pytest.mark.slow(0.5)
@given(rows=st.lists(cells, max_size=8), kind=st.sampled_from(sorted(WRITERS)), end=st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=150)
def test_R11_round_trip(tmp_path_factory, rows, kind, end):
    path = put(tmp_path_factory.mktemp("r"), f"a.{kind}", WRITERS[kind](rows, end))
    assert values(read(path)) == rows


@given(rows=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=8))
def test_R11_csv_and_jsonl_keep_line_ends_inside_texts(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("r")
    assert values(read(put(folder, "a.jsonl", as_jsonl(rows)))) == rows
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerows([["text", "label"], *([text, "1"] for text in rows)])
    assert values(read(put(folder, "a.csv", out.getvalue()))) == rows


@pytest.mark.slow(0.5)
@given(data=st.binary(max_size=200), kind=st.sampled_from(["tsv", "csv", "jsonl", "parquet"]))
@settings(max_examples=200)
def test_R11_no_bytes_crash_a_reader(tmp_path_factory, data, kind):
    with contextlib.suppress(UserError):
        read(put(tmp_path_factory.mktemp("r"), f"a.{kind}", b"text,label\n" + data))


def bad_lines(sheet):
    return [(bad.line, bad.column) for bad in sheet.bad]


def test_F9_unbalanced_quotes_in_a_tsv_merge_no_rows(tmp_path):
    sheet = read(put(tmp_path, "a.tsv", 'a\tb\n"x\t1\ny"\t2\n""z\t3\n'))
    assert [row.values["a"] for row in sheet.rows] == ['"x', 'y"', '""z']


def test_R11_wrong_number_of_fields_is_named(tmp_path):
    sheet = read(put(tmp_path, "a.tsv", "text\tlabel\nx\t1\nshort\nx\ty\tz\nok\t0\n"))
    assert bad_lines(sheet) == [(3, "label"), (4, None)]
    assert [row.line for row in sheet.rows] == [2, 5]
    assert "1 field instead of 2" in sheet.bad[0].why


def test_R11_two_rows_opening_with_a_quote_lose_nothing(tmp_path):
    text = 'text,label\n"open,1\na,1\nb,0\nc,1\n"open again,0\nd,1\n'
    sheet = read(put(tmp_path, "a.csv", text))
    assert bad_lines(sheet) == [(2, None), (6, None)]
    assert [row.values["text"] for row in sheet.rows] == ["a", "b", "c", "d"]
    assert "4 lines further down" in sheet.bad[0].why
    assert "never closed" in sheet.bad[1].why


def test_R11_lines_are_counted_across_cells_with_line_ends(tmp_path):
    sheet = read(put(tmp_path, "a.csv", 'text,label\n"two\nlines",1\nshort\n"three\n\nlines",0\nx,1\n'))
    assert [row.line for row in sheet.rows] == [2, 5, 8]
    assert bad_lines(sheet) == [(4, "label")]


@pytest.mark.parametrize("kind", WRITERS)
def test_R11_bytes_that_are_no_text_are_named(tmp_path, kind):
    data = WRITERS[kind](["good", "b\0d", "fine"]).encode().replace(b"\\u0000", b"\0").replace(b"b\0d", b"b\xffd")
    sheet = read(put(tmp_path, f"a.{kind}", data))
    assert len(sheet.bad) == 1
    assert "(0xff) is not valid UTF-8" in sheet.bad[0].why
    assert "byte " in sheet.bad[0].why
    assert "\\xff" in sheet.bad[0].raw
    assert [row.values["text"] for row in sheet.rows] == ["good", "fine"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"text": ', "not valid JSON"),
        ("[1, 2]", "is not an object"),
        ("3", "is not an object"),
        ('{"text": "a"} x', "Extra data"),
        ('{"text": "a", "text": "b"}', "occurs twice"),
        ("", "empty"),
        ("{" * 100_000, "not valid JSON"),
        ('{"a": ' * 100_000, "not valid JSON"),
        ('{"a": ' + "1" * 5000 + "}", "not valid JSON"),
    ],
)
def test_R11_broken_json_is_named(tmp_path, line, why):
    sheet = read(put(tmp_path, "a.jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n'))
    assert [bad.line for bad in sheet.bad] == [2]
    assert why in sheet.bad[0].why
    assert len(sheet.rows) == 2


def test_R11_empty_lines_at_the_end_are_no_rows(tmp_path):
    for kind, write in WRITERS.items():
        assert values(read(put(tmp_path, f"a.{kind}", write(["a", "b"]) + "\n\r\n"))) == ["a", "b"]


def test_R11_an_empty_line_is_a_row_where_one_cell_is_enough(tmp_path):
    for kind in ("tsv", "csv"):
        assert values(read(put(tmp_path, f"a.{kind}", "text\na\n\nb\n"))) == ["a", "", "b"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.tsv", "", "is empty"),
        ("a.csv", "", "is empty"),
        ("a.tsv", "a\ta\n1\t2\n", '"a" occurs twice'),
        ("a.tsv", b"\xff\xfea\x00", "UTF-16"),
        ("a.tsv", b"a\xe4\tb\n", "the header cannot be read"),
        ("a.parquet", "text", "not a readable Parquet"),
        ("a.xlsx", "text", "unknown kind of file"),
    ],
)
def test_R11_unreadable_files_are_named(tmp_path, name, data, words):
    path = put(tmp_path, name, data)
    with pytest.raises(UserError, match=words) as error:
        read(path)
    assert str(path) in str(error.value)


def test_R11_a_missing_file_or_a_folder_is_named(tmp_path):
    (tmp_path / "b.tsv").mkdir()
    for name in ("a.csv", "a.parquet", "b.tsv"):
        with pytest.raises(UserError, match=name):
            read(tmp_path / name)


def test_R11_all_bad_rows_at_once_up_to_a_limit(tmp_path):
    sheet = read(put(tmp_path, "a.tsv", "a\tb\n" + "x\n" * 50))
    with pytest.raises(UserError) as error:
        refuse(sheet.bad)
    text = str(error.value)
    assert text.startswith("50 bad rows:")
    assert text.count("a.tsv, line ") == 20
    assert "and 30 more" in text


def test_R11_invalid_text_in_parquet_stays_with_its_row(tmp_path):
    column = pa.array([b"good", b"\xff", None], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    assert [row.values["text"] for row in read(tmp_path / "a.parquet").rows] == ["good", b"\xff", None]


def test_digest_follows_the_content(tmp_path):
    path = put(tmp_path, "a", "1")
    first = file_digest(path)
    assert file_digest(put(tmp_path, "a", "22")) != first


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", b"text,label\nzero,a\ncaf\xe9,a\ntwo,b\nx,y,z\n\nfive,a\n"),
        ("a.tsv", b"text\tlabel\nzero\ta\ncaf\xe9\ta\ntwo\tb\nx\ty\tz\n\nfive\ta\n"),
        (
            "a.jsonl",
            b'{"text": "zero", "label": "a"}\n{"text": "caf\xe9"}\n{"text": "two", "label": "b"}\n{"text": \n\n'
            b'{"text": "five", "label": "a"}\n',
        ),
    ],
)
def test_F70_an_id_is_the_rows_number_in_the_file_whatever_is_skipped(tmp_path, name, text):
    """Bad UTF-8, a wrong number of fields, broken JSON and empty lines come before the rows that are kept."""
    (tmp_path / name).write_bytes(text)
    task = Table(train=str(tmp_path / name), dev=str(tmp_path / name), skip_bad_rows=True)
    assert [(e.id, e.texts[0]) for e in task.examples("train")] == [("0", "zero"), ("2", "two"), ("5", "five")]
    assert [row.line for row in task.bad_rows("train")] == ([2, 4, 5] if name == "a.jsonl" else [3, 5, 6])


def test_F70_an_id_column_is_the_id(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,label,nr\nzero,a,7\ncaf\xe9,a,8\ntwo,b,9\n")
    task = Table(train=str(tmp_path / "a.csv"), dev=str(tmp_path / "a.csv"), id="nr", skip_bad_rows=True)
    assert [e.id for e in task.examples("train")] == ["7", "9"]
