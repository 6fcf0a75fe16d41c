"""What every selector must keep. Each file of the package is found by itself, so a new one needs no line here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encodery.config.components import find, names
from encodery.data.out_of_fold import OutOfFold
from encodery.data.row_dynamics import Dynamics
from encodery.data.subset import share
from encodery.selectors.base import Pool, Ranked, Selector
from encodery.tasks.base import Example

KINDS = names("select")
LABELS = ("entailment", "neutral", "contradiction")
SMALL: dict[str, dict[str, Any]] = {"clusters": {"k": 5}, "scores": {"file": "scores.csv"}}
WORDS = ("the", "a", "doctor", "lawyer", "saw", "helped", "slept", "near", "with", "not", "every", "some")
ROWS = 60


def examples(n: int = ROWS, seed: int = 0) -> list[Example]:
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(2 * n)]
    return [Example(f"id-{i}", (texts[2 * i], texts[2 * i + 1]), LABELS[i % 3]) for i in range(n)]


def pool(rows: Sequence[Example], seed: int = 1, **more: Any) -> Pool:
    """A pool whose vectors and dynamics belong to the ids, in whatever order the rows come."""
    rng = np.random.default_rng(7)
    ids = sorted(example.id for example in rows)
    vectors = rng.normal(size=(len(ids), 8)).astype(np.float32)
    runs = [Dynamics(rng.normal(size=(4, len(ids), 3)), ids, LABELS, "eval", Path("run")) for _ in range(2)]
    chances = dict(zip(ids, rng.dirichlet(np.ones(3), len(ids)), strict=True))
    folds = {
        one.id: {"label": one.label, "probabilities": dict(zip(LABELS, chances[one.id].tolist(), strict=True))}
        for one in rows
    }
    more = {"folds": [OutOfFold(Path("folds"), folds)]} | more
    return Pool(rows, LABELS, seed, lambda: (ids, vectors), runs, **more)


def selector(kind: str) -> Selector:
    found = find("select", kind)
    assert issubclass(found, Selector)
    return found(**SMALL.get(kind, {}))


@pytest.fixture(params=[kind for kind in KINDS if kind != "grand"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def outside_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for the kind `scores`, where paths begin."""
    lines = [f"id-{i},{(7 * i) % 11}" for i in range(ROWS)]
    (tmp_path / "scores.csv").write_text("id,score\n" + "\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)


def chosen(where: Pool, found: Ranked) -> list[str]:
    return [where.ids[i] for i in found.order]


@pytest.mark.parametrize("name", KINDS)
def test_options_are_frozen_documented_and_survive_json(name: str) -> None:
    kind = find("select", name)
    options = kind()
    assert kind.__doc__
    assert kind.model_validate_json(options.model_dump_json()) == options
    assert all(kind.documented().get(field) for field in kind.model_fields)


def test_it_gives_different_rows_and_as_many_as_were_asked_for(kind: str) -> None:
    where = pool(examples())
    for count in (1, 20, ROWS):
        order = selector(kind)(where, count).order
        assert len(order) >= count
        assert len(set(order.tolist())) == len(order)
        assert set(order.tolist()) <= set(range(ROWS))
    assert len(selector(kind)(where, ROWS).order) == ROWS


def test_D2_D1_prefixes_are_nested_and_the_file_may_be_shuffled(kind: str) -> None:
    rows = examples()
    first = pool(rows)
    order = chosen(first, selector(kind)(first, ROWS))
    for fraction in (0.1, 0.29, 0.5):
        count = share(ROWS, fraction)
        assert chosen(first, selector(kind)(pool(rows), count))[:count] == order[:count]
    shuffled = [rows[i] for i in np.random.default_rng(3).permutation(ROWS)]
    second = pool(shuffled)
    assert chosen(second, selector(kind)(second, ROWS)) == order
