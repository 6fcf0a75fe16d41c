"""SQuAD: windows, offsets, decoding and the official scores (F14-F19)."""

import json
import random
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.errors import UserError
from encodery.tasks.base import Example
from encodery.tasks.forms import metrics as ours
from encodery.tasks.forms.classification import best_window, windows
from encodery.tasks.forms.spans import read_squad
from encodery.tasks.squad import Squad
from encodery.tasks.table import SpanTable
from encodery.tasks.toy import ToyQa
from tests.toolbox.tokenizers import Characters, all_pieces

PIECES = all_pieces()
WORDS = st.sampled_from(
    ["the", "old", "teacher", "1980s", "Zürich", "café", "naïve", "東京", "🙂", "e.g.", "“quoted”", "100km", "½", "x"]
)


def task(**options: Any) -> ToyQa:
    return ToyQa(part="qa", train_rows=20, dev_rows=10, test_rows=10, **options)


# F14: windows and offsets


@given(st.integers(0, 300), st.integers(1, 60), st.integers(1, 80))
def test_F14_windows_cover_every_piece_and_each_is_best_in_one(length: int, room: int, stride: int) -> None:
    found = windows(length, room, stride)
    assert {i for begin, end in found for i in range(begin, end)} == set(range(length))
    assert all(end - begin <= room for begin, end in found)
    assert found[-1].end == length
    best = best_window(found, length)
    assert len(best) == length
    assert all(found[best[i]].begin <= i < found[best[i]].end for i in range(length))


def test_F14_the_middle_of_a_window_wins() -> None:
    found = windows(10, 6, 4)
    assert found == [(0, 6), (4, 10)]
    assert best_window(found, 10) == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("kind", PIECES)
@settings(max_examples=40)
@given(st.data())
def test_F14_gold_spans_come_back_from_the_features(kind: str, data: st.DataObject) -> None:
    words = data.draw(st.lists(WORDS, min_size=1, max_size=40))
    context = data.draw(st.sampled_from([" ", "  ", "\n"])).join(words)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, min(first + 5, len(words) - 1)))
    places = [m.span() for m in re.finditer(r"\S+", context)]
    begin, end = places[first][0], places[last][1]
    example = Example("q", ("who helps", context), (context[begin:end],), extra={"starts": (begin,)})
    found = list(task(stride=7).encode([example], PIECES[kind], 40))
    texts = set()
    best: Counter[tuple[int, int]] = Counter()
    for features in found:
        s, e = features.targets["start"], features.targets["end"]
        assert len(features.ids) == len(features.marks["begin"]) == len(features.token_targets["allowed"]) <= 40
        if s:
            texts.add(context[features.marks["begin"][s] : features.marks["end"][e]])
    assert texts <= {context[begin:end]}
    assert len(found) > 1 or texts == {context[begin:end]}
    pieces = PIECES[kind].spelled([context])[0][1]
    for features in found:
        for a, b, flag in zip(features.marks["begin"], features.marks["end"], features.marks["best"], strict=True):
            best[a, b] += flag if a >= 0 else 0
    assert sum(best.values()) == len(pieces)  # each piece in exactly one window


@pytest.mark.real
@pytest.mark.slow
def test_F14_real_answers_are_recovered(real_data: Path) -> None:
    from transformers import AutoTokenizer

    from encodery.data.tokenizer import TokenizerPieces

    pieces = TokenizerPieces(AutoTokenizer.from_pretrained(real_data / "models" / "paraphrase-MiniLM-L3-v2-fp16"))
    squad = Squad(part="v2", data=str(real_data))
    examples = [e for e in squad.examples("dev") if e.label]
    right: dict[int, bool] = {}
    for features in squad.encode(examples, pieces, 384):
        example, s = examples[features.example], features.targets["start"]
        if s:
            text = example.texts[1][features.marks["begin"][s] : features.marks["end"][features.targets["end"]]]
            right[features.example] = text == example.label[0]  # type: ignore[index]
    assert len(right) == len(examples)  # an answer is whole in a window at least once
    assert sum(right.values()) >= 0.99 * len(examples)


# F15: targets


