"""Runs the benches one after the other: `--short` in under 15 minutes on two cores, `--long` with more rounds."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

SHORT = {
    "startup": ["--rounds", "5"],
    "memory": [],
    "corpus": ["--rounds", "3"],
    "pretrain": ["--rounds", "5", "--rows", "8"],
    "steps": ["--rounds", "5", "--steps", "3"],
    "methods": ["--rounds", "9", "--steps", "1", "--methods", "freelb"],
    "sweep": ["--rounds", "1", "--runs", "4", "--steps", "20"],
    "embed": ["--rounds", "3", "--texts", "600"],
    "heads": ["--rounds", "3", "--examples", "32"],
    "serve": ["--rounds", "3"],
    "host": ["--rounds", "3", "--steps", "5"],
    "precision": ["--rounds", "3"],
}
LONG = {
    "startup": ["--rounds", "9"],
    "memory": ["--steps", "20"],
    "corpus": ["--rounds", "5", "--characters", "40000000"],
    "pretrain": ["--rounds", "5", "--rows", "128"],
    "steps": ["--rounds", "9", "--steps", "16"],
    "methods": ["--rounds", "15", "--steps", "2"],
    "sweep": ["--rounds", "2"],
    "embed": ["--rounds", "5"],
    "heads": ["--rounds", "9", "--examples", "96"],
    "choosing": [],
    "processes": ["--rounds", "5"],
    "serve": ["--rounds", "7", "--requests", "20", "--onnx"],
    "host": ["--rounds", "9", "--steps", "20", "--ahead"],
    "precision": ["--rounds", "9"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--short", action="store_true")
    which.add_argument("--long", action="store_true")
    parser.add_argument("--threads", default=str(min(2, os.cpu_count() or 1)), help="CPU threads of every side")
    args = parser.parse_args()
    failed = []
    for name, words in (SHORT if args.short else LONG).items():
        begin = time.perf_counter()
        script = Path(__file__).parent / f"{name}.py"
        code = subprocess.run([sys.executable, str(script), *words, "--threads", args.threads], check=False).returncode
        failed += [name] if code else []
        print(f"{name}: {time.perf_counter() - begin:.0f} s{' FAILED' if code else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
