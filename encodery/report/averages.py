"""The three GLUE averages, which are three different things: ELECTRA's, AMOS's and the leaderboard's."""

from collections.abc import Callable, Mapping, Sequence

from encodery.report import stats
from encodery.report.groups import Row, spelled, varying
from encodery.report.records import Record

FEW = 2  # missing tasks that are worth a remark
Part = Callable[[Record], float | None]


def _one(task: str, metric: str, split: str = "dev") -> Part:
    return lambda record: record.value(f"glue/{task}:{split}", metric)


def _both(first: Part, second: Part) -> Part:
    """The mean of two scores of one run; None if one is not there."""

    def score(record: Record) -> float | None:
        pair = first(record), second(record)
        return None if pair[0] is None or pair[1] is None else (pair[0] + pair[1]) / 2

    return score


_ELECTRA: dict[str, Part] = {
    "cola": _one("cola", "mcc"),
    "stsb": _one("stsb", "spearman"),
    **{task: _one(task, "accuracy") for task in ("sst2", "mrpc", "qqp", "mnli", "qnli", "rte")},
}
_MNLI = _both(_one("mnli", "accuracy"), _one("mnli", "accuracy", "dev_mismatched"))
_F1 = {task: _both(_one(task, "f1"), _one(task, "accuracy")) for task in ("mrpc", "qqp")}

AVERAGES: dict[str, dict[str, Part]] = {
    "GLUE average (ELECTRA)": _ELECTRA,
    "GLUE average (AMOS)": {**_ELECTRA, "mnli": _MNLI},
    "GLUE average (leaderboard)": {
        **_ELECTRA,
        **_F1,
        "mnli": _MNLI,
        "stsb": _both(_one("stsb", "pearson"), _one("stsb", "spearman")),
        "wnli": _one("wnli", "accuracy"),
    },
}


def average_rows(records: Sequence[Record]) -> tuple[list[Row], list[str]]:
    """A row for each average of each system whose tasks are all there; a remark where only a few are missing."""
    of_glue = [record for record in records if record.task.startswith("glue/") and record.done]
    keys, shown = varying(of_glue), varying(records)
    systems: dict[tuple[str, ...], list[Record]] = {}
    for record in of_glue:
        systems.setdefault(tuple(spelled(record.settings.get(key, "")) for key in keys), []).append(record)
    rows, remarks = [], []
    for values, members in systems.items():
        settings = {key: dict(zip(keys, values, strict=True)).get(key, "") for key in shown}
        for name, parts in AVERAGES.items():
            row, lacking = _average(name, parts, settings, members)
            if row:
                rows.append(row)
            elif len(lacking) <= FEW:
                remarks.append(
                    f"no {name}{_which(keys, values)}: {', '.join(lacking)} are missing or have other settings"
                )
    return rows, remarks


def _which(keys: Sequence[str], values: Sequence[str]) -> str:
    return " of " + ", ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True)) if keys else ""


def _average(
    name: str, parts: Mapping[str, Part], settings: Mapping[str, str], members: Sequence[Record]
) -> tuple[Row | None, list[str]]:
    """Means, medians and bests are averaged over tasks; sd is that of the average over seeds that all tasks share."""
    by_task: dict[str, dict[int | str, float]] = {}
    for task, part in parts.items():
        for record in members:
            value = part(record) if record.task == f"glue/{task}" else None
            if value is not None:
                by_task.setdefault(task, {}).setdefault(record.seed, value)
    lacking = [task for task in parts if task not in by_task]
    if lacking:
        return None, lacking
    each = [stats.summary(list(values.values())) for values in by_task.values()]
    shared = [seed for seed in next(iter(by_task.values())) if all(seed in values for values in by_task.values())]
    same = all(len(values) == len(shared) for values in by_task.values())
    per_seed = {seed: stats.mean([values[seed] for values in by_task.values()]) for seed in shared} if same else {}
    middle = [stats.mean([float(one[place] or 0.0) for one in each]) for place in (1, 3, 4)]
    sd = stats.sd(list(per_seed.values())) if per_seed else None
    whole = stats.Summary(min(one.n for one in each), middle[0], sd, middle[1], middle[2])
    notes = [] if same else ["tasks have different seeds: no sd"]
    return Row(settings, name, "average", per_seed, members=list(members), notes=notes, fixed=whole), []
