"""What the model said when it was scored on the way: weights that are chosen in the end are not asked a second time."""

from collections.abc import Mapping

from encodery.loop import TrainState
from encodery.tasks.base import Answer

Place = tuple[str, str]  # task and split


class Said:
    """Answers of the weights that may become the model, by task and split; at most one set of each is held."""

    def __init__(self, select: str, merged: bool) -> None:
        """`merged`: the final weights come out of a sum with adapters, and round otherwise than those on the way."""
        self.select, self.merged = select, merged
        self.latest: dict[Place, dict[str, Answer]] = {}
        self.kept: dict[Place, tuple[int, int, dict[str, Answer]]] = {}  # with the step and the size of the batches

    def hear(self, answers: Mapping[Place, dict[str, Answer]]) -> None:
        """The answers of an evaluation."""
        self.latest = dict(answers)

    def keep(self, state: TrainState) -> None:
        """Of the latest answers those that may be the last word, once all processes agree on what was the best."""
        for place, answers in self.latest.items():
            if not self.merged and self.final_step(state, place[0]) == state.step:
                self.kept[place] = state.step, state.budget, answers
        self.latest = {}

    def recall(self, state: TrainState, task: str, split: str) -> dict[str, Answer] | None:
        """What the weights that were chosen have said to batches of the size that they would see now."""
        step, budget, answers = self.kept.get((task, split), (-1, 0, {}))
        return answers if (step, budget) == (self.final_step(state, task), state.budget) else None

    def final_step(self, state: TrainState, task: str) -> int:
        """Whose weights are scored on a task at the end, as far as that is known now."""
        if self.select == "last":
            return state.step if state.stopped_early else state.total
        best = state.best_of.get(task) if self.select == "each" else state.best
        return int(best["step"]) if best else -1
