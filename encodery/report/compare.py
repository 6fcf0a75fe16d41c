"""Rows against a baseline: difference, interval, paired tests over seeds, McNemar's test over examples."""

from collections.abc import Iterable, Sequence

from encodery.core.text import counted
from encodery.errors import UserError
from encodery.report import stats
from encodery.report.examples import Marks
from encodery.report.groups import Row, setting
from encodery.report.rivals import comparable

TESTS = {"p_t": "p_holm", "p_flips": "p_flips_holm", "p_mcnemar": "p_mcnemar_holm"}  # each p, and its adjusted one
COLUMNS = ("difference", "low", "high", "pairs", *TESTS, *TESTS.values(), "mcnemar_seeds")


class NoBaseline(UserError):
    """No row is the baseline that was asked for."""


def against(rows: Sequence[Row], baseline: str) -> list[str]:
    """Add the comparison to every row that has a baseline for its data; the remarks say what to keep in mind."""
    varies = dict.fromkeys(key for row in rows for key in row.settings)
    baseline = _in_full(baseline, varies)
    matching = [row for row in rows if is_meant(row, baseline)]
    if not matching:
        raise NoBaseline(
            f"--baseline {baseline}: no row matches it. It is the name of a variant or of a run, a value, or "
            f"key=value; what varies: {', '.join(varies) or 'nothing'}"
        )
    marks = Marks()
    for row in rows:
        row.more = dict.fromkeys(COLUMNS)
        base = baseline_of(row, matching, baseline)
        row.more["is_baseline"] = base is row
        if base is not None and base is not row:
            row.base = base
            _compare(row, base, marks)
    return [*_adjust(rows), *_remarks(rows), *marks.remarks]


def _in_full(baseline: str, keys: Iterable[str]) -> str:
    """`lr=1e-5` is `optim.lr=1e-5` where that alone varies."""
    name, equals, value = baseline.partition("=")
    ends = [key for key in keys if key.rpartition(".")[2] == name]
    return f"{ends[0]}={value}" if equals and len(ends) == 1 else baseline


def has(rows: Sequence[Row], baseline: str) -> bool:
    """Whether some row is the baseline."""
    baseline = _in_full(baseline, dict.fromkeys(key for row in rows for key in row.settings))
    return any(is_meant(row, baseline) for row in rows)


def is_meant(row: Row, baseline: str) -> bool:
    """Whether a row is the baseline: by variant, run name, value of a setting that varies, or key=value."""
    records = row.members or [*row.runs.values(), *row.missing]
    if any(baseline in (record.variant, record.name) for record in records):
        return True
    name, equals, value = baseline.partition("=")
    if not equals:
        return any(same(baseline, found) for found in row.settings.values())
    found = [setting(record.settings, name) for record in records]
    return bool(found) and all(one and same(value, one) for one in found)


def same(wanted: str, shown: str) -> bool:
    """Equal as numbers where both are numbers: 2e-5 is 2e-05. Tables show the end of a path; all of it is meant too."""
    try:
        return float(wanted) == float(shown)
    except ValueError:
        return wanted == shown or (wanted.startswith(("/", "~")) and bool(shown) and wanted.endswith(f"/{shown}"))


def baseline_of(row: Row, matching: Sequence[Row], baseline: str) -> Row | None:
    """The baseline of the same data whose other settings are the row's own; one that stands alone serves all."""
    candidates = [one for one in matching if (one.data, one.metric) == (row.data, row.metric) and comparable(one, row)]
    if any(one is row for one in candidates):
        return row
    name = baseline.partition("=")[0]
    differing = [_differing(one, row, name) for one in candidates]
    if name in row.settings and len(candidates) > 1:  # a cell of a grid: only its own neighbour will do
        near = [one for one, count in zip(candidates, differing, strict=True) if count == 0]
    else:
        near = [one for one, count in zip(candidates, differing, strict=True) if count == min(differing)]
    if len(near) > 1:
        words = "; ".join(", ".join(f"{k}={v}" for k, v in one.settings.items() if v) for one in near[:4])
        raise UserError(
            f"--baseline {baseline}: {row.data} has several ({words}): be more specific, such as with a run's name"
        )
    return near[0] if near else None


def _differing(base: Row, row: Row, name: str) -> int:
    """In how many settings that both have they differ, but for the one that makes the baseline."""
    pairs = [(base.settings[key], row.settings.get(key, "")) for key in base.settings if key != name]
    return sum(a != b and bool(a) and bool(b) for a, b in pairs)


def _compare(row: Row, base: Row, marks: Marks) -> None:
    seeds = [seed for seed in row.values if seed in base.values]
    differences = [row.values[seed] - base.values[seed] for seed in seeds]
    mine, other = row.summary, base.summary
    if mine.mean is None or other.mean is None:
        return
    if seeds:
        interval = stats.t_interval(differences)
        row.more["difference"] = stats.mean(differences)
    else:  # other seeds, or an average without seeds in common
        interval = stats.t_interval(list(row.values.values()), list(base.values.values()))
        row.more["difference"] = mine.mean - other.mean
    row.more["low"], row.more["high"] = interval or (None, None)
    row.more |= {"pairs": len(seeds), "p_t": stats.paired_t(differences), "p_flips": stats.sign_flips(differences)}
    gains = [row.more["difference"], mine.mean - other.mean]  # bold contradicts neither of them
    ahead = all(gain < 0 for gain in gains) if row.lower else all(gain > 0 for gain in gains)
    row.more["better"] = ahead and row.about.better != "neither"
    if seeds and len(seeds) < max(mine.n, other.n):
        row.notes.append(f"difference over the {counted(len(seeds), row.unit)} that both have")
    ps = [p for seed in seeds if (p := marks.test(row, base, seed)) is not None]
    row.more |= {"p_mcnemar": stats.combined(ps), "mcnemar_seeds": len(ps)}


def _adjust(rows: Sequence[Row]) -> list[str]:
    """Holm's correction of each test over all comparisons of the table."""
    most = 0
    for name, adjusted in TESTS.items():
        tested = [row for row in rows if row.more[name] is not None]
        for row, p in zip(tested, stats.holm([row.more[name] for row in tested]), strict=True):
            row.more[adjusted] = p
        most = max(most, len(tested))
    if most < 2:
        return []
    return [f"{most} comparisons with the baseline: quote the p values of Holm's columns, not the smallest p"]


def _remarks(rows: Sequence[Row]) -> list[str]:
    pairs = [row.more["pairs"] for row in rows if row.more["pairs"] is not None]
    remarks = []
    if pairs and min(pairs) < stats.FEW:
        remarks.append(f"some differences rest on fewer than {stats.FEW} common seeds: draw no conclusions from them")
    if pairs and stats.FEW <= max(pairs) <= 5:
        least = 2 / 2 ** max(pairs)
        remarks.append(f"with {max(pairs)} pairs of seeds the sign-flip test cannot give less than {least:.4g}")
    return remarks
