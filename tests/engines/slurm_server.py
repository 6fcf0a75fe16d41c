"""A real Slurm on two hosts of one machine: munge, the controller and a daemon on each host. Needs root.

What shortens waiting: a job that is queued again may start after `cred_expire` seconds (120 by default), and the
scheduler looks every second. What a busy machine needs: daemons that wait longer for each other than by default.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from tests.engines.two_hosts import ADDRESSES, CGROUPS, NAMES, Server, TwoHosts, remove_cgroup, until
from tests.engines.two_hosts import missing as no_hosts

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
PACKAGES = "slurmctld slurmd slurm-client munge iproute2"  # of Debian and Ubuntu
OURS = "SLURM_CONF"

CONF = """\
ClusterName=toy
SlurmctldHost=ha({first})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
KillWait=60
MessageTimeout=60
TCPTimeout=20
BatchStartTimeout=60
UnkillableStepTimeout=300
JobRequeue=0
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=ha,hb Default=YES MaxTime=60 State=UP PriorityTier=10
PartitionName=low Nodes=ha,hb MaxTime=30 State=UP PriorityTier=1 GraceTime=120
"""


def missing() -> str | None:
    """Why Slurm cannot be run here; None where it can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"{', '.join(absent)} not found (packages {PACKAGES})" if absent else no_hosts()


def no_cgroups() -> str | None:
    """Why Slurm cannot track processes by cgroup here; None where it can."""
    if not os.access(CGROUPS / "freezer", os.W_OK):
        return "there is no cgroup v1 freezer to write to (Slurm tracks by cgroup v2 under systemd only)"
    return None


class Slurm:
    """`with Slurm("pgid") as slurm: slurm.run("ha", "sinfo")`; `tracking` is how it knows a job's processes."""

    def __init__(self, tracking: str, cpus: int = 4) -> None:
        self.tracking, self.cpus = tracking, cpus
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: a socket's name has at most 107 characters
        groups = [f"{CGROUPS}/*/slurm_{{}}"] if tracking == "cgroup" else []
        rubbish = {host: [str(self.folder), *(group.format(host) for group in groups)] for host in NAMES}
        self.hosts = TwoHosts(self.folder, rubbish)
        self.servers: list[Server] = []
        self.cgroups: AbstractContextManager[None] = Cgroups() if tracking == "cgroup" else nullcontext()

    def __enter__(self) -> "Slurm":
        self.cgroups.__enter__()
        try:
            self.hosts.__enter__()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        nodes = (f"NodeName={n} NodeAddr={ADDRESSES[n]} CPUs={self.cpus} RealMemory=8000 State=UNKNOWN" for n in NAMES)
        values = {"folder": self.folder, "tracking": self.tracking, "first": ADDRESSES["ha"], "nodes": "\n".join(nodes)}
        (self.folder / "slurm.conf").write_text(CONF.format(**values))
        lines = ["CgroupPlugin=cgroup/v1", f"CgroupMountpoint={CGROUPS}", "CgroupAutomount=no"]
        (self.folder / "cgroup.conf").write_text("\n".join(lines) + "\n")
        for name in ("state", *(f"spool-{host}" for host in NAMES)):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = [f"--{kind}-file={self.folder}/munge.{kind}" for kind in ("key", "pid", "seed", "log")]
        self._serve("ha", "munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files)
        until((self.folder / "munge.socket").exists, 20, "munged listens", self.servers[-1].log)
        self._serve("ha", "slurmctld", "-D", "-c")
        for host in NAMES:
            self._serve(host, "slurmd", "-D", "-N", host)
        until(lambda: self._idle() == len(NAMES), 60, "both nodes are idle", self.servers[1].log)

    def _serve(self, host: str, *words: str) -> None:
        log = self.folder / f"{words[0]}-{host}.log"
        self.servers.append(self.hosts.start(host, *words, log=log, env=self.variables()))

    def _idle(self) -> int:
        return len(
            self.run("ha", "sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N", check=False).stdout.split()
        )

    def __exit__(self, *_: Any) -> None:
        try:
            self._stop()
        finally:
            self.hosts.__exit__()  # which kills what is left on them
            self.cgroups.__exit__(None, None, None)
            shutil.rmtree(self.folder, ignore_errors=True)  # where there have been no hosts to do that

    def _stop(self) -> None:
        """Ask jobs and servers to end."""
        if len(self.servers) > 1:
            with suppress(AssertionError, subprocess.TimeoutExpired):  # then they are killed
                self.run("ha", "scancel", "--user", "root", check=False, timeout=30)
                until(lambda: not self.queue(), 20, "the queue is empty")
        for server in reversed(self.servers):
            server.end()

    def variables(self) -> dict[str, str]:
        """What a login node has in its environment."""
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return {OURS: str(self.folder / "slurm.conf"), "PATH": path}

    def run(self, host: str, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """A command on a host of the cluster."""
        more = options.pop("env", {})
        return self.hosts.run(host, *words, env={**os.environ, **self.variables(), **more}, **options)

    def queue(self) -> dict[str, str]:
        """State of each job that is not over, by number."""
        lines = self.run("ha", "squeue", "-h", "-r", "-o", "%i %T", check=False).stdout.splitlines()
        return dict(line.split() for line in lines)

    def job(self, number: str) -> dict[str, str]:
        """All that the controller knows about a job."""
        text = self.run("ha", "scontrol", "show", "job", number, check=False).stdout
        return dict(re.findall(r"(\w+)=(\S*)", text))

    def logs(self) -> str:
        """The ends of all logs, for errors."""
        return "\n".join(f"== {s.log.name}\n{s.log.read_text(errors='replace')[-2000:]}" for s in self.servers)


class Cgroups(AbstractContextManager[None]):
    """The cgroups of our hosts' daemons: one cluster at a time has them, and none is left behind."""

    def __enter__(self) -> None:
        self.lock = os.open(CGROUPS, os.O_RDONLY)  # not of the freezer: Slurm itself takes that
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.remove()  # of tests that were killed

    def __exit__(self, *_: Any) -> None:
        self.remove()
        os.close(self.lock)

    def remove(self) -> None:
        for path in (path for host in NAMES for path in CGROUPS.glob(f"*/slurm_{host}")):
            remove_cgroup(path)
