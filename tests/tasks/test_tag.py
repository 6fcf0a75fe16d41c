"""Tagging: words and pieces, special labels, span F1, files."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.errors import UserError
from encodery.tasks.base import Example
from encodery.tasks.forms.metrics import entities, span_scores
from encodery.tasks.forms.tagging import first_pieces, read_tagged
from encodery.tasks.table import Table, TagTable
from encodery.tasks.tag import Tag
from encodery.tasks.toy import PARTS, ToyTags
from tests.toolbox.tokenizers import Characters, all_pieces

PIECES = all_pieces()
WORDS = st.sampled_from(
    ["the", "old", "teacher", "1980s", "Zürich", "café", "東京", "🙂", "e.g.", "“q”", "½", "x", "\u200b"]
)


def task(part: str = "ner", **options: Any) -> ToyTags:
    return ToyTags(part=part, train_rows=60, dev_rows=20, test_rows=10, **options)


@pytest.mark.parametrize("part", ["pos", "ner"])
def test_the_solver_is_always_right_and_a_lexicon_is_not(part: str) -> None:
    toy = ToyTags(part=part)
    rows = toy.examples("dev")
    assert all(toy.solve(e) == e.label for e in rows)
    assert {tag for e in rows for tag in e.label} <= set(PARTS[part].labels)  # type: ignore[union-attr]
    simplest = toy.score(toy.simplest(toy.examples("train"), rows), rows)
    assert simplest[toy.main_metric] < 0.95


# Words and pieces


@pytest.mark.parametrize("kind", PIECES)
@settings(max_examples=40)
@given(st.lists(WORDS, min_size=1, max_size=30), st.integers(6, 40), st.integers(1, 20))
def test_each_word_is_asked_for_once_at_its_first_piece(kind: str, words: list[str], longest: int, stride: int) -> None:
    labels = ("O", "B-agent", "I-agent")
    tags = tuple(labels[i % 3] for i in range(len(words)))
    example = Example("s", (" ".join(words),), tags, extra={"words": tuple(words)})
    toy = task(stride=stride)
    number = {label: i for i, label in enumerate(toy.labels)}
    asked: list[int] = []
    for features in toy.encode([example], PIECES[kind], longest):
        assert len(features.ids) == len(features.token_targets["tag"]) == len(features.marks["word"]) <= longest
        for target, word in zip(features.token_targets["tag"], features.marks["word"], strict=True):
            assert target == (-100 if word < 0 else number[tags[word]])
            asked += [word] if word >= 0 else []
    assert len(asked) == len(set(asked))
    places = PIECES[kind].spelled([" ".join(words)])[0][1]
    assert sorted(asked) == [word for word in first_pieces(words, places) if word >= 0]
    if "\u200b" not in words:
        assert sorted(asked) == list(range(len(words)))


def test_pieces_that_cover_no_character_are_nobodys_first() -> None:
    assert first_pieces(["ab", "c"], [(0, 0), (0, 1), (1, 2), (2, 2), (3, 4)]) == [-1, 0, -1, -1, 1]
    assert first_pieces(["a", "b"], [(0, 3)]) == [0]  # a piece over two words belongs to the first


def test_gold_logits_come_back_as_gold_tags() -> None:
    toy = task(stride=5)
    examples = toy.examples("dev")
    rows = []
    for features in toy.encode(examples, Characters(), 20):
        logits = [[9.0 if i == t else 0.0 for i in range(len(toy.labels))] for t in features.token_targets["tag"]]
        rows.append({"id": examples[features.example].id, "logits": logits, "word": features.marks["word"]})
    answers = toy.decode(rows, examples)
    assert {e.id: tuple(answers[e.id]["prediction"]) for e in examples} == {e.id: e.label for e in examples}
    scores = toy.score(answers, examples)
    assert scores["f1"] == scores["strict_f1"] == scores["accuracy"] == 1.0


def test_special_labels_are_trained_but_never_given() -> None:
    toy = task(train_on_special_labels=True)
    assert toy.objective()["labels"][-3:] == ["X", "CLS", "SEP"]
    example = toy.examples("dev")[0]
    (features,) = toy.encode([example], Characters(), 128)
    names = toy.objective()["labels"]
    said = [names[t] for t in features.token_targets["tag"]]
    assert (said[0], said[-1]) == ("CLS", "SEP")
    assert said.count("X") == sum(len(word) - 1 for word in example.extra["words"])
    logits = [[0.0] * len(toy.labels) + [9.0] * 3 for _ in said]
    answer = toy.decode([{"id": example.id, "logits": logits, "word": features.marks["word"]}], [example])
    assert set(answer[example.id]["prediction"]) <= set(toy.labels)


# Spans


@pytest.mark.parametrize(
    ("tags", "lenient", "strict"),
    [
        ("O B-a I-a O", {("a", 1, 2)}, {("a", 1, 2)}),
        ("B-a B-a I-a", {("a", 0, 0), ("a", 1, 2)}, {("a", 0, 0), ("a", 1, 2)}),
        ("I-a I-a O", {("a", 0, 1)}, set()),
        ("B-a I-b", {("a", 0, 0), ("b", 1, 1)}, {("a", 0, 0)}),
        ("B-creative-work I-creative-work", {("creative-work", 0, 1)}, {("creative-work", 0, 1)}),
    ],
)
def test_spans_of_bio(tags: str, lenient: set[Any], strict: set[Any]) -> None:
    assert entities(tags.split()) == lenient
    assert entities(tags.split(), strict=True) == strict


@pytest.mark.parametrize(
    ("tags", "lenient", "strict"),
    [
        ("B-a I-a E-a S-b", {("a", 0, 2), ("b", 3, 3)}, {("a", 0, 2), ("b", 3, 3)}),
        ("B-a I-a O", {("a", 0, 1)}, set()),
        ("I-a E-a", {("a", 0, 1)}, set()),
        ("E-a S-a", {("a", 0, 0), ("a", 1, 1)}, {("a", 1, 1)}),
        ("B-a L-a U-b", {("a", 0, 1), ("b", 2, 2)}, {("a", 0, 1), ("b", 2, 2)}),
    ],
)
def test_spans_of_bioes(tags: str, lenient: set[Any], strict: set[Any]) -> None:
    assert entities(tags.split(), closing=True) == lenient
    assert entities(tags.split(), strict=True, closing=True) == strict


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 2)), max_size=8))
def test_well_made_tags_mark_the_same_spans_either_way(parts: list[tuple[str, int, int]]) -> None:
    tags: list[str] = []
    spans = set()
    for kind, size, gap in parts:
        spans.add((kind, len(tags), len(tags) + size - 1))
        tags += [f"B-{kind}", *[f"I-{kind}"] * (size - 1), *["O"] * gap]
    assert entities(tags) == entities(tags, strict=True) == spans


def test_span_scores_count_whole_spans() -> None:
    gold, guess = [["B-a", "I-a", "O", "B-b"]], [["B-a", "O", "O", "B-b"]]
    assert span_scores(gold, guess) == {"f1": 0.5, "precision": 0.5, "recall": 0.5, "strict_f1": 0.5}
    assert span_scores([["O"]], [["O"]])["f1"] == 0.0


# Files

CONLL = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n"


def test_conll_columns_rows_and_parquet_give_the_same(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "a.conll").write_text(CONLL)
    rows = [
        {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"tokens": ["Peter", "Blackburn"], "tags": ["B-PER", "I-PER"]},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = []
    for name in ("a.conll", "a.jsonl", "a.parquet"):
        options = {"form": "tags", "train": str(tmp_path / name), "dev": str(tmp_path / name)}
        table = Table.variant(options).model_validate(options)
        assert isinstance(table, TagTable)
        found.append((table.labels, list(table.examples("train"))))
    assert found[0] == found[1] == found[2]
    assert found[0][0] == ("B-ORG", "B-PER", "I-PER", "O")
    assert TagTable(train=str(tmp_path / "a.conll"), dev=str(tmp_path / "a.conll"), label=1).labels == ("NNP", "VBZ")


def test_universal_dependencies_files_are_read(tmp_path: Path) -> None:
    line = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_"
    rows = [
        line.format("1-2", "don't", "_"),
        line.format(1, "do", "AUX"),
        line.format(2, "n't", "PART"),
        line.format("2.1", "x", "X"),
    ]
    (tmp_path / "a.conllu").write_text("# sent_id = s1\n# text = don't\n" + "\n".join(rows) + "\n\n")
    table = TagTable(train=str(tmp_path / "a.conllu"), dev=str(tmp_path / "a.conllu"))
    (example,) = table.examples("train")
    assert (example.id, example.extra["words"], example.label) == ("s1", ("do", "n't"), ("AUX", "PART"))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "1 tags for 2 words"),
        ({"tokens": [], "tags": []}, "there are no words"),
        ({"tokens": ["a"]}, "there are no tags"),
        ({"tokens": ["a", ""], "tags": ["O", "O"]}, "is not a word"),
        ({"tokens": ["a"], "tags": [None]}, "a tag is empty"),
        ({"tokens": 3, "tags": ["O"]}, "3 is not a list of words"),
    ],
)
def test_bad_rows_are_named(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"tokens": ["a"], "tags": ["O"]}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(UserError, match=rf"a\.jsonl, line 2.*{words}"):
        TagTable(train=str(path), dev=str(path)).examples("train")


def test_a_line_without_a_tag_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("EU B-ORG\nrejects\n")
    with pytest.raises(UserError, match="line 2 has a word and no tag"):
        TagTable(train=str(tmp_path / "a.conll"), dev=str(tmp_path / "a.conll")).examples("train")


def test_scores_need_as_many_tags_as_words() -> None:
    toy = task()
    rows = toy.examples("dev")[:1]
    with pytest.raises(UserError, match="words, and 1 tags were given"):
        toy.score({rows[0].id: {"prediction": ["O"]}}, rows)


@pytest.mark.real
def test_real_sets_have_their_official_counts(real_data: Path) -> None:
    for part, sizes in (("pos", (12544, 2001, 2077)), ("ner", (3394, 1009, 1287))):
        tag = Tag(part=part, data=str(real_data))
        assert tuple(len(tag.examples(split)) for split in tag.splits()) == sizes
        assert all(tag.origin(split).part is None for split in tag.splits())


def read_words(path: Path, text: str, hidden: bool = False) -> list[tuple[tuple[str, ...], object]]:
    path.write_text(text, encoding="utf-8")
    sheet = read_tagged(path, "words", "tags", None, hidden=hidden)
    assert not sheet.bad
    return [(tuple(row.values["words"]), row.values["tags"]) for row in sheet.rows]


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u2028", "\x85", "\x0c"])
def test_other_blanks_than_tab_and_space_belong_to_the_word(blank: str, tmp_path: Path) -> None:
    text = f"10{blank}000 X O\nEuro X B-M\n\n{blank}a X O\n\n"
    assert read_words(tmp_path / "a.conll", text) == [
        ((f"10{blank}000", "Euro"), ["O", "B-M"]),
        ((f"{blank}a",), ["O"]),
    ]


@pytest.mark.parametrize(
    "comment", ["# id 52-0\tdomain=en", "# sent_id = 5", "# domain=en", "#\n# text = # O", "# global.columns = a b"]
)
def test_comments_above_a_sentence_are_no_words(comment: str, tmp_path: Path) -> None:
    wanted = [(("#", "Anna"), ["O", "B-PER"]), (("Zoe",), ["B-PER"])]
    text = f"{comment}\n# _ _ O\nAnna _ _ B-PER\n\n{comment}\nZoe _ _ B-PER\n\nof _ _ O\n\n"
    assert read_words(tmp_path / "a.conll", text)[:2] == wanted


def test_where_every_sentence_begins_with_one_it_is_a_comment(tmp_path: Path) -> None:
    assert read_words(tmp_path / "a.conll", "# one\nAnna O\n\n# two\nZoe O\n\n") == [
        (("Anna",), ["O"]),
        (("Zoe",), ["O"]),
    ]
    assert read_words(tmp_path / "b.conll", "# O\nAnna O\n\nZoe O\n\n")[0] == (("#", "Anna"), ["O", "O"])


@pytest.mark.parametrize("text", ["Anna\nwent\n\nZoe\n", "Anna _\nwent _\n\nZoe _\n"])
def test_a_file_without_tags_has_words(text: str, tmp_path: Path) -> None:
    assert read_words(tmp_path / "a.conll", text, hidden=True) == [(("Anna", "went"), None), (("Zoe",), None)]


def test_a_missing_column_is_told_its_flag(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"words": ["a"], "tags": ["O"]}) + "\n")
    with pytest.raises(UserError, match=r'no column "tokens".*--tasks\.text, or --text-column'):
        TagTable(train=str(tmp_path / "a.jsonl"), dev=str(tmp_path / "a.jsonl")).examples("train")
