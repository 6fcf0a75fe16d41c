"""What the pages about arms that share seeds have in common: a measure of a run, paired differences, their table."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pages import Cell, gain, markdown, replace

from encodery.report import stats

Run = Mapping[str, Any]
Test = Callable[[Sequence[float]], float | None]  # differences on the same seeds -> p


class Measure(NamedTuple):
    """A column: what it is called, and how it is read from a run; None where the run lacks it."""

    name: str
    of: Callable[[Run], float | None]
    lower: bool = False


class Comparison(NamedTuple):
    """An arm beside another one, each with its scores by seed."""

    arm: str
    base: str
    scores: Cell
    base_scores: Cell

    @property
    def differences(self) -> list[float]:
        """On the same seeds."""
        return paired(self.scores, self.base_scores)


def paired(a: Cell, b: Cell) -> list[float]:
    """Differences on the same seeds."""
    return [a.scores[seed] - b.scores[seed] for seed in sorted(a.scores.keys() & b.scores.keys())]


def detectable(differences: Sequence[float]) -> float | None:
    """The true mean difference that a paired t-test with this spread and n would find four times out of five."""
    spread = stats.sd(differences)
    if spread is None:
        return None
    df = len(differences) - 1
    return (stats.t_quantile(df) + stats.t_quantile(df, outside=0.4)) * spread / math.sqrt(len(differences))


def comparisons_table(first: str, measure: str, compared: Sequence[Comparison], test: Test = stats.sign_flips) -> str:
    """The mean difference with its interval, p, also after Holm, and what n could show.

    Sign flips of three seeds never have a p below 0.25: with so few, `test` is the paired t-test.
    """
    ps = {place: p for place, one in enumerate(compared) if (p := test(one.differences)) is not None}
    adjusted = dict(zip(ps, stats.holm(list(ps.values())), strict=True))
    head = [first, "against", f"difference in {measure}, 95 % interval", "p", "p (Holm)", "seeds", "n could show"]
    lines = [head]
    for place, comparison in enumerate(compared):
        differences = comparison.differences
        if not differences:
            continue
        least = detectable(differences)
        lines.append([
            comparison.arm, comparison.base, gain(comparison.scores, comparison.base_scores)[0],
            f"{ps[place]:.3f}" if place in ps else "", f"{adjusted[place]:.3f}" if place in ps else "",
            str(len(differences)), "" if least is None else f"{least:.1f}",
        ])  # fmt: skip
    return markdown(lines)


def within_marks(blocks: Mapping[str, str]) -> str:
    """The tables with the marks that a page needs to hold them."""
    return "\n\n".join(f"<!-- {name} -->\n{text}\n<!-- /{name} -->" for name, text in blocks.items())


def fill(page: Path, blocks: Mapping[str, str]) -> None:
    """Write the tables between the marks of a page; one that lacks some says which."""
    text = page.read_text(encoding="utf-8")
    lacking = [name for name in blocks if f"<!-- {name} -->" not in text or f"<!-- /{name} -->" not in text]
    if lacking:
        raise SystemExit(f"{page}: has no marks for {', '.join(lacking)}; `show` prints each table with its marks")
    for name, block in blocks.items():
        replace(page, name, block)


def read_json(file: Path) -> Any:
    """A small file of results, or nothing where it is not there yet."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Each entry of a list in a line of its own, so that a change of one run is a change of one line."""
    parts = []
    for name, value in content.items():
        lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in value) if isinstance(value, list) else None
        parts.append(
            f"{json.dumps(name)}: " + (json.dumps(value, sort_keys=True) if lines is None else f"[\n{lines}\n]")
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
