"""A training of several machines as one Slurm job (extra `slurm`): submitit submits it, torchrun's agents run it.

Slurm starts one agent per machine. When the job's time is up, or it is preempted, the run saves and stops, the job is
queued again, and goes on at that checkpoint. Partition, account and memory are Slurm's own variables:
SBATCH_PARTITION, SBATCH_ACCOUNT, …
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encodery.errors import RunFailed, Stopped, UserError
from encodery.launch import NODES

REQUEUES = 20
LONGEST = 24 * 60  # minutes; SBATCH_TIMELIMIT overrules it
GRACE = 120  # seconds before the end in which a run is asked to save


class Job:
    """One agent, in the place where Slurm has put it."""

    def __init__(self, words: Sequence[str], nodes: int) -> None:
        self.words, self.nodes = list(words), nodes
        self._agent: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """The training, to its end; RunFailed if that was a bad one."""
        self._agent = subprocess.Popen([sys.executable, "-m", "encodery", *self.words], env=self.environment())
        code = self._agent.wait()
        if code not in (0, Stopped.exit_code):
            raise RunFailed(f"the training ended with exit code {code}; its log says why")
        return code

    def environment(self) -> dict[str, str]:
        """Where the agents of all machines meet: at the first one, at a port that belongs to the job."""
        if self.nodes == 1:
            return dict(os.environ)
        import submitit

        job = submitit.JobEnvironment()
        port = 20000 + int("".join(c for c in job.job_id if c.isdigit()) or 0) % 20000
        return {**os.environ, NODES: f"{self.nodes} {job.hostnames[0]}:{port}"}

    def checkpoint(self) -> Any:
        """Called before Slurm ends the job: the run saves and stops, and the same job is queued again."""
        import submitit

        if self._agent is not None and self._agent.poll() is None:
            self._agent.send_signal(signal.SIGTERM)
            self._agent.wait()
        return submitit.helpers.DelayedSubmission(Job(self.words, self.nodes))


def submit(words: Sequence[str], folder: Path, nodes: int, processes: int, on_cpu: bool, cluster: str = "slurm") -> Any:
    """Hand the training to Slurm; `cluster="local"` is submitit's own stand-in, processes on this machine."""
    try:
        import submitit
    except ImportError:
        raise UserError("--executor slurm needs submitit: pip install 'encodery[slurm]'") from None
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise UserError("--executor slurm: there is no sbatch here; run this on a login node of the cluster")
    if nodes < 1:
        raise UserError(f"--nodes {nodes}: 1 or more")
    executor = submitit.AutoExecutor(folder=folder, cluster=cluster, slurm_max_num_timeout=REQUEUES)
    executor.update_parameters(**parameters(nodes, processes, on_cpu))
    return executor.submit(Job(words, nodes))


def parameters(nodes: int, processes: int, on_cpu: bool) -> dict[str, Any]:
    """What the job asks for: one agent per machine, a device or a core for each of its processes."""
    return {
        "name": "encodery-train",
        "nodes": nodes,
        "tasks_per_node": 1,
        "cpus_per_task": processes,
        "gpus_per_node": 0 if on_cpu else processes,
        "timeout_min": LONGEST,
        "slurm_signal_delay_s": GRACE,
        "slurm_srun_args": ["--kill-on-bad-exit=1"],  # without one machine the others would wait
    }
