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
    """AUTOSEM's first stage (Guo, Pasunuru and Bansal 2019): a bandit that trains one task after the other."""

    rounds: int = Field(default=40, ge=2)
    """How often a task is drawn, trained on and judged."""
    steps: int = Field(default=10, ge=1)
    """Steps between two judgements."""
    rate: float = Field(default=0.3, ge=0, lt=1)
    """How fast it forgets: 0.3 as published."""
    keep: int = Field(default=2, ge=0)
    """How many auxiliary tasks are taken, those of highest utility."""
    rows: int | None = Field(default=None, ge=1)
    """Most dev rows of a judgement; default: all."""


class GradTS(Options):
    """Which tasks help a task."""

    primary: str | list[str]
    """The task that should become better, one of `tasks`; several, or `all`: each in its turn."""
    strategy: Strategy = "trial"
    """trial: the best prefix of the ranking; thres: all at or above the threshold; fg: trial's tasks, only their
    examples that are alike enough; autosem: by a bandit; none: single-task; all: every task."""
    compare: list[Strategy] = ["none", "all"]
    """Strategies that are compared with it in the table."""
    importance: HeadOptions = HeadOptions()
    """How head importance is measured, on the training rows."""
    norm: Norm = "l1"
    """l1: each layer divided by its sum, as released; l2: by its norm; none."""
    correlation: Kind = "kendall"
    """kendall, as published; pearson, spearman."""
    importance_seeds: int = Field(default=3, ge=1)
    """Fine-tunings of each task whose correlations are averaged. From three on the noise of fine-tuning is known, and
    the ranking says which places it may have decided; 1 costs a third and leaves that out."""
    finetune: dict[str, Any] = {}
    """Settings of these fine-tunings by dotted key, such as {train.epochs: 3}; none: they are the single-task runs."""
    threshold: float = 0.6
    """thres: least correlation; 0.60 for bert-base-cased and 0.62 for bert-large-cased as released, tuned by hand."""
    fg_threshold: float | None = None
    """fg: least correlation of an example with the primary task (0.40 to 0.62 as released); -1 keeps all."""
    keep_fraction: float | None = Field(default=None, gt=0, le=1)
    """fg: instead, so large a share of each task's examples, the most alike ones."""
    rule: Rule = "sound"
    """How trials end and which one wins: sound, or as in the release (see docs/task-selection.md)."""
    sure: bool = False
    """True: single-task stays unless the 95 % interval of the gain over it is above zero."""
    metric: str | dict[str, str] | None = None
    """Score that decides, or {task: score}; default: each task's main one."""
    seeds: int | list[int] = 3
    """How many, or which: of trials and of the table."""
    ahead: int = Field(default=1, ge=1)
    """Trials of one primary that run at once, before the rule has spoken; the choice does not depend on it."""
    autosem: Autosem = Autosem()
    """Options of autosem."""
    reuse: list[str] = []
    """Folders of sweeps and studies: runs of the same content that are done there are not trained again."""
    resources: Resources = Resources()
    """Where the runs run, as in a sweep."""
    limits: Limits = Limits()
    """When a run is given up, as in a sweep."""

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
