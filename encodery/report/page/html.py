"""HTML that cannot be broken: everything is escaped but what `tag` made itself."""

import html
import json
from collections.abc import Sequence
from typing import Any

from encodery.report.page import point_map
from encodery.report.page.chart import Chart, Dots, Heat, plain

_VOID = {"input", "meta", "br"}
MANY = 12  # rows from which a table can be searched


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: Any) -> Html:
    """An element; `class_` is class, `aria_label` is aria-label, True is a bare attribute, None and False are none."""
    words = [name]
    for key, value in attributes.items():
        label = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(label)
        elif value is not None and value is not False:
            words.append(f'{label}="{html.escape(str(value))}"')
    begin = f"<{' '.join(words)}>"
    return Html(begin if name in _VOID else f"{begin}{join(*children)}</{name}>")


def join(*children: str) -> Html:
    """Elements and texts, one after the other."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def embedded(data: Any) -> Html:
    """JSON for a script element: no `<`, so that nothing can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Html(text)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    id: str,
    caption: str,
    numbers: Sequence[str] = (),
    sort: Sequence[Sequence[Any]] = (),
    search: str = "",
    rowclass: Sequence[str] = (),
) -> Html:
    """A sortable table in a frame of its own that scrolls sideways. `numbers` are right-aligned columns, `sort` what
    the cells are sorted by where that is not their text, `search` the placeholder of a search field."""
    heads = [
        tag("th", tag("button", name, type="button"), scope="col", class_="n" * (name in numbers)) for name in header
    ]
    lines = []
    for index, row in enumerate(rows):
        keys = sort[index] if sort else [None] * len(row)
        cells = [
            tag("td", cell, class_="n" if name in numbers else None, data_sort=key)
            for name, cell, key in zip(header, row, keys, strict=True)
        ]
        lines.append(tag("tr", *cells, class_=rowclass[index] or None if rowclass else None))
    head, body = tag("thead", tag("tr", *heads)), tag("tbody", *lines)
    field = _search(id, search) if search and len(rows) >= MANY else ""
    return join(_framed(tag("table", head, body, id=id, class_="sortable", aria_label=caption), caption, field))


def _framed(whole: Html, title: str, field: str = "") -> Html:
    """A title that stays in sight when the table is moved sideways."""
    frame = tag("div", whole, class_="frame", tabindex="0", role="region", aria_label=title)
    return tag("div", tag("p", title, class_="caption"), field, frame)


def _search(id: str, words: str) -> Html:
    field = tag("input", type="search", placeholder=words, aria_label=words, data_filter=id)
    return tag("p", field, tag("output", "", id=f"{id}-count", aria_live="polite"), class_="search")


def figure(chart: Chart) -> Html:
    """A place for a chart, its data, and what it shows in words for those who do not see it."""
    controls = _slider(chart.id) if chart.smooth else Html("")
    data = tag("script", embedded(plain(chart)), type="application/json", id=f"{chart.id}-data")
    keys = tag("div", class_="legend", role="group", aria_label="Lines that are shown")
    place = tag("div", id=chart.id, class_="chart", role="img", aria_label=_spoken(chart))
    note = tag("p", chart.note, class_="note") if chart.note else ""
    numbers = tag("details", tag("summary", "Numbers"), class_="numbers", data_chart=chart.id)
    return tag("figure", tag("figcaption", chart.title), controls, keys, place, data, note, numbers)


