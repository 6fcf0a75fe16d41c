"""How many files a person must read to follow a training run: those of ours in which a function is called."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import encodery

PACKAGE = Path(encodery.__file__).parent
MOST = 74  # a run of toy/nli; before the packages had subjects it was 85
TRACED = """
import json, sys, threading
root, entered = sys.argv.pop(1), set()

def look(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_name != "<module>" and code.co_flags & 1 and code.co_filename.startswith(root):
        entered.add(code.co_filename[len(root):])

import encodery
sys.setprofile(look), threading.setprofile(look)
from encodery.cli import main
code = main(sys.argv[1:])
sys.setprofile(None)
print(json.dumps([code, sorted(entered)]))
"""


@pytest.mark.slow(20)
def test_a_training_run_enters_few_files(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(
        "model: {new: {kind: bert, size: tiny}}\ntasks: toy/nli\ntrain: {max_steps: 20}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", TRACED, f"{PACKAGE}/", "train", "toy.yaml", "-o", "out", "--quiet"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), "ENCODERY_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code, entered = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    assert "training/session.py" in entered
    assert len(entered) <= MOST, "\n".join(entered)
