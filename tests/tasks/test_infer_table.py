"""What a data file is recognised as: delimiter, encoding, columns, form; and where nothing is guessed."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from encodery.config import load
from encodery.errors import UserError
from encodery.tasks.forms.spans import read_squad
from encodery.tasks.sources.column import Column
from encodery.tasks.sources.file_layout import detect_encoding, looks_tagged
from encodery.tasks.sources.infer_table import Inferred, infer
from encodery.tasks.sources.readers import read
from encodery.tasks.table import RankTable, Table

TEXTS = [f"the parcel number {i} came late and the box was open" for i in range(60)]
OTHERS = [f"nobody answered my call about order {i} until this morning" for i in range(60)]
FRESH = ["--model.new.kind", "bert", "--model.tokenizer", "toy"]


def table(
    path: Path, columns: Sequence[str], lines: Iterable[Sequence[Any]], delimiter: str = ",", encoding: str = "utf-8"
) -> Path:
    cells = ([f'"{cell}"' if delimiter in str(cell) else str(cell) for cell in line] for line in lines)
    path.write_bytes("".join(delimiter.join(line) + "\n" for line in (columns, *cells)).encode(encoding))
    return path


def rows(*columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=False))


def found(path: Path, **given: Any) -> dict[str, Any]:
    return infer(path, given).options


def labels(*names: Any) -> list[Any]:
    return [names[i % len(names)] for i in range(60)]


def test_text_label_and_id_by_name(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", ["id", "Review", "stars"], rows(range(60), TEXTS, labels(1, 2, 3, 4, 5)))
    assert found(file) == {"form": "single", "text": "Review", "label": "stars", "id": "id"}


def test_an_id_that_repeats_is_named_where_it_is_dropped(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", ["id", "Review", "stars"], rows([0, *range(59)], TEXTS, labels(1, 2, 3, 4, 5)))
    said = infer(file, {})
    assert "id" not in said.options
    assert said.remarks[-1] == "values of id repeat, so rows are numbered"
    other = table(tmp_path / "b.csv", ["Review", "stars", "shop"], rows(TEXTS, labels(1, 2, 3), labels("x", "y")))
    assert not any("repeat" in remark for remark in infer(other, {"label": "stars"}).remarks)


def test_columns_by_content_where_no_name_is_known(tmp_path: Path) -> None:
    file = table(
        tmp_path / "a.csv",
        ["nr", "was", "wohin", "am"],
        rows(range(60), TEXTS, labels("Lager", "Büro"), ["2024-01-02"] * 60),
    )
    assert found(file) == {"form": "single", "text": "was", "label": "wohin", "id": "nr"}


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_delimiter_and_encoding_are_recognised_and_read(tmp_path: Path, delimiter: str, encoding: str) -> None:
    texts = [f"Müller wartet, seit Tagen, auf das Paket {i}" for i in range(60)]
    file = table(tmp_path / "a.csv", ["text", "label"], rows(texts, labels("schön", "übel")), delimiter, encoding)
    options = found(file)
    assert options.get("delimiter", ",") == delimiter
    assert options.get("encoding") == {"utf-8-sig": None, "utf-8": None}.get(encoding, encoding)
    task = load.load(str(file), FRESH).tasks[0][0]
    read = {e.texts[0]: e.label for e in (*task.examples("train"), *task.examples("dev"))}
    assert read == dict(zip(texts, labels("schön", "übel"), strict=True))


def test_utf8_with_a_few_broken_rows_stays_utf8() -> None:
    assert detect_encoding(("schön übel größer " * 20).encode() + b"\xff broken") is None
    assert detect_encoding("schön übel größer".encode("cp1252")) == "cp1252"
    assert detect_encoding("schön".encode("utf-16-le")) == "utf-16-le"
    assert detect_encoding(b"plain") is None


def test_numbers_far_from_0_to_10_are_learnt_standardised(tmp_path: Path) -> None:
    def found_for(*numbers: float) -> Inferred:
        file = table(tmp_path / "a.csv", ["text", "price"], rows(TEXTS, numbers))
        return infer(file, {"label": "price", "form": "regression"})

    far = found_for(*(1e5 + 1e3 * i for i in range(40)))
    assert far.options["standardise"] is True
    assert "price has mean 1.195e+05 and standard deviation 1.154e+04" in " ".join(far.remarks)
    assert found_for(*(i / 1e4 for i in range(40))).options["standardise"] is True
    assert "standardise" not in found_for(*(i / 10 for i in range(40))).options


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([i / 7 for i in range(60)], "regression"),
        ([1.5, 2.0, 2.5, 3.0] * 15, "regression"),
        ([1, 2, 3, 4, 5] * 12, "single"),
        ([(i * 13) % 300 for i in range(60)], "regression"),
        (["yes", "no"] * 30, "single"),
        ([0, 1] * 30, "single"),
    ],
)
def test_numbers_with_many_values_are_a_regression(tmp_path: Path, values: list[Any], form: str) -> None:
    assert found(table(tmp_path / "a.csv", ["text", "label"], rows(TEXTS, values)))["form"] == form


def test_two_columns_of_texts_are_a_pair(tmp_path: Path) -> None:
    named = table(tmp_path / "a.csv", ["sentence_1", "sentence_2", "label"], rows(TEXTS, OTHERS, labels(0, 1)))
    assert found(named) == {"form": "pair", "text": "sentence_1", "text2": "sentence_2", "label": "label"}
    unnamed = table(tmp_path / "b.csv", ["ours", "theirs", "label"], rows(TEXTS, OTHERS, labels(0, 1)))
    assert found(unnamed)["text2"] == "theirs"
    numbers = table(tmp_path / "c.csv", ["s1", "s2", "score"], rows(TEXTS, OTHERS, [i / 9 for i in range(60)]))
    assert (found(numbers)["form"], found(numbers)["text2"]) == ("regression", "s2")


@pytest.mark.parametrize(
    "names",
    ["first second", "question answer", "premise hypothesis", "text_a text_b", "first_text second_text", "mine theirs"],
)
def test_two_columns_of_texts_are_a_pair_by_their_names(tmp_path: Path, names: str) -> None:
    file = table(tmp_path / "a.csv", [*names.split(), "label"], rows(TEXTS, OTHERS, labels("a", "b")))
    assert [found(file)[key] for key in ("form", "text", "text2")] == ["pair", *names.split()]


def test_no_text_of_nested_objects_is_dropped_although_it_comes_often(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    both = zip(TEXTS[:12] * 5, OTHERS, labels("same", "different"), strict=True)
    lines = [
        {"id": i, "data": {"first": {"text": a}, "second": {"text": b}}, "annotation": {"label": c, "by": "kim"}}
        for i, (a, b, c) in enumerate(both)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert found(file) == {
        "form": "pair", "text": "data.first.text", "text2": "data.second.text", "label": "annotation.label", "id": "id",
    }  # fmt: skip


@pytest.mark.parametrize(("names", "often"), [("text comment", 60), ("text comment", 12), ("mine theirs", 25)])
def test_texts_that_may_be_one_or_two_stop_with_the_flags(tmp_path: Path, names: str, often: int) -> None:
    one, other = names.split()
    file = table(tmp_path / "a.csv", [one, other, "label"], rows(TEXTS * 2, OTHERS[:often] * 10, labels("a", "b") * 2))
    if names == "mine theirs":  # 25 different sentences of 120 rows: rather a text than a label
        assert not infer_columns(file)[other].texts
    with pytest.raises(UserError) as stopped:
        infer(file, {})
    assert "which column is the text? Add one of these:" in str(stopped.value)
    assert f"--tasks.text {one} --tasks.text2 {other}  (both, as a pair)" in str(stopped.value)
    assert found(file, text=one)["form"] == "single"
    assert found(file, text=one, text2=other)["form"] == "pair"


def infer_columns(path: Path) -> dict[str, Column]:
    sheet = read(path)
    return {name: Column(name, [row.values[name] for row in sheet.rows]) for name in sheet.columns}


@pytest.mark.parametrize("separator", [";", "|", ","])
def test_separators_are_several_labels(tmp_path: Path, separator: str) -> None:
    values = labels("red", f"red{separator}blue", f"blue{separator}green", "green")
    file = table(tmp_path / "a.tsv", ["text", "topics"], rows(TEXTS, values), "\t")
    options = found(file)
    assert options["form"] == "multilabel"
    assert options.get("label_separator", ",") == separator
    assert set(load.load(str(file), FRESH).tasks[0][0].labels) == {"red", "blue", "green"}


def test_a_comma_inside_the_name_of_a_label_is_no_separator(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", ["text", "label"], rows(TEXTS, labels("Food, Drinks", "Home, Garden", "Cars")))
    assert found(file)["form"] == "single"


def test_columns_of_0_and_1_are_a_label_each(tmp_path: Path) -> None:
    marked = rows(range(60), TEXTS, labels(0, 1), labels(1, 0, 0), labels(0, 0, 0, 1))
    file = table(tmp_path / "a.csv", ["id", "comment_text", "toxic", "rude", "threat"], marked)
    assert found(file) == {
        "form": "multilabel", "text": "comment_text", "label": ["toxic", "rude", "threat"], "id": "id",
    }  # fmt: skip
    task = load.load(str(file), FRESH).tasks[0][0]
    assert task.labels == ("toxic", "rude", "threat")
    by_id = {e.id: e.label for e in (*task.examples("train"), *task.examples("dev"))}
    assert by_id["3"] == ("toxic", "rude", "threat")
    assert by_id["2"] == ()


def test_a_mark_that_is_neither_0_nor_1_is_named(tmp_path: Path) -> None:
    marked = [*rows(TEXTS, labels(0, 1), labels(1, 0, 0)), ("one more text of some words", 2, 0)]
    file = table(tmp_path / "a.csv", ["text", "toxic", "rude"], marked)
    task = load.load(str(file), [*FRESH, "--tasks.label=[toxic, rude]"]).tasks[0][0]
    with pytest.raises(UserError, match=r'a\.csv, line 62.*column "toxic": "2" is neither 0 nor 1'):
        task.examples("train")


def test_nested_keys_of_json_lines(tmp_path: Path) -> None:
    objects = [
        {"meta": {"id": f"m{i}", "at": "2024-01-01"}, "post": {"body": t}, "answer": {"label": a}}
        for i, (t, a) in enumerate(rows(TEXTS, labels("a", "b")))
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in objects))
    assert found(file) == {"form": "single", "text": "post.body", "label": "answer.label", "id": "meta.id"}
    task = load.load(str(file), FRESH).tasks[0][0]
    assert {e.id for e in (*task.examples("train"), *task.examples("dev"))} == {f"m{i}" for i in range(60)}


def test_forms_with_columns_of_their_own(tmp_path: Path) -> None:
    squad = tmp_path / "q.json"
    squad.write_text(json.dumps({"data": [{"title": "t", "paragraphs": []}]}))
    assert found(squad) == {"form": "spans"}
    conll = tmp_path / "n.conll"
    conll.write_text("EU B-ORG\nrejects O\n\nBonn B-LOC\nwaits O\n")
    assert found(conll) == {"form": "tags"}
    text = tmp_path / "n.txt"
    text.write_text("EU\tNNP\tB-ORG\nrejects\tVB\tO\n\nBonn\tNNP\tB-LOC\nwaits\tVB\tO\n")
    assert found(text) == {"form": "tags"}
    lists = tmp_path / "l.jsonl"
    lists.write_text(json.dumps({"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}) + "\n")
    assert found(lists) == {"form": "tags", "text": "tokens", "label": "ner_tags"}
    ranked = tmp_path / "r.jsonl"
    ranked.write_text(json.dumps({"question": "where now", "choices": ["here", "there"], "label": 1}) + "\n")
    assert found(ranked) == {"form": "ranking", "text": "question", "candidates": "choices", "label": "label"}
    assert not looks_tagged("text\tlabel\nsome words\ta\n")


def lines(path: Path, *columns: Sequence[Any], names: str) -> Path:
    path.write_text("".join(json.dumps(dict(zip(names.split(), row, strict=True))) + "\n" for row in rows(*columns)))
    return path


ANSWERS = [[f"answer {i}", f"reply {i}", f"word {i}"] for i in range(60)]


@pytest.mark.parametrize("best", [labels(0, 1, 2), labels("1", "0"), [a[i % 3] for i, a in enumerate(ANSWERS)]])
def test_lists_of_texts_and_which_one_is_right_are_a_ranking(tmp_path: Path, best: list[Any]) -> None:
    file = lines(tmp_path / "a.jsonl", [f"what is {i}" for i in range(60)], ANSWERS, best, names="q cands best")
    assert found(file) == {"form": "ranking", "text": "q", "candidates": "cands", "label": "best"}
    single = infer(file, {"form": "single", "label": "best"})
    assert single.options == {"form": "single", "text": "q", "label": "best"}
    assert single.remarks == ["cands holds lists and is left out"]


def test_a_letter_is_an_answer_where_the_column_says_so_and_a_class_elsewhere(tmp_path: Path) -> None:
    given = ([f"what is {i}" for i in range(60)], ANSWERS, labels("A", "B", "C"))
    exam = lines(tmp_path / "a.jsonl", *given, names="question options answerKey")
    assert found(exam) == {"form": "ranking", "text": "question", "candidates": "options", "label": "answerKey"}
    task = RankTable.model_validate({"name": "exam", "train": str(exam), **found(exam)})
    assert [example.label for example in task.examples("train")][:4] == ["0", "1", "2", "0"]
    grades = lines(tmp_path / "b.jsonl", *given, names="question parts grade")
    assert found(grades)["form"] == "single"


def test_candidates_with_a_known_name_find_the_right_one_by_its_values(tmp_path: Path) -> None:
    topics = labels("a", "b")
    file = lines(tmp_path / "a.jsonl", TEXTS, ANSWERS, labels(2, 0), topics, names="q choices right topic")
    assert found(file) == {"form": "ranking", "text": "q", "candidates": "choices", "label": "right"}
    assert found(file, candidates="choices", label="right")["form"] == "ranking"


@pytest.mark.parametrize(
    ("lists", "label"),
    [
        ([["fast", "cheap", "late"][: 2 + i % 2] for i in range(60)], labels(0, 1)),  # key words
        ([["yes", "no"]] * 60, labels(0, 1)),
        (ANSWERS, [*labels(0, 1)[:-1], 7]),  # a bad row of a ranking, or something else
    ],
)
def test_lists_that_may_be_candidates_stop_with_the_flags(tmp_path: Path, lists: list[Any], label: list[int]) -> None:
    file = lines(tmp_path / "a.jsonl", TEXTS, lists, label, names="body words2 grade")
    with pytest.raises(UserError) as stopped:
        infer(file, {})
    said = str(stopped.value)
    assert "column words2 holds lists of texts, and grade may say which one of them is right" in said
    assert "--tasks.form ranking --tasks.candidates words2 --tasks.text body --tasks.label grade" in said
    assert "--tasks.form single --tasks.text body --tasks.label grade  (words2 is left out)" in said


def test_two_columns_that_may_name_the_right_candidate_are_both_offered(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", TEXTS, ANSWERS, labels(0, 2), labels(1, 0), names="q cands one two")
    with pytest.raises(UserError, match=r"--tasks\.label one .*\n.*--tasks\.label two") as stopped:
        infer(file, {})
    assert "single" not in str(stopped.value)  # it is a ranking whichever is meant


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("pieces", [text.split() for text in TEXTS]),
        ("tokens", [text.upper().split()[:5] for text in TEXTS]),
        ("tags", [["fast", "cheap"]] * 60),
        ("numbers", [[0, 1, 1]] * 60),
        ("few", [["only one"]] * 60),
    ],
)
def test_other_lists_are_left_out_with_a_note(tmp_path: Path, name: str, lists: list[Any]) -> None:
    file = lines(tmp_path / "a.jsonl", TEXTS, lists, labels(0, 1), names=f"text {name} label")
    said = infer(file, {})
    assert said.options == {"form": "single", "text": "text", "label": "label"}
    assert said.remarks == [f"{name} holds lists and is left out"]


def test_what_cannot_be_decided_stops_with_the_flags(tmp_path: Path) -> None:
    file = table(
        tmp_path / "a.csv", ["text", "topic", "priority"], rows(TEXTS, labels("a", "b"), labels("low", "high", "mid"))
    )
    with pytest.raises(UserError) as stopped:
        infer(file, {})
    assert "which column is the label? Add one of these:" in str(stopped.value)
    assert "--tasks.label topic" in str(stopped.value)
    assert "--tasks.label priority  (3 values: low, high, mid)" in str(stopped.value)
    assert found(file, label="topic")["label"] == "topic"
    three = table(tmp_path / "b.csv", ["one", "two", "three", "label"], rows(TEXTS, OTHERS, TEXTS[::-1], labels(0, 1)))
    with pytest.raises(UserError, match=r"which column is the text\?(.|\n)*--tasks.text one(.|\n)*--tasks.text three"):
        infer(three, {})
    classes = table(tmp_path / "c.csv", ["text", "label"], rows(TEXTS * 5, [i % 30 for i in range(300)]))
    with pytest.raises(UserError, match=r"--tasks.form single\n  --tasks.form regression"):
        infer(classes, {})
    assert found(classes, form="single")["form"] == "single"


@pytest.mark.parametrize(
    ("delimiter", "ending", "advice"),
    [(",", "csv", r"2 names above it, such as `text,label`\."), ("\t", "tsv", r"such as text → label \(→: a tab\)\."),
     (";", "csv", r"such as `text;label`\.")],
)  # fmt: skip
def test_the_names_that_are_missing_are_shown_with_the_delimiter_of_the_file(
    tmp_path: Path, delimiter: str, ending: str, advice: str
) -> None:
    file = tmp_path / f"a.{ending}"
    lines = [delimiter.join(row) for row in rows(TEXTS, labels("bad", "good"))]
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=advice):
        infer(file, {"delimiter": delimiter})


def test_all_columns_that_could_be_labels_are_offered(tmp_path: Path) -> None:
    columns = [TEXTS * 2, labels("1", "2", "3") * 2, labels("price", "size") * 2, labels("yes", "no") * 2]
    file = table(tmp_path / "a.csv", ["review", "stars", "topic", "recommended"], rows(*columns))
    with pytest.raises(UserError, match=r"(?s)--tasks.label stars.*--tasks.label topic.*--tasks.label recommended"):
        infer(file, {})
    named = infer(table(tmp_path / "b.csv", ["review", "topic", "recommended"], rows(*columns[:1], *columns[2:])), {})
    assert named.options["label"] == "topic"
    assert named.remarks == [
        "the label is topic, by its name; recommended could be one too: --tasks.label recommended takes it instead"
    ]
    sure = infer(table(tmp_path / "c.csv", ["review", "label", "recommended"], rows(*columns[:1], *columns[2:])), {})
    assert (sure.options["label"], sure.remarks) == ("label", [])


def test_a_file_without_names_of_columns_is_refused(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", [TEXTS[0], "good"], rows(TEXTS[1:], labels("bad", "good")))
    with pytest.raises(UserError, match="looks like a row, not like the names of columns"):
        infer(file, {})
    plain = tmp_path / "b.txt"
    plain.write_text("Once upon a time\nthere was a text\n")
    with pytest.raises(UserError, match=r"plain text without labels is for pretraining \(--tasks.kind corpus"):
        infer(plain, {})


def test_what_was_given_stays_and_other_texts_are_named(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", ["text", "notes", "label"], rows(TEXTS, OTHERS, labels("a", "b")))
    guess = infer(file, {})
    assert guess.options["text"] == "text"
    assert guess.remarks == ["notes also holds texts; --tasks.text2 notes reads both"]
    assert found(file, text="notes")["text"] == "notes"
    assert found(file, text="text", text2="notes")["form"] == "pair"


def test_a_file_is_a_task_in_every_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(
        tmp_path / "a.csv",
        ["id", "review", "stars", "team"],
        rows(range(60), TEXTS, labels(1, 2), labels("x", "y", "z")),
    )
    first = load.load("a.csv", [*FRESH, "--tasks.label", "team"])
    assert first.name == "a"
    assert first.tasks[0][0].name == "table/a"
    assert first.origins["tasks.0.text"] == "recognised in a.csv"
    assert first.origins["tasks.0.label"] == "command line"
    again = load.load(None, [*FRESH, "--tasks", "a.csv", "--tasks.label", "team"])
    other = load.load(None, [*FRESH, "--tasks.label", "team", "--tasks", "a.csv"])
    Path("b.yaml").write_text("model: {new: {kind: bert}, tokenizer: toy}\ntasks: {file: a.csv, label: team}\n")
    written = load.load("b.yaml")
    assert first.config == again.config == other.config == written.config
    Path("kept").mkdir()
    for folder in (Path(), Path("kept")):
        (folder / "c.yaml").write_text(load.short(first, folder))
        assert load.load(folder / "c.yaml").tasks[0][0].examples("train") == first.tasks[0][0].examples("train")


def test_without_a_model_it_is_the_one_that_comes_with_encodery(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", ["text", "label"], rows(TEXTS, labels("a", "b")))
    resolved = load.load(str(file))
    assert resolved.config.model.name == "petit"
    assert "model: petit" in load.short(resolved)


@pytest.mark.parametrize(("value", "why"), [(";;", "one character"), ('"', "one character")])
def test_a_wrong_delimiter_is_refused(tmp_path: Path, value: str, why: str) -> None:
    table(tmp_path / "a.csv", ["text", "label"], rows(TEXTS, labels("a", "b")))
    tree = {"model": "x", "tasks": {"kind": "table", "train": str(tmp_path / "a.csv"), "delimiter": value}}
    with pytest.raises(UserError, match=why):
        load.load(tree)
    with pytest.raises(UserError, match="expected an encoding of text"):
        load.load(tree, ["tasks.delimiter=tab", "tasks.encoding=klingon"])


@pytest.mark.parametrize("layout", ["list", "indented", "lines"])
def test_rows_in_a_json_file(layout: str, tmp_path: Path) -> None:
    rows = [{"id": f"k{i}", "text": f"the cat number {i} sleeps", "label": "ab"[i % 2]} for i in range(30)]
    texts = {
        "list": json.dumps(rows),
        "indented": json.dumps(rows, indent=1),
        "lines": "\n".join(map(json.dumps, rows)) + "\n",
    }
    (tmp_path / "rows.json").write_text(texts[layout])
    found = infer(tmp_path / "rows.json", {}).options
    assert (found["form"], found["text"], found["label"], found["id"]) == ("single", "text", "label", "id")
    task = Table.model_validate({"train": str(tmp_path / "rows.json"), **found})
    assert [example.id for example in task.examples("train")][:1] == ["k0"]


@pytest.mark.parametrize("tags", ["ner", "pos", "chunk_tags"])
def test_lists_of_words_and_of_tags_with_their_usual_names(tags: str, tmp_path: Path) -> None:
    rows = [{"words": [f"Anna{i}", "sleeps"], tags: ["B-PER", "O"]} for i in range(30)]
    (tmp_path / "ner.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = infer(tmp_path / "ner.jsonl", {}).options
    assert (found["form"], found["text"], found["label"]) == ("tags", "words", tags)


def test_tags_and_answers_as_rows_of_a_json_file(tmp_path: Path) -> None:
    tagged = [{"tokens": [f"Anna{i}", "sleeps"], "ner_tags": ["B-PER", "O"]} for i in range(30)]
    (tmp_path / "ner.json").write_text("\n".join(map(json.dumps, tagged)))
    found = infer(tmp_path / "ner.json", {}).options
    assert (found["form"], found["text"], found["label"]) == ("tags", "tokens", "ner_tags")
    task = Table.variant(found).model_validate({"train": str(tmp_path / "ner.json"), **found})
    assert len(task.examples("train")) + len(task.examples("dev")) == 30  # type: ignore[attr-defined]
    asked = [
        {"id": str(i), "context": "Anna sleeps.", "question": "Who?", "answer_text": ["Anna"], "answer_start": [0]}
        for i in range(30)
    ]
    (tmp_path / "faq.json").write_text(json.dumps(asked))
    assert infer(tmp_path / "faq.json", {}).options["form"] == "spans"
    assert read_squad(tmp_path / "faq.json")[0][0].id == "0"


def test_what_is_wrong_in_a_json_list_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text('[\n{"text": "a", "label": "b"},\n7,\n{"text": "c", "label": "d"}\n]\n')
    sheet = read(file)
    assert [row.line for row in sheet.rows] == [2, 4]
    assert [(bad.line, bad.why) for bad in sheet.bad] == [(3, "expected an object, not 7")]
    file.write_text('[\n{"text": "a"}\n{"text": "b"}]')
    with pytest.raises(UserError, match=r"rows\.json, line 2: not valid JSON: expected a comma"):
        read(file)


@pytest.mark.parametrize(
    "name",
    ["label", "target", "class", "category", "topic", "tag", "intent", "sentiment", "stars", "rating", "team",
     "Department", "severity", "verdict", "is_spam"],
)  # fmt: skip
def test_usual_names_of_labels_are_known_beside_another_column_that_could_be_one(tmp_path: Path, name: str) -> None:
    file = table(
        tmp_path / "a.csv", ["text", "channel", name], rows(TEXTS, labels("web", "app", "shop"), labels(1, 2, 3, 4, 5))
    )
    assert found(file) == {"form": "single", "text": "text", "label": name}


def test_an_empty_file_and_one_label_for_all_rows_are_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(UserError, match="is empty"):
        infer(tmp_path / "empty.csv", {})
    file = table(tmp_path / "a.csv", ["text", "label"], rows(TEXTS, labels("same")))
    with pytest.raises(UserError, match=r"column label has one value in all rows .*nothing to learn"):
        infer(file, {})
    assert infer(file, {}, labelled=False).options["text"] == "text"


@pytest.mark.parametrize("delimiter", [";", ","])
def test_decimal_commas_are_numbers(tmp_path: Path, delimiter: str) -> None:
    numbers = labels("3,8", "1,5", "4", "2,25", "0,125")
    path = table(tmp_path / "a.csv", ["review", "note"], rows(TEXTS, numbers), delimiter)
    got = infer(path, {})
    assert (got.options["form"], got.options["label"]) == ("regression", "note")
    assert "note holds numbers with a decimal comma" in got.remarks
    task = Table.model_validate({"train": str(path), **got.options})
    read_as = {example.label for split in ("train", "dev") for example in task.examples(split)}
    assert read_as == {3.8, 1.5, 4.0, 2.25, 0.125}


def test_what_may_be_thousands_is_named(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ["review", "price"], rows(TEXTS, labels("1,250", "3,8", "12")), ";")
    task = Table.model_validate(
        {"train": str(path), "text": "review", "label": "price", "form": "regression", "delimiter": ";"}
    )
    with pytest.raises(UserError, match='"1,250" could mean thousands or a decimal number; write it with a point'):
        task.examples("train")
    codes = table(tmp_path / "b.csv", ["review", "codes"], rows(TEXTS, labels("1,3", "2", "1,2,3", "2,3")), ";")
    assert found(codes)["form"] == "multilabel"


def test_an_offered_answer_is_the_second_text_however_few_there_are(tmp_path: Path) -> None:
    answers = labels("yes that is right", "no it is not", "ask the office")
    path = table(tmp_path / "a.csv", ["question", "candidate answer", "label"], rows(TEXTS, answers, labels(1, 0)))
    assert found(path) == {"form": "pair", "text": "question", "text2": "candidate answer", "label": "label"}


def test_labels_that_name_rows_are_refused_and_those_that_say_nothing_remarked(tmp_path: Path) -> None:
    path = table(
        tmp_path / "a.csv", ["text", "customer", "team"], rows(TEXTS, [f"K-{i}" for i in range(60)], labels("a", "b"))
    )
    with pytest.raises(UserError, match="column customer has a different value in every row, so it cannot be a label"):
        found(path, label="customer")
    path = table(tmp_path / "b.csv", ["text", "rating"], rows(TEXTS, labels("1", "2", "N/A")))
    (remark,) = infer(path, {}).remarks
    assert remark.startswith('the label "N/A" looks like a missing value: clear such cells')


def test_a_text_column_that_is_empty_in_every_row_is_named(tmp_path: Path) -> None:
    for columns in (["text", "label"], ["message", "topic"]):
        path = table(tmp_path / "a.csv", columns, rows([""] * 40, labels("a", "b")[:40]))
        said = f"column {columns[0]} is empty in every row, so there is no text to read .--tasks.text names another"
        with pytest.raises(UserError, match=said):
            infer(path, {})
    path = table(tmp_path / "b.csv", ["text", "label", "note"], rows([""] * 60, labels("a", "b"), TEXTS))
    assert found(path)["text"] == "note"
    assert Column("x", []).about() == "empty in every row"


@pytest.mark.parametrize("spelt", ["{:.1f}", "{:.1f}x"])
def test_a_row_that_is_no_number_among_numbers_is_named(tmp_path: Path, spelt: str) -> None:
    numbers = [spelt.format(i * 1.7) for i in range(60)]
    numbers[7] = "nan"
    path = table(tmp_path / "a.csv", ["text", "label"], rows(TEXTS, numbers))
    said = 'a.csv, line 9, column label: "nan" is not a number, as the other labels are. Correct it or delete the row; '
    with pytest.raises(UserError, match="label has a different value in every" if "x" in spelt else said):
        found(path)
    if "x" not in spelt:
        with pytest.raises(UserError, match=r"is not a number.*delete the row\.$"):
            infer(path, {}, flag="--{}-column")
        assert found(path, form="regression")["form"] == "regression"


def test_a_few_numbers_and_a_word_are_classes(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ["text", "version"], rows(TEXTS, [*labels("1.5", "2.0")[:57], *["beta"] * 3]))
    assert found(path)["form"] == "single"
