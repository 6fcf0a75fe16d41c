"""trackio: a local dashboard (`trackio show`), or a Space of the hub; a sweep is a group."""

from encodery.core.extras import install
from encodery.errors import UserError
from encodery.track.base import Event, Tracked


class Trackio:
    """Sends one run."""

    def __init__(self, run: Tracked, project: str, where: str | None):
        try:
            import trackio
        except ImportError:
            raise UserError(f"track: trackio is missing: {install('trackio')}") from None
        self.id = run.id
        self.inner = trackio.init(
            project=project, name=f"{run.name}-{run.id[:6]}", group=run.group, space_id=where,
            config=dict(run.config), resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip

    def send(self, event: Event) -> None:
        """Values of one step."""
        self.inner.log(dict(event.values), step=event.step)

    def close(self, state: str) -> None:
        """Wait until all is stored."""
        self.inner.finish()


open_sink = Trackio
