"""AUTOSEM's first stage (Guo, Pasunuru and Bansal 2019): a bandit whose arms are tasks, inside one training.

Arms are all tasks, the primary one too; each has a Beta(α, β), at first (1, 1). A round trains the arm that drew the
highest number for some steps and scores the primary task: the reward is 1 if the score is no worse than the one
before (at first: than 0). Then all arms forget, α ← (1 - γ)α + γ and so β, and the arm that was trained gets
α + reward, β + 1 - reward. The first arm is the primary. Utility is α / (α + β).

Draws follow from (seed, round). A checkpoint and the history lie in the folder: a killed command goes on.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from encodery import build, checkpoint, config, files, optim, predict
from encodery.config import Resolved
from encodery.data.batches import Batch, Batches, Cutter
from encodery.data.tokens import token_table
from encodery.errors import UserError
from encodery.gradts.file import Autosem
from encodery.lock import RunLock
from encodery.loop import TrainState, train
from encodery.progress import Progress

RESULT = "bandit.json"
SAVE = 60.0  # seconds between two checkpoints


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
        place = list(self.names).index(arm)
        self.alpha = (1 - self.rate) * self.alpha + self.rate
        self.beta = (1 - self.rate) * self.beta + self.rate
        self.alpha[place] += reward
        self.beta[place] += 1 - reward
        self.history.append({"arm": arm, "score": score, "reward": reward})

    @property
    def utilities(self) -> dict[str, float]:
        """Of every arm."""
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
        """The same stream in smaller micro-batches."""
        streams = {name: stream.with_budget(budget) for name, stream in self.streams.items()}
        return replace(self, streams=streams)

    def at(self, step: int) -> list[Batch]:
        """The micro-batches of a step."""
        done = sum(one["arm"] == self.arm for one in self.bandit.history) * self.steps
        return self.streams[self.arm].nth(done + step % self.steps, step)

    def tasks_at(self, step: int) -> dict[str, float]:
        """The arm, alone."""
        return {self.arm: 1.0}

    def stream(self, task: str) -> Batches:
        """That of one task."""
        return self.streams[task]

    def example_ids(self, micro: Sequence[Batch]) -> list[str]:
        """Ids of the examples in these micro-batches, for messages."""
        return [id for batch in micro for id in self.streams[batch.task].example_ids([batch])]

    @property
    def cutter(self) -> Cutter:
        """The same for all tasks."""
        return next(iter(self.streams.values())).cutter


def utilities(base: Resolved, primary: str, options: Autosem, folder: Path, progress: Progress) -> Bandit:
    """The bandit after its last round, from the folder or trained now."""
    inputs = build.find_inputs(base)
    key = {"identity": config.identity(base, inputs.digests), "primary": primary, **options.plain()}
    names = [primary, *(task.name for task, _ in base.tasks if task.name != primary)]
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    with RunLock(folder):
        known = files.read_json(folder / RESULT) if (folder / RESULT).is_file() else {}
        if known.get("key") != key:
            known = {}
            checkpoint.prune(folder / "checkpoints", set())
        elif known["done"]:
            return Bandit(names, options.rate, base.config.seed.data, known["history"], known["seconds"])
        progress.say(f"autosem for {primary}: {options.rounds} rounds of {options.steps} steps")
        return _Round(base, inputs, names, options, folder, key).run()


class _Round:
    """A bandit at work."""

    def __init__(
        self, base: Resolved, inputs: Any, names: Sequence[str], options: Autosem, folder: Path, key: dict[str, Any]
    ):
        self.built = build.build(base, inputs)
        self.options, self.folder, self.key = options, folder, key
        total = options.rounds * options.steps
        self.optimizer = build.make_optimizer(self.built.model, base.config)
        self.state = TrainState(total, budget=self.built.cutter.budget)
        self.bandit = Bandit(names, options.rate, base.config.seed.data)
        self.resume()
        streams = {subject.name: subject.stream(base.config, self.built.cutter) for subject in self.built.subjects}
        streams = {name: replace(stream, own=f" {name}") for name, stream in streams.items()}
        self.arms = Arms(streams, self.bandit, options.steps)
        self.schedule = optim.schedule(base.config.optim, total)
        self.clip = base.config.optim.clip
        self.method: Any = base.method

    def resume(self) -> None:
        """Go on at the newest intact checkpoint."""
        found, _ = checkpoint.latest(self.folder / "checkpoints")
        if found is None:
            return
        self.built.model.load_state_dict(found.tensors("model"))
        self.optimizer.load(found.tensors("optimizer"), found.state["optimizer"])
        self.state = TrainState.read(found.state["train"])
        self.bandit = Bandit(
            self.bandit.names, self.bandit.rate, self.bandit.seed, found.state["history"], found.state["seconds"]
        )

    def save(self) -> None:
        """A checkpoint of this round."""
        tensors = {"model": self.built.model.state_dict(), "optimizer": self.optimizer.tensors()}
        state = {"train": self.state.plain(), "optimizer": self.optimizer.state(), "history": self.bandit.history,
                 "seconds": self.bandit.seconds}  # fmt: skip
        folder = self.folder / "checkpoints"
        checkpoint.save(folder, self.state.step, tensors, state)
        checkpoint.prune(folder, checkpoint.newest(folder, 2, until=self.state.step))
        self.write(done=False)

    def write(self, done: bool) -> None:
        """What is known so far."""
        about = {"key": self.key, "done": done, "utilities": self.bandit.utilities, "history": self.bandit.history,
                 "seconds": round(self.bandit.seconds, 3)}  # fmt: skip
        files.write_json(self.folder / RESULT, about)

    def run(self) -> Bandit:
        """The rounds that are left."""
        method = self.method.start(self.built.model)
        stream: Any = self.arms
        steps = train(self.built.model, method, stream, self.optimizer, self.schedule, self.state, self.clip)
        saved = time.monotonic()
        while len(self.bandit.history) < self.options.rounds:
            arm = self.arms.arm = self.bandit.draw()
            for _ in range(self.options.steps):
                self.bandit.seconds += next(steps).seconds
            self.bandit.learn(arm, self.score())
            if time.monotonic() - saved > SAVE:
                self.save()
                saved = time.monotonic()
        self.write(done=True)
        checkpoint.prune(self.folder / "checkpoints", set())
        return self.bandit

    def score(self) -> float:
        """The primary task's headline on its dev rows."""
        subject = next(one for one in self.built.subjects if one.name == self.bandit.names[0])
        task = subject.task
        split = next((name for name in task.splits() if name.startswith("dev") and task.has(name)), None)
        if split is None:
            raise UserError(f"autosem: {task.name} has no dev rows to judge by")
        rows = task.examples(split)[: self.options.rows]
        table = token_table(task, split, self.built.pieces, subject.max_length, rows)
        answers = predict.answer(self.built.model, task, table, self.built.cutter, None, rows)
        self.built.model.train()
        return float(task.score(answers, rows)[task.main_metric])
