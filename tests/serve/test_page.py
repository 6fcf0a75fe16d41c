"""The page of `encodery serve` and that of its schema, in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from tests.serve.serving import Served, served, train
from tests.toolbox.tasks import pair_task

pytestmark = pytest.mark.slow  # a browser takes a while to begin
HOSTILE = "pairs & <b>more"
TOKEN = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return train(folder, pair_task(folder), "pairs").rename(folder / HOSTILE)


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Served]:
    with served(run) as found:
        yield found


def watched(browser: Any, url: str) -> tuple[Any, list[str], list[str]]:
    """A page, what went wrong on it, and what it asked for."""
    page, errors, asked = browser.new_page(), [], []
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    return page, errors, asked


def test_texts_are_typed_and_probabilities_and_scores_are_seen(browser: Any, server: Served) -> None:
    page, errors, asked = watched(browser, server.url)
    page.wait_for_selector("#scores tbody tr")
    assert page.inner_text("#name") == HOSTILE
    page.fill("#text", "a cat sleeps <script>alert(1)</script>")
    page.fill("#text2", "the dog sings")
    page.click("button")
    page.wait_for_selector("#probabilities tbody tr")
    labels = [row.inner_text() for row in page.query_selector_all("#probabilities tbody tr td:first-child")]
    assert sorted(labels) == ["contradiction", "entailment", "neutral"]
    chances = [float(row.inner_text()) for row in page.query_selector_all("#probabilities tbody tr td:nth-child(2)")]
    assert sum(chances) == pytest.approx(1, abs=1e-3)
    assert chances == sorted(chances, reverse=True)
    assert page.inner_text("#prediction") == labels[0]
    assert "accuracy" in page.inner_text("#scores")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert errors == []
    assert all(url.startswith((server.url, "data:")) for url in asked)
    page.close()


def test_the_schema_is_a_page_that_needs_no_network(browser: Any, server: Served) -> None:
    page, errors, asked = watched(browser, f"{server.url}/docs")
    page.wait_for_selector("#paths h2")
    text = page.inner_text("#paths")
    assert all(word in text for word in ("POST /predict", "GET /health", "text2", "Many pairs of texts.", "curl"))
    assert errors == []
    assert all(url.startswith((server.url, "data:")) for url in asked)
    page.close()


def test_with_a_token_the_page_asks_for_it(browser: Any, run: Path) -> None:
    with served(run, ENCODERY_SERVE_TOKEN=TOKEN) as guarded:
        page, _, _ = watched(browser, guarded.url)
        page.wait_for_selector("#token")
        assert "a token is required" in page.inner_text("#status")
        page.fill("#token", TOKEN)
        page.fill("#text", "a cat")
        page.click("h1")
        page.wait_for_selector("#scores tbody tr")
        page.fill("#text2", "the dog")
        page.click("button")
        page.wait_for_selector("#probabilities tbody tr")
        page.close()
