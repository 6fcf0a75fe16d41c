"""The page in a real browser: Chromium, one session for all tests here."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from encodery.cli import main
from tests.report.page import folder as made

pytestmark = pytest.mark.slow  # a browser takes longer to begin than all other fast tests of the page
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium. Where there is none these tests are skipped, but not in CI."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have a browser: apt-get install chromium")
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of everything."""
    folder = tmp_path_factory.mktemp("page")
    source, out = made.whole(folder / "all"), folder / "report.html"
    title = made.HOSTILE[0]
    assert main(["report", str(source), "-o", str(out), "--title", title, "--baseline", "method.kind=plain"]) == 0
    return out


class Seen:
    """An open page, and everything that it said or asked for."""

    def __init__(self, page: Any, path: Path) -> None:
        self.page, self.errors, self.requests = page, [], []
        page.on("console", lambda message: message.type in ("error", "warning") and self.errors.append(message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        self.own = path.as_uri()

    def draw_all(self) -> None:
        """Show every panel and every chart."""
        self.page.evaluate("document.querySelectorAll('.panel').forEach((one) => { one.hidden = false; })")
        self.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        self.page.evaluate("document.querySelectorAll('.chart').forEach((one) => show(one))")
        self.page.wait_for_function("document.querySelectorAll('.chart:not(.js-plotly-plot)').length === 0")


@pytest.fixture(scope="module")
def seen(browser: Any, report: Path) -> Iterator[Seen]:
    """A desktop, everything drawn."""
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    found = Seen(page, report)
    found.draw_all()
    yield found
    page.close()


def test_S5_every_chart_is_drawn_without_an_error_and_without_a_request(seen: Seen) -> None:
    assert seen.page.locator(".chart").count() >= 15
    assert seen.page.locator(".chart .main-svg").count() >= 15
    assert seen.errors == []
    assert [url for url in seen.requests if url != seen.own and not url.startswith("data:")] == []


def test_S5_hostile_words_are_shown_and_do_not_run(seen: Seen) -> None:
    """In sentences, labels, config values, errors, methods and the title."""
    assert seen.page.evaluate("window.broken") is None
    assert seen.page.locator("img, svg[onload], main a[href^='javascript']").count() == 0
    assert seen.page.evaluate("document.querySelectorAll('script').length") == 2 + seen.page.locator(".chart").count()
    assert seen.page.title() == made.HOSTILE[0]
    text = seen.page.evaluate("document.body.textContent")
    for words in (*made.HOSTILE[:5], *made.LABELS):
        assert words in text
    assert "number 5" in text


def test_S5_the_policy_stops_what_a_text_would_run(seen: Seen) -> None:
    """Were a text ever to become markup, its script would still not run, nor its picture be fetched."""
    before = len(seen.errors)
    seen.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', \"<img id=evil src=x onerror='window.broken=9'>\")"
    )
    seen.page.evaluate(
        "const one = document.createElement('script'); one.textContent = 'window.broken = 8'; document.body.append(one)"
    )
    seen.page.wait_for_timeout(100)
    assert seen.page.evaluate("window.broken") is None
    assert any("Content Security Policy" in line for line in seen.errors[before:])
    del seen.errors[before:]
    seen.page.evaluate("document.getElementById('evil').remove(); document.body.lastChild.remove()")
    seen.requests[:] = [url for url in seen.requests if url == seen.own]


def test_tables_sort_by_number_and_blanks_stay_last(seen: Seen) -> None:
    page = seen.page
    head = page.locator("#every th", has_text="mean ± sd")
    place = head.evaluate("(one) => one.cellIndex")

    def column() -> list[str]:
        found: list[str] = page.evaluate(
            "(i) => [...document.querySelectorAll('#every tbody tr')].map((row) => row.cells[i].dataset.sort ?? '')",
            place,
        )
        return found

    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = [float(value) for value in column() if value]
    assert falling == sorted(falling, reverse=True)
    assert len(falling) > 3
    head.locator("button").press("Enter")
    rising = [float(value) for value in column() if value]
    assert (head.get_attribute("aria-sort"), rising) == ("ascending", sorted(falling))


def test_search_finds_the_sentence(seen: Seen) -> None:
    page = seen.page
    table = next(one for one in page.locator("#worst table").all() if made.HOSTILE[0] in (one.text_content() or ""))
    name = table.get_attribute("id")
    field = page.locator(f"input[data-filter='{name}']")
    texts = [text.lower() for text in page.locator(f"#{name} tbody tr").all_text_contents()]
    matching = sum("onerror" in text and "yes" in text for text in texts)
    field.fill("ONERROR yes")
    assert page.locator(f"#{name} tbody tr:visible").count() == matching
    assert 0 < matching < len(texts)
    assert page.locator(f"#{name}-count").text_content() == f"{matching} of {len(texts)}"
    field.fill("")
    assert page.locator(f"#{name} tbody tr:visible").count() == len(texts)


def test_touching_a_point_of_the_map_shows_its_text(seen: Seen) -> None:
    page = seen.page
    point = page.locator("#map-0 .points path").nth(3)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#map-0 .hoverlayer .hovertext", timeout=3000)
    shown = page.locator("#map-0 .hoverlayer").text_content()
    sentences = page.evaluate(
        "JSON.parse(document.getElementById('map-0-data').textContent).series.flatMap((s) => s.text)"
    )
    assert any(sentence.split(" ")[0] in shown for sentence in sentences)
    assert len(shown) > 15


def test_smoothing_changes_the_line(seen: Seen) -> None:
    values = "document.getElementById('curve-loss').data.at(-1).y[5]"
    before = seen.page.evaluate(values)
    seen.page.locator("input[data-smooth='curve-loss']").evaluate(
        "(one) => { one.value = 0.9; one.dispatchEvent(new Event('input')); }"
    )
    assert seen.page.evaluate(values) != before


def test_a_keyboard_reaches_everything_and_names_are_there(seen: Seen) -> None:
    page = seen.page
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select, [role=img], [role=region]')].filter((one) => "
        "!(one.textContent.trim() || one.ariaLabel || one.closest('label'))).map((one) => one.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("section table:not(.numbers table)").evaluate_all("(all) => all.every((one) => one.ariaLabel)")


def test_dark_follows_the_system_and_the_button(browser: Any, report: Path) -> None:
    page = browser.new_page(color_scheme="dark", viewport={"width": 375, "height": 800})
    seen = Seen(page, report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the results"
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(20, 24, 26)"
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(paper) == "rgb(253, 253, 251)"
    page.locator("#curve-loss").scroll_into_view_if_needed()
    page.wait_for_selector("#curve-loss .xtitle")
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("getComputedStyle(document.querySelector('#curve-loss .xtitle')).fill") == "rgb(230, 234, 233)"
    wide = "[document.documentElement.scrollWidth, innerWidth]"
    assert page.evaluate(wide) == [375, 375], "a phone must not scroll sideways"
    assert seen.errors == []
    page.close()
