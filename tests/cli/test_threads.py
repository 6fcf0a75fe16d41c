"""Threads that wait for each other do not keep a core busy."""

import os
import subprocess
import sys
from pathlib import Path

ASKED = "import os, sys; sys.argv = ['encodery', 'recipes', 'rte']; from encodery.cli import main; main()"
ASKED += "; print(os.environ['OMP_WAIT_POLICY'], file=sys.stderr)"


def policy(folder: Path, **more: str) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env={**plain, **more}, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stderr.strip()


def test_waiting_threads_sleep_unless_a_person_says_otherwise(tmp_path: Path) -> None:
    assert policy(tmp_path) == "PASSIVE"
    assert policy(tmp_path, OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"
