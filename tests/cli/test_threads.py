"""Threads that wait for each other do not keep a core busy."""

import os
import subprocess
import sys
from pathlib import Path

SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
ASKED = "import os, sys; sys.argv = ['encodery', 'recipes', 'rte']; from encodery.cli import main; main()"
ASKED += "; print(os.environ.get('GOMP_SPINCOUNT'), file=sys.stderr)"


def spins(folder: Path, **more: str) -> str:
    plain = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env={**plain, **more}, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stderr.strip()


def test_waiting_threads_sleep_soon_unless_a_person_says_otherwise(tmp_path: Path) -> None:
    assert spins(tmp_path) == "1000"
    assert spins(tmp_path, GOMP_SPINCOUNT="7") == "7"
    assert spins(tmp_path, OMP_WAIT_POLICY="ACTIVE") == "None"
