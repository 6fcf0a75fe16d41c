"""Fetch data sets ahead, for machines without internet, or check what is in a folder."""

import argparse

from encodery.cli.parsing import Parser


def arguments(parser: Parser) -> None:
    """get or check."""
    parser.add_argument(
        "what", choices=["get", "check"], help="get: fetch from the hub; check: verify counts and digests"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME|DIR",
        help="get: glue, glue/rte, squad/v2, hans, …; check: a folder; default: ENCODERY_DATA or GLUE_DIR",
    )  # fmt: skip
    parser.add_argument("--to", metavar="DIR", default="data", help="get: where to put the files; default: data")
    parser.examples(
        "encodery data get glue squad/v2 tag hans --to data",
        "encodery data check data",
        "ENCODERY_DATA=data encodery train recipe:glue/rte/electra-small",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Fetch or check; exit 1 if something in the folder is wrong."""
    from encodery.errors import UserError
    from encodery.tasks import check

    if args.what == "get":
        if not args.names:
            raise UserError("encodery data get: say which sets, such as glue, glue/rte, squad/v2, hans")
        for line in check.get(args.names, args.to):
            print(line, flush=True)
        return 0
    found = [status for folder in args.names or [_usual()] for status in check.check(folder)]
    for status in found:
        print(status)
    return 1 if any(status.state == "wrong" for status in found) else 0


def _usual() -> str:
    """The folder that training would look in."""
    from encodery.errors import UserError
    from encodery.tasks.sources import data_folder

    folder = data_folder(None)
    if folder is None:
        raise UserError("encodery data check: say which folder, or set ENCODERY_DATA")
    return str(folder)
