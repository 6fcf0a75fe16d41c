"""Published settings with their sources: list them, show one, or copy one as a starting point."""

import argparse
from pathlib import Path

from encodery import recipes
from encodery.cli.parsing import Parser
from encodery.errors import UserError

ACTIONS = ("list", "show", "copy")


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "action", nargs="?", default="list", metavar="show|copy|list|WORD",
        help="list, show or copy recipes; a word alone searches their names; default: list",
    )  # fmt: skip
    parser.add_argument("name", nargs="?", help="the recipe; for list: a part of the name")
    parser.add_argument("file", nargs="?", help="where copy writes; default: the recipe's last word")
    parser.shared("--format", help="format of the list: rich (default at a terminal), md, csv, json")
    parser.examples(
        "encodery recipes",
        "encodery recipes rte                               # those with rte in their name",
        "encodery recipes show glue/rte/electra-small",
        "encodery recipes copy glue/rte/electra-small my-rte.yaml",
        "encodery config recipe:glue/rte/electra-small      # all settings, also those it inherits",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    if args.action not in ACTIONS and args.name is not None:
        raise UserError(
            f"encodery recipes {args.action}: expected show, copy or list before {args.name}, or a single word."
        )
    if args.action not in ("show", "copy"):
        return _list(args, (args.name or "") if args.action == "list" else args.action)
    if not args.name:
        raise UserError(f"Which recipe? Write `encodery recipes {args.action} NAME`.")
    name = args.name.removeprefix("recipe:")
    return _show(name) if args.action == "show" else _copy(name, args.file)


def _list(args: argparse.Namespace, part: str) -> int:
    from encodery.cli.print_table import of_rows, show

    matching = [name for name in recipes.names() if part.removeprefix("recipe:") in name]
    if not matching:
        raise UserError(f"No recipe has '{part}' in its name; `encodery recipes` lists all.")
    rows = [(name, recipes.describe(name).expect or "no number known for these settings") for name in matching]
    show(of_rows(("recipe", "what to expect"), rows), args.format)
    args.next = f"encodery recipes show {matching[0]}, encodery train recipe:{matching[0]}"
    return 0


def _show(name: str) -> int:
    print(recipes.path(name).read_text(encoding="utf-8"), end="")
    return 0


def _copy(name: str, file: str | None) -> int:
    target = Path(file or f"{name.rpartition('/')[2]}.yaml")
    try:
        with open(target, "x", encoding="utf-8") as stream:
            stream.write(recipes.path(name).read_text(encoding="utf-8"))
    except FileExistsError:
        raise UserError(f"{target} already exists; give another file name.") from None
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}.") from None
    print(f"{target}: run it with `encodery train {target}`")
    return 0
