from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodery.errors import UserError
from encodery.tasks.base import Example
from encodery.tasks.toy import PARTS as ALL
from encodery.tasks.toy import Toy, ToyQa
from encodery.tasks.toy_grammar.corpus import documents
from encodery.tasks.toy_grammar.facts import contradicts, draw_fact, entails, read, write
from encodery.tasks.toy_grammar.hans import CASES, hans
from encodery.tasks.toy_grammar.words import PEOPLE, Draw, vocabulary, words_of
from tests.tasks.hans_solver import solve_hans

PARTS = tuple(name for name, part in ALL.items() if part.form in Toy.forms)
SINGLE = ("acceptability", "sentiment", "paraphrase", "nli")


def rows_of(part: str, split: str = "train", **options: int) -> list[Example]:
    return list(Toy(part=part, **options).examples(split))


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_solver_is_always_right(part: str) -> None:
    task = Toy(part=part)
    for split in task.splits():
        rows = task.examples(split)
        assert [task.solve(Example(e.id, e.texts)) for e in rows] == [e.label for e in rows]
        answers = {e.id: {"prediction": task.solve(e)} for e in rows}
        assert task.score(answers, rows)[task.main_metric] == pytest.approx(1.0)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(PARTS), st.integers(0, 2**40))
def test_solver_is_right_for_any_seed(part: str, seed: int) -> None:
    task = Toy(part=part, seed=seed, train_rows=60, dev_rows=10, test_rows=10)
    assert all(task.solve(e) == e.label for e in task.examples("train"))


@pytest.mark.parametrize("part", PARTS)
def test_no_text_of_one_split_is_in_another_and_no_row_is_twice(part: str) -> None:
    texts = {split: [e.texts for e in rows_of(part, split)] for split in ("train", "dev", "test")}
    flat = {split: {text for row in rows for text in row} for split, rows in texts.items()}
    assert not flat["train"] & flat["dev"]
    assert not flat["train"] & flat["test"]
    assert not flat["dev"] & flat["test"]
    assert all(len(set(rows)) == len(rows) for rows in texts.values())
    assert {split: len(rows) for split, rows in texts.items()} == {"train": 2000, "dev": 400, "test": 400}


@pytest.mark.parametrize("part", PARTS)
def test_labels_are_balanced(part: str) -> None:
    rows = rows_of(part)
    task = Toy(part=part)
    if part == "topic":
        assert {len(e.label) for e in rows} == {0, 1, 2, 3}  # type: ignore[arg-type]
        counts = Counter(topic for e in rows for topic in e.label)  # type: ignore[union-attr]
    else:
        counts = Counter(e.label for e in rows)
    if part == "similarity":
        assert set(counts) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
        assert min(counts.values()) > 0.05 * len(rows)
    else:
        assert set(counts) == set(task.labels)
        assert max(counts.values()) < 1.35 * min(counts.values())


def test_rows_are_the_same_everywhere() -> None:
    first = {part: rows_of(part)[0] for part in PARTS}
    assert {part: (e.texts, e.label) for part, e in first.items()} == GOLDEN


@pytest.mark.slow
def test_seeds_differ_and_dev_does_not_depend_on_train_rows() -> None:
    for part in PARTS:
        assert rows_of(part, "dev", train_rows=10) == rows_of(part, "dev")
        assert rows_of(part, "train", train_rows=10) == rows_of(part, "train")[:10]
        assert rows_of(part, "dev", seed=1) != rows_of(part, "dev")


def test_origin_names_the_options() -> None:
    digest = Toy(part="nli").origin("dev").digest
    assert Toy(part="nli").origin("dev").digest == digest
    assert Toy(part="nli").origin("dev").source == "toy"
    assert Toy(part="nli").origin("dev").rows == 400
    others = [Toy(part="nli").origin("test"), Toy(part="nli", seed=1).origin("dev"), Toy(part="topic").origin("dev")]
    assert digest not in [origin.digest for origin in others]


def test_what_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there is no toy/cats; there are acceptability"):
        Toy(part="cats")
    with pytest.raises(UserError, match='toy/nli has no split "dev_mismatched"'):
        Toy(part="nli").examples("dev_mismatched")
    monkeypatch.setattr("encodery.tasks.toy.PATIENCE", 2)
    with pytest.raises(UserError, match="ask for fewer train_rows"):
        Toy(part="sentiment", train_rows=10**6, dev_rows=5, test_rows=5).examples("train")


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_bag_of_words_is_clearly_below_the_solver(part: str) -> None:
    train, dev = _bag(part)
    if part == "similarity":
        from scipy.stats import spearmanr
        from sklearn.linear_model import Ridge

        guess = Ridge().fit(*train).predict(dev[0])
        assert spearmanr(guess, dev[1]).statistic < 0.3
    else:
        from sklearn.linear_model import LogisticRegression

        columns = range(train[1].shape[1])
        right = [LogisticRegression(max_iter=300).fit(train[0], train[1][:, k]).predict(dev[0]) for k in columns]
        assert (np.stack(right, 1) == dev[1]).all(1).mean() < 0.8


