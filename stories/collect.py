"""The finished runs of a sweep as one small JSON file, from which the pages of results are made.

    python stories/collect.py runs/stories/glue -o stories/results/glue.json

Runs that an earlier file holds and the folder does not (another machine finished them) stay in it.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from encodery.report import records
from encodery.runs.directory import RunDir

COMPARED = ("method.", "train.batch_size", "train.epochs")  # what the pages group runs by, beside task and variant


def row(record: records.Record) -> dict[str, Any]:
    """What the pages need of a run."""
    return {
        "run": record.name,
        "variant": record.variant,
        "task": record.task,
        "seed": record.seed,
        "rows": record.tree["tasks"][0].get("count"),  # of train; None: all
        "settings": {key: value for key, value in record.settings.items() if key.startswith(COMPARED)},
        "scores": {
            data: {name: round(value, 6) for name, value in of.items()}
            for data, of in {**held_out(record), **record.scores}.items()
        },
        "main": dict(record.main),
        "majority": {data: {name: round(v, 6) for name, v in of.items()} for data, of in record.majority.items()},
        "notes": {data: list(notes) for data, notes in record.notes.items() if notes},
        "seconds": round(record.seconds, 1) if record.seconds else None,
        "attacks": attacks(record),
    }


def held_out(record: records.Record) -> dict[str, dict[str, float]]:
    """The last scores on the rows of train.holdout, which a run stores only where tasks.evaluate_on names them."""
    lines = [line for line in RunDir(record.path).metrics() if line.get("split") == "holdout"]
    if not lines:
        return {}
    values = {key.removeprefix("eval."): value for key, value in lines[-1].items() if key.startswith("eval.")}
    return {f"{record.task}:holdout": values}


def attacks(record: records.Record) -> list[dict[str, Any]]:
    """What `encodery evaluate --attack` stored: for each attack the levels of this run, smallest radius first."""
    found = []
    for file in sorted(RunDir(record.path).attacks.glob("*.json")):
        stored = json.loads(file.read_text(encoding="utf-8"))
        by_name = {Path(model).name: levels for model, levels in stored.pop("models").items()}
        stored.pop("weights", None)  # by path
        levels = by_name[record.path.resolve().name]
        rounded = [{name: round(value, 6) for name, value in level.items()} for level in levels]
        found.append({**stored, "levels": sorted(rounded, key=lambda level: level["radius"])})
    return found


def main() -> None:
    """Read, merge, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    read, remarks = records.read(args.folders)
    earlier = json.loads(args.out.read_text(encoding="utf-8"))["runs"] if args.out.is_file() else []
    rows = {one["run"]: one for one in earlier} | {record.name: row(record) for record in read if record.done}
    ordered = sorted(rows.values(), key=lambda one: (one["variant"] or "", one["task"], str(one["seed"])))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(one, sort_keys=True) for one in ordered)
    args.out.write_text('{"runs": [\n' + lines + "\n]}\n", encoding="utf-8")
    waiting = sum(not record.done for record in read)
    print(*remarks, f"{len(ordered)} finished runs in {args.out}, {waiting} of the sweep's not finished", sep="\n")


if __name__ == "__main__":
    main()