def test_F15_no_answer_and_out_of_window_point_at_the_first_token() -> None:
    context = "a b c d e f g h i j k l"
    some = Example("q", ("w", context), ("b",), extra={"starts": (2,)})
    none = Example("n", ("w", context), ())
    hidden = Example("h", ("w", context), None)
    found = list(task(stride=3).encode([some, none, hidden], Characters(), 9))
    mine = [f.targets for f in found if f.example == 0]
    assert {t["start"] == 0 for t in mine} == {True, False}
    assert all(t["impossible"] == 0.0 for t in mine)  # the question's label, whatever the window holds
    assert all((t["start"] == 0) == (t["end"] == 0) for t in mine)
    others = [f.targets for f in found if f.example == 1]
    assert all((t["start"], t["end"], t["impossible"]) == (0, 0, 1.0) for t in others)
    assert all(f.targets["start"] == f.targets["end"] == -100 for f in found if f.example == 2)


def test_F15_an_answer_cut_by_the_window_counts_as_out_of_it() -> None:
    example = Example("q", ("w", "abcdefghij"), ("defgh",), extra={"starts": (3,)})
    for features in task(stride=2).encode([example], Characters(), 9):
        begins = [b for b in features.marks["begin"] if b >= 0]
        assert bool(features.targets["start"]) == (min(begins) <= 3 and max(begins) >= 7)


# F16, F17: decoding


def window(null: float, spans: dict[tuple[int, int], float], words: int = 6, shift: int = 0) -> dict[str, Any]:
    """A row as the model gives it: question of one token, then `words` tokens of two characters each."""
    starts = sorted({s for s, _ in spans})
    ends = [sorted((e for s, e in spans if s == start)) for start in starts]
    return {
        "id": "q", "null": null, "starts": starts, "start_scores": [0.0] * len(starts), "ends": ends,
        "end_scores": [[spans[s, e] for e in es] for s, es in zip(starts, ends, strict=True)],
        "begin": [-1, -1, -1, *(2 * (i + shift) for i in range(words)), -1],
        "end": [-1, -1, -1, *(2 * (i + shift) + 1 for i in range(words)), -1],
        "best": [0, 0, 0, *[1] * words, 0],
    }  # fmt: skip


CONTEXT = "a b c d e f g h i j k l"
ASKED = Example("q", ("?", CONTEXT), ("b",), extra={"starts": (2,)})


def test_F17_null_is_the_least_over_windows() -> None:
    squad = task(head="joint")
    one = window(2.0, {(4, 4): -1.0})
    answer = squad.decode([one], [ASKED])["q"]
    assert (answer["null_odds"], answer["prediction"], answer["text"]) == (2.0, "", "b")
    for null in (5.0, -4.0):
        more = squad.decode([one, window(null, {(4, 5): -2.0}, shift=4)], [ASKED])["q"]
        assert more["null_odds"] == min(2.0, null) <= answer["null_odds"]
    assert more["prediction"] == "b"  # -4 is below the published threshold -2.75
    plain = task().decode([one, window(-4.0, {(4, 5): -2.0}, shift=4)], [ASKED])["q"]
    assert plain["null_odds"] == pytest.approx(-4.0 - -1.0)  # simple: least null score minus the best text's


def test_decoding_skips_what_cannot_be_an_answer() -> None:
    illegal = {(0, 0): 9.0, (1, 4): 9.0, (5, 4): 9.0, (4, 9): 9.0, (3, 8): 9.0}
    row = window(-9.0, illegal | {(4, 5): 1.0, (4, 4): 0.5})
    row["best"][3] = 0  # seen better in another window
    answer = task().decode([row], [ASKED])["q"]
    assert [one["text"] for one in answer["nbest"]] == ["b c", "b"]
    assert answer["prediction"] == CONTEXT[answer["start"] : answer["start"] + 3] == "b c"
    short = task(max_answer=1).decode([row], [ASKED])["q"]
    assert [one["text"] for one in short["nbest"]] == ["b"]
    assert task().decode([window(1.0, {(0, 0): 3.0})], [ASKED])["q"]["prediction"] == ""


def test_the_n_best_list_has_each_text_once() -> None:
    same = Example("q", ("?", "x x x x x x x x"), ("x",), extra={"starts": (0,)})
    answer = task().decode([window(-9.0, {(3, 3): 1.0, (4, 4): 2.0, (5, 6): 0.0})], [same])["q"]
    assert [(one["text"], one["score"]) for one in answer["nbest"]] == [("x", 2.0), ("x x", 0.0)]


# F18, F19: the official scores, written anew from their definition


