"""Small stand-ins for components, so that tests of the configuration load no torch and no data."""

METHODS = {
    "plain": """
from encodery.core.options import Options

class Plain(Options):
    '''The ordinary gradient.'''
""",
    "freelb": """
from encodery.core.options import Options

class FreeLB(Options):
    '''Adversarial.'''
    steps: int = 3
    adv_lr: float = 0.1
    init_mag: float = 0.1
    max_norm: float | None = None
    norm: str = "l2"
    scale: str = "absolute"
    consistent_dropout: bool = True
    mild: bool = False
""",
    "smart_reg": """
from encodery.core.options import Options

class Smart(Options):
    '''Consistency.'''
    eps: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.98)
""",
}
TASKS = {
    "fake": """
from typing import Literal
from encodery.tasks.base import Task

class Fake(Task):
    '''Parts.'''
    part: Literal["rte", "mnli", "mrpc"]
    hard: bool = False

    @property
    def name(self) -> str:
        return f"fake/{self.part}"

    def objective(self):
        return {"kind": "answer", "labels": ["a", "b"]}
""",
    "whole": """
from encodery.tasks.base import Task

class Whole(Task):
    '''No parts.'''
    text: str = "sentence"
    columns: list[str] = []
    root: str | None = None
    extra: dict[str, float] = {}

    @property
    def name(self) -> str:
        return "whole"
""",
}
OBJECTIVES = {
    "answer": """
from encodery.core.options import Options

class Answer(Options):
    '''A choice.'''
    labels: list[str]
    label_smoothing: float = 0.0
""",
}
ROOMS = {"methods": METHODS, "tasks": TASKS, "objectives": OBJECTIVES}
