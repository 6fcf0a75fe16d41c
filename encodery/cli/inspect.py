"""Inspect: what the model will see. Decoded rows, lengths and cuts, label balance, doubles, the first batch.

Nothing is trained and no weights are loaded.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.config import Resolved


def arguments(parser: Parser) -> None:
    """Which config, which rows."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, recipe:NAME, a run, or nothing")
    parser.add_argument("--rows", type=int, default=5, metavar="N", help="rows to decode; default: 5")
    parser.add_argument("--split", default="train", help="default: train")
    parser.add_argument("--on", metavar="TASK", help="which task, if the run has several")
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.examples(
        "encodery inspect rte.yaml",
        "encodery inspect recipe:glue/rte/electra-small --rows 20 --split dev",
        "encodery inspect --model roberta-base --tasks glue/mrpc --train.max_length 64",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Print it."""
    from encodery.config import load
    from encodery.look import describe_run
    from encodery.tasks import SPLITS

    if args.rows < 0:
        raise UserError(f"--rows {args.rows}: 0 or more")
    chosen = _of_one(load(args.config, rest, allow_code=args.allow_code), args.on)
    if not chosen.tasks[0][0].labelled and args.config and Path(args.config, "model").is_dir():  # as it was trained
        whole = load(args.config, [*rest, f"model.name={args.config}"], allow_code=args.allow_code)
        chosen = _of_one(whole, args.on)
    for note in chosen.notes:
        print(f"note: {note}")
    for line in describe_run(chosen, SPLITS.get(args.split, args.split), args.rows):
        print(line)
    return 0


def _of_one(resolved: "Resolved", name: str | None) -> "Resolved":
    from encodery.look import only

    return only(resolved, name) if name else resolved