def reference_normal(text: str) -> str:
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def reference_scores(golds: list[str], guess: str) -> tuple[float, float]:
    golds = [g for g in golds if reference_normal(g) != ""] or [""]
    best_em, best_f1 = 0.0, 0.0
    for gold in golds:
        a, b = reference_normal(gold), reference_normal(guess)
        left, right = a.split(), list(b.split())
        if not left or not right:
            f1 = 1.0 if not left and not right else 0.0
        else:
            rest, hits = list(right), 0
            for token in left:
                if token in rest:
                    rest.remove(token)
                    hits += 1
            p, r = hits / len(right), hits / len(left)
            f1 = 2 * p * r / (p + r) if hits else 0.0
        best_em, best_f1 = max(best_em, float(a == b)), max(best_f1, f1)
    return best_em, best_f1


def reference_best(score: dict[str, float], guess: dict[str, str], has: dict[str, bool], odds: dict[str, float]) -> Any:
    current = sum(1 for id in score if not has[id])
    best, threshold = float(current), 0.0
    total = float(current)
    for id in sorted(score, key=lambda one: odds[one]):
        if has[id]:
            total += score[id]
        elif guess[id] != "":
            total -= 1
        if total > best:
            best, threshold = total, odds[id]
    return best / len(score), threshold


def drawn(seed: int, n: int) -> tuple[dict[str, list[str]], dict[str, str], dict[str, float]]:
    rng = random.Random(seed)
    words = ["the", "a", "An", "old", "Teacher!", "1980s", "U.S.", "--", "the.", "nurse", "café", ""]

    def text() -> str:
        return " ".join(rng.choice(words) for _ in range(rng.randint(0, 4)))

    gold = {f"q{i}": [text() for _ in range(rng.randint(0, 3))] for i in range(n)}
    guess = {}
    for id, texts in gold.items():
        kind = rng.random()
        if kind < 0.05:
            continue  # no prediction
        guess[id] = "" if kind < 0.2 else rng.choice(["the", "a the"]) if kind < 0.3 else text()
        if kind > 0.6 and texts:
            guess[id] = rng.choice(texts)
    return gold, guess, {id: rng.choice([rng.gauss(0, 3), 0.0, 1.5]) for id in gold}


def with_threshold(
    raw: dict[str, tuple[float, float]], has: dict[str, bool], odds: dict[str, float], threshold: float
) -> dict[str, tuple[float, float]]:
    """The scores after saying `no answer` wherever the odds of that are above the threshold."""
    right = {id: float(not has[id]) for id in raw}
    return {id: (right[id], right[id]) if odds[id] > threshold else raw[id] for id in raw}


@pytest.mark.parametrize("seed", range(8))
def test_F18_scores_are_the_official_ones_on_thousands_of_random_predictions(seed: int) -> None:
    gold, guess, odds = drawn(seed, 500)
    raw = ours.raw_scores(gold, guess)
    expected = {id: reference_scores(gold[id], guess[id]) for id in guess}
    assert raw == {id: pytest.approx(value) for id, value in expected.items()}
    has = {id: any(reference_normal(text) for text in texts) for id, texts in gold.items()}
    for threshold in (-2.0, 0.0, 1.0):
        after = with_threshold(raw, has, odds, threshold)
        scores = ours.means(after, has)
        official = {id: ((float(not has[id]),) * 2 if odds[id] > threshold else expected[id]) for id in expected}
        for place, name in enumerate(("exact", "f1")):
            groups = {"": list(official), "has_answer_": [i for i in official if has[i]]}
            groups["no_answer_"] = [i for i in official if not has[i]]
            assert len(groups[""]) == len(groups["has_answer_"]) + len(groups["no_answer_"])
            for group, ids in groups.items():
                mean = sum(official[i][place] for i in ids) / len(ids)
                assert scores[f"{group}{name}"] == pytest.approx(mean)
            parts = [len(groups[g]) / len(official) * scores[f"{g}{name}"] for g in ("has_answer_", "no_answer_")]
            assert scores[name] == pytest.approx(sum(parts))


@pytest.mark.parametrize("seed", range(8))
def test_F19_the_best_threshold_gives_the_best_score(seed: int) -> None:
    gold, guess, odds = drawn(seed, 300)
    real = {id: text for id, text in guess.items() if reference_normal(text)}
    guess = {id: real.get(id, "something") for id in gold}  # never empty, also when normalised
    odds = {id: value + 1e-7 * i for i, (id, value) in enumerate(odds.items())}  # no ties
    raw = ours.raw_scores(gold, guess)
    has = {id: ours.golds(texts) != [""] for id, texts in gold.items()}
    for place, name in enumerate(("exact", "f1")):
        one = {id: values[place] for id, values in raw.items()}
        best, threshold = ours.best_threshold(one, guess, has, odds)
        assert (best, threshold) == pytest.approx(reference_best(one, guess, has, odds))
        if best > sum(not h for h in has.values()) / len(has):  # else nothing beats silence
            again = ours.means(with_threshold(raw, has, odds, threshold), has)[name]
            assert again == pytest.approx(best)


