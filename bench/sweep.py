"""B11: a sweep of short runs on two CPU slots against one fresh process per run, one after the other.

Same runs, same threads per run, same results: weights and scores are compared bit for bit. `--runs 4 --steps 20` takes
a minute or two.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import common

GOAL = 2.5
SLOTS = 2


def settings(seed: int, steps: int) -> list[str]:
    """A small run on a toy task; 16 of them differ in their seed."""
    options = [f"seed={seed}", f"train.max_steps={steps}", "train.evaluate=end", "threads=1", "device=cpu"]
    return ["recipe:toy/nli", *options]


def one_by_one(folder: Path, runs: int, steps: int) -> float:
    """The peer: `encodery train` for each run, in a new process."""
    begin = time.perf_counter()
    for seed in range(1, runs + 1):
        encodery("train", *settings(seed, steps), "-o", str(folder / f"seed-{seed}"), "--quiet")
    return time.perf_counter() - begin


def as_sweep(folder: Path, runs: int, steps: int) -> float:
    """Ours: one sweep."""
    begin = time.perf_counter()
    words = ["sweep", "run", *settings(1, steps), "--seeds", str(runs), "--devices", f"cpu:{SLOTS}"]
    encodery(*words, "-o", str(folder), "--quiet")
    return time.perf_counter() - begin


def encodery(*words: str) -> None:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "encodery", *words], check=True, env=variables, stdout=subprocess.DEVNULL)


def digests(folder: Path) -> list[str]:
    """What the runs of a folder came to, whatever their names are."""
    found = []
    for done in folder.glob("*/DONE"):
        parts = [(done.parent / name).read_bytes() for name in ("model/model.safetensors", "scores.json")]
        found.append(hashlib.sha256(b"".join(parts)).hexdigest())
    return sorted(found)


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.options(__doc__ or "", rounds=3, steps=60, tasks=())
    parser.add_argument("--runs", type=int, default=16, help="runs of the sweep")
    args = parser.parse_args(argv)
    peer, ours = [], []
    root = Path(tempfile.mkdtemp(prefix="encodery-bench-"))
    os.environ["ENCODERY_CACHE"] = str(root / "cache")
    try:
        one_by_one(root / "warm-up", 1, 2)  # the token table is made once, unmeasured: both sides find it
        for turn in range(args.rounds):
            peer.append(one_by_one(root / f"peer-{turn}", args.runs, args.steps))
            ours.append(as_sweep(root / f"ours-{turn}", args.runs, args.steps))
            same = digests(root / f"peer-{turn}") == digests(root / f"ours-{turn}")
            if not same or len(digests(root / f"ours-{turn}")) != args.runs:
                raise SystemExit("the sweep's results differ from those of the single runs")
    finally:
        shutil.rmtree(root)
    ratio = common.Spread.of([a / b for a, b in zip(peer, ours, strict=True)])
    row = {
        "runs": args.runs, "seconds each, alone": peer[0] / args.runs, "one by one": common.Spread.of(peer),
        "sweep": common.Spread.of(ours), "ratio": ratio, "met": "yes" if ratio.median >= GOAL else "no",
    }  # fmt: skip
    common.show(f"B11: goal {GOAL}×, {SLOTS} slots, equal weights and scores", [row])
    common.write("sweep", args, {"results": [row]})


if __name__ == "__main__":
    main()
