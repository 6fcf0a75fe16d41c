"""Show the data as the model will read it: rows, lengths, truncation, label balance, duplicates, the first batch.

Nothing is trained and no weights are loaded.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser, without_bad_rows
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.config.load import Resolved


def arguments(parser: Parser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, recipe:NAME, a run, or nothing")
    parser.add_argument("--rows", type=int, default=5, metavar="N", help="rows to decode; default: 5")
    parser.add_argument("--split", default="train", help="default: train")
    parser.add_argument("--head", metavar="TASK", help="which task, if the run has several")
    parser.renamed("--on", "--head")
    parser.shared("--format", help="rich, md or csv prints tables, json prints data; default: plain lines")
    parser.shared("--skip-bad-rows", "--allow-code")
    parser.examples(
        "encodery inspect rte.yaml",
        "encodery inspect recipe:glue/rte/electra-small --rows 20 --split dev",
        "encodery inspect --model roberta-base --tasks glue/mrpc --train.max_length 64",
        "encodery inspect reviews.csv --format md",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.analysis.inspect import describe_run, run_records
    from encodery.cli.print_table import show_records
    from encodery.config.load import load
    from encodery.tasks import SPLITS

    if args.rows < 0:
        raise UserError(f"--rows {args.rows}: must be 0 or more")
    rest = without_bad_rows(args, rest)
    chosen = _of_one(load(args.config, rest, allow_code=args.allow_code), args.head)
    if not chosen.tasks[0][0].labelled and args.config and Path(args.config, "model").is_dir():  # as it was trained
        whole = load(args.config, [*rest, f"model.name={args.config}"], allow_code=args.allow_code)
        chosen = _of_one(whole, args.head)
    split = SPLITS.get(args.split, args.split)
    for note in chosen.notes:
        print(f"note: {note}", file=sys.stderr if args.format else sys.stdout)
    if args.format:
        show_records(run_records(chosen, split, args.rows), args.format)
    else:
        for line in describe_run(chosen, split, args.rows):
            print(line)
    if args.config and not Path(args.config).is_dir():
        args.next = f"encodery train {args.config}"
    return 0


def _of_one(resolved: "Resolved", name: str | None) -> "Resolved":
    from encodery.analysis.inspect import only

    return only(resolved, name) if name else resolved
