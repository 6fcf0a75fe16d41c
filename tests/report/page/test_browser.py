"""The page in a real browser: Chromium, one session for all tests here."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from encodery.cli import main
from encodery.report.page.chart import Heat
from encodery.report.page.html import heat
from tests.report.page import folder as made
from tests.toolbox.timing import least

pytestmark = pytest.mark.slow  # a browser takes longer to begin than all other fast tests of the page


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
        self.page.evaluate("document.querySelectorAll('.dots').forEach((one) => showMap(one))")
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
    drawn = seen.page.locator(".chart, .dots").count()
    assert seen.page.evaluate("document.querySelectorAll('script').length") == 2 + drawn
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


def column(page: Any, table: str, place: int) -> list[str]:
    found: list[str] = page.evaluate(
        "([id, i]) => [...document.querySelectorAll(`#${id} tbody tr`)].map((row) => row.cells[i].dataset.sort ?? '')",
        [table, place],
    )
    return found


def test_tables_sort_by_number_and_blanks_stay_last(seen: Seen) -> None:
    page = seen.page
    head = page.locator("#every-1 th", has_text="mean ± sd")
    place = head.evaluate("(one) => one.cellIndex")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = [float(value) for value in column(page, "every-1", place) if value]
    assert falling == sorted(falling, reverse=True)
    assert len(falling) > 3
    head.locator("button").press("Enter")
    rising = [float(value) for value in column(page, "every-1", place) if value]
    assert (head.get_attribute("aria-sort"), rising) == ("ascending", sorted(falling))
    head = page.locator("#every th", has_text="p (Holm)")
    for _ in range(2):
        head.locator("button").click()
        values = column(page, "every", head.evaluate("(one) => one.cellIndex"))
        assert values[0] != ""
        assert values[-1] == "", "blank in both directions"


def test_the_buttons_of_a_chart_appear_on_hover_and_never_over_the_data(seen: Seen) -> None:
    page = seen.page
    chart = page.locator("#curve-loss")
    chart.scroll_into_view_if_needed()
    page.mouse.move(1, 1)
    bar = page.locator("#curve-loss .modebar").first
    shown = "(one) => Number(getComputedStyle(one).opacity)"
    page.wait_for_timeout(400)
    assert bar.evaluate(shown) == 0
    chart.hover()
    page.wait_for_timeout(400)
    assert bar.evaluate(shown) == 1
    group, data = (page.locator(f"#curve-loss {part}").first.bounding_box() for part in (".modebar-group", ".nsewdrag"))
    assert group["height"] > 5
    assert group["y"] + group["height"] <= data["y"]


def test_names_of_labels_are_not_broken_within_a_word(browser: Any) -> None:
    words = ["Abrechnung", "Kundenbetreuung", "Donaudampfschifffahrtsgesellschaftskapitän", "not paid yet"]
    square = [[1.0] * len(words)] * len(words)
    matrix = heat(Heat("m", "Matrix", words, words, square, [["12 (100%)"] * len(words)] * len(words)))
    style = (files("encodery.report.page") / "assets" / "page.css").read_text(encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 600})
    page.set_content(f"<style>{style}</style><div class=grid><div>{matrix}</div><div></div></div>")
    lines = """(one) => { const text = document.createRange(); text.selectNodeContents(one);
        const turned = one.querySelector("span") !== null;
        return new Set([...text.getClientRects()].map((box) => Math.round(turned ? box.left : box.top))).size }"""
    for name in words[:3]:
        for head in page.get_by_title(name).all():
            assert head.evaluate(lines) == 1, name
            assert head.evaluate("(one) => one.offsetWidth") <= 12 * 16 + 30
    assert page.locator(".frame").evaluate("(one) => one.scrollWidth <= one.clientWidth"), "nothing is out of sight"
    page.close()


def test_a_matrix_of_four_labels_is_whole_beside_a_chart(browser: Any) -> None:
    words = ["Kündigung", "Lieferung", "Rechnung", "Technik"]
    style = (files("encodery.report.page") / "assets" / "page.css").read_text(encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 600})
    for text in ("57 (95%)", "11,234 (100%)"):
        cells = Heat("m", "Matrix", words, words, [[1.0] * 4] * 4, [[text] * 4] * 4, x="predicted", y="actual")
        page.set_content(f"<style>{style}</style><div class=grid><div>{heat(cells)}</div><div></div></div>")
        assert page.locator(".frame").evaluate("(one) => one.clientWidth") < 600
        assert page.locator(".frame").evaluate("(one) => one.scrollWidth <= one.clientWidth"), text
    page.close()


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


INK = """(id) => {
  const canvas = document.querySelector(`#${id} canvas`), counts = {};
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 120) {
    const key = [data[i], data[i + 1], data[i + 2]].map((v) => v >> 5).join();
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}"""
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def ink(page: Any, id: str) -> dict[str, int]:
    """How many pixels of each colour a map has."""
    page.evaluate(FRAME)
    found: dict[str, int] = page.evaluate(INK, id)
    return found


def test_a_map_shows_the_text_of_a_point_under_the_mouse(seen: Seen) -> None:
    page = seen.page
    page.locator("#clusters-0-map canvas").scroll_into_view_if_needed()
    place = page.evaluate("maps.find((one) => one.box.id === 'clusters-0-map').place(7)")
    box = page.locator("#clusters-0-map canvas").bounding_box()
    page.mouse.move(box["x"] + place[0], box["y"] + place[1])
    page.wait_for_selector("#clusters-0-map .tip:visible")
    told = page.locator("#clusters-0-map .tip").text_content()
    assert " point " in told
    assert "cluster " in told
    assert page.evaluate("window.broken") is None
    page.mouse.move(1, 1)
    page.wait_for_selector("#clusters-0-map .tip", state="hidden")


def test_a_map_is_coloured_by_any_column_and_searched(seen: Seen) -> None:
    page = seen.page
    before = ink(page, "clusters-0-map")
    assert len(before) >= 5, "five clusters"
    page.select_option("#clusters-0-map select", label="correctness")
    after = ink(page, "clusters-0-map")
    assert after != before
    names = page.locator("#clusters-0-map .legend button").all_text_contents()
    assert sorted(names) == ["correct", "wrong"]
    page.locator("#clusters-0-map .legend button", has_text="wrong").click()
    assert sum(ink(page, "clusters-0-map").values()) < sum(after.values())
    page.fill("#clusters-0-map input", "POINT 277")
    assert page.locator("#clusters-0-map output.matches").text_content() == "1 of 300"
    assert sum(ink(page, "clusters-0-map").values()) < sum(after.values()) / 10
    page.fill("#clusters-0-map input", "")
    page.select_option("#clusters-0-map select", label="cluster")
    assert ink(page, "clusters-0-map") == before


def test_a_cluster_of_the_table_is_shown_on_the_map(seen: Seen) -> None:
    page = seen.page
    before = ink(page, "clusters-0-map")
    field = page.locator("#clusters-0-map input")
    sizes = page.evaluate(
        "(() => { const [one] = maps.find((one) => one.box.id === 'clusters-0-map').data.columns;"
        "return one.names.map((_, code) => one.codes.filter((own) => own === code).length) })()"
    )
    for number in (3, 1):
        page.get_by_role("button", name=f"Show cluster {number} on the map").click()
        assert field.input_value() == f"cluster:{number}"
        assert page.locator("#clusters-0-map output.matches").text_content() == f"{sizes[number]} of 300"
        assert sum(ink(page, "clusters-0-map").values()) < sum(before.values()) / 2
    field.fill("cluster:3 point")
    assert page.locator("#clusters-0-map output.matches").text_content() == f"{sizes[3]} of 300"
    field.fill("cluster:99")
    assert page.locator("#clusters-0-map output.matches").text_content() == "0 of 300"
    hostile = page.evaluate(
        "maps.find((one) => one.box.id === 'clusters-0-map').data.columns.find((one) => one.name === 'genre').names[0]"
    )
    field.fill(f'genre:"{hostile}"')
    assert page.locator("#clusters-0-map output.matches").text_content() == "150 of 300", "a value with spaces"
    field.fill("")
    assert ink(page, "clusters-0-map") == before


def test_a_keyboard_walks_over_a_map_and_says_each_point(seen: Seen) -> None:
    page = seen.page
    canvas = page.locator("#data-map-0 canvas")
    canvas.focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        canvas.press(key)
        said.append(page.locator("#data-map-0 output.point").text_content())
    assert len(set(said)) == 3
    assert all("correctness" in words and "train-" in words for words in said)
    view = "maps.find((one) => one.box.id === 'data-map-0').view.scale"
    canvas.press("+")
    assert page.evaluate(view) == 1.5
    canvas.press("0")
    assert page.evaluate(view) == 1
    page.get_by_role("button", name="Zoom in: toy/nli: plain").click()
    assert page.evaluate(view) == 1.5
    page.get_by_role("button", name="Show everything: toy/nli: plain").click()


def test_a_finger_chooses_a_point_and_the_map_fits_the_phone(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    seen = Seen(page, report)
    box = page.locator("#clusters-0-map canvas")
    box.scroll_into_view_if_needed()
    page.wait_for_selector("#clusters-0-map[data-drawn]")
    assert page.evaluate("getComputedStyle(document.querySelector('#clusters-0-map canvas')).touchAction") == "pan-y"
    place = page.evaluate("maps.find((one) => one.box.id === 'clusters-0-map').place(3)")
    at = box.bounding_box()
    page.touchscreen.tap(at["x"] + place[0], at["y"] + place[1])
    page.wait_for_selector("#clusters-0-map .tip:visible")
    assert " point " in page.locator("#clusters-0-map output.point").text_content()
    tip = page.locator("#clusters-0-map .tip").bounding_box()
    assert tip["x"] >= 0
    assert tip["x"] + tip["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert seen.errors == []
    page.close()


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


PALE = """(least) => {
  const light = (text) => {
    const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(part);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const texts = "main p, main td, main th, main button, main figcaption, main li";
  return [...document.querySelectorAll(texts)].filter((one) => {
    const [a, b] = [light(getComputedStyle(one).color), paper].sort((x, y) => y - x);
    return one.offsetParent && !one.closest(".heat, .tip, select") && (a + 0.05) / (b + 0.05) < least;
  }).map((one) => one.outerHTML.slice(0, 80));
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_section_is_drawn_on_a_desk_and_on_a_phone_by_day_and_night(
    browser: Any, report: Path, width: int, theme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 850}, color_scheme=theme)
    seen = Seen(page, report)
    seen.draw_all()
    page.evaluate(FRAME)
    assert page.evaluate("document.documentElement.scrollWidth") == width, "no scrolling sideways"
    wide = page.evaluate(
        "[...document.querySelectorAll('.chart, .dots, .legend, .controls')].filter((one) => one.offsetParent && "
        "one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.id || one.className)"
    )
    assert wide == []
    for name in ("data-map-0", "clusters-0-map"):
        assert len(ink(page, name)) >= 3, "points in several colours"
    assert page.evaluate(PALE, 4.5) == [], "WCAG's contrast of text"
    assert page.evaluate("root.dataset.theme") == theme
    assert seen.errors == []
    assert [url for url in seen.requests if url != seen.own and not url.startswith("data:")] == []
    page.close()


TEN = """() => {
  const begin = performance.now();
  for (let i = 0; i < 10; i++) {
    maps[0].view.scale = 1 + i / 5;
    maps[0].draw();
  }
  return performance.now() - begin;
}"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty runs and a map of 20,000 points."""
    folder = tmp_path_factory.mktemp("large")
    made.many(folder, count=30, rows=200)
    (folder / "runs" / "chosen").mkdir()
    made.clusters(folder / "runs" / "chosen", 20, points=20_000)
    assert main(["report", str(folder / "runs"), "-o", str(folder / "page.html")]) == 0
    return folder / "page.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_thirty_runs_and_twenty_thousand_points_are_ready_in_two_seconds(browser: Any, large: Path, width: int) -> None:
    """From the address to what is in sight, and then the map: drawn at once, and often enough while it is moved."""
    assert large.stat().st_size < 4e6

    def ready(_: int) -> float:
        page = browser.new_page(viewport={"width": width, "height": 850})
        page.goto(large.as_uri())
        page.evaluate(FRAME)
        seconds: float = page.evaluate("performance.now()") / 1000
        page.close()
        return seconds

    assert least(ready, 2.0) < 2.0
    page = browser.new_page(viewport={"width": width, "height": 850})
    page.goto(large.as_uri())
    page.evaluate("showMap(byId('clusters-0-map'))")
    assert page.locator("#clusters-0-map output.matches").count() == 1
    assert page.evaluate("maps[0].data.x.length") == 20_000
    page.evaluate(FRAME)
    assert least(lambda _: page.evaluate(TEN) / 10, 50, attempts=5) < 50, "milliseconds of a frame"
    page.close()
