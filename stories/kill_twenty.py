"""kill -9 at twenty random instants of a toy run: is the end bit-identical to an undisturbed run?

    python stories/kill_twenty.py --out runs/stories/kill [--kills 20] [--seed 0]

Every kill hits a fresh process of the real command, at a uniformly random instant of its life (imports, tokenising,
steps, saving and finishing included); a checkpoint is written every 5 steps.
"""

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

COMMAND = [
    sys.executable,
    "-m",
    "encodery",
    "train",
    "recipe:toy/sentiment",
    "train.save=5 steps",
    "threads=1",
    "--quiet",
]


def digest(run: Path) -> dict[str, str]:
    """What must be equal: weights, losses and scores, without the clock's fields."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    plain = [{k: v for k, v in r.items() if k not in ("time", "seconds")} for r in records]
    parts = {
        "weights": (run / "model" / "model.safetensors").read_bytes(),
        "losses": json.dumps(plain, sort_keys=True).encode(),
        "scores": (run / "scores.json").read_bytes(),
    }
    return {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}


def main() -> int:
    """Run calmly once, then under fire, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/stories/kill"))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    begin = time.monotonic()
    subprocess.run([*COMMAND, "-o", str(args.out / "calm")], check=True)
    length = time.monotonic() - begin
    draw = random.Random(args.seed)
    kills = finished = 0
    while kills < args.kills:
        folder = args.out / f"killed-{finished}"
        child = subprocess.Popen([*COMMAND, "-o", str(folder)])
        time.sleep(draw.uniform(0, length))
        if child.poll() is None:
            child.kill()
            kills += 1
        code = child.wait()
        print(f"kill {kills}: exit {code}", flush=True)
        finished += code == 0  # this one is through; the next kills hit a new run
    subprocess.run([*COMMAND, "-o", str(args.out / f"killed-{finished}")], check=True)
    wanted = digest(args.out / "calm")
    ends = [digest(args.out / f"killed-{i}") for i in range(finished + 1)]
    equal = sum(end == wanted for end in ends)
    print(f"{kills} kills over {len(ends)} runs of {length:.0f} s: {equal} of {len(ends)} ends bit-identical")
    return 0 if equal == len(ends) else 1


if __name__ == "__main__":
    sys.exit(main())
