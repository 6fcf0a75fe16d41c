"""MLflow: an experiment for the project, a run of the same id whenever it is sent; a sweep is a tag."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from encodery.core.extras import install
from encodery.core.text import first_line
from encodery.errors import RunFailed, UserError
from encodery.track.base import Event, Tracked

STATES = {"done": "FINISHED", "running": "RUNNING", "queued": "SCHEDULED", "stopped": "KILLED", "pruned": "KILLED"}
STATES["unfinished"] = "KILLED"  # its process is gone and left no word
BATCH = 100  # parameters that a server takes at once; of metrics it takes 1,000
LONGEST = 500  # characters of a parameter that every server takes


@contextmanager
def in_words() -> Iterator[None]:
    """What MLflow refuses, as a sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"track: MLflow needs {error.name} for this store: {install('mlflow')}") from None
    except Exception as error:
        if type(error).__name__ not in ("MlflowException", "RestException"):
            raise
        if "MLFLOW_ALLOW_FILE_STORE" in str(error):
            raise UserError(
                "track: MLflow 3 keeps no runs in a folder: give --where sqlite:///mlflow.db or a server's address"
            ) from None
        raise RunFailed(f"track: MLflow: {first_line(error)}") from None


class Mlflow:
    """Sends one run."""

    def __init__(self, run: Tracked, project: str, where: str | None):
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise UserError(f"track: MLflow is missing: {install('mlflow')}") from None
        with in_words():
            self.client: Any = MlflowClient(tracking_uri=where)
            self.id = run.id if run.is_known else self._new(run, project)

    def _new(self, run: Tracked, project: str) -> str:
        """MLflow chooses the id itself."""
        from mlflow.entities import Param

        found = self.client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else self.client.create_experiment(project)
        tags = {"group": run.group} if run.group else {}
        made: str = self.client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
        params = [Param(key, str(value)[:LONGEST]) for key, value in run.config.items()]
        for begin in range(0, len(params), BATCH):
            self.client.log_batch(made, params=params[begin : begin + BATCH])
        return made

    def send(self, event: Event) -> None:
        """Values of one step, at the time when they were measured."""
        from mlflow.entities import Metric

        time = int(event.time * 1000)
        found = [Metric(name, value, time, event.step) for name, value in event.values.items()]
        with in_words():
            self.client.log_batch(self.id, metrics=found)

    def close(self, state: str) -> None:
        """Say how it stands."""
        status = STATES.get(state, "FAILED")
        if status in ("RUNNING", "SCHEDULED"):
            self.client.update_run(self.id, status=status)
        else:
            self.client.set_terminated(self.id, status=status)


open_sink = Mlflow
