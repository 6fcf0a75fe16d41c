"""Choosing data on MNLI: random against cluster stream, k-center, EL2N and ambiguous, at a fixed number of updates.

    ENCODERY_DATA=... python stories/selection_mnli.py --out runs/stories/selection

Trains the lower layers of a small encoder on parts of what is here of MNLI, evaluates each run on the whole matched
dev set and on the regenerated HANS (`--hans` pairs of each of its 30 subcases), and draws the curves. One run more
gives the dynamics for EL2N and ambiguous (`--looks` looks at all rows), the first run on everything the vectors for
clusters and k-center. The runs on everything are evaluated on the whole of HANS at the end. Run again = go on.

The defaults take about an hour of one core: word embeddings stay as they are, and the methods in `--fewer` are tried
at two of the parts only. The parts are small ones, since so few updates see each row of a large part at most once.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from encodery.core import yaml
from encodery.core.progress import Progress
from encodery.report.data_curves import markdown
from encodery.selection import curve

METHODS: dict[str, dict[str, Any]] = {
    "random": {"kind": "random"},
    "stream": {"kind": "clusters", "pick": "stream"},
    "kcenter": {"kind": "kcenter", "pca": 64},
    "el2n": {"kind": "el2n", "epoch": -1},
    "ambiguous": {"kind": "cartography", "pick": "ambiguous"},
    "hard": {"kind": "cartography", "pick": "hard"},
    "whole": {"kind": "clusters", "pick": "whole"},
    "proportional": {"kind": "clusters", "pick": "proportional"},
    "hypothesis": {"kind": "hypothesis"},
    "hans": {"kind": "hans"},
}
USUAL = "random,stream,kcenter,el2n,ambiguous"


def main() -> None:
    """Prepare, train, choose, train, evaluate, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ["ENCODERY_DATA"])
    parser.add_argument("--out", type=Path, default=Path("runs/stories/selection"))
    parser.add_argument("--methods", default=USUAL, help=f"of {', '.join(METHODS)}")
    parser.add_argument("--fractions", default="0.01,0.03,0.1,0.3,1.0")
    parser.add_argument("--fewer", default="kcenter,el2n,ambiguous", help="methods with two parts only; empty: none")
    parser.add_argument("--few", default="0.01,0.1", help="their parts")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200, help="updates of every run")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="most tokens of a pair")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--layers", type=int, default=1, help="lower layers of the encoder that are kept")
    parser.add_argument("--tune", default="", help="as model.tune; default: all layers, not the word embeddings")
    parser.add_argument("--clusters", type=int, default=512)
    parser.add_argument("--looks", type=int, default=3, help="looks at all rows in the run for the dynamics")
    parser.add_argument("--hans", type=int, default=100, help="pairs of each subcase, of 1,000")
    parser.add_argument("--match", default="updates", help="updates, epochs, or both with a comma")
    parser.add_argument("--devices", default="cpu:1", help="as in a sweep: cpu:1 is one run at a time")
    parser.add_argument("--model", type=Path, default=data / "models/paraphrase-MiniLM-L3-v2-fp16")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "curve.yaml"
    path.write_text(yaml.write(settings(args, data)))
    plan = curve.load(path, [], args.out / "curve")
    print("\n".join(plan.lines()), flush=True)
    if args.dry_run:
        return
    found = curve.run(plan, Progress(every=60))
    text = markdown(found)
    (args.out / "table.md").write_text(text)
    print(text)
    print(verdict(found))
    for path in sorted((args.out / "curve" / "full").glob("*/DONE")):
        on_whole_hans(path.parent, data, args.out / "whole-hans" / path.parent.name)


def settings(args: argparse.Namespace, data: Path) -> dict[str, Any]:
    """The curve file."""
    model = shallow(args.model, args.layers, args.out / f"encoder-{args.layers}")
    methods = {name: dict(METHODS[name]) for name in args.methods.split(",")}
    for one in methods.values():
        one |= {"k": args.clusters} if one["kind"] == "clusters" else {}
    few = [float(one) for one in args.few.split(",")]
    score_run = {"train.dynamics": f"{-(-args.steps // args.looks)} steps"}
    return {
        "model": {"name": str(model.resolve()), "tune": args.tune or f"top:{args.layers}"},
        "tasks": [{"name": "glue/mnli", "evaluate_on": ["dev"]}],
        "optim": {"lr": args.lr, "warmup": 0.1},
        "train": {"max_steps": args.steps, "batch_size": args.batch, "max_length": args.length, "save": "end"},
        "data": str(folder_with_less_hans(data, args.out, args.hans).resolve()),
        "device": "cpu",
        "methods": methods,
        "fractions": [float(one) for one in args.fractions.split(",")],
        "fewer": {name: few for name in args.fewer.split(",") if name in methods},
        "seeds": args.seeds,
        "match": args.match.split(","),
        "on": ["hans"],
        "embed": {"site": "cls", "max_length": args.length},
        "scores": score_run,
        "score_seeds": 1,
        "selections": "shared",
        "resources": {"devices": args.devices, "threads": 1},
    }


def shallow(model: Path, layers: int, out: Path) -> Path:
    """The encoder with its lower layers only, as a folder."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    if not (out / "config.json").is_file():
        torch.manual_seed(0)  # of the pooler, which the checkpoint has not
        net = AutoModel.from_pretrained(model, dtype=torch.float32)
        net.encoder.layer = net.encoder.layer[:layers]
        net.config.num_hidden_layers = layers
        AutoTokenizer.from_pretrained(model).save_pretrained(out)
        net.save_pretrained(out)
    return out


def folder_with_less_hans(data: Path, out: Path, each: int) -> Path:
    """A data folder with all of GLUE and so many pairs of each subcase of the regenerated HANS."""
    import pandas as pd

    folder = out / f"data-{each}"
    target = folder / "hans" / "hans_eval_regenerated.parquet"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        rows = pd.read_parquet(data / "hans/hans_eval_regenerated.parquet")
        rows.groupby("subcase", sort=False).head(each).to_parquet(target)
    if not (folder / "glue").exists():
        (folder / "glue").symlink_to((data / "glue").resolve())
    return folder


def on_whole_hans(run: Path, data: Path, folder: Path) -> None:
    """All 30,000 pairs, kept beside the curve: in the run the smaller set has the name already."""
    from encodery.inference.classifier import open_classifier
    from encodery.inference.evaluate import evaluate, keep_in_folder
    from encodery.inference.task_argument import resolve_split

    if not (folder / "scores.json").is_file():
        keep_in_folder(folder, evaluate([open_classifier(run, "cpu")], resolve_split("hans", str(data))[0]), [str(run)])
    about = json.loads((folder / "scores.json").read_text())["evaluations"]["hans:dev"]
    print(f"{run.name} on the whole of HANS:", json.dumps(about["scores"]))
    print("\n".join(f"ALARM {sentence}" for sentence in about.get("alarms", [])))


def verdict(found: Any) -> str:
    """What the alarm says of HANS, in one line."""
    on_hans = [point for point in found.points if "hans:dev" in point.scores]
    told = [point for point in on_hans if any(sentence.startswith("hans:dev") for sentence in point.alarms)]
    said = sorted({sentence for point in told for sentence in point.alarms if sentence.startswith("hans:dev")})
    first = f"; the first: {said[0]}" if said else ""
    return json.dumps({"points": len(on_hans), "with an alarm": len(told)}) + first


if __name__ == "__main__":
    main()
