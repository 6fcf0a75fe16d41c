"""The hosts that tests make: nothing of them is left when the tests end, in whatever way."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines import two_hosts
from tests.engines.conftest import ROOT, skip_without
from tests.engines.two_hosts import NAMES, members, until

TESTS = """
import sys
from pathlib import Path
from tests.engines.two_hosts import NAMES, TwoHosts

folder = Path(sys.argv[1])
with TwoHosts(folder, {"hb": [f"{folder}/rub*"]}) as hosts:
    for name in NAMES:
        hosts.start(name, "sh", "-c", "trap '' TERM; setsid sleep 600 & wait", log=folder / "log")
    print(*(keeper.pid for keeper in hosts.keepers.values()), flush=True)
    sys.stdin.read()
"""


def works(pid: int) -> bool:
    """Whether a process is there and has a network; a dead one that nobody has asked for has none."""
    try:
        os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_hosts_and_all_that_runs_on_them_end_with_the_tests(tmp_path: Path, end: signal.Signals) -> None:
    skip_without("two hosts", two_hosts.missing())
    (tmp_path / "rubbish" / "deep").mkdir(parents=True)
    tests = subprocess.Popen(
        [sys.executable, "-c", TESTS, str(tmp_path)], cwd=ROOT, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert tests.stdout is not None
    keepers = [int(word) for word in tests.stdout.readline().split()]
    assert len(keepers) == len(NAMES)
    for keeper in keepers:
        until(lambda keeper=keeper: len(members(keeper)) == 2, 30, "a shell and its child")  # type: ignore[misc]
    pids = [pid for keeper in keepers for pid in (keeper, *members(keeper))]
    assert all(works(pid) for pid in pids)
    assert (tmp_path / "rubbish").exists()
    tests.send_signal(end)
    tests.wait(60)
    until(lambda: not any(works(pid) for pid in pids), 30, "the end of all processes")
    assert not (tmp_path / "rubbish").exists()
    assert (tmp_path / "log").exists()
