"""Publish a finished run: model, card and settings, without paths, names of machines, or tokens.

Without --yes nothing leaves this machine: what would be sent is shown, and with -o written into a folder.
The card says what was trained on which data, how, how well over how many seeds, and what the numbers do not show.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser
from encodery.core.text import counted

if TYPE_CHECKING:
    from encodery.exchange.publish import Parcel


def arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="a finished run")
    parser.add_argument("--head", metavar="TASK", help="the task whose head is published, if the run has several")
    parser.add_argument("--to", metavar="OWNER/NAME", help="repository on the hub")
    parser.add_argument("--yes", action="store_true", help="send it; without this option it is only shown")
    parser.add_argument("--public", action="store_true", help="make a new repository public; default: private")
    parser.add_argument("--license", metavar="ID", help="such as apache-2.0; yours to choose, so there is no default")
    parser.add_argument("-o", "--out", metavar="DIR", help="keep the folder here; it must not exist yet")
    parser.examples(
        "encodery publish runs/rte                                # what would be sent, and the card",
        "encodery publish runs/rte -o rte-for-the-hub             # the folder, to look at or to send by hand",
        "encodery publish runs/all --head glue/rte                # of several tasks one, as if trained alone",
        "encodery publish runs/rte --to me/rte --license apache-2.0 --yes",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    import tempfile

    from encodery.core.files import require_new
    from encodery.errors import UserError
    from encodery.exchange import publish

    if args.yes and not args.to:
        raise UserError("--yes needs a destination: --to OWNER/NAME")
    name = publish.require_name(args.to) if args.to else None
    if args.out:
        require_new(Path(args.out))
    with tempfile.TemporaryDirectory() as nowhere:
        folder = Path(args.out) if args.out else Path(nowhere) / "parcel"
        parcel = publish.pack(args.run, folder, name, args.license, args.head)
        if args.yes and name:
            print(f"sent: {publish.send(parcel.folder, name, private=not args.public)}")
            return 0
        _show(parcel, kept=bool(args.out), name=name)
    head = f" --head {args.head}" if args.head else ""
    args.next = f"encodery publish {args.run}{head} --to {name or 'OWNER/NAME'} --yes"
    return 0


def _show(parcel: "Parcel", kept: bool, name: str | None) -> None:
    print(parcel.card)
    for file, size in parcel.sizes.items():
        print(f"{size:>12,} bytes  {file}")
    where = f"kept in {parcel.folder}" if kept else "nothing was written"
    how = f"add --yes to send it to {name}" if name else "--to OWNER/NAME --yes sends it"
    print(
        f"{counted(len(parcel.sizes), 'file')}, {sum(parcel.sizes.values()):,} bytes; {where}; nothing was sent: {how}"
    )
