"""The card of `data check FILE`: rows, labels, lengths, equal and nearly equal rows, what train and dev share."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from encodery.core.near_duplicates import pairs
from encodery.core.text import counted
from encodery.tasks.base import Example, Task
from encodery.tasks.sources.readers import BadRow
from encodery.tasks.sources.rows import Read

SHOWN = 3  # examples of each kind
LETTERS = 100  # of a text


def data_card(task: Task, threshold: float = 0.8) -> dict[str, Any]:
    """Everything as data, with a few examples."""
    here = {name: task.examples(name) for name in task.splits() if task.has(name)}
    card: dict[str, Any] = {"format": 1, "task": task.name, "threshold": threshold, "splits": {}, "between": {}}
    for name, rows in here.items():
        card["splits"][name] = _split(rows) | {"near_duplicates": _near(rows, None, threshold)}
    for name, rows in here.items():
        if name != "train" and "train" in here:
            card["between"][f"train and {name}"] = _near(here["train"], rows, threshold)
    card["skipped"] = [str(bad) for bad in dict.fromkeys(bad for name in here for bad in _left_out(task, name))]
    return card


def _left_out(task: Task, split: str) -> Sequence[BadRow]:
    return task.bad_rows(split) if isinstance(task, Read) else ()


def _split(rows: Sequence[Example]) -> dict[str, Any]:
    labels = Counter(str(row.label) for row in rows if isinstance(row.label, str))
    words = sorted(sum(len(text.split()) for text in row.texts) for row in rows)
    return {
        "rows": len(rows),
        "labels": dict(labels.most_common()),
        "words": {"median": words[len(words) // 2], "longest": words[-1]},
        "empty": sum(not any(text.strip() for text in row.texts) for row in rows),
    }


def _near(rows: Sequence[Example], others: Sequence[Example] | None, threshold: float) -> dict[str, Any]:
    """How many rows (of the second split, where there are two) repeat another one, and examples of it."""
    repeated = pairs(
        [row.texts for row in rows], [row.texts for row in others] if others is not None else None, threshold
    )
    right = rows if others is None else others
    unequal = [(a, b, alike) for a, b, alike in repeated if rows[a].label != right[b].label]
    shown = [*[one for one in repeated if one[2] < 1][:SHOWN], *unequal[:SHOWN]] or repeated[:SHOWN]
    return {
        "rows": len({b for _, b, _ in repeated}),
        "equal": len({b for _, b, alike in repeated if alike == 1}),
        "other_label": len({b for _, b, _ in unequal}),
        "examples": [
            {"similarity": alike, "first": _shown(rows[a]), "second": _shown(right[b])}
            for a, b, alike in dict.fromkeys(shown)
        ],
    }


def _shown(row: Example) -> dict[str, Any]:
    return {"id": row.id, "label": row.label, "texts": [text[:LETTERS] for text in row.texts]}


def tables(card: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The same as records: rows of each split, its labels, and the pairs that are alike."""
    splits, labels, alike = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for name, split in card["splits"].items():
        near = {key: split["near_duplicates"][key] for key in ("equal", "other_label")}
        words = {f"{key} words": value for key, value in split["words"].items()}
        repeated = split["near_duplicates"]["rows"]
        splits.append({"split": name, "rows": split["rows"], **words, "empty": split["empty"], "repeated": repeated}
                      | near)  # fmt: skip
        labels += [
            {"split": name, "label": label, "rows": n, "share": round(n / split["rows"], 4)}
            for label, n in split["labels"].items()
        ]
        alike += _pairs(name, split["near_duplicates"])
    shared = [
        {"splits": name, "rows": near["rows"], "equal": near["equal"], "other_label": near["other_label"]}
        for name, near in card["between"].items()
    ]
    for name, near in card["between"].items():
        alike += _pairs(name, near)
    found = {"splits": splits, "labels": labels, "shared": shared, "alike": alike}
    return {title: records for title, records in found.items() if records}


def _pairs(where: str, near: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Examples of rows that are alike, a record each."""
    return [
        {"where": where, "similarity": pair["similarity"]}
        | {
            f"{side} {key}": value
            for side in ("first", "second")
            for key, value in (pair[side] | {"texts": " | ".join(pair[side]["texts"])}).items()
        }
        for pair in near["examples"]
    ]


def lines(card: Mapping[str, Any]) -> Iterator[str]:
    """For people."""
    yield card["task"]
    for name, split in card["splits"].items():
        counts = list(split["labels"].items())[:12]
        shares = ", ".join(f"{label} {n:,} ({n / split['rows']:.1%})" for label, n in counts)
        words = split["words"]
        yield f"  {name}: {counted(split['rows'], 'row')}" + (f": {shares}" if shares else "")
        empty = f", {split['empty']:,} empty" if split["empty"] else ""
        yield f"    words: median {words['median']}, longest {words['longest']}{empty}"
        yield from _near_lines("row repeats another one", "rows repeat another one", split["near_duplicates"])
    for name, near in card["between"].items():
        yield f"  {name}"
        other = name.rpartition(" ")[2]
        yield from _near_lines(
            f"row of {other} resembles one of train", f"rows of {other} resemble a row of train", near
        )


def _near_lines(one_row: str, rows: str, near: Mapping[str, Any]) -> Iterator[str]:
    counts = f"({near['equal']:,} with equal words), {near['other_label']:,} with another label"
    yield f"    {near['rows']:,} {one_row if near['rows'] == 1 else rows} {counts}"
    for one in near["examples"]:
        first, second = one["first"], one["second"]
        yield f"      {one['similarity']:.2f}  {first['id']} ({first['label']}): {' | '.join(first['texts'])}"
        yield f"            {second['id']} ({second['label']}): {' | '.join(second['texts'])}"
