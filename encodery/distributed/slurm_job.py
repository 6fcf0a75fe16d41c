"""A training of several machines as one Slurm job (extra `slurm`): submitit submits it, torchrun's agents run it.

Slurm starts one agent per machine. When the job's time is up, or it is preempted, the run saves and stops, the job is
queued again, and resumes at that checkpoint.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from encodery.core import slurm
from encodery.core.process import WITH_PARENT
from encodery.distributed.launch import NODES, PATIENCE
from encodery.errors import ProcessLost, RunFailed, Stopped, UserError

GRACE = 120  # seconds before the end in which a run is asked to save
LATE = 15.0  # seconds by which Slurm's signal may reach another machine later than the first


class Job(slurm.Requeued):
    """One agent, in the place where Slurm has put it."""

    def __init__(self, words: Sequence[str], nodes: int) -> None:
        self.words, self.nodes = list(words), nodes
        self._agent: subprocess.Popen[bytes] | None = None
        self._waiter: threading.Thread | None = None

    def __call__(self) -> int:
        """The training, to its end; RunFailed if that was a bad one."""
        self.listen()
        # A session of its own and a signal that is ignored: under some of Slurm's ways of tracking processes a signal
        # reaches all of them, and only this process knows what it means.
        ignoring = ["/bin/sh", "-c", f'trap "" {slurm.save_signal().name[3:]}; exec "$@"', "encodery-agent"]
        self._agent = subprocess.Popen(
            [*ignoring, sys.executable, "-m", "encodery", *self.words], env=self.environment(), start_new_session=True
        )
        # A thread waits for it: a signal handler that waits for what its own thread is waiting for waits for ever.
        waiter = threading.Thread(target=self._agent.wait)
        waiter.start()
        self._waiter = waiter
        waiter.join()
        code = self._agent.returncode
        if self.nodes > 1 and code == ProcessLost.exit_code:
            self._await_signal()
        if self.taken:
            self.await_end(GRACE)
            return Stopped.exit_code
        if code not in (0, Stopped.exit_code):
            raise RunFailed(f"the training ended with exit code {code}; its log says why")
        return code

    def _await_signal(self) -> None:
        """The others are gone: perhaps they were asked to stop a moment earlier."""
        end = time.monotonic() + LATE
        while not self.taken and time.monotonic() < end:
            time.sleep(0.2)

    def environment(self) -> dict[str, str]:
        """Where the agents of all machines meet: at the first one, at a port that belongs to the job."""
        ours = {**os.environ, WITH_PARENT: "1", PATIENCE: str(GRACE * 3 // 4)}
        if self.nodes == 1:
            return ours
        import submitit

        job = submitit.JobEnvironment()
        port = 20000 + int("".join(c for c in job.job_id if c.isdigit()) or 0) % 20000
        return {**ours, NODES: f"{self.nodes} {job.hostnames[0]}:{port}"}

    def stop(self) -> None:
        """Let the agent's processes save and end."""
        if self._agent is not None and self._agent.poll() is None:
            self._agent.send_signal(signal.SIGTERM)
            self._waiter.join() if self._waiter is not None else self._agent.wait()

    def again(self) -> "Job":
        """The same command: it resumes."""
        return Job(self.words, self.nodes)


def submit(
    words: Sequence[str],
    folder: Path,
    nodes: int,
    processes: int,
    on_cpu: bool,
    cluster: str = "slurm",
    say: Callable[[str], None] = slurm.tell,
) -> Any:
    """Hand the training to Slurm; `cluster="local"` is submitit's own stand-in, processes on this machine."""
    if nodes < 1:
        raise UserError(f"--nodes {nodes}: must be at least 1")
    executor = slurm.executor(folder, parameters(nodes, processes, on_cpu), say, cluster)
    with slurm.refusals():
        return executor.submit(Job(words, nodes))


def parameters(nodes: int, processes: int, on_cpu: bool) -> dict[str, Any]:
    """What the job asks for: one agent per machine, a device or a core for each of its processes."""
    return {
        "name": "encodery-train",
        "nodes": nodes,
        "tasks_per_node": 1,
        "cpus_per_task": processes,
        "gpus_per_node": 0 if on_cpu else processes,
        "timeout_min": slurm.DAY,
        "slurm_signal_delay_s": GRACE,
        "slurm_srun_args": ["--kill-on-bad-exit=1"],  # without one machine the others would wait
    }
