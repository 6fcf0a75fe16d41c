"""Two models on the same examples: where only one of them is right."""

from collections.abc import Mapping, Sequence
from typing import Any

from encodery.report import stats
from encodery.report.examples import is_right
from encodery.tasks.base import Answer, Example


def paired(
    examples: Sequence[Example], mine: Mapping[str, Answer], theirs: Mapping[str, Answer]
) -> list[dict[str, Any]]:
    """McNemar's test over all examples, and over those of each heuristic and label where the task has such;
    several p are adjusted by Holm."""
    kinds: dict[str, list[Example]] = {"all": list(examples)}
    for example in examples:
        if "heuristic" in example.extra:
            kinds.setdefault(f"{example.extra['heuristic']} {example.label}", []).append(example)
    found = [{"what": what, **_marks(rows, mine, theirs)} for what, rows in kinds.items()]
    adjusted = stats.holm([one["p"] for one in found])
    return [{**one, "p_holm": p} for one, p in zip(found, adjusted, strict=True)]


def _marks(rows: Sequence[Example], mine: Mapping[str, Answer], theirs: Mapping[str, Answer]) -> dict[str, Any]:
    right = [(is_right(mine[e.id]["prediction"], e.label), is_right(theirs[e.id]["prediction"], e.label)) for e in rows]
    won, lost = sum(a and not b for a, b in right), sum(b and not a for a, b in right)
    return {"rows": len(rows), "won": won, "lost": lost, "p": stats.mcnemar(won, lost)}
