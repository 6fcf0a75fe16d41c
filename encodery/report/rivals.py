"""Which rows of a table are rivals: scored on the same rows and, of a corpus, by the same question about them."""

from collections.abc import Mapping, Sequence

from encodery.report.groups import Row
from encodery.report.records import Record

CORPUS = "corpus"


def yardstick(record: Record, data: str) -> dict[str, str]:
    """What a score was measured with, as far as the run says."""
    parts = {"rows": record.shared_rows(data)}
    if record.task.partition("/")[0] == CORPUS:  # a loss: of other targets or words it is another quantity
        prefix = "tasks.0.objective."
        asked = {key: value for key, value in record.settings.items() if key.startswith(prefix)}
        parts["objective"] = str(sorted((key, str(value)) for key, value in asked.items()))
        parts["tokenizer"] = str(record.settings.get("model.tokenizer") or "that of the pretrained model")
    return {name: value for name, value in parts.items() if value}


def comparable(row: Row, other: Row) -> bool:
    """Whether a difference of their scores says something about the settings. What is not known is taken as equal."""
    seeds = [seed for seed in row.runs if seed in other.runs]
    pairs = [(row.runs[seed], other.runs[seed]) for seed in seeds]
    pairs = pairs or [(one, rival) for one in row.runs.values() for rival in other.runs.values()]
    agree = [_agree(yardstick(one, row.data), yardstick(rival, other.data)) for one, rival in pairs]
    return not agree or (all(agree) if seeds else any(agree))


def _agree(mine: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    return all(mine[name] == theirs[name] for name in mine.keys() & theirs.keys())


def classes(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of one data set, apart where they cannot be compared; the order stays."""
    groups: list[list[Row]] = []
    for row in rows:
        home = next((group for group in groups if comparable(group[0], row)), None)
        if home is None:
            groups.append([row])
        else:
            home.append(row)
    return groups


def by_data(rows: Sequence[Row]) -> list[list[Row]]:
    """Rivals among all rows of a table."""
    names = dict.fromkeys((row.data, row.metric) for row in rows)
    return [group for name in names for group in classes([row for row in rows if (row.data, row.metric) == name])]


def remarks(rows: Sequence[Row]) -> list[str]:
    """A sentence for each data set whose scores are not all measured alike."""
    by_name: dict[str, list[list[Row]]] = {}
    for group in by_data([row for row in rows if row.runs]):
        by_name.setdefault(group[0].data, []).append(group)
    apart = {data: groups for data, groups in by_name.items() if len({g[0].metric for g in groups}) < len(groups)}
    return [
        f"{data}: not all configurations were scored on the same rows{_also(groups[0][0])}; only those that were are "
        "compared"
        for data, groups in apart.items()
    ]


def _also(row: Row) -> str:
    losses = "objective" in yardstick(next(iter(row.runs.values())), row.data)
    return " with the same objective and tokenizer" if losses else ""
