"""Any runs as a table: mean ± sd over seeds, median, best, and only the settings that vary."""

import argparse
import json

from encodery.cli.parsing import Parser


def arguments(parser: Parser) -> None:
    """Which runs, and how to print them."""
    parser.add_argument("folders", nargs="+", metavar="DIR", help="run directories, or folders with runs below them")
    parser.add_argument("--metric", help="this metric instead of each task's main one")
    parser.add_argument(
        "--baseline", metavar="VALUE", help="add differences to the row with this setting (VALUE or key=VALUE)"
    )
    parser.add_argument("--format", choices=["md", "csv", "json"], default="md", help="default: md")
    parser.examples(
        "encodery table runs/",
        "encodery table runs/ --metric f1 --format csv",
        "encodery table runs/ --baseline optim.lr=2e-05",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Print it."""
    from encodery.report import tables

    rows = tables.table(args.folders, args.baseline, args.metric)
    if args.format == "json":
        print(json.dumps(rows, indent=1))
    elif args.format == "md":
        print(tables.markdown(rows))
    else:
        _csv(rows)
    return 0


def _csv(rows: list[dict[str, object]]) -> None:
    import csv
    import sys

    names = [name for name in rows[0] if name != "values"]
    writer = csv.DictWriter(sys.stdout, names, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
