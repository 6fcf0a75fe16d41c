"""Weights & Biases: a run of the same id whenever it is sent; a sweep is a group. WANDB_MODE=offline keeps it here."""

from encodery.core.extras import install
from encodery.errors import UserError
from encodery.track.base import Event, Tracked


class Wandb:
    """Sends one run."""

    def __init__(self, run: Tracked, project: str, where: str | None):
        try:
            import wandb
        except ImportError:
            raise UserError(f"track: W&B is missing: {install('wandb')}") from None
        self.id = run.id
        self.inner = wandb.init(
            project=project, entity=where, id=run.id, name=run.name, group=run.group, config=dict(run.config),
            resume="allow", reinit="create_new",
        )  # fmt: skip

    def send(self, event: Event) -> None:
        """Values of one step; two records of a step (training, evaluation) are joined there."""
        self.inner.log(dict(event.values), step=event.step)

    def close(self, state: str) -> None:
        """Finish it there: as failed where it failed here."""
        self.inner.finish(exit_code=0 if state in ("done", "running", "queued", "stopped", "unfinished") else 1)


open_sink = Wandb
