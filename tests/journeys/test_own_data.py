"""Ten ways from a raw file to a scored model and a page: three commands, no YAML, files as people have them."""

import csv
import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from encodery.cli import main

pytestmark = pytest.mark.journey

# No model is named, so it is petit, which comes with encodery. Batches are small because the files are.
QUICK = ["--train.batch_size=16", "--quiet"]
GOOD = ["good", "great", "nice", "happy", "bright"]
BAD = ["bad", "awful", "sad", "dull", "broken"]
FILLER = [
    "the",
    "cat",
    "dog",
    "film",
    "bird",
    "house",
    "red",
    "blue",
    "big",
    "small",
    "man",
    "woman",
    "day",
    "book",
    "a",
    "very",
    "here",
    "there",
]


@pytest.fixture
def journey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Train on a file, evaluate on another, make a page; gives scores, what was recognised, and the page."""
    monkeypatch.chdir(tmp_path)

    def go(train: str, gold: str, *more: str) -> tuple[dict[str, float], dict[str, Any]]:
        commands = [
            ["train", train, *QUICK, "-o", "runs/mine", *more],
            ["evaluate", "runs/mine", "--on", gold, "--json", "--quiet"],
            ["report", "runs/mine", "-o", "page.html"],
        ]
        said = []
        for words in commands:
            assert main(words) == 0, capsys.readouterr().err
            said.append(capsys.readouterr().out)
        assert not list(tmp_path.glob("*.yaml"))
        page = Path("page.html").read_text(encoding="utf-8")
        assert "table/" in page
        assert "petit" in page
        assert len(page) > 10_000
        (found,) = json.loads(said[1]).values()
        info = json.loads(Path("runs/mine/model/encodery.json").read_text())["tasks"]
        (about,) = info.values()
        return found["scores"], about["task"]

    return go


def sentence(rng: random.Random, words: Sequence[str], length: int = 8) -> str:
    """Filler with two telling words somewhere."""
    found = [*rng.choices(FILLER, k=length - 2), *rng.choices(words, k=2)]
    rng.shuffle(found)
    return " ".join(found)


def mood(rng: random.Random, good: bool) -> str:
    return sentence(rng, GOOD if good else BAD)


def write(
    path: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], delimiter: str = ",", encoding: str = "utf-8"
) -> None:
    with open(path, "w", newline="", encoding=encoding) as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(rows)


def test_tickets_with_semicolons_and_a_rare_class(journey: Callable[..., Any]) -> None:
    rng = random.Random(1)

    def rows(count: int, start: int) -> list[tuple[Any, ...]]:
        urgent = [i % 8 == 0 for i in range(count)]
        return [
            (
                f"T-{start + i}",
                f"2024-03-{1 + i % 28:02}",
                mood(rng, not bad) + ", please",
                "urgent" if bad else "normal",
            )
            for i, bad in enumerate(urgent)
        ]

    write("tickets.csv", ["Ticket ID", "Created", "Message", "Priority"], rows(240, 0), ";")
    write("gold.csv", ["Ticket ID", "Created", "Message", "Priority"], rows(40, 900), ";")
    scores, task = journey("tickets.csv", "gold.csv", "--tasks.sampling=balanced")
    assert (task["text"], task["label"], task["id"], task["delimiter"]) == ("Message", "Priority", "Ticket ID", ";")
    assert scores["macro_f1"] > 0.8  # the majority's is 0.47


def test_ratings(journey: Callable[..., Any]) -> None:
    rng = random.Random(2)

    def rows(count: int) -> list[tuple[Any, ...]]:
        shares = [rng.randint(0, 8) for _ in range(count)]
        texts = [" ".join(rng.sample(rng.choices(GOOD, k=n) + rng.choices(BAD, k=8 - n), 8)) for n in shares]
        return [(text, f"{1 + n / 2:.1f}") for text, n in zip(texts, shares, strict=True)]

    write("ratings.csv", ["review", "rating"], rows(240))
    write("gold.csv", ["review", "rating"], rows(40))
    scores, task = journey("ratings.csv", "gold.csv")
    assert task["form"] == "regression"
    assert scores["spearman"] > 0.7


def test_pairs(journey: Callable[..., Any]) -> None:
    rng = random.Random(3)

    def rows(count: int) -> list[tuple[Any, ...]]:
        found = []
        for i in range(count):
            same = i % 2 == 0
            found.append((mood(rng, True), mood(rng, same), "same" if same else "different"))
        return found

    write("pairs.tsv", ["question1", "question2", "verdict"], rows(240), "\t")
    write("gold.tsv", ["question1", "question2", "verdict"], rows(40), "\t")
    scores, task = journey("pairs.tsv", "gold.tsv")
    assert (task["form"], task["text2"], task["label"]) == ("pair", "question2", "verdict")
    assert scores["accuracy"] > 0.8


def test_one_hot_columns(journey: Callable[..., Any]) -> None:
    rng = random.Random(4)
    words = {"toxic": "bad", "praise": "good", "sad": "dull"}

    def rows(count: int) -> list[tuple[Any, ...]]:
        marks = [[rng.random() < 0.4 for _ in words] for _ in range(count)]
        texts = [
            " ".join([*rng.choices(FILLER, k=6), *(w for w, m in zip(words.values(), ms, strict=True) if m)])
            for ms in marks
        ]
        return [(i, text, *map(int, ms)) for i, (text, ms) in enumerate(zip(texts, marks, strict=True))]

    write("comments.csv", ["id", "comment_text", *words], rows(240))
    write("gold.csv", ["id", "comment_text", *words], rows(40))
    scores, task = journey("comments.csv", "gold.csv", "--train.epochs=10")
    assert (task["form"], task["label"]) == ("multilabel", list(words))
    assert scores["micro_f1"] > 0.8


def test_a_windows_file(journey: Callable[..., Any]) -> None:
    rng = random.Random(5)

    def rows(count: int) -> list[tuple[Any, ...]]:
        return [(mood(rng, i % 2 == 0) + " für Müller", "schön" if i % 2 == 0 else "übel") for i in range(count)]

    write("mails.csv", ["Nachricht", "Urteil"], rows(240), ";", "cp1252")
    write("gold.csv", ["Nachricht", "Urteil"], rows(40), ",", "utf-8")  # the next export may differ
    scores, task = journey("mails.csv", "gold.csv")
    assert (task["encoding"], task["delimiter"], task["label"]) == ("cp1252", ";", "Urteil")
    assert scores["accuracy"] > 0.8


def test_long_documents(journey: Callable[..., Any]) -> None:
    rng = random.Random(6)

    def rows(count: int) -> list[tuple[Any, ...]]:
        """What tells is far behind the cut."""
        return [
            (
                " ".join([*rng.choices(FILLER, k=40), *rng.choices(GOOD if i % 2 else BAD, k=30)]),
                "accept" if i % 2 else "reject",
            )
            for i in range(count)
        ]

    write("papers.csv", ["document", "decision"], rows(80))
    write("gold.csv", ["document", "decision"], rows(30))
    scores, task = journey("papers.csv", "gold.csv", "--train.max_length=32", "--tasks.window_stride=16")
    assert (task["text"], task["label"], task["window_stride"]) == ("document", "decision", 16)
    assert scores["accuracy"] > 0.8


def test_named_entities_in_conll(journey: Callable[..., Any]) -> None:
    rng = random.Random(7)

    def text(count: int) -> str:
        found = []
        for _ in range(count):
            words = [(w, "O") for w in rng.choices(FILLER, k=5)]
            words.insert(rng.randint(0, 5), (rng.choice(GOOD), "B-PER"))
            words.insert(rng.randint(0, 6), (rng.choice(BAD), "B-LOC"))
            found.append("".join(f"{word}\tX\t{tag}\n" for word, tag in words))
        return "-DOCSTART-\tX\tO\n\n" + "\n".join(found)

    Path("people.conll").write_text(text(200))
    Path("gold.conll").write_text(text(30))
    scores, task = journey("people.conll", "gold.conll")
    assert task["form"] == "tags"
    assert scores["f1"] > 0.8


def test_own_questions_in_squad_s_json(journey: Callable[..., Any]) -> None:
    rng = random.Random(8)

    def data(count: int) -> str:
        articles = []
        for i in range(count):
            words = rng.choices(FILLER, k=6)
            answer = rng.choice(GOOD)
            words.insert(rng.randint(0, 6), answer)
            context = " ".join(words)
            qa = {
                "id": f"q{i}",
                "question": "good ?",
                "answers": [{"text": answer, "answer_start": context.index(answer)}],
            }
            articles.append({"title": f"article {i}", "paragraphs": [{"context": context, "qas": [qa]}]})
        return json.dumps({"version": "1.1", "data": articles})

    Path("questions.json").write_text(data(240))
    Path("gold.json").write_text(data(40))
    scores, task = journey("questions.json", "gold.json")
    assert task["form"] == "spans"
    assert scores["f1"] > 0.7


def test_json_lines_with_nested_keys(journey: Callable[..., Any]) -> None:
    rng = random.Random(9)

    def lines(count: int) -> str:
        rows = [
            {
                "meta": {"id": f"p{i}", "created": "2024-05-01T10:00:00", "user": {"name": f"u{i % 9}"}},
                "post": {"body": mood(rng, i % 3 == 0), "lang": "en"},
                "annotation": {"label": "keep" if i % 3 == 0 else "drop", "by": "ann"},
            }
            for i in range(count)
        ]
        return "".join(json.dumps(row) + "\n" for row in rows)

    Path("posts.jsonl").write_text(lines(240))
    Path("gold.jsonl").write_text(lines(40))
    scores, task = journey("posts.jsonl", "gold.jsonl")
    assert (task["text"], task["label"], task["id"]) == ("post.body", "annotation.label", "meta.id")
    assert scores["accuracy"] > 0.8


def test_a_parquet_file_with_twelve_columns(journey: Callable[..., Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = random.Random(10)

    def table(count: int) -> Any:
        good = [rng.random() < 0.5 for _ in range(count)]
        columns: dict[str, list[Any]] = {
            "order_id": [f"o{i}" for i in range(count)],
            "created_at": ["2024-01-02 10:00:00"] * count,
            "customer": [f"c{i % 40}" for i in range(count)],
            "country": [("de", "fr", "us")[i % 3] for i in range(count)],
            "amount": [rng.random() * 100 for _ in range(count)],
            "items": [rng.randint(1, 9) for _ in range(count)],
            "url": [f"https://shop.example/{i}" for i in range(count)],
            "title": [mood(rng, True) for _ in range(count)],
            "review_text": [mood(rng, one) for one in good],
            "verified": [rng.random() < 0.5 for _ in range(count)],
            "channel": [("web", "app")[i % 2] for i in range(count)],
            "sentiment": ["pos" if one else "neg" for one in good],
        }
        return pa.table(columns)

    pq.write_table(table(240), "orders.parquet")
    pq.write_table(table(40), "gold.parquet")
    scores, task = journey("orders.parquet", "gold.parquet")
    assert (task["text"], task["label"], task["id"]) == ("review_text", "sentiment", "order_id")
    assert scores["accuracy"] > 0.8