def dots(picture: Dots) -> Html:
    """A map of points with its controls, its data, and a line that says aloud what is chosen."""
    names = [tag("option", name, value=str(place)) for place, name in enumerate(picture.columns)]
    colour = tag("label", "Colour ", tag("select", *names)) if len(names) > 1 else ""
    field = tag("input", type="search", placeholder="Search points", aria_label=f"Search points of {picture.title}")
    zooms = [
        tag("button", sign, type="button", data_zoom=way, aria_label=f"{words}: {picture.title}")
        for sign, way, words in (("+", "in", "Zoom in"), ("−", "out", "Zoom out"), ("All", "all", "Show everything"))
    ]
    found = tag("output", "", class_="matches", aria_live="polite")
    controls = tag("div", colour, tag("span", field, found), tag("span", *zooms), class_="controls")
    keys = tag("div", class_="legend", role="group", aria_label="Colours")
    spoken = (
        f"{picture.title}: a map of {len(picture.ids):,} points. Arrow keys go from point to point, "
        "plus and minus zoom, 0 shows everything."
    )
    canvas = tag("canvas", tabindex="0", role="application", aria_label=spoken)
    data = tag("script", embedded(point_map.plain(picture)), type="application/json", id=f"{picture.id}-data")
    said = tag("output", "", class_="point", aria_live="polite")
    told = point_map.said(picture)
    note = tag("p", told, class_="note") if told else ""
    place = tag(
        "div", controls, keys, canvas, tag("div", class_="tip", hidden=True), said, id=picture.id, class_="dots"
    )
    return tag("figure", tag("figcaption", picture.title), place, data, note)


def _slider(id: str) -> Html:
    dial = tag("input", type="range", min="0", max="0.98", step="0.02", value="0", data_smooth=id)
    return tag("label", "Smoothing ", dial, class_="smooth")


def _spoken(chart: Chart) -> str:
    what = {"bars": "bars", "points": "points", "line": "lines"}[chart.series[0].kind] if chart.series else "lines"
    few = 6
    names = ", ".join(chart.groups[:few]) + (f" and {len(chart.groups) - few} more" if len(chart.groups) > few else "")
    return f"{chart.title}: {what} of {chart.y or 'values'} over {chart.x or 'places'} for {names}."


def heat(picture: Heat, *, head: str = "") -> Html:
    """A table whose cells are coloured by their value."""
    low, high = picture.span
    rows = []
    hints: Sequence[Sequence[str | None]] = picture.hints or [[None] * len(picture.columns)] * len(picture.rows)
    for name, values, texts, told in zip(picture.rows, picture.values, picture.texts, hints, strict=True):
        cells = [
            tag("td", text, title=hint, **_cell(value, low, high, picture.signed))
            for value, text, hint in zip(values, texts, told, strict=True)
        ]
        rows.append(tag("tr", tag("th", name, scope="row", title=name), *cells))
    corner = head or f"{picture.y} / {picture.x}".strip(" /")
    heads = [
        tag("th", tag("span", name) if picture.turned else name, scope="col", title=name) for name in picture.columns
    ]
    top = tag("tr", tag("td", corner, class_="corner"), *heads)
    kind = "heat dense" if picture.dense else "heat turned" if picture.turned else "heat"
    whole = tag("table", tag("thead", top), tag("tbody", *rows), class_=kind, id=picture.id, aria_label=picture.title)
    note = tag("p", picture.note, class_="note") if picture.note else ""
    return tag("div", _framed(whole, picture.title), note)


def _cell(value: float | None, low: float, high: float, signed: bool) -> dict[str, str]:
    """The colour of a cell; one without a value has none, so that it is not taken for the lowest."""
    if value is None:
        return {"class_": "empty"}
    if not signed:
        return {"style": f"--v:{_share(value, low, high):.3f}"}
    colour = {"style": f"--v:{_share(abs(value), 0.0, max(abs(low), abs(high))):.3f}"}
    return {"class_": "below", **colour} if value < 0 else colour


def _share(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


def choice(id: str, label: str, panels: Sequence[tuple[str, str]]) -> Html:
    """Panels of which one is seen; one alone needs no choice."""
    if len(panels) == 1:
        return join(panels[0][1])
    options = [tag("option", name, value=f"{id}-{i}") for i, (name, _) in enumerate(panels)]
    chooser = tag("label", f"{label} ", tag("select", *options, data_panels=id), class_="choice")
    bodies = [tag("div", body, id=f"{id}-{i}", class_="panel", hidden=i > 0) for i, (_, body) in enumerate(panels)]
    return tag("div", chooser, *bodies, id=id)


def paragraphs(lines: Sequence[str], class_: str | None = None) -> Html:
    """A list of sentences."""
    return tag("ul", *(tag("li", line) for line in lines), class_=class_) if lines else Html("")
