"""Retraining curves: data selection methods × fractions × seeds, every method beside random selection.

The file has the settings of a run (or `extends`) and the keys methods, fractions, seeds, match, on, embed, dynamics.
Runs on the full set come first and are shared by all methods; run again to resume. See docs/data-selection.md.
"""

import argparse
import sys
from pathlib import Path

from encodery.cli.parsing import Parser, without_bad_rows
from encodery.core.text import counted


def arguments(parser: Parser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a curve file")
    parser.add_argument("-o", "--out", metavar="DIR", help="default: runs/<name of the file>")
    parser.shared("--executor")
    parser.add_argument("--dry-run", action="store_true", help="print what would be trained, train nothing")
    parser.shared("--format", "--skip-bad-rows", "--allow-code", "--quiet")
    parser.examples(
        "encodery curve curve.yaml --dry-run",
        "encodery curve curve.yaml --seeds 5 --fractions 0.1:1.0:0.1 -o runs/curve",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.cli.print_table import show
    from encodery.core.progress import Progress
    from encodery.report.data_curves import markdown
    from encodery.selection import curve

    folder = Path(args.out) if args.out else Path("runs") / Path(args.config).stem
    plan = curve.load(args.config, without_bad_rows(args, rest), folder, args.allow_code)
    if args.dry_run:
        methods, parts, seeds = len(plan.curve.selectors), len(plan.curve.parts) - 1, len(plan.curve.seed_list)
        print("\n".join(plan.lines()))
        few = "at most " if plan.curve.fewer else ""
        what = (
            f"{counted(methods, 'method')} × {few}{counted(parts, 'part')} × {counted(seeds, 'seed')}, and the full set"
        )
        what += f" {counted(seeds, 'time')}"
        print(f"at most {counted(plan.runs, 'run')}: {what}")
        return 0
    found = curve.run(plan, Progress(args.quiet), args.executor)
    show(markdown(found), args.format)
    print(f"({folder})", file=sys.stderr if args.format in ("csv", "json") else sys.stdout)
    args.next = f"encodery report {folder} -o report.html"
    return 0
