"""Two hosts on one machine: each has its own network, name and /etc/hosts, and a cable joins them. Needs root.

The namespaces belong to a process each, which ends with the tests: whatever happens to them, nothing is left behind.
Process numbers and disks are shared, as on a cluster with a shared disk.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NAMES = ("ha", "hb")
ADDRESSES = {"ha": "10.77.0.1", "hb": "10.77.0.2"}
TOOLS = ("ip", "nsenter", "unshare", "setpriv")
_HOST = 'mount --bind "$0" /etc/hosts && hostname "$1" && ip link set lo up && echo up && exec sleep infinity'


def missing() -> str | None:
    """Why there can be no hosts here; None where there can."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not found (packages iproute2, util-linux)"
    done = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"no rights to make namespaces ({done.stderr.strip()})" if done.returncode else None


class TwoHosts:
    """`with TwoHosts(folder) as hosts: hosts.run("ha", "hostname")`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.holders: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> "TwoHosts":
        hosts = self.folder / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in ADDRESSES.items())]
        hosts.write_text("\n".join(lines) + "\n")
        for name in NAMES:
            words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--mount", "--propagation"]
            words += ["private", "sh", "-c", _HOST, str(hosts), name]
            holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            assert holder.stdout is not None
            assert holder.stdout.readline() == "up\n"
            self.holders[name] = holder
        first, second = (str(self.holders[name].pid) for name in NAMES)
        ends = ["eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second]
        subprocess.run(["ip", "link", "add", *ends], check=True)
        for name in NAMES:
            self.run(name, "ip", "addr", "add", f"{ADDRESSES[name]}/24", "dev", "eth0")
            self.plug(name)
        return self

    def __exit__(self, *_: Any) -> None:
        for holder in self.holders.values():
            holder.kill()
            holder.wait()

    def words(self, host: str, *command: str, folder: Path | None = None) -> list[str]:
        """The command line that runs a command on a host, in this folder."""
        enter = ["nsenter", "--target", str(self.holders[host].pid), "--net", "--uts", "--mount"]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', str(folder or Path.cwd()), *command]

    def run(self, host: str, *command: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """Run a command on a host to its end; what it printed is in the error if that was a bad one."""
        check, folder = options.pop("check", True), options.pop("folder", None)
        words = self.words(host, *command, folder=folder)
        done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def start(
        self, host: str, *command: str, log: Path, folder: Path | None = None, env: Mapping[str, str] | None = None
    ) -> "Server":
        """Start a server on a host."""
        return Server(self.words(host, *command, folder=folder), log, env)

    def plug(self, host: str) -> None:
        """Join a host to the cable."""
        self.run(host, "ip", "link", "set", "eth0", "up")

    def unplug(self, host: str) -> None:
        """Cut a host off."""
        self.run(host, "ip", "link", "set", "eth0", "down")


class Server:
    """A program that serves until the test ends it; it dies with the tests, too."""

    def __init__(self, words: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with open(log, "ab") as stream:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *words], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
                env={**os.environ, **(env or {})},
            )  # fmt: skip

    def end(self, seconds: float = 20.0) -> None:
        """Ask it to end, and kill it where it does not."""
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def until(true: Any, seconds: float, what: str, log: Path | None = None) -> Any:
    """Wait for something, and say what it was where it did not come; on a busy machine wait as much longer."""
    begun = time.monotonic()
    while not (found := true()):
        told = log.read_text(errors="replace")[-3000:] if log is not None and log.exists() else ""
        waited = time.monotonic() - begun
        assert waited < seconds * busy(), f"after {waited:.0f} s not yet: {what}\n{told}"
        time.sleep(0.3)
    return found


def busy() -> float:
    """How many programs share a core at the moment."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
