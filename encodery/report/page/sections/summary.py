"""The page's first words: what was trained, what came out, whether it means anything, what failed."""

import re
from collections import Counter
from collections.abc import Sequence

from encodery.core.redact import without_paths
from encodery.core.text import are, counted, short
from encodery.report import rivals
from encodery.report.groups import Row
from encodery.report.majority import remarks as single_runs
from encodery.report.page.chart import Section
from encodery.report.page.data import PageData
from encodery.report.page.html import Html, join, paragraphs, tag
from encodery.report.page.second_scores import below_majority, majority, second_metric
from encodery.report.records import Record
from encodery.report.table import duration, p_value, scaled

FEW = 6  # data sets, failures and alarms that are told one by one
SURE = 0.05


def section(page: PageData) -> Section | None:
    if not page.records:
        return None
    parts = [_tiles(page), paragraphs(results(page), "results"), _trouble(page)]
    return Section("summary", "Summary", join(tag("p", trained(page), class_="lead"), *parts))


def trained(page: PageData) -> str:
    """`12 runs in 4 configurations of roberta-base on glue/rte: 11 done, 1 failed.`"""
    readable = [one for one in page.records if one.settings] or page.records  # others stand among the failures
    tasks = list(dict.fromkeys(one.task or "own task" for one in readable))
    shown = ", ".join(tasks[:FEW]) + (f" and {len(tasks) - FEW} more tasks" if len(tasks) > FEW else "")
    kinds = len({(one.task, tuple(sorted(map(str, one.settings.items())))) for one in readable})
    states = Counter(one.state for one in page.records)
    ended = ", ".join(f"{count} {state}" for state, count in states.most_common())
    of = f" in {kinds} configurations" if kinds > len(tasks) else ""
    return f"{counted(len(page.records), 'run')}{of} of {_models(readable)} on {shown}: {ended}."


def _models(those: Sequence[Record]) -> str:
    """The encoder that was trained, or how many."""
    names = {one.settings.get("model.name") for one in those}
    if len(names) > 1:
        return f"{len(names)} encoders"
    name = next(iter(names))
    return without_paths(str(name)).removeprefix("…/") if name else "a new encoder"


def results(page: PageData) -> list[str]:
    """A sentence for each data set."""
    lines = [best(page, rows) for data in page.data for rows in rivals.classes(page.rows_of(data))]
    more = len(lines) - FEW
    return lines[:FEW] + ([f"{more} more data sets are in the table."] if more > 0 else [])


def best(page: PageData, rows: Sequence[Row]) -> str:
    """`glue/rte:dev: best of 2: freelb, accuracy 72.31 ± 0.80 over 5 seeds; +1.2 against plain, not significant.`"""
    first = rows[0]
    label = page.name(first)
    value = scaled(first, first.summary.mean)
    spread = f" ± {scaled(first, first.summary.sd)}" if first.summary.sd is not None else ""
    seeds = f" over {first.summary.n} {first.unit}s" if first.summary.n > 1 else f" (one {first.unit})"
    alone = f"{label}, " if len(page.rows_of(first.data)) > 1 else ""  # others have scores of other rows
    who = f"best of {len(rows)}: {label}, " if len(rows) > 1 else alone
    return f"{first.label}: {who}{first.metric} {value}{spread}{seeds}{judged(page, first)}{beside(first)}."


def beside(row: Row) -> str:
    """`; majority baseline: 52.71; macro_f1 70.11`: what a score must be read with."""
    easy, other = majority(row), second_metric(row)
    words = [f"; majority baseline: {scaled(row, easy)}"] if easy is not None else []
    words += [f"; {other.name} {other.text}"] if other else []
    return "".join(words)


def judged(page: PageData, row: Row) -> str:
    """What the comparison with the baseline says of a row, in words."""
    more = row.more
    if more.get("is_baseline") and len(page.rows_of(row.data)) > 1:
        rows = [other for other in page.rows_of(row.data) if other.base is row]
        tested = [p for other in rows if (p := other.more.get("p_holm")) is not None]
        clear = f"; {sum(p < SURE for p in tested)} of {len(tested)} others differ significantly from it (Holm)"
        return "; it is the baseline" + (clear if tested else "")
    if not page.baseline or more.get("difference") is None:
        return ""
    gap = f"{'+' if more['difference'] > 0 else ''}{scaled(row, more['difference'])} against {page.baseline}"
    p, over_examples = more.get("p_holm"), more.get("p_mcnemar_holm")
    if p is None and over_examples is None:
        return f"; {gap}, too few seeds to test"
    if p is not None:
        sure = "significant" if p < SURE else "not significant"
        return f"; {gap}, {sure} over seeds (p {p_value(p)}, Holm)"
    sure = "significant" if over_examples is not None and over_examples < SURE else "not significant"
    return f"; {gap}, {sure} over examples (p {p_value(over_examples)}, McNemar, Holm), too few seeds to test"


