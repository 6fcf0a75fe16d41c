"""Compare runs in a table: mean ± sd over seeds, median, best, and only the settings that vary.

With --baseline: differences with intervals and tests, over seeds and over examples. docs/statistics.md says what each
number is and what it cannot tell.
"""

import argparse
import sys

from encodery.cli.parsing import Parser


def arguments(parser: Parser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run directories, sweeps, or folders above them")
    parser.add_argument("--metric", help="metric to show instead of each task's main metric")
    parser.add_argument(
        "--baseline", metavar="NAME|KEY=VALUE",
        help="baseline: a variant's name, a run's name, a value, or key=value such as optim.lr=2e-5",
    )  # fmt: skip
    parser.add_argument(
        "--columns", metavar="KEY", help="setting whose values become columns (several: A,B; for tasks: data)"
    )
    parser.add_argument(
        "--sort", metavar="COLUMN", help="sort by mean, median, best, difference, n, seconds or a setting"
    )
    parser.add_argument(
        "--over-models", choices=["mean", "median", "best"], metavar="SCORE",
        help="also a second level: mean, median or best of the seeds of each pretrained model, then over models",
    )  # fmt: skip
    parser.add_argument("--by", metavar="COLUMN", help="one row for each value of a column, from `evaluate --by`")
    parser.add_argument("--all", action="store_true", help="include runs that are no longer in the plan of their sweep")
    parser.formats(
        "latex",
        help="rich: aligned, as wide as the terminal; md: Markdown; default: rich at a terminal, md in a pipe",
    )  # fmt: skip
    parser.examples(
        "encodery table runs/",
        "encodery table runs/ --metric f1 --format csv",
        "encodery table runs/ --baseline optim.lr=2e-5",
        "encodery table runs/ --by genre",
        "encodery table runs/glue-electra-small --columns data --format latex",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.cli.print_table import show
    from encodery.errors import UserError
    from encodery.report import table
    from encodery.report.table import COMPARED

    if args.columns and args.format == "json":
        raise UserError("--columns: is not for JSON, which lists every row; choose md, csv or latex")
    made = table.table(
        args.folders, args.baseline, args.metric, sort=args.sort, every=args.all, models=args.over_models, by=args.by
    )
    if args.format == "json":
        print(table.json_text(made))
    elif args.format == "csv":
        print(table.csv_text(made, args.columns), end="")
        notes = [*([COMPARED] if args.columns and args.baseline else []), *made.remarks]
        print("\n".join(notes), file=sys.stderr, end="\n" if notes else "")
    elif args.format == "latex":
        print(table.latex(made, args.columns))
    else:
        show(table.markdown(made, args.columns), args.format, made.settings)
        args.next = f"encodery report {' '.join(args.folders)} -o report.html"
    return 0
