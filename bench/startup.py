"""B13: CPU seconds until `encodery --help`, each verb's --help, `tasks` and `recipes` have answered, without torch."""

import resource
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import common
from common import Spread

from encodery.cli.verbs import VERBS

LIMIT = 0.3
HEAVY = ("torch", "transformers", "sklearn", "scipy")
# Runs the command in a fresh interpreter and says at the end which heavy packages were imported.
CODE = f"""
import atexit, sys
atexit.register(lambda: print("HEAVY", *[m for m in {HEAVY} if m in sys.modules], file=sys.stderr))
from encodery.cli import main
sys.exit(main(sys.argv[1:]))
"""


def once(words: Sequence[str]) -> tuple[float, list[str]]:
    """CPU seconds of one call, user and system, and the heavy packages it imported."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"encodery {' '.join(words)} failed:\n{done.stderr}")
    heavy = next(line.split()[1:] for line in done.stderr.splitlines() if line.startswith("HEAVY"))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, heavy


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.options(__doc__ or "", tasks=())
    args = parser.parse_args(argv)
    calls = [["--help"], *([verb.name, "--help"] for verb in VERBS), ["tasks"], ["recipes"]]
    rows: list[dict[str, Any]] = []
    found: dict[str, list[tuple[float, list[str]]]] = {" ".join(words): [] for words in calls}
    once(["--help"])  # the files are read from disk once, unmeasured
    for _ in range(args.rounds):
        for words in calls:
            found[" ".join(words)].append(once(words))
    for name, results in found.items():
        seconds, heavy = Spread.of([s for s, _ in results]), results[0][1]
        met = "yes" if seconds.median < LIMIT and not heavy else "no"
        rows.append(
            {"command": f"encodery {name}", "CPU seconds": seconds, "imports": " ".join(heavy) or "-", "met": met}
        )
    common.show(f"B13: goal < {LIMIT} s of CPU time, no torch", rows)
    common.write("startup", args, {"results": rows})


if __name__ == "__main__":
    main()
