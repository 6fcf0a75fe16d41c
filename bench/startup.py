"""B13: CPU seconds until `encodery --help`, each verb's --help, `tasks` and `recipes` have answered, without torch.

Also `config`, one of its errors, and `sweep plan`, which read the options of components: their goal is another one.
Modules are compiled already, as pip leaves them, even where PYTHONDONTWRITEBYTECODE is set.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
from common import Spread

from encodery.cli.verbs import VERBS

LIMIT = 0.3
LIMIT_OF_OPTIONS = 0.6
HEAVY = ("torch", "transformers", "sklearn", "scipy")
# Runs the command in a fresh interpreter and says at the end which heavy packages were imported.
CODE = f"""
import atexit, sys
atexit.register(lambda: print("HEAVY", *[m for m in {HEAVY} if m in sys.modules], file=sys.stderr))
from encodery.cli import main
sys.exit(main(sys.argv[1:]))
"""


def of_options(folder: Path) -> list[list[str]]:
    """Command lines that read option classes: a recipe, a mistake, a plan of four runs."""
    toy = folder / "toy.yaml"
    toy.write_text("model: {new: {kind: bert, size: tiny}}\ntasks: toy/nli\n")
    return [
        ["config", "recipe:glue/rte/electra-small"],
        ["config", str(toy), "optim.rate=1"],
        ["sweep", "plan", str(toy), "--method.kind", "plain,freelb", "--optim.lr", "1e-4,2e-4"],
    ]


def once(words: Sequence[str], compiled: Path) -> tuple[float, list[str]]:
    """CPU seconds of one call, user and system, and the heavy packages it imported."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    where = {**kept, "PYTHONPYCACHEPREFIX": str(compiled)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=False, env=where)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != (2 if "optim.rate=1" in words else 0):
        raise SystemExit(f"encodery {' '.join(words)} failed:\n{done.stderr}")
    heavy = next(line.split()[1:] for line in done.stderr.splitlines() if line.startswith("HEAVY"))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, heavy


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.options(__doc__ or "", tasks=())
    args = parser.parse_args(argv)
    folder = tempfile.TemporaryDirectory()
    options = of_options(Path(folder.name))
    calls = [["--help"], *([verb.name, "--help"] for verb in VERBS), ["tasks"], ["recipes"], *options]
    rows: list[dict[str, Any]] = []
    found: dict[str, list[tuple[float, list[str]]]] = {" ".join(words): [] for words in calls}
    compiled = Path(folder.name) / "compiled"
    for words in calls:  # read from disk and compiled, unmeasured
        once(words, compiled)
    for _ in range(args.rounds):
        for words in calls:
            found[" ".join(words)].append(once(words, compiled))
    for name, results in found.items():
        seconds, heavy = Spread.of([s for s, _ in results]), results[0][1]
        goal = LIMIT_OF_OPTIONS if name.split() in options else LIMIT
        met = "yes" if seconds.median < goal and not heavy else "no"
        row = {"command": f"encodery {name}", "CPU seconds": seconds, "goal": goal}
        rows.append({**row, "imports": " ".join(heavy) or "-", "met": met})
    folder.cleanup()
    common.show("B13: less CPU time than the goal, no torch", rows)
    common.write("startup", args, {"results": rows})


if __name__ == "__main__":
    main()
