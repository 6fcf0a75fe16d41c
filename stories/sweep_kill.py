"""The seed's grid with FreeLB on a toy task, killed twice with kill -9: is its table that of an undisturbed sweep?

    python stories/sweep_kill.py --out runs/stories/sweep [--steps 120] [--seeds 3] [--seed 0]

adv_lr × (init_mag and max_norm together) × batch size 16 and 32, three seeds, two CPU slots. Each kill hits the sweep's
own process at a random instant; the runs that it leaves behind are adopted, or done again from their checkpoints.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

SWEEP = """\
base: recipe:toy/sentiment
fixed:
  method.kind: freelb
  train.max_steps: {steps}
  train.evaluate: end
  train.save: 10 steps
grid:
  method.adv_lr: {rates}
  train.batch_size: {sizes}
zip:
{pairs}
seeds: {seeds}
resources: {{devices: "cpu:2"}}
"""
PAIRS = (0.1, 0.2, 0.4, 0.6)


def sweep_file(folder: Path, steps: int, seeds: int, small: bool) -> Path:
    """The grid as a sweep file; the small one has 4 points instead of 16."""
    pairs = PAIRS[:2] if small else PAIRS
    rates, sizes = ("[0.1]", "[16, 32]") if small else ("[0.05, 0.1]", "[16, 32]")
    lines = "\n".join(f"  - {{method.init_mag: {x}, method.max_norm: {x}}}" for x in pairs)
    path = folder / "freelb.yaml"
    text = SWEEP.format(steps=steps, rates=rates, sizes=sizes, pairs=lines, seeds=list(range(1, seeds + 1)))
    path.write_text(text)
    return path


def command(file: Path, out: Path) -> list[str]:
    """The sweep, started or continued."""
    return [sys.executable, "-m", "encodery", "sweep", "run", str(file), "-o", str(out), "--quiet"]


def results(folder: Path) -> dict[str, bytes]:
    """Scores of every run by its folder's name, which is the same in both sweeps."""
    return {done.parent.name: (done.parent / "scores.json").read_bytes() for done in sorted(folder.glob("*/DONE"))}


def table(folder: Path) -> str:
    """The table of a sweep, batch sizes side by side."""
    words = [sys.executable, "-m", "encodery", "table", str(folder), "--columns", "train.batch_size"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def starts(folder: Path) -> dict[str, int]:
    """How often each run was started."""
    return {p.parent.name: json.loads(p.read_text())["attempt"] for p in sorted(folder.glob("*/status.json"))}


def disturbed(file: Path, out: Path, runs: int, draw: random.Random) -> None:
    """The sweep, killed twice: somewhere in its first half and somewhere in its second; then run to its end."""
    for number, (low, high) in enumerate(((0.1, 0.45), (0.5, 0.85)), 1):
        child = subprocess.Popen(command(file, out), stdout=subprocess.DEVNULL)
        enough = draw.uniform(low, high) * runs
        while len(results(out)) < enough and child.poll() is None:
            time.sleep(0.2)
        time.sleep(2 * draw.random())
        if child.poll() is not None:
            raise SystemExit("the sweep ended before it could be killed: take more steps or seeds")
        child.kill()
        child.wait()
        print(f"kill {number}: {len(results(out))} of {runs} runs done", flush=True)
    subprocess.run(command(file, out), check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Calmly once, then under fire, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/stories/sweep"))
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the instants of the kills")
    parser.add_argument("--small", action="store_true", help="4 points of the grid instead of 16")
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    file = sweep_file(args.out, args.steps, args.seeds, args.small)
    os.environ.setdefault("ENCODERY_CACHE", str(args.out.resolve() / "cache"))
    begin = time.monotonic()
    subprocess.run(command(file, args.out / "calm"), check=True, stdout=subprocess.DEVNULL)
    length = time.monotonic() - begin
    calm = results(args.out / "calm")
    disturbed(file, args.out / "killed", len(calm), random.Random(args.seed))
    killed = results(args.out / "killed")
    again = sum(count > 1 for count in starts(args.out / "killed").values())
    same_table = table(args.out / "calm") == table(args.out / "killed")
    print(table(args.out / "killed"))
    print(f"{len(killed)} runs in {length:.0f} s; 2 kills; {again} runs were started more than once")
    print(f"scores equal to the byte: {calm == killed}; tables equal: {same_table}")
    return 0 if calm == killed and same_table else 1


if __name__ == "__main__":
    sys.exit(main())