def test_scores_of_a_task_name_everything() -> None:
    squad = task()
    examples = squad.examples("dev")
    answers = {}
    for e in examples:
        text = e.label[0] if isinstance(e.label, tuple) and e.label else ""
        answers[e.id] = {"prediction": text, "text": text or "x", "null_odds": -1.0 if text else 1.0}
    scores = squad.score(answers, examples)
    assert {scores[k] for k in ("exact", "f1", "has_answer_exact", "no_answer_f1", "best_exact", "best_f1")} == {1.0}
    assert scores["best_f1_threshold"] == -1.0
    assert set(squad.official_files({e.id: {**answers[e.id], "nbest": []} for e in examples})) == {
        "predictions", "texts", "null_odds", "nbest",
    }  # fmt: skip


# Files


def squad_json(path: Path, *questions: dict[str, Any], context: str = "Norman knights came from France.") -> Path:
    data = [{"title": "Normans", "paragraphs": [{"context": context, "qas": list(questions)}]}]
    path.write_text(json.dumps({"version": "v2.0", "data": data}))
    return path


GOOD = {"id": "1", "question": "Where from?", "answers": [{"text": "France", "answer_start": 25}]}


def test_the_official_layout_is_read(tmp_path: Path) -> None:
    none = {"id": "2", "question": "When?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "x"}]}
    examples, sheet = read_squad(squad_json(tmp_path / "a.json", GOOD, none))
    assert not sheet.bad
    assert [(e.id, e.label, e.group) for e in examples] == [("1", ("France",), "Normans"), ("2", (), "Normans")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answers": [{"text": "France", "answer_start": 24}]}, r'at offset 24, where the text is " Fran'),
        ({"id": None}, "without an id: the id is missing"),
        ({"answers": []}, None),
        ({"answers": [], "is_impossible": False}, "has no answer and is not marked as impossible"),
        ({"question": 7}, "7 is not text"),
        ({"answers": [{"text": " ", "answer_start": 0}]}, "is not text"),
        ({"answers": [{"text": "France", "answer_start": "25"}]}, "is not a position in a text"),
    ],
)  # fmt: skip
def test_a_bad_question_is_named_with_its_article(change: dict[str, Any], words: str | None, tmp_path: Path) -> None:
    path = squad_json(tmp_path / "bad.json", {**GOOD, **change})
    table = SpanTable(train=str(path), dev=str(path))
    if words is None:
        assert table.examples("train")[0].label == ()
        return
    with pytest.raises(UserError, match=rf'article "Normans", question [^:]*.*{words}'):
        table.examples("train")


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    path = squad_json(tmp_path / "twice.json", GOOD, GOOD)
    with pytest.raises(UserError, match='article "Normans", question 1: its id occurs twice'):
        SpanTable(train=str(path), dev=str(path)).examples("train")
    kept = SpanTable(train=str(path), dev=str(path), skip_bad_rows=True)
    assert len(kept.examples("train")) == 1
    assert len(kept.bad_rows("train")) == 2 - 1


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "not valid JSON"), ("[]", "SQuAD's layout"), ('{"data": [{"title": "N"}]}', 'article "N"')],
)
def test_files_that_are_no_squad_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_squad(path)


def test_rows_and_hub_layouts_give_the_same(tmp_path: Path) -> None:
    context = "Norman knights came from France."
    row = {"id": "1", "title": "Normans", "context": context, "question": "Where from?"}
    forms = [
        {**row, "answer_text": ["France"], "answer_start": [25], "is_impossible": False},
        {**row, "answers": {"text": ["France"], "answer_start": [25]}},
    ]
    official = read_squad(squad_json(tmp_path / "a.json", GOOD))[0]
    for form in forms:
        path = tmp_path / "rows.jsonl"
        path.write_text(json.dumps(form) + "\n")
        assert read_squad(path)[0] == official


@pytest.mark.real
def test_the_stand_ins_share_no_article_and_say_so(real_data: Path) -> None:
    squad = Squad(part="v2", data=str(real_data))
    contexts = [{e.texts[1] for e in squad.examples(split)} for split in ("train", "dev")]
    assert not contexts[0] & contexts[1]
    assert all("NOT the official" in str(squad.origin(split).note) for split in ("train", "dev"))
    assert sum(e.label == () for e in squad.examples("dev")) > 500
