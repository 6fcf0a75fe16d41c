"""Selections of training data (`encodery select`): what was taken beside the pool, overlaps, what they led to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from encodery.core import files
from encodery.core.redact import without_paths
from encodery.core.text import short
from encodery.errors import UserError
from encodery.report import stats
from encodery.report.groups import spelled
from encodery.report.page.chart import Chart, Heat, Picture, Section, Series
from encodery.report.page.data import PageData, below, json_lines
from encodery.report.page.html import Html, choice, figure, heat, join, table, tag
from encodery.report.page.sections.hard_examples import texts
from encodery.report.records import Record
from encodery.tasks.forms import metric_table

MOST = 24  # selections of a page
LABELS = 12
FIRST = 20  # rows of a selection that are shown
PART = 0.1  # of the pool, where selections order all of it

Stored = Mapping[str, Any]


@dataclass(frozen=True)
class Selected:
    """A folder with a selection."""

    folder: Path
    name: str
    meta: Stored
    summary: Stored
    rows: Sequence[Stored]

    @property
    def pool(self) -> str:
        """Where rows were chosen from."""
        return f"{self.meta.get('task', '?')}:{self.meta.get('split', '?')}"

    @cached_property
    def ids(self) -> list[str]:
        """The best first."""
        return [str(row["id"]) for row in self.rows]

    @property
    def size(self) -> int:
        """Rows of the pool."""
        return int(self.meta.get("pool") or len(self.rows))

    @property
    def part(self) -> str:
        """Which part of the summary tells what was taken: of an order of the whole pool it is the first tenth."""
        return "first" if self.summary.get("first") else "chosen"

    @property
    def title(self) -> str:
        """The name in pictures."""
        return f"{self.name}, first {PART:.0%}" if self.part == "first" else self.name

    @property
    def labels(self) -> Mapping[str, float]:
        """The share of each label among the rows that were taken."""
        if self.part == "chosen":
            return dict((self.meta.get("labels") or {}).get("chosen") or {})
        counts: Mapping[str, int] = self.summary["first"]["labels"]
        return {name: count / max(sum(counts.values()), 1) for name, count in counts.items()}

    @property
    def how(self) -> str:
        """`clusters (k 20, order near)`: kind and options."""
        given = dict(self.meta.get("selector") or {})
        kind = given.pop("kind", "?")
        options = ", ".join(f"{key} {spelled(value)}" for key, value in given.items() if value not in (None, []))
        return without_paths(f"{kind} ({options})" if options else str(kind))


def section(page: PageData) -> Section | None:
    """A panel for each pool."""
    paths = list(below(page.folders, "selection.jsonl"))
    if len(paths) > MOST:
        page.remark(f"Selections: the first {MOST} of {len(paths)} are shown; give fewer folders to see the others")
    by_pool: dict[tuple[str, Any], list[Selected]] = {}  # ids of other rows say nothing about each other
    for path in paths[:MOST]:
        if one := _read(page, path):
            by_pool.setdefault((one.pool, one.meta.get("fingerprint")), []).append(one)
    pictures: list[Picture] = []
    panels = []
    for number, ((pool, _), those) in enumerate(by_pool.items()):
        drawn, body = _pool(page, f"selections-{number}", pool, those)
        pictures += drawn
        panels.append((pool, body))
    return Section("selections", "Selections", choice("selections-pool", "Pool", panels), pictures) if panels else None


def _read(page: PageData, path: Path) -> Selected | None:
    folder = path.resolve().parent
    try:
        each = [folder / name for name in ("selection.meta.json", "selection.summary.json")]
        meta, summary = (files.read_json(file) if file.is_file() else {} for file in each)
        return Selected(folder, folder.name, meta, summary, [row for row in json_lines(path) if "id" in row])
    except (UserError, OSError, ValueError) as error:
        page.remark(f"{folder.name}: its selection is damaged and not shown ({without_paths(short(str(error), 200))})")
        return None


def _pool(page: PageData, id: str, pool: str, those: Sequence[Selected]) -> tuple[list[Picture], Html]:
    charts = [chart for chart in (_labels(id, pool, those), _lengths(id, pool, those)) if chart]
    shared = _overlap(id, those)
    parts: list[str] = [_table(page, id, pool, those)]
    curves = next(below(page.folders, "curve.json"), None)
    link = tag("a", "Learning curves", href="#learning")
    parts += [tag("p", "What training on them brings: ", link, ".", class_="note")] if curves else []
    parts += [tag("div", *map(figure, charts), class_="grid")] if charts else []
    parts += [heat(shared)] if shared else []
    parts.append(
        choice(
            f"{id}-first", "First rows of", [(one.name, _first(page, f"{id}-{i}", one)) for i, one in enumerate(those)]
        )
    )
    return [*charts, *([shared] if shared else [])], join(*parts)


def _table(page: PageData, id: str, pool: str, those: Sequence[Selected]) -> Html:
    header = ["selection", "by", "rows", "of the pool", "words", "pool's words", "trained on it", "notes"]
    scored = [trained_on(page, one) for one in those]
    lines = []
    for selected, scores in zip(those, scored, strict=True):
        words = [
            ((selected.summary.get(part) or {}).get("words") or {}).get("mean") for part in (selected.part, "pool")
        ]
        told = tag(
            "p", "; ".join(without_paths(str(note)) for note in selected.meta.get("notes") or ()), class_="aside"
        )
        lines.append([
            selected.name, tag("p", selected.how, class_="aside"), f"{len(selected.rows):,}",
            f"{len(selected.rows) / max(selected.size, 1):.1%}",
            *("" if value is None else f"{value:.1f}" for value in words),
            *([tag("p", scores, class_="aside")] if any(scored) else []), told,
        ])  # fmt: skip
    header = [name for name in header if name != "trained on it" or any(scored)]
    return table(header, lines, id=f"{id}-table", caption=f"Selections of {pool}", numbers=header[2:6])


def trained_on(page: PageData, selected: Selected) -> str:
    """`accuracy 71.20 with 10 % (3 runs)`: the scores of runs that were trained on a selection."""
    scores: dict[tuple[str, str, str], list[float]] = {}
    for record in page.records:
        if not record.done or not _trained_on(record, selected):
            continue
        part = record.settings.get("tasks.0.count") or f"{float(record.settings.get('tasks.0.fraction') or 1):.0%}"
        for data, metric in list(record.main.items())[:1]:
            value = record.value(data, metric)
            if value is not None:
                scores.setdefault((data, metric, str(part)), []).append(value)
    lines = []
    for (data, metric, part), values in scores.items():
        runs = f"{len(values)} run" + ("s" if len(values) > 1 else "")
        lines.append(f"{data}: {metric} {metric_table.metric(metric).text(stats.mean(values))} with {part} ({runs})")
    return "; ".join(lines)


def _trained_on(record: Record, selected: Selected) -> bool:
    """Whether a run's subset is this folder, which may have been moved together with the run.

    The settings of a page hold the end of the path that tells it from others, and no seed of a curve, whose selections
    are one configuration; so as many parts of the stored path are compared, whose end is the run's own selection.
    """
    shown = record.settings.get("tasks.0.subset")
    entries = record.tree.get("tasks") or [{}]
    stored = entries[0].get("subset") if isinstance(entries[0], Mapping) else None
    if not shown or not stored:
        return False
    parts = PurePosixPath(str(stored)).parts
    size = min(len(PurePosixPath(str(shown)).parts), len(parts))
    return selected.folder.parts[-size:] == parts[-size:]


def _labels(id: str, pool: str, those: Sequence[Selected]) -> Chart | None:
    """The share of each label, the pool's first."""
    labelled = [(one, (one.meta.get("labels") or {})) for one in those]
    labelled = [(one, labels) for one, labels in labelled if labels.get("pool")]
    if not labelled:
        return None
    shares: dict[str, float] = dict(labelled[0][1]["pool"])
    names = [name for name, _ in Counter(shares).most_common(LABELS)]
    series = [Series("pool", names, [shares[name] for name in names], kind="bars")]
    series += [
        Series(one.title, names, [float(one.labels.get(name, 0.0)) for name in names], kind="bars")
        for one, _ in labelled
    ]
    more = f"The commonest {LABELS} of {len(shares)} labels." if len(shares) > LABELS else ""
    return Chart(f"{id}-labels", f"{pool}: labels of each selection", "", "share", series, note=more)


