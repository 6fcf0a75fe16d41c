"""A real Ray on two hosts of one machine: a head and a second node. Needs root."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engines.two_hosts import ADDRESSES, NAMES, Server, TwoHosts, until
from tests.engines.two_hosts import missing as no_hosts

PORT = 6379
HEAD = f"{ADDRESSES['ha']}:{PORT}"
STARTED, SLOW = "Ray runtime started", "timed out during startup"  # what `ray start` says
ATTEMPTS = 5


def missing() -> str | None:
    """Why Ray cannot be run on two hosts here; None where it can."""
    return "package ray not found" if importlib.util.find_spec("ray") is None else no_hosts()


class Ray:
    """`with Ray() as ray:` a head with one CPU; `ray.join()` adds the second host, `ray.leave()` takes it away."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: Ray makes sockets in it
        self.env = {"RAY_USAGE_STATS_ENABLED": "0", **(env or {"RAY_AUTH_MODE": "disabled"})}
        self.hosts = TwoHosts(self.folder, {host: [str(self.folder)] for host in NAMES})
        self.nodes: dict[str, Server] = {}

    def __enter__(self) -> "Ray":
        try:
            self.hosts.__enter__()
            self._start("ha", "--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={self.folder}/t")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, host: str, *words: str) -> None:
        """Start a node and wait until the cluster has it. Ray gives it 30 seconds, too few on a busy machine."""
        about = [f"--node-ip-address={ADDRESSES[host]}", "--num-cpus=1", "--object-store-memory=100000000", "--block"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", *about, *words]
        for attempt in range(ATTEMPTS):
            log = self.folder / f"{host}-{attempt}.log"
            node = self.nodes[host] = self.hosts.start(host, *command, log=log, env=self.env)
            told = until(lambda node=node: said(node), 120, "a node starts", log)  # type: ignore[misc]
            if STARTED in told:
                # Its own word first, since counting costs a Python and a client.
                until(lambda: self.count() == len(self.nodes), 90, f"{len(self.nodes)} nodes are up", log)
                return
            assert SLOW in told, told
            self.hosts.lose(host)  # what is left of it
        raise AssertionError(f"{ATTEMPTS} times: {SLOW}")

    def join(self) -> None:
        """The second host becomes a node."""
        self._start("hb", f"--address={HEAD}")

    def leave(self) -> None:
        """The second host is lost: all its processes are killed at once."""
        self.hosts.lose("hb")
        self.nodes.pop("hb").end()

    def count(self) -> int:
        """Nodes that live."""
        code = "import ray; ray.init(address='auto', log_to_driver=False); print(sum(n['Alive'] for n in ray.nodes()))"
        done = self.run("ha", sys.executable, "-c", code, check=False)
        return int(done.stdout.split()[-1]) if done.returncode == 0 and done.stdout.split() else 0

    def run(self, host: str, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """A command on a host of the cluster."""
        more = options.pop("env", {})
        return self.hosts.run(host, *words, env={**os.environ, **self.env, "RAY_ADDRESS": HEAD, **more}, **options)

    def __exit__(self, *_: Any) -> None:
        for node in self.nodes.values():
            node.end(5)
        self.hosts.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)


def said(node: Server) -> str:
    """What a node has said, once it has started or ended."""
    ended = node.process.poll() is not None  # before its last words are read
    told = node.log.read_text(errors="replace")
    return told if ended or STARTED in told else ""
