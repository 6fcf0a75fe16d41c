"""The keys of a task selection; settings of the runs stand beside them, or in what the file extends."""

from typing import Any, Literal

from pydantic import Field, field_validator

from encodery.analysis.head_importance import HeadOptions
from encodery.config.schema import percent
from encodery.core.options import Options
from encodery.core.rank_correlation import Kind
from encodery.gradts.rules import Rule
from encodery.runs.head_matrices import Norm
from encodery.sweep.sweep_file import Limits, Resources

Strategy = Literal["trial", "thres", "fg", "none", "all", "autosem"]
NEEDS_RANKING = ("trial", "thres", "fg")


class Autosem(Options):
    """The first stage of AUTOSEM (Guo, Pasunuru and Bansal 2019): a bandit that chooses which task to train on next."""

    rounds: int = Field(default=40, ge=2)
    """Number of rounds. Each draws a task, trains on it and evaluates."""
    steps: int = Field(default=10, ge=1)
    """Training steps per round."""
    rate: float = Field(default=0.3, ge=0, lt=1)
    """How fast the bandit forgets old rewards; 0.3 in the paper."""
    keep: int = Field(default=2, ge=0)
    """Number of auxiliary tasks to keep, by highest utility."""
    rows: int | None = Field(default=None, ge=1)
    """Maximum number of dev rows per evaluation. Default: all."""


class GradTS(Options):
    """Which tasks help a task."""

    primary: str | list[str]
    """The primary task, one of `tasks`. With a list, or `all`, each is the primary task in turn."""
    strategy: Strategy = "trial"
    """How auxiliary tasks are chosen. trial: the best prefix of the ranking; thres: all tasks at or above the
    threshold; fg: the tasks of trial, but only their sufficiently similar examples; autosem: by a bandit; none:
    single-task; all: every task."""
    compare: list[Strategy] = ["none", "all"]
    """Strategies to compare it with in the table."""
    importance: HeadOptions = HeadOptions()
    """How head importance is measured on the training rows."""
    norm: Norm = "l1"
    """Normalisation of each layer. l1: by its sum, as in the released code; l2: by its l2 norm; none."""
    correlation: Kind = "kendall"
    """Correlation between two tasks: kendall (as in the paper), pearson or spearman."""
    importance_seeds: int = Field(default=3, ge=1)
    """Fine-tuning runs per task, over which correlations are averaged. With three or more, the noise of fine-tuning is
    estimated, and the ranking marks the positions that noise may have decided. 1 costs a third of 3 and gives no
    estimate."""
    finetune: dict[str, Any] = {}
    """Settings of these runs by dotted key, such as {train.epochs: 3}. Without any, the single-task runs are used."""
    threshold: float = 0.6
    """thres: minimum correlation. The released code has 0.60 for bert-base-cased and 0.62 for bert-large-cased, tuned
    by hand."""
    fg_threshold: float | None = None
    """fg: minimum correlation of an example with the primary task (0.40 to 0.62 in the released code). -1 keeps all
    examples."""
    keep_fraction: float | None = Field(default=None, gt=0, le=1)
    """fg: instead of a threshold, keep this fraction of each task's examples, the most similar ones."""
    rule: Rule = "sound"
    """When trials stop and which one wins: sound, or as in the released code (see docs/task-selection.md)."""
    sure: bool = False
    """Keep single-task training unless the 95 % interval of the gain over it is above zero."""
    metric: str | dict[str, str] | None = None
    """Metric that decides, or {task: metric}. Default: each task's main metric."""
    seeds: int | list[int] = 3
    """Seeds of the trials and of the table: a number of seeds, or a list."""
    ahead: int = Field(default=1, ge=1)
    """Trials of one primary task to run ahead in parallel. The result does not depend on it."""
    autosem: Autosem = Autosem()
    """Options for `strategy: autosem`."""
    reuse: list[str] = []
    """Folders of earlier sweeps and studies. Finished runs with the same settings and data are reused instead of
    trained again."""
    resources: Resources = Resources()
    """Devices for the runs, as in a sweep."""
    limits: Limits = Limits()
    """Timeouts and retries, as in a sweep."""

    @field_validator("keep_fraction", mode="before")
    @classmethod
    def _percent(cls, given: Any) -> Any:
        return percent(given)

    @field_validator("compare", "reuse", mode="before")
    @classmethod
    def _one_or_more(cls, given: Any) -> Any:
        """`none,all` is what people type for [none, all]."""
        return [one for one in given.split(",") if one] if isinstance(given, str) else given

    @property
    def seed_list(self) -> list[int]:
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else list(self.seeds)

    @property
    def importance_seed_list(self) -> list[int]:
        """The seeds of the fine-tunings: the first ones, and further ones where there are too few."""
        known = self.seed_list
        more = (seed for seed in range(1, 10**6) if seed not in self.seed_list)
        while len(known) < self.importance_seeds:
            known = [*known, next(more)]
        return known[: self.importance_seeds]

    @property
    def strategies(self) -> list[Strategy]:
        """Everything that is done: single-task always, which the others are compared with."""
        return list(dict.fromkeys(["none", *self.compare, self.strategy]))

    @property
    def ranks(self) -> bool:
        """Whether anything needs a ranking."""
        return any(one in NEEDS_RANKING for one in self.strategies)
