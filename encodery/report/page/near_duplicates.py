"""Near-duplicates of the data card: within train, and what dev or test share with train, with examples."""

from collections.abc import Sequence

from encodery.core import near_duplicates
from encodery.core.near_duplicates import Pair
from encodery.report.page.chart import spread
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, join, paragraphs, table
from encodery.report.page.sections.hard_examples import texts
from encodery.tasks.base import Example

ROWS = 10_000  # of a split that are compared
SHOWN = 12  # pairs of a table
ALIKE = 0.8  # Jaccard's similarity of word pairs


def card(page: PageData, id: str, task: str, splits: Sequence[tuple[str, Sequence[Example]]]) -> Html:
    """A sentence for each comparison, and the most alike pairs; nothing where there are none."""
    train = next((examples for name, examples in splits if name == "train"), None)
    if train is None:
        return Html("")
    kept = spread(train, ROWS)
    lines, rows = [], []
    for name, examples in splits:
        mine = kept if name == "train" else spread(examples, ROWS)
        pairs = _pairs(mine, None if name == "train" else kept)
        if not pairs:
            continue
        lines.append(told(name, mine, pairs, len(examples), len(train)))
        other = mine if name == "train" else kept
        clear = sorted(pairs, key=lambda pair: (mine[pair[0]].label == other[pair[1]].label, -pair[2]))
        rows += [_row(page, name, mine[a], other[b], alike) for a, b, alike in clear[:SHOWN]]
    if not lines:
        return Html("")
    header = [
        "in",
        "id",
        *(["text"] if page.text else []),
        "label",
        "train id",
        *(["train text"] if page.text else []),
    ]
    header += ["train label", "alike"]
    caption = f"{task}: near-duplicates, those with different labels first"
    shown = table(header, rows, id=f"{id}-alike", caption=caption, numbers=["alike"], search="Search near-duplicates")
    return join(paragraphs(lines, "results"), shown)


def _pairs(mine: Sequence[Example], others: Sequence[Example] | None) -> list[Pair]:
    theirs = None if others is None else [example.texts for example in others]
    return near_duplicates.pairs([example.texts for example in mine], theirs, ALIKE)


def told(name: str, mine: Sequence[Example], pairs: Sequence[Pair], rows: int, train: int) -> str:
    """How many rows have a near-duplicate, and of how many that were compared."""
    count = len({b for _, b, _ in pairs} if name == "train" else {a for a, _, _ in pairs})
    parts = [f"{len(mine):,} of {rows:,} rows"] if len(mine) < rows else []
    parts += [f"{ROWS:,} of {train:,} train rows"] if train > ROWS and name != "train" else []
    compared = f" ({' with '.join(parts)} compared, evenly over the file)" if parts else ""
    share = f"{count:,} of {len(mine):,} ({count / len(mine):.1%})"
    if name == "train":
        return f"train: rows that nearly repeat an earlier one: {share}{compared}."
    return f"{name}: rows that are nearly in train, so that their scores may be memory: {share}{compared}."


def _row(page: PageData, name: str, mine: Example, other: Example, alike: float) -> list[str]:
    words = [[texts(one)] if page.text else [] for one in (mine, other)]
    return [name, mine.id, *words[0], str(mine.label), other.id, *words[1], str(other.label), f"{alike:.2f}"]
