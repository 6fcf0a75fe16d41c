"""List the named tasks, for `tasks: glue/rte` in a config or `--on glue/rte:dev`."""

import argparse

from encodery.cli.parsing import Parser
from encodery.errors import UserError


def arguments(parser: Parser) -> None:
    parser.add_argument("part", nargs="?", default="", help="list only names that contain this")
    parser.shared("--format")
    parser.examples("encodery tasks", "encodery tasks glue")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.cli.print_table import of_rows, show
    from encodery.config.without_torch import light
    from encodery.tasks import catalogue

    entries = light(catalogue)  # names and descriptions need no arrays
    rows = [(e.name, e.kind, " ".join(e.splits), e.description) for e in entries if args.part in e.name]
    if not rows:
        raise UserError(f"No task has '{args.part}' in its name; `encodery tasks` lists all.")
    show(of_rows(("task", "kind", "splits", "about"), rows), args.format)
    args.next = f"encodery train --model roberta-base --tasks {rows[0][0]}"
    return 0
