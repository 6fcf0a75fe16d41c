"""The rows of a task entry that a run trains on: a random part, or the first ones of a selection."""

from collections.abc import Sequence

import numpy as np

from encodery.data.subset import Subset, digest_of, training_rows
from encodery.data.tokens import TokenTable
from encodery.errors import UserError
from encodery.schema import Entry
from encodery.tasks.base import Example, Task

__all__ = ["digest_of", "rows", "warnings", "weights"]

SWAPPED = "~swapped"  # ending of the id of a pair in its other order (classify.double_unordered)


def rows(task: Task, entry: Entry, examples: Sequence[Example], seed: int) -> np.ndarray:
    """Positions of the chosen examples, in file order: with everything chosen a run is the same as without."""
    if entry.subset is None:
        return training_rows(np.arange(len(examples)), entry.fraction, entry.count, seed)
    whole = Subset.read(entry.subset)
    whole.require_rows(entry.subset, task.examples("train"), task.name)
    wanted = set(whole.first(entry.fraction, entry.count).ids)
    found = [i for i, example in enumerate(examples) if example.id.removesuffix(SWAPPED) in wanted]
    if not found:
        raise UserError(f"tasks.subset: none of its rows is left to train on ({entry.subset})")
    return np.array(found)


def warnings(task: Task, entry: Entry) -> list[str]:
    """What a person should know about the selection: that nothing tells whether it belongs to these rows."""
    found = Subset.read(entry.subset) if entry.subset else None
    if found is None or found.made_from.answers is not None:  # `rows` compares what can be compared
        return []
    warning = found.require_rows(str(entry.subset), task.examples("train"), task.name)
    return [f"WARNING tasks.subset: {warning}"] if warning else []


def weights(task: Task, entry: Entry, table: TokenTable) -> np.ndarray | None:
    """The weight of each row of the table, where the selection has weights other than 1."""
    found = Subset.read(entry.subset).weights if entry.subset else None
    if found is None:
        return None
    if {**task.objective(), **entry.objective}["kind"] != "classification":
        raise UserError(f"tasks.subset: it has weights, which {task.name} cannot use; only classification can")
    by_id = dict(zip(Subset.read(str(entry.subset)).ids, found, strict=True))
    each = np.array([by_id.get(id.removesuffix(SWAPPED), 1.0) for id in table.example_ids], np.float32)
    return np.asarray(each[np.asarray(table.example)])
