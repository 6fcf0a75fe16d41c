"""Sections → one page that stands alone: no network, no foreign script, opened by a double click."""

import base64
import hashlib
from collections.abc import Callable
from importlib.resources import files as package_files

from encodery.errors import UserError
from encodery.report.page.chart import Section
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, join, paragraphs, tag
from encodery.report.page.sections import (
    answers,
    clusters,
    data,
    data_curves,
    data_map,
    embeddings,
    hans,
    hard_examples,
    heads,
    label_errors,
    pretraining,
    robustness,
    scores,
    selections,
    slices,
    summary,
    sweep,
    task_pairs,
    training,
)
from encodery.runs.directory import now

SECTIONS: dict[str, Callable[[PageData], Section | None]] = {
    "Summary": summary.section,
    "Scores": scores.section,
    "Training": training.section,
    "Pretraining": pretraining.section,
    "Sweep": sweep.section,
    "Predictions": answers.section,
    "Slices": slices.section,
    "Hard examples": hard_examples.section,
    "HANS": hans.section,
    "Robustness": robustness.section,
    "Data": data.section,
    "Data map": data_map.section,
    "Likely label errors": label_errors.section,
    "Clusters": clusters.section,
    "Selections": selections.section,
    "Learning curves": data_curves.section,
    "Task pairs": task_pairs.section,
    "Heads": heads.section,
    "Embeddings": embeddings.section,
}
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError)


def sections(page: PageData) -> list[Section]:
    """What the folders hold. A part that meets data of a shape that nobody foresaw says so in its place."""
    made = []
    for title, make in SECTIONS.items():
        try:
            section = make(page)
        except _DAMAGED as error:
            page.remark(f"{title}: this part could not be made ({type(error).__name__}: {error})")
            continue
        if section:
            made.append(section)
    if not made:
        raise UserError("; ".join([f"nothing to report below {', '.join(map(str, page.folders))}", *page.remarks]))
    return made


def page(page: PageData, made: list[Section], title: str, *, reload: int | None = None) -> str:
    """The whole page; `reload`: it asks itself anew after so many seconds."""
    style, plotly = _asset("page.css"), _asset("plotly-basic.min.js")
    script = f"{_asset('page.js')}\n{_asset('map.js')}"  # one element, one hash
    policy = (
        f"default-src 'none'; script-src {_hash(plotly)} {_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", http_equiv="refresh", content=str(reload)) if reload else "",
        tag("title", title),
        tag("style", Html(style)),
    )
    body = tag("body", _top(made, title), _main(page, made), _foot())
    scripts = [tag("script", Html(text)) for text in (plotly, script)]
    return f"<!doctype html>\n{tag('html', head, body, *scripts, lang='en')}\n"


def _top(made: list[Section], title: str) -> Html:
    links = [tag("a", one.title, href=f"#{one.id}") for one in made]
    button = tag("button", "Dark", type="button", id="theme", aria_pressed="false")
    skip = tag("a", "To the results", href="#main", class_="skip")
    return tag("header", skip, tag("h1", title), tag("nav", *links, aria_label="Sections"), button)


def _main(page: PageData, made: list[Section]) -> Html:
    parts = [
        tag(
            "section",
            tag("h2", section.title, id=f"{section.id}-title"),
            Html(section.body),
            id=section.id,
            aria_labelledby=f"{section.id}-title",
        )
        for section in made
    ]
    if page.remarks:
        notes = paragraphs(page.remarks, "notes")
        parts.append(tag("section", tag("h2", "Not shown"), notes, id="not-shown"))
    return tag("main", *parts, id="main", tabindex="-1")


def _foot() -> Html:
    return tag(
        "footer",
        join(
            f"Made by encodery on {now()[:10]}. Scores in tables are × 100; ± is one standard deviation over seeds, "
            "95 % is Student's interval of a mean over seeds."
        ),
    )


def _asset(name: str) -> str:
    return package_files("encodery.report.page").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
