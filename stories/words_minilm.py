"""Parts of speech and names with a small real encoder on a CPU, beside answers without a model.

    ENCODERY_DATA=... python stories/words_minilm.py --out runs/stories/words [--only ner,pos] [--threads 1]

`--offsets` reads no model: it checks for every answerable question of SQuAD's kind that the pieces of the gold answer
are the smallest stretch that covers it, and how often their text is the answer itself. Finished runs are not repeated.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

ENCODER = "paraphrase-MiniLM-L3-v2-fp16"
RUNS = {
    "ner": ("recipe:tag/ner/minilm-l3", ["train.epochs=3"]),
    "pos": ("recipe:tag/pos/minilm-l3", ["train.epochs=1"]),
}


def trained(name: str, models: Path, out: Path, threads: int) -> dict[str, Any]:
    """Train (or find) a run; its scores and those of the simplest answers."""
    from encodery.config import load
    from encodery.core.progress import Progress
    from encodery.training.run import train_run

    recipe, more = RUNS[name]
    overrides = [*more, f"model.name={models / ENCODER}", f"threads={threads}", "train.evaluate=end"]
    run = train_run(load.load(recipe, overrides), out / name, progress=Progress(every=60))
    found = run.read_scores()
    return {"scores": found["scores"], "simplest": found["majority"], "notes": run.info()["data"]}


def offsets(model: Path) -> dict[str, Any]:
    """Every answerable question at hand: is the gold stretch of pieces right, and is its text the answer?"""
    from transformers import AutoTokenizer

    from encodery.data.tokenizer import TokenizerPieces
    from encodery.tasks.squad import Squad

    pieces = TokenizerPieces(AutoTokenizer.from_pretrained(model))
    count = {"answerable": 0, "wrong": 0, "exact": 0, "windows": 0}
    for part, split in (("v2", "train"), ("v2", "dev"), ("v1", "dev")):  # the stand-ins of v1 train are in v2's
        task = Squad(part=part)
        examples = [e for e in task.examples(split) if e.label]
        found: dict[int, list[Any]] = {}
        for features in task.encode(examples, pieces, 256):
            found.setdefault(features.example, []).append(features)
        for row, example in enumerate(examples):
            good, exact = judged(example, found[row])
            count["answerable"] += 1
            count["wrong"] += not good
            count["exact"] += exact
            count["windows"] += len(found[row])
    return count


def judged(example: Any, windows: list[Any]) -> tuple[bool, bool]:
    """(the targets cover the gold answer and no smaller stretch does, the text between them is the answer)."""
    answer, begin = example.label[0], example.extra["starts"][0]
    end = begin + len(answer)
    holding = [w for w in windows if w.targets["start"]]
    if not holding:
        return False, False
    good = exact = True
    for window in holding:
        first, last = window.targets["start"], window.targets["end"]
        starts, ends = window.marks["begin"], window.marks["end"]
        covers = starts[first] <= begin and ends[last] >= end
        smallest = ends[first] > begin and starts[last] < end
        good &= covers and smallest
        exact &= example.texts[1][starts[first] : ends[last]] == answer
    return good, exact


def main() -> None:
    """Train what is not trained yet, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/stories/words"))
    parser.add_argument("--only", default="ner,pos")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--offsets", action="store_true")
    parser.add_argument("--models", type=Path, default=Path(os.environ["ENCODERY_DATA"]) / "models")
    args = parser.parse_args()
    if args.offsets:
        print(json.dumps(offsets(args.models / ENCODER)))
        return
    print("| run | on | metric | model | simplest |\n|---|---|---|---|---|")
    for name in args.only.split(","):
        found = trained(name, args.models, args.out, args.threads)
        for key, scores in found["scores"].items():
            for metric, value in scores.items():
                easy = found["simplest"][key].get(metric)
                beside = "" if easy is None else f"{easy:.4f}"
                print(f"| {name} | {key} | {metric} | {value:.4f} | {beside} |", flush=True)


if __name__ == "__main__":
    main()
