"""Two hosts on one machine: each has its own network, name and /etc/hosts, and a cable joins them. Needs root.

The namespaces of a host belong to its keeper (`keep`), a process that reads from the tests: when they end, in whatever
way, it kills all that still runs on its host, clears up what was left to it and ends, and the kernel takes network and
mounts away. Tests that are interrupted have no time for that: xdist gives its processes five seconds.
Process numbers and disks are shared, as on a cluster with a shared disk.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any

NAMES = ("ha", "hb")
ADDRESSES = {"ha": "10.77.0.1", "hb": "10.77.0.2"}
CGROUPS = Path("/sys/fs/cgroup")
UP = "up\n"  # what a keeper says when its host is there
TOOLS = ("ip", "nsenter", "unshare", "setpriv")
# All that a host needs rights for, in namespaces that end with it.
PROBE = "ip link add eth0 type veth peer name eth1 && mount --bind /etc/hosts /etc/hosts && hostname probe"
PATIENCE = 2.0  # how much longer than on an idle machine a test waits in any case


def missing() -> str | None:
    """Why there can be no hosts here; None where there can."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not found (packages iproute2, util-linux)"
    words = ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", PROBE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"no rights to make namespaces ({done.stderr.strip()})" if done.returncode else None


class TwoHosts:
    """`with TwoHosts(folder) as hosts: hosts.run("ha", "hostname")`; `rubbish`: patterns of what it leaves behind."""

    def __init__(self, folder: Path, rubbish: Mapping[str, Sequence[str]] | None = None) -> None:
        self.folder, self.rubbish = folder, rubbish or {}
        self.keepers: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> "TwoHosts":
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        hosts = self.folder / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in ADDRESSES.items())]
        hosts.write_text("\n".join(lines) + "\n")
        for name in NAMES:
            words = ["unshare", "--net", "--uts", "--mount", "--propagation", "private"]
            words += [sys.executable, "-I", "-S", __file__, str(hosts), name, *self.rubbish.get(name, ())]
            keeper = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
            self.keepers[name] = keeper
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == UP
        first, second = (str(self.keepers[name].pid) for name in NAMES)
        ends = ["eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second]
        subprocess.run(["ip", "link", "add", *ends], check=True)
        for name in NAMES:
            self.run(name, "ip", "addr", "add", f"{ADDRESSES[name]}/24", "dev", "eth0")
            self.plug(name)

    def __exit__(self, *_: Any) -> None:
        for keeper in self.keepers.values():
            assert keeper.stdin is not None
            keeper.stdin.close()
        for keeper in self.keepers.values():
            keeper.wait(60)

    def lose(self, host: str) -> None:
        """All that runs on a host is killed at once."""
        kill_all(self.keepers[host].pid)

    def words(self, host: str, *command: str, folder: Path | None = None) -> list[str]:
        """The command line that runs a command on a host, in this folder."""
        enter = ["nsenter", "--target", str(self.keepers[host].pid), "--net", "--uts", "--mount"]
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
                env={**os.environ, **(env or {})}, start_new_session=True,  # Ctrl-C is for the tests alone
            )  # fmt: skip

    def end(self, seconds: float = 20.0) -> None:
        """Ask it to end, and kill it where it does not."""
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def keep(hosts: str, name: str, *rubbish: str) -> None:
    """Be a host's keeper; its namespaces are ours already."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # whoever is impatient with the tests is not to leave a host behind
    for words in (["mount", "--bind", hosts, "/etc/hosts"], ["hostname", name], ["ip", "link", "set", "lo", "up"]):
        subprocess.run(words, check=True)
    print(UP, end="", flush=True)
    sys.stdin.read()
    kill_all(os.getpid())
    for path in (Path(path) for pattern in rubbish for path in glob(pattern)):
        remove_cgroup(path) if path.is_relative_to(CGROUPS) else shutil.rmtree(path, ignore_errors=True)


def remove_cgroup(start: Path) -> None:
    """Remove a cgroup and those below it."""
    groups = [path for path in (start, *start.rglob("*")) if path.is_dir()]
    for group in sorted(groups, reverse=True):  # the deepest first
        until(lambda group=group: removed(group), 20, f"{group} is empty")  # type: ignore[misc]


def removed(group: Path) -> bool:
    """Whether a cgroup is gone; the kernel keeps it until its last process is."""
    with suppress(FileNotFoundError):
        try:
            group.rmdir()
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
    return True


def kill_all(keeper: int) -> None:
    """Kill all processes of a host but its keeper, also those that begin meanwhile."""
    while found := members(keeper):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def members(keeper: int) -> list[int]:
    """The processes of a host but its keeper, by their network; what is dead and only waits to be noticed has none."""
    mine, found = os.readlink(f"/proc/{keeper}/ns/net"), []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if int(path.name) != keeper and os.readlink(path / "ns" / "net") == mine:
                found.append(int(path.name))
    return found


def until(true: Any, seconds: float, what: str, log: Path | None = None) -> Any:
    """Wait for something, and say what it was where it did not come; on a busy machine wait as much longer.

    `seconds` are those of an idle machine.
    """
    begun = time.monotonic()
    while not (found := true()):
        told = log.read_text(errors="replace")[-3000:] if log is not None and log.exists() else ""
        waited = time.monotonic() - begun
        assert waited < seconds * PATIENCE * busy(), f"after {waited:.0f} s not yet: {what}\n{told}"
        time.sleep(0.3)
    return found


def busy() -> float:
    """How many programs share a core at the moment."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


if __name__ == "__main__":
    keep(*sys.argv[1:])
