"""Download data sets in advance, for machines without internet, or check a folder, a file or a data set.

For a file (reviews.csv) or a data set (glue/sst2) `check` prints a card: rows, labels, lengths, rows that repeat or
nearly repeat another one, and rows of dev that resemble one of train, with examples.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.cli.parsing import Parser, columns_of

if TYPE_CHECKING:
    from encodery.tasks.base import Task


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "what", choices=["get", "check"], help="get: fetch from the hub; check: counts, digests, near-duplicates"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME|DIR|FILE",
        help="get: glue, glue/rte, squad/v2, hans, …; check: a folder (else ENCODERY_DATA or GLUE_DIR), a file, a task",
    )  # fmt: skip
    parser.add_argument("--to", metavar="DIR", default="data", help="get: where to put the files; default: data")
    parser.add_argument("--dev", metavar="FILE", help="check: the dev file of a training file")
    parser.add_argument("-o", "--out", metavar="FILE", help="check: also write the data card as JSON")
    parser.shared("--format", help="check: rich, md or csv prints tables, json prints data; default: plain lines")
    parser.columns("columns of a file to check, if they are not detected")
    parser.examples(
        "encodery data get glue squad/v2 tag hans --to data",
        "encodery data check data",
        "encodery data check reviews.csv --dev dev.csv",
        "encodery data check glue/sst2",
        "encodery data check reviews.csv --label-column stars --skip-bad-rows --format json",
        "ENCODERY_DATA=data encodery train recipe:glue/rte/electra-small",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Fetch or check; exit 1 if something in the folder is wrong."""
    from encodery.errors import UserError
    from encodery.tasks.sources import check_folder

    if args.what == "get":
        if not args.names:
            raise UserError("encodery data get: name the data sets, such as glue, glue/rte, squad/v2, hans")
        for line in check_folder.get(args.names, args.to):
            print(line, flush=True)
        args.next = f"ENCODERY_DATA={args.to} encodery train --model roberta-base --tasks glue/rte"
        return 0
    cards = [name for name in args.names if Path(name).is_file() or not Path(name).exists()]
    if cards or args.dev or args.out:
        return _cards(args)
    statuses = [status for folder in args.names or [_usual()] for status in check_folder.check(folder)]
    if args.format:
        from encodery.cli.print_table import show_records

        rows = [{"data": one.name, "state": one.state, "rows": one.rows, "about": one.words} for one in statuses]
        show_records({"folder": rows}, args.format)
    else:
        print(*statuses, sep="\n")
    return 1 if any(status.state == "wrong" for status in statuses) else 0


def _cards(args: argparse.Namespace) -> int:
    """One card: of a file, or of a set by its name."""
    from encodery.core import files
    from encodery.errors import UserError
    from encodery.tasks.sources.data_card import data_card, lines, tables

    if len(args.names) != 1 or Path(args.names[0]).is_dir():
        raise UserError("encodery data check: --dev and -o need a single file or data set, such as glue/sst2")
    reading = {key: value for key, value in columns_of(args).items() if value is not None}
    task = _task(args.names[0], args.dev, reading)
    try:
        card = data_card(task)
    except UserError as error:
        raise UserError(str(error).replace("--tasks.dev FILE", "--dev FILE")) from None
    for bad in card["skipped"]:
        print(f"skipped: {bad}", file=sys.stderr)
    if args.format == "json":
        print(json.dumps(card, indent=1, ensure_ascii=False))
    elif args.format:
        from encodery.cli.print_table import show_records

        show_records(tables(card), args.format)
    else:
        print("\n".join(lines(card)))
    if args.out:
        files.write_json(Path(args.out), card)
    return 0


def _task(name: str, dev: str | None, reading: dict[str, Any]) -> "Task":
    from encodery.errors import UserError
    from encodery.inference.task_argument import named
    from encodery.tasks.table import Table

    if not Path(name).is_file():
        if Path(name).suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
            raise UserError(f"{name}: there is no such file")
        if dev:
            raise UserError(f"--dev: is for training files; {name} has its own dev set")
        if named_columns := [key for key in reading if key != "skip_bad_rows"]:
            raise UserError(f"--{named_columns[0]}-column: is for files; {name} has its own columns")
        task = named(name)
        fits = {key: value for key, value in reading.items() if key in type(task).model_fields}  # toy rows are all good
        return type(task).model_validate(task.to_dict() | fits) if fits else task
    options, _ = Table.of_file(name, Path(), reading | ({"dev": dev} if dev else {}), flag="--{}-column")
    plain = {key: value for key, value in options.items() if key != "kind"}
    return Table.variant(plain).model_validate({**plain, "train": name})


def _usual() -> str:
    """The folder that training would look in."""
    from encodery.errors import UserError
    from encodery.tasks.sources.published import data_folder

    folder = data_folder(None)
    if folder is None:
        raise UserError("encodery data check: name a folder, or set ENCODERY_DATA")
    return str(folder)