def _lengths(id: str, pool: str, those: Sequence[Selected]) -> Chart | None:
    """Lengths in words, as shares; each selection has its own edges, so x is the middle of a bin."""
    series: list[Series] = []
    for one in those:
        edges = one.summary.get("word_edges") or ()
        for name, part in (("pool", "pool"), (one.title, one.part)):
            counts = ((one.summary.get(part) or {}).get("words") or {}).get("counts") or ()
            if len(edges) == len(counts) + 1 and sum(counts) and not any(name == done.name for done in series):
                x = [(a + b) / 2 for a, b in pairwise(edges)]
                series.append(Series(name, x, [count / sum(counts) for count in counts]))
    note = "Share of rows by their number of words."
    return Chart(f"{id}-lengths", f"{pool}: lengths", "words", "share", series, note=note) if series else None


def overlap(those: Sequence[Selected]) -> tuple[int, list[list[float]], float]:
    """How many first rows are compared, the share of them that two selections have in common, and that by chance."""
    size = max(one.size for one in those)
    first = min(len(one.rows) for one in those)
    first = max(1, int(size * PART)) if first >= size else first
    sets = [set(one.ids[:first]) for one in those]
    return first, [[len(a & b) / max(first, 1) for b in sets] for a in sets], first / max(size, 1)


def _overlap(id: str, those: Sequence[Selected]) -> Heat | None:
    if len(those) < 2:
        return None
    first, shares, chance = overlap(those)
    names = [one.name for one in those]
    texts = [[f"{100 * share:.0f}" for share in line] for line in shares]
    hints = [
        [f"{a} and {b}: {share:.1%} in common" for b, share in zip(names, line, strict=True)]
        for a, line in zip(names, shares, strict=True)
    ]
    note = f"In % of the first {first:,} rows of each; random choices have {chance:.0%} in common."
    return Heat(
        f"{id}-overlap", "Rows in common", names, names, shares, texts, low=0.0, high=1.0, note=note, hints=hints
    )


def _first(page: PageData, id: str, selected: Selected) -> Html:
    """The best rows, with their texts where these can be had."""
    examples = (
        page.examples(str(selected.meta.get("task")), str(selected.meta.get("split")))
        if selected.meta.get("task")
        else {}
    )
    marks = [name for name in ("score", "weight", "cluster") if any(name in row for row in selected.rows[:FIRST])]
    header = ["rank", "id", *(["text"] if page.text else []), "label", *marks]
    lines = []
    for rank, row in enumerate(selected.rows[:FIRST], 1):
        example = examples.get(str(row["id"]))
        words = [texts(example) if example else ""] if page.text else []
        cells = [str(rank), str(row["id"]), *words, "" if example is None else str(example.label)]
        lines.append([*cells, *(_number(row.get(name)) for name in marks)])
    caption = f"{selected.name}: the first {min(FIRST, len(selected.rows))} of {len(selected.rows):,} rows"
    return table(
        header, lines, id=f"{id}-first-rows", caption=caption, numbers=["rank", *marks], search="Search the rows"
    )


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
