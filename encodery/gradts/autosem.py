"""AUTOSEM's first stage (Guo, Pasunuru and Bansal 2019): a bandit whose arms are tasks, inside one training.

Arms are all tasks, the primary one too; each has a Beta(α, β), at first (1, 1). A round trains the arm that drew the
highest number for some steps and scores the primary task: the reward is 1 if the score is no worse than the one
before (at first: than 0). Then all arms forget, α ← (1 - γ)α + γ and so β, and the arm that was trained gets
α + reward, β + 1 - reward. The first arm is the primary. Utility is α / (α + β).

Draws follow from (seed, round). Rounds are steps of an ordinary training, whose evaluations are the judgements; its
checkpoints and records are in the folder, so a killed command resumes. bandit.json is the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from encodery.config.load import Resolved
from encodery.core import files
from encodery.core.lock import RunLock
from encodery.core.progress import Progress
from encodery.core.signals import StopRequest
from encodery.data.batches import Batch, Batches, MicroBatcher
from encodery.data.token_table import token_table
from encodery.errors import UserError
from encodery.gradts.config import Autosem
from encodery.runs.directory import RunDir
from encodery.runs.identity import identity_of_config
from encodery.training import build, checkpoint
from encodery.training.session import Session
from encodery.training.task_data import Split, TaskData, drawn_names, first_dev
from encodery.weighting.constant import Constant

RESULT = "bandit.json"
SAVE = "1 min"  # between two checkpoints


@dataclass
class Bandit:
    """What is known of the arms."""

    names: Sequence[str]  # the primary first
    rate: float
    seed: int = 1
    history: list[dict[str, Any]] = field(default_factory=list)  # arm, score, reward of each round
    seconds: float = 0.0

    def __post_init__(self) -> None:
        past, self.history = self.history, []
        self.alpha, self.beta = np.ones(len(self.names)), np.ones(len(self.names))
        for one in past:
            self.learn(one["arm"], one["score"])

    def draw(self) -> str:
        """The arm of the next round."""
        if not self.history:
            return self.names[0]
        rng = np.random.default_rng([self.seed, len(self.history)])
        drawn = rng.beta(self.alpha, self.beta)
        return self.names[int(rng.choice(np.flatnonzero(drawn == drawn.max())))]

    def learn(self, arm: str, score: float) -> None:
        """A round is over."""
        before = self.history[-1]["score"] if self.history else 0.0
        reward = float(score >= before)
        index = list(self.names).index(arm)
        self.alpha = (1 - self.rate) * self.alpha + self.rate
        self.beta = (1 - self.rate) * self.beta + self.rate
        self.alpha[index] += reward
        self.beta[index] += 1 - reward
        self.history.append({"arm": arm, "score": score, "reward": reward})

    @property
    def utilities(self) -> dict[str, float]:
        return {name: float(a / (a + b)) for name, a, b in zip(self.names, self.alpha, self.beta, strict=True)}

    def best(self, candidates: Sequence[str], count: int) -> list[str]:
        """The candidates of highest utility; equal ones in the given order."""
        known = self.utilities
        return sorted(candidates, key=lambda name: -known[name])[:count]


@dataclass
class Arms:
    """The training stream of a bandit: the arm of a step, and which of its batches, follow from the history."""

    streams: dict[str, Batches]
    bandit: Bandit
    steps: int  # of a round
    arm: str = ""

    def with_budget(self, budget: int) -> "Arms":
        streams = {name: stream.with_budget(budget) for name, stream in self.streams.items()}
        return replace(self, streams=streams)

    def at(self, step: int) -> list[Batch]:
        """The micro-batches of a step."""
        done = sum(one["arm"] == self.arm for one in self.bandit.history) * self.steps
        return self.streams[self.arm].nth(done + step % self.steps, step)

    def tasks_at(self, step: int) -> dict[str, float]:
        return {self.arm: 1.0}

    def stream(self, task: str) -> Batches:
        return self.streams[task]

    def example_ids(self, micro: Sequence[Batch]) -> list[str]:
        return [id for batch in micro for id in self.streams[batch.task].example_ids([batch])]

    @property
    def steps_per_epoch(self) -> int:
        """Those of a round: the rows of an arm have no end here."""
        return self.steps

    @property
    def batcher(self) -> MicroBatcher:
        """The same for all tasks."""
        return next(iter(self.streams.values())).batcher


def utilities(base: Resolved, primary: str, options: Autosem, folder: Path, progress: Progress) -> Bandit:
    """The bandit after its last round, from the folder or trained now."""
    inputs, run = build.find_inputs(base), RunDir(folder)
    key = {"identity": identity_of_config(base, inputs.digests), "primary": primary, **options.to_dict()}
    names = [primary, *(task.name for task, _ in base.tasks if task.name != primary)]
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    with RunLock(folder), StopRequest() as stop:
        known = files.read_json(folder / RESULT) if (folder / RESULT).is_file() else {}
        if known.get("key") == key and known["done"]:
            return Bandit(names, options.rate, base.config.seed.data, known["history"], known["seconds"])
        if known.get("key") != key or not run.metrics_file.path.is_file():  # earlier versions kept no records
            checkpoint.prune(run.checkpoints, set())
        progress.say(f"autosem for {primary}: {options.rounds} rounds of {options.steps} steps")
        rounds = Rounds(run, base, inputs, Bandit(names, options.rate, base.config.seed.data), options, stop)
        rounds.resume()
        rounds.write(key, done=False)
        rounds.loop()
        rounds.write(key, done=True)
        checkpoint.prune(run.checkpoints, set())
        return rounds.bandit


class Rounds(Session):
    """The training of a bandit: one arm after the other. Judging an arm is the evaluation."""

    def __init__(
        self, run: RunDir, base: Resolved, inputs: build.Inputs, bandit: Bandit, options: Autosem, stop: StopRequest
    ):
        config = base.config
        length = {"max_steps": options.rounds * options.steps, "dynamics": False}
        judged = {"evaluate": f"{options.steps} steps", "save": SAVE, "select": "last", "patience": None}
        alone = replace(base, config=config.model_copy(update={"train": config.train.model_copy(update=length)}))
        alone = replace(alone, weighting=Constant())  # a step has one task
        built = build.build(alone, inputs)
        drawn = drawn_names([data.task for data in built.tasks_data])
        streams = {data.name: data.stream(config, built.batcher, drawn[data.name]) for data in built.tasks_data}
        streams = {name: replace(stream, own=f" {stream.drawn_as or name}") for name, stream in streams.items()}
        self.bandit, self.arms = bandit, Arms(streams, bandit, options.steps)
        stream: Any = self.arms
        data = [
            replace(one, choice=judged_on(one, options.rows) if one.name == bandit.names[0] else None)
            for one in built.tasks_data
        ]
        built = replace(built, batches=stream, tasks_data=data, probes=[], keep_at=())
        train = config.train.model_copy(update=length | judged)
        resolved = replace(alone, config=config.model_copy(update={"train": train}))
        super().__init__(run, resolved, built, Progress(quiet=True), stop, identity="")

    def resume(self) -> None:
        """At the newest intact checkpoint; the records up to it are the history."""
        super().resume()
        for record in self.run.metrics():
            if "arm" in record:
                self.bandit.learn(record["arm"], record["score"])
        self.arms.arm = self.bandit.draw()

    def evaluate(self) -> bool:
        """A round is over: judge its arm, and draw the next one."""
        arm, score = self.arms.arm, self.judged()
        self.bandit.learn(arm, score)
        self.run.record(self.state.step, arm=arm, score=score)
        self.arms.arm = self.bandit.draw()
        return False

    def judged(self) -> float:
        """The primary task's headline on its dev rows."""
        (primary,) = (data for data in self.built.tasks_data if data.choice)
        assert primary.choice
        answers = self.answers(primary, primary.choice)
        return float(primary.task.score(answers, primary.choice.examples)[primary.task.main_metric])

    def write(self, key: dict[str, Any], *, done: bool) -> None:
        """What is known so far."""
        self.bandit.seconds = self.state.elapsed
        about = {"key": key, "done": done, "utilities": self.bandit.utilities, "history": self.bandit.history,
                 "seconds": round(self.bandit.seconds, 3)}  # fmt: skip
        files.write_json(self.run.path / RESULT, about)


def judged_on(primary: TaskData, most: int | None) -> Split:
    """The dev rows that decide."""
    task = primary.task
    split = first_dev(task)
    if split is None:
        raise UserError(f"autosem: {task.name} has no dev rows to judge by")
    rows = task.examples(split)[:most]
    return Split(split, rows, token_table(task, split, primary.pieces, primary.max_length, rows))
