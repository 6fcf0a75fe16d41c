"""The worst-classified examples of the best configuration, with their texts, to search and sort."""

from collections.abc import Sequence

from encodery.core.text import short
from encodery.report.page.chart import Section
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, choice, join, table, tag
from encodery.report.page.sections.answers import Answered, answered, marks
from encodery.tasks.base import Example

MOST = 200  # examples of a data set
TEXT = 600  # letters of a text


def section(page: PageData) -> Section | None:
    """A searchable table for each data set."""
    panels = []
    for number, data in enumerate(page.data):
        rows = page.rows_of(data)
        one = answered(page, rows[0]) if rows else None
        if one and (body := _table(page, f"worst-{number}", one)):
            panels.append((data, body))
    return Section("worst", "Hard examples", choice("worst-data", "Data", panels)) if panels else None


def _table(page: PageData, id: str, answered: Answered) -> Html:
    ranked = sorted(zip(answered.rows.examples, marks(answered), strict=True), key=lambda pair: -pair[1][0])
    wrong = [(example, mark) for example, mark in ranked if mark[1]][:MOST]
    if not wrong:
        return tag("p", "Every example is predicted correctly.")
    seeds, wrong_of = len(answered.answers), f"{answered.row.unit}s wrong"
    in_text = answered.single or answered.numbers  # what is said is a label or a number, and no piece of the text
    header = ["id", *(["text"] if page.text else []), *(["actual", "predicted"] if in_text or page.text else [])]
    header += ["error" if answered.numbers else "probability of actual", *([wrong_of] if seeds > 1 else [])]
    lines, keys = [], []
    for example, (bad, count, said) in wrong:
        value = bad if answered.numbers else 1.0 - bad
        cells: list[str] = [example.id, *([texts(example)] if page.text else [])]
        cells += [_spelled(example), short(said, TEXT)] if in_text or page.text else []
        cells += [f"{value:.3f}", *([f"{count} of {seeds}"] if seeds > 1 else [])]
        lines.append(cells)
        keys.append([None] * (len(cells) - (2 if seeds > 1 else 1)) + [value] + ([count] if seeds > 1 else []))
    whole = sum(1 for _, mark in ranked if mark[1])
    label = page.name(answered.row)
    which = "the only row" if whole == 1 else f"the {len(wrong)} worst of {whole:,} rows"
    caption = f"{answered.row.data}: {which} that {label or 'the model'} gets wrong"
    numbers = ["probability of actual", "error", wrong_of]
    body = table(header, lines, id=id, caption=caption, numbers=numbers, sort=keys, search="Search the examples")
    return join(body)


def texts(example: Example) -> Html:
    """The texts of an example, one under the other; a long one's beginning."""
    return join(*(tag("p", short(text, TEXT)) for text in example.texts))


def _spelled(example: Example) -> str:
    label: object = example.label
    return ", ".join(map(str, label)) if isinstance(label, Sequence) and not isinstance(label, str) else str(label)
