"""Sweeps on Ray (extra `ray`): an existing cluster, or a local one without dashboard and usage statistics."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encodery.core.extras import install
from encodery.core.progress import Progress
from encodery.errors import UserError
from encodery.runs.sweep_spec import Outcome, RunSpec, Source
from encodery.sweep.cluster_driver import Driver, job_text, outcome_of
from encodery.sweep.scheduler import Score
from encodery.sweep.slots import cores_here
from encodery.sweep.sweep_file import Limits, Resources

TOKEN_ADVICE = (
    "copy ~/.ray/auth_token of the head node to the same place here (`ray get-auth-token` prints it, RAY_AUTH_TOKEN "
    "holds it too), or start all nodes and this command with RAY_AUTH_MODE=disabled on a network that is yours alone"
)


def execute_ray(
    folder: Path, source: Source, resources: Resources, limits: Limits, progress: Progress, score: Score | None = None
) -> list[Outcome]:
    """Do the runs as Ray tasks. A task whose worker or node dies is tried again and goes on from the checkpoint."""
    ray = _import()
    ours = not ray.is_initialized()
    if ours:
        progress.say(connect(ray, resources))
    try:
        return Driver(folder, source, RayCluster(ray, folder, resources, limits), progress, score).run()
    finally:
        if ours:
            ray.shutdown()


def _import() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before the import, which reads it
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a task without GPUs keeps the environment
    try:
        import ray
    except ImportError:
        raise UserError(f"--executor ray needs Ray: {install('ray')}") from None
    return ray


def connect(ray: Any, resources: Resources) -> str:
    """Join the cluster that RAY_ADDRESS names or that runs on this machine; else begin one here. Says which."""
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
        return f"Ray: joined the cluster at {ray.get_runtime_context().gcs_address}"
    except ConnectionError:
        if address != "auto":
            raise UserError(
                f"RAY_ADDRESS: no Ray cluster answers at {address}, or it refuses us, because Ray 2.59 and later asks "
                f"for a token: {TOKEN_ADVICE}"
            ) from None
    except Exception as error:
        if not asks_for_token(error):
            raise
        where = "on this machine" if address == "auto" else f"at {address}"
        raise UserError(f"the Ray cluster {where} asks for a token that is not the one here: {TOKEN_ADVICE}") from None
    count = int(resources.devices.partition(":")[2] or 0) if resources.devices.startswith("cpu:") else 0
    cores = max(count, len(cores_here()))
    ray.init(
        address="local", num_cpus=cores, include_dashboard=False, log_to_driver=False, configure_logging=False,
        _node_ip_address="127.0.0.1",
    )  # fmt: skip
    return f"Ray: started a cluster on this machine with {cores} CPUs"


def asks_for_token(error: Exception) -> bool:
    """Whether Ray (2.59 or later) has refused us for want of the cluster's token."""
    return type(error).__name__ == "AuthenticationError" or (
        isinstance(error, RuntimeError) and "authentication token" in str(error)
    )


class RayCluster:
    """Runs as Ray tasks."""

    def __init__(self, ray: Any, folder: Path, resources: Resources, limits: Limits) -> None:
        self.ray, self.folder, self.resources, self.limits = ray, folder, resources, limits
        self.needs = needs(resources, ray.cluster_resources())
        self.task = ray.remote(outcome_of)

    def capacity(self) -> int:
        """As many as the whole cluster holds; nodes may come and go."""
        have = self.ray.cluster_resources()
        fits = [int(have.get(name.removeprefix("num_")[:-1].upper(), 0) / n) for name, n in self.needs.items() if n]
        return max(min(fits), 1)

    def submit(self, specs: Sequence[RunSpec]) -> list[Any]:
        """A task for each run."""
        options = {**self.needs, "max_retries": self.limits.retries}
        texts = [job_text(self.folder, spec, self.resources, self.limits) for spec in specs]
        return [self.task.options(name=spec.name, **options).remote(t) for spec, t in zip(specs, texts, strict=True)]

    def lost(self, job: Any) -> str | None:
        """What Ray says about a task that is over."""
        done, _ = self.ray.wait([job], timeout=0)
        if not done:
            return None
        try:
            self.ray.get(job)
        except self.ray.exceptions.RayError as error:
            return f"Ray: {type(error).__name__}: {error}"
        return ""

    def cancel(self, jobs: Sequence[Any]) -> None:
        """Tasks that have not begun never will."""
        for job in jobs:
            self.ray.cancel(job)


def needs(resources: Resources, have: dict[str, float]) -> dict[str, float]:
    """What one run asks of Ray: GPUs where the cluster has some, else CPUs."""
    threads = 1 if resources.threads == "auto" else resources.threads
    if have.get("GPU", 0) >= 1 and not resources.devices.startswith("cpu"):
        return {"num_gpus": resources.per_run / resources.runs_per_device, "num_cpus": threads}
    return {"num_cpus": max(resources.per_run, threads) / resources.runs_per_device}
