"""Choose the tasks that help a task (GradTS): rank by head importance, then trial, thres or fg, then train.

The file has the settings of a run (or `extends`) with all tasks under `tasks`, and the keys primary, strategy, compare,
importance, threshold, rule, seeds and so on. Run again to resume. See docs/task-selection.md.
"""

import argparse
import json
import sys
from pathlib import Path

from encodery.cli.parsing import Parser, without_bad_rows


def arguments(parser: Parser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a study file, or recipe:NAME")
    parser.add_argument("-o", "--out", metavar="DIR", help="default: runs/<name of the file>")
    parser.shared("--executor")
    parser.add_argument("--dry-run", action="store_true", help="print what would be trained, train nothing")
    parser.shared("--skip-bad-rows", "--allow-code")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.shared("--format")
    parser.shared("--quiet")
    parser.examples(
        "encodery gradts recipe:gradts/toy --dry-run",
        "encodery gradts study.yaml --primary glue/mrpc --strategy trial --seeds 3 -o runs/study",
        "encodery gradts study.yaml --strategy thres --threshold 0.5 --compare none,all,autosem",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.core.files import as_name
    from encodery.gradts.plan import load

    stem = as_name(args.config.removeprefix("recipe:")) if args.config.startswith("recipe:") else Path(args.config).stem
    folder = Path(args.out) if args.out else Path("runs") / stem
    plan = load(args.config, without_bad_rows(args, rest), folder, args.allow_code)
    if args.dry_run:
        print("\n".join(plan.lines()))
        return 0
    from encodery.cli.print_table import show
    from encodery.core.progress import Progress
    from encodery.gradts.study import Study
    from encodery.report.task_choice import markdown, plain

    choices = Study(plan, Progress(args.quiet or args.json), args.executor).run()
    if args.json:
        print(json.dumps(plain(choices), indent=1))
        return 0
    show(markdown(choices), args.format)
    print(f"({folder})", file=sys.stderr if args.format in ("csv", "json") else sys.stdout)
    args.next = f"encodery report {folder} -o report.html"
    return 0
