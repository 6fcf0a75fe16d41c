"""The rows of a task entry that a run trains on: a random part, or the first ones of a selection."""

from collections.abc import Sequence

import numpy as np

from encodery.data.sampling import Sampler
from encodery.data.subset import Subset, digest_of, training_rows
from encodery.data.tokens import TokenTable
from encodery.errors import UserError
from encodery.schema import Entry
from encodery.tasks.base import Example, Task

__all__ = ["digest_of", "rows", "sampler", "warnings", "weights"]

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


def sampler(task: Task, entry: Entry, table: TokenTable, used: np.ndarray) -> Sampler | None:
    """What draws the table rows in use by the scores of `sample_by`; what has no such scores is refused."""
    if entry.sample_by is None:
        return None
    if {**task.objective(), **entry.objective}["kind"] != "classification":
        raise UserError(
            f"tasks.sample_by: draws rows with weights, which {task.name} cannot use; only classification can"
        )
    path, found = entry.sample_by, Subset.read(entry.sample_by)
    found.require_rows(path, task.examples("train"), task.name)
    by_id = dict(zip(found.ids, scores_of(path, found), strict=True))
    ids = [table.example_ids[int(place)].removesuffix(SWAPPED) for place in table.example[used]]
    lost = [id for id in ids if id not in by_id]
    if lost:
        raise UserError(
            f"tasks.sample_by: {path} has no score for {len(lost):,} of {len(ids):,} rows (first: {lost[0]}); choose "
            "again with fraction 1"
        )
    return Sampler.of(np.array([by_id[id] for id in ids]), entry.sample_smoothing)


def scores_of(path: str, found: Subset) -> Sequence[float]:
    """The scores of a selection, if rows can be drawn by them: finite, not negative, the highest first."""
    scores = found.scores
    if scores is None:
        raise UserError(
            f"tasks.sample_by: {path} has no scores; choose by el2n, loss, entropy, grand or another scorer"
        )
    wrong = next((id for id, one in zip(found.ids, scores, strict=True) if not 0 <= one < float("inf")), None)
    if wrong is not None:
        raise UserError(f"tasks.sample_by: {path}: the score of {wrong} is negative or not finite")
    if max(scores) <= 0:
        raise UserError(f"tasks.sample_by: {path}: all scores are 0")
    if scores[0] < scores[-1]:
        raise UserError(
            f"tasks.sample_by: {path} puts its lowest scores first, but rows with high scores would be drawn most; "
            "choose by a score that is high for the rows you want"
        )
    return scores


def weights(
    task: Task, entry: Entry, table: TokenTable, used: np.ndarray | None = None, drawn: Sampler | None = None
) -> np.ndarray | None:
    """The weight of each row of the table: of the selection, times those of rows that are drawn by their scores."""
    own = subset_weights(task, entry, table)
    if drawn is None or used is None:
        return own
    by_example = dict(zip(table.example[used].tolist(), drawn.weights.tolist(), strict=True))
    each = np.array([by_example.get(int(place), 1.0) for place in table.example], np.float32)
    return each if own is None else each * own


def subset_weights(task: Task, entry: Entry, table: TokenTable) -> np.ndarray | None:
    """The weight of each row of the table, where the selection has weights other than 1."""
    found = Subset.read(entry.subset).weights if entry.subset else None
    if found is None:
        return None
    if {**task.objective(), **entry.objective}["kind"] != "classification":
        raise UserError(f"tasks.subset: it has weights, which {task.name} cannot use; only classification can")
    by_id = dict(zip(Subset.read(str(entry.subset)).ids, found, strict=True))
    each = np.array([by_id.get(id.removesuffix(SWAPPED), 1.0) for id in table.example_ids], np.float32)
    return np.asarray(each[np.asarray(table.example)])
