"""TensorBoard: event files, a folder for each run; `tensorboard --logdir DIR` shows them."""

from pathlib import Path

from encodery.core.extras import install
from encodery.errors import UserError
from encodery.track.base import Event, Tracked

HERE = "tensorboard"  # the folder, unless another one is given


class TensorBoard:
    """Writes one run's scalars."""

    def __init__(self, run: Tracked, project: str, where: str | None):
        try:
            from tensorboard.summary import Writer
        except ImportError:
            raise UserError(f"track: TensorBoard is missing: {install('tensorboard')}") from None
        self.id = run.id
        self.writer = Writer(str(Path(where or HERE) / project / (run.group or "") / run.name))

    def send(self, event: Event) -> None:
        """A scalar for each value, at the time when it was measured."""
        for name, value in event.values.items():
            self.writer.add_scalar(name, value, event.step, wall_time=event.time)

    def close(self, state: str) -> None:
        """Bring it to the disk."""
        self.writer.close()


open_sink = TensorBoard
