"""Choose the tasks that help a task (GradTS): rank by head importance, then trial, thres or fg, then train.

The file has the settings of a run (or `extends`) with all tasks under `tasks`, and the keys primary, strategy, compare,
importance, threshold, rule, seeds and so on. Run again = go on. docs/task-selection.md tells more.
"""

import argparse
import json
from pathlib import Path

from encodery.cli.parsing import Parser


def arguments(parser: Parser) -> None:
    """Which study, and where."""
    parser.add_argument("config", metavar="CONFIG", help="a study's file, or recipe:NAME")
    parser.add_argument("-o", "--out", metavar="DIR", help="default: runs/<name of the file>")
    parser.add_argument("--executor", choices=["local", "slurm", "ray"], default="local", help="default: local")
    parser.add_argument("--dry-run", action="store_true", help="say what would be trained, train nothing")
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.add_argument("--json", action="store_true", help="print data instead of tables")
    parser.add_argument("--quiet", action="store_true", help="print only the result")
    parser.examples(
        "encodery gradts recipe:gradts/toy --dry-run",
        "encodery gradts study.yaml --primary glue/mrpc --strategy trial --seeds 3 -o runs/study",
        "encodery gradts study.yaml --strategy thres --threshold 0.5 --compare none,all,autosem",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Plan, or do everything and print the tables."""
    from encodery.gradts.plan import load
    from encodery.paths import as_name

    stem = as_name(args.config.removeprefix("recipe:")) if args.config.startswith("recipe:") else Path(args.config).stem
    folder = Path(args.out) if args.out else Path("runs") / stem
    plan = load(args.config, rest, folder, args.allow_code)
    if args.dry_run:
        print("\n".join(plan.lines()))
        return 0
    from encodery.gradts.study import Study
    from encodery.progress import Progress
    from encodery.report.task_choice import markdown, plain

    found = Study(plan, Progress(args.quiet or args.json), args.executor).run()
    print(json.dumps(plain(found), indent=1) if args.json else markdown(found))
    if not args.json:
        print(f"({folder})")
    return 0
