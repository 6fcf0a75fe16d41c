"""Which tasks help a task: GradTS on real GLUE and UD POS with a small encoder, against single-task and all tasks.

    ENCODERY_DATA=... python stories/gradts_minilm.py --out runs/stories/gradts --rows 240 --primary glue/mrpc glue/rte

Fine-tunes every task on `--rows` training rows, measures its heads on `--measured` of them, correlates and ranks, for
each of the seeds; then runs the trials, takes what passes the threshold, trains all tasks together, and writes the
table with the correlation matrices and how stable they are. Run again = go on. MNLI, QNLI and QQP are in part only; the
primary tasks are scored on their whole dev sets. --dry-run says how many trainings there are.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from encodery.core import yaml
from encodery.core.progress import Progress
from encodery.gradts.plan import load
from encodery.gradts.study import Study
from encodery.report.task_choice import markdown

TASKS = "glue/cola,glue/mrpc,glue/stsb,glue/rte,glue/wnli,glue/sst2,glue/qnli,glue/qqp,glue/mnli,tag/pos"


def main() -> None:
    """Fine-tune, measure, correlate, rank, try, train, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ["ENCODERY_DATA"])
    parser.add_argument("--out", type=Path, default=Path("runs/stories/gradts"))
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--primary", nargs="+", default=["glue/mrpc", "glue/rte"])
    parser.add_argument("--strategy", default="trial")
    parser.add_argument("--compare", default="none,all,thres")
    parser.add_argument("--rows", type=int, default=240, help="training rows of a task")
    parser.add_argument("--measured", type=int, default=240, help="rows whose head importance is measured")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=48, help="most tokens of an example")
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threshold", type=float, default=0.5, help="of thres")
    parser.add_argument("--estimator", default="mask")
    parser.add_argument("--devices", default="cpu:1", help="as in a sweep: cpu:1 is one run at a time")
    parser.add_argument("--model", type=Path, default=data / "models/paraphrase-MiniLM-L3-v2-fp16")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "study.yaml"
    path.write_text(yaml.write(settings(args, data)))
    plan = load(path, [], args.out / "study")
    print("\n".join(plan.lines()), flush=True)
    if args.dry_run:
        return
    text = markdown(Study(plan, Progress(every=60)).run())
    (args.out / "table.md").write_text(text)
    print(text)


def settings(args: argparse.Namespace, data: Path) -> dict[str, Any]:
    """The study's file."""
    return {
        "model": str(args.model.resolve()),
        "tasks": [
            {"name": name, "count": args.rows, "evaluate_on": ["dev"] if name in args.primary else []}
            for name in args.tasks.split(",")
        ],
        "optim": {"lr": args.lr, "warmup": 0.1},
        "train": {"epochs": args.epochs, "batch_size": args.batch, "max_length": args.length, "save": "end"},
        "data": str(data.resolve()),
        "device": "cpu",
        "primary": args.primary,
        "strategy": args.strategy,
        "compare": args.compare.split(","),
        "importance": {"estimator": args.estimator, "max_rows": args.measured},
        "importance_seeds": args.seeds,
        "seeds": args.seeds,
        "threshold": args.threshold,
        "resources": {"devices": args.devices, "threads": 1},
    }


if __name__ == "__main__":
    main()
