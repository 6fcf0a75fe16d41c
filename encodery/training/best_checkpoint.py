"""Which evaluation is the best, of a task and over tasks, and what a collapse looks like in the losses."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from encodery.errors import AFTER_ALARM, UserError
from encodery.tasks.base import Answer
from encodery.tasks.forms.metric_table import direction, lower_is_better, metric
from encodery.training.loop import TrainState

Headline = tuple[str, float]  # metric and score


def means(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def better(headline: Headline, best: Mapping[str, Any] | None) -> bool:
    """Whether a score beats the best one so far."""
    metric, value = headline
    sign = -1 if lower_is_better(metric) else 1
    return best is None or sign * value > sign * best["score"]


def over_tasks(headlines: Mapping[str, Headline], decides: str | None) -> Headline:
    """The score that choices go by: that of one task, or the mean, in which losses of plain text have no place."""
    if decides is not None:
        if decides not in headlines:
            raise UserError(f"train.select_on: {decides} is not scored in training; there are {', '.join(headlines)}")
        return headlines[decides]
    if len(headlines) == 1:
        return next(iter(headlines.values()))
    up = [value for metric, value in headlines.values() if not lower_is_better(metric)]
    return ("mean", means(up)) if up else ("nll", means([value for _, value in headlines.values()]))


def require_metric(metric: str, scores: Mapping[str, float], task: str) -> None:
    """What nobody could know before the first scores."""
    if metric not in scores:
        raise UserError(f"train.select_metric: {task} has no {metric}; it has {', '.join(scores)}")
    direction(metric, "train.select_metric")


NEAR, ABOVE = 0.985, 1.05  # of ln(classes): from here on the loss is that of guessing, and from here on worse


def stuck(losses: Sequence[float], classes: int) -> str | None:
    """A sentence if the training loss is no better than ln(classes): the usual face of a collapse (R15)."""
    if classes < 2 or len(losses) < 20:
        return None
    mean, limit = means(losses), math.log(classes)
    if mean < NEAR * limit:
        return None
    where = "is near ln" if mean <= ABOVE * limit else "is above ln"
    guessing = f"{where} {classes} = {limit:.4f}, the loss of guessing"
    return f"training loss {mean:.4f} over the last {len(losses)} steps {guessing}"


# What the model said when it was scored on the way: weights that are chosen in the end are not asked a second time.


TaskSplit = tuple[str, str]  # task and split


class PredictionCache:
    """Answers of the weights that may become the model, by task and split; at most one set of each is held."""

    def __init__(self, select: str, merged: bool) -> None:
        """`merged`: the final weights come out of a sum with adapters, and round otherwise than those on the way."""
        self.select, self.merged = select, merged
        self.latest: dict[TaskSplit, dict[str, Answer]] = {}
        self.kept: dict[TaskSplit, tuple[int, int, dict[str, Answer]]] = {}  # with the step and the size of the batches

    def add(self, answers: Mapping[TaskSplit, dict[str, Answer]]) -> None:
        """The answers of an evaluation."""
        self.latest = dict(answers)

    def commit(self, state: TrainState) -> None:
        """Of the latest answers those that may be the last word, once all processes agree on what was the best."""
        for place, answers in self.latest.items():
            if not self.merged and self.final_step(state, place[0]) == state.step:
                self.kept[place] = state.step, state.budget, answers
        self.latest = {}

    def get(self, state: TrainState, task: str, split: str) -> dict[str, Answer] | None:
        """What the weights that were chosen have said to batches of the size that they would see now."""
        step, budget, answers = self.kept.get((task, split), (-1, 0, {}))
        return answers if (step, budget) == (self.final_step(state, task), state.budget) else None

    def final_step(self, state: TrainState, task: str) -> int:
        """Whose weights are scored on a task at the end, as far as that is known now."""
        if self.select == "last":
            return state.step if state.stopped_early else state.total
        best = state.best_of.get(task) if self.select == "each" else state.best
        return int(best["step"]) if best else -1


def majority_score(result: Mapping[str, Any], key: str) -> float | None:
    """The main score of always giving the commonest answer of the training set; None where there is none."""
    score: float | None = result["majority"].get(key, {}).get(result["main"][key])
    return score


def baseline_name(objective: str | None) -> str:
    """What the answers that need no model are called."""
    return "majority baseline" + (", the commonest tag of each word" if objective == "tagging" else "")


def scale_warning(result: Mapping[str, Any], key: str) -> str | None:
    """A sentence if numbers are in a good order but farther from the right ones than their mean is."""
    scores, easy = result["scores"][key], result["majority"].get(key, {}).get("rmse")
    main = result["main"][key]
    if easy is None or "rmse" not in scores or main == "rmse" or scores["rmse"] <= easy:
        return None
    return (
        f"WARNING {key}: rmse {scores['rmse']:.4g} is larger than that of always giving the mean of train "
        f"({easy:.4g}): the numbers themselves are of no use yet, whatever their order ({main} {scores[main]:.4f}). "
        "Train longer; of a file, tasks.standardise=true learns them in units of their spread"
    )


def majority_warning(result: Mapping[str, Any], key: str) -> str | None:
    """A sentence if the model is no better than the majority baseline, with what to try; none if all is right."""
    main, easy = result["main"][key], majority_score(result, key)
    score, better = result["scores"][key].get(main), metric(main).better
    if easy is None or score is None or better == "neither":
        return None
    if (score > easy or score == 1) if better == "higher" else score < easy:
        return None
    return (
        f"WARNING {key}: {main} {score:.4f} is not better than the majority baseline's {easy:.4f}: "
        "the model has learnt nothing of use. Try more steps (train.epochs), another learning rate (optim.lr), and "
        f"`encodery inspect` to see rows, labels and cut texts as the model gets them; {AFTER_ALARM}"
    )