def _tiles(page: PageData) -> Html:
    """Four figures at a glance."""
    done = [one for one in page.records if one.done]
    seconds = sum(one.seconds or 0.0 for one in done)
    tiles = [("runs", str(len(page.records))), ("done", str(len(done)))]
    states = Counter(one.state for one in page.records if one.state not in ("done", "queued", "running", "unfinished"))
    tiles += [(state, str(count)) for state, count in states.most_common()]
    tiles += [("training time", duration(seconds))] if seconds else []
    scored = [rows for data in page.data for rows in rivals.classes(page.rows_of(data))]
    if scored:  # the data of most runs; of equally many the first
        tiles += _best(max(scored, key=lambda rows: sum(len(row.runs) for row in rows))[0])
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles), class_="tiles")


def _best(row: Row) -> list[tuple[str, str]]:
    """The best score, with what belongs beside it."""
    easy, other = majority(row), second_metric(row)
    mean = f"mean {row.metric} of {row.summary.n} folds"
    head = mean if row.unit == "fold" and row.summary.n > 1 else f"best {row.metric}"
    tiles = [(f"{head}, {row.label}", scaled(row, row.summary.mean))]
    tiles += [(f"its {other.name}", other.text)] if other else []
    return tiles + ([(f"majority baseline, {row.metric}", scaled(row, easy))] if easy is not None else [])


def _trouble(page: PageData) -> Html:
    """Runs that failed or are not finished, with why; and the alarms of those that are."""
    bad = [one for one in page.records if not one.done and one.state not in ("queued", "running")]
    lines = [f"{one.name}: {one.state}" + (f" – {_why(one)}" if one.why else "") for one in bad]
    lines += _alarms(page.records) + _below(page)
    if not lines:
        return Html("")
    shown = [tag("div", tag("h3", "What went wrong"), paragraphs(lines[:FEW]), class_="trouble")]
    rest = paragraphs(lines[FEW:])
    return join(*shown, tag("details", tag("summary", f"{len(lines) - FEW} more"), rest) if len(lines) > FEW else "")


def _below(page: PageData) -> list[str]:
    """Configurations that are no better than the commonest label, and single runs of the others."""
    lines = []
    for data in page.data:
        rows = page.rows_of(data)
        low = [row for row in rows if below_majority(row)]
        if low:
            who = f"{len(low)} of {len(rows)} configurations {are(len(low))}" if len(rows) > 1 else "the model is"
            who = f"{page.name(low[0])} is" if len(low) == 1 < len(rows) else who
            baseline = f"{low[0].metric} {scaled(low[0], majority(low[0]))}"
            lines.append(f"{data}: {who} no better than the majority baseline, which has {baseline}")
        lines += single_runs([row for row in rows if row not in low])
    return lines


def _alarms(records: Sequence[Record]) -> list[str]:
    """Alarms that differ in their numbers alone are told once, with the first one's."""
    first: dict[str, str] = {}
    names: dict[str, str] = {}
    runs: Counter[str] = Counter()
    for record in records:
        said = dict.fromkeys(alarm for alarms in record.alarms.values() for alarm in alarms)
        kinds = {re.sub(r"\d+(\.\d+)?", "0", alarm): alarm for alarm in said}
        runs.update(kinds.keys())  # a mapping would be added by its values
        first = {**kinds, **first}
        names = {**dict.fromkeys(kinds, f"run {record.name}"), **names}
    where = {kind: counted(count, "run") if count > 1 else names[kind] for kind, count in runs.items()}
    return [f"Alarm in {where[kind]}: {without_paths(first[kind])}" for kind, _ in runs.most_common()]


def _why(record: Record) -> str:
    return without_paths(short(record.why, 160))
