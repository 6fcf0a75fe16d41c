"""Settings with a source: list them, show one, or copy one as a start for your own."""

import argparse
from pathlib import Path

from encodery import recipes
from encodery.cli.parsing import Parser
from encodery.errors import UserError


def arguments(parser: Parser) -> None:
    """What to do, and with which recipe."""
    parser.add_argument("action", nargs="?", default="list", choices=["list", "show", "copy"], help="default: list")
    parser.add_argument("name", nargs="?", help="a recipe; for list: a part of the name")
    parser.add_argument("file", nargs="?", help="where copy writes; default: the recipe's last word")
    parser.examples(
        "encodery recipes",
        "encodery recipes list rte",
        "encodery recipes show glue/rte/electra-small",
        "encodery recipes copy glue/rte/electra-small my-rte.yaml",
        "encodery config recipe:glue/rte/electra-small      # all settings, also those it inherits",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Do it."""
    if args.action == "list":
        return _list(args.name or "")
    if not args.name:
        raise UserError(f"Which recipe? Write `encodery recipes {args.action} NAME`.")
    name = args.name.removeprefix("recipe:")
    return _show(name) if args.action == "show" else _copy(name, args.file)


def _list(part: str) -> int:
    found = [name for name in recipes.names() if part in name]
    if not found:
        raise UserError(f"No recipe has '{part}' in its name; `encodery recipes` lists all.")
    width = max(map(len, found))
    for name in found:
        print(f"{name:{width}}  {recipes.describe(name).expect}".rstrip())
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
        raise UserError(f"{target} is already there; give another file name.") from None
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}.") from None
    print(f"{target}: run it with `encodery train {target}`")
    return 0