def _bag(part: str) -> tuple[tuple[object, np.ndarray], tuple[object, np.ndarray]]:
    """Word counts (each side on its own) and targets: a number, or one column of 0 and 1 per label."""
    from sklearn.feature_extraction.text import CountVectorizer

    def texts(rows: list[Example]) -> list[str]:
        return [" ".join(f"{side}_{word}" for side, t in enumerate(e.texts) for word in words_of(t)) for e in rows]

    def targets(rows: list[Example]) -> np.ndarray:
        if part == "similarity":
            return np.array([e.label for e in rows])
        if part == "topic":
            return np.array([[topic in e.label for topic in Toy(part=part).labels] for e in rows])  # type: ignore[operator]
        return np.array([[Toy(part=part).labels.index(e.label)] for e in rows])  # type: ignore[arg-type]

    counter = CountVectorizer(token_pattern=r"\S+")
    train, dev = rows_of(part), rows_of(part, "dev")
    return (counter.fit_transform(texts(train)), targets(train)), (counter.transform(texts(dev)), targets(dev))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**40))
def test_the_solver_finds_every_answer_at_its_place(seed: int) -> None:
    task = ToyQa(part="qa", seed=seed, train_rows=60, dev_rows=10, test_rows=10)
    for example in task.examples("train"):
        assert task.solve(example) == example.label
        for answer, start in zip(example.label, example.extra["starts"], strict=True):  # type: ignore[arg-type]
            assert example.texts[1][start:].startswith(answer)


@pytest.mark.slow
def test_questions_need_the_question_and_the_voice() -> None:
    rows = ToyQa(part="qa").examples("train")
    assert 0.2 < sum(e.label == () for e in rows) / len(rows) < 0.35
    people = [e for e in rows if e.texts[0] != "in the"]
    asked = ["by" in e.texts[0].split() for e in people]  # who, else whom
    named = [[word for word in words_of(e.texts[1]) if word in PEOPLE] for e in people]
    active = sum(e.label == (n[0] if who else n[1],) for e, n, who in zip(people, named, asked, strict=True))
    first = sum(e.label == (n[0],) for e, n in zip(people, named, strict=True))
    assert max(active, first) < 0.6 * len(people)


@pytest.mark.slow
def test_vocabulary_has_every_word_once() -> None:
    known = vocabulary()
    assert len(set(known)) == len(known) == len([word for word in known if word == word.lower()])
    texts = [text for part in PARTS for e in rows_of(part) for text in e.texts]
    texts += [line for document in documents(0, 300) for line in document.splitlines()]
    assert {word for e in ToyQa(part="qa").examples("train") for text in e.texts for word in words_of(text)} <= set(
        known
    )
    texts += [text for e in hans(0, 600) for text in e.texts]
    used = {word for text in texts for word in words_of(text)}
    assert used == set(known)


@given(st.integers(0, 2**30), st.booleans())
def test_facts_are_read_as_written(seed: int, passive: bool) -> None:
    fact = draw_fact(Draw(seed), like=0.5, where=0.5, denied=0.5)
    assert read(write(fact, passive)) == fact
    assert entails(fact, fact)
    assert not contradicts(fact, fact)
    with pytest.raises(ValueError, match="no fact"):
        read("The plot was dull.")


def test_documents_do_not_depend_on_their_number() -> None:
    assert documents(3, 5) == documents(3, 9)[:5]
    assert documents(3, 5) != documents(4, 5)
    assert all(4 <= len(document.splitlines()) <= 10 for document in documents(3, 50))


@pytest.mark.slow
@given(st.integers(0, 2**30))
def test_hans_is_solved_and_even(seed: int) -> None:
    rows = hans(seed, 48)
    assert [solve_hans(e.texts) for e in rows] == [e.label for e in rows]
    assert Counter(e.extra["subcase"] for e in rows) == {case[1]: 4 for case in CASES}
    assert Counter((e.extra["heuristic"], e.label) for e in rows).most_common()[-1][1] == 8
    assert all(set(words_of(e.texts[1])) <= set(words_of(e.texts[0])) for e in rows)


def test_hans_refuses_more_than_there_is() -> None:
    with pytest.raises(UserError, match="4000 pairs at most"):
        hans(0, 5000)


GOLDEN = {
    "acceptability": (("The teacher shadows the pilots.",), "acceptable"),
    "sentiment": (("The ending was funny but the dialogue was dull.",), "negative"),
    "topic": (("The long book is about the mayor but not about the choir.",), ("politics",)),
    "paraphrase": (("The doctor calls the teacher.", "The doctor phones the teacher."), "equivalent"),
    "similarity": (
        ("The nurse shadows the doctor in the station.", "The nurse shadows the doctor in the station."),
        5.0,
    ),
    "nli": (("The rich farmer does not phone the singer.", "The rich farmer calls the singer."), "contradiction"),
}
