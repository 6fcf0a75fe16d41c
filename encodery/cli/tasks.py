"""List the tasks that have a name, to be used as `tasks: glue/rte` or `--on glue/rte:dev`."""

import argparse

from encodery.cli.parsing import Parser
from encodery.errors import UserError


def arguments(parser: Parser) -> None:
    """Which to list."""
    parser.add_argument("part", nargs="?", default="", help="only names with this in them")
    parser.examples("encodery tasks", "encodery tasks glue")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Print a table."""
    from encodery.tasks import catalogue

    rows = [(e.name, e.kind, " ".join(e.splits), e.description) for e in catalogue() if args.part in e.name]
    if not rows:
        raise UserError(f"No task has '{args.part}' in its name; `encodery tasks` lists all.")
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join([*(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)), row[3]]))
    return 0
