"""Print the settings that a config, a recipe or a command line comes to, with the origin of each value."""

import argparse
import json
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser

if TYPE_CHECKING:
    from encodery.config import Resolved


def arguments(parser: Parser) -> None:
    """A config and what to print."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, recipe:NAME or a run directory")
    parser.add_argument("--diff", metavar="OTHER", help="show only what differs in another config")
    parser.add_argument(
        "--schema", action="store_true", help="print all keys, types, defaults and meanings as JSON schema"
    )
    parser.add_argument("--reference", action="store_true", help="print the same as a page of Markdown")
    parser.add_argument(
        "--allow-code", action="store_true", help="run the Python files that a run directory brings along"
    )
    parser.examples(
        "encodery config rte.yaml",
        "encodery config recipe:glue/rte/electra-small optim.lr=1e-4",
        "encodery config --model roberta-base --tasks glue/rte --train.epochs 10",
        "encodery config recipe:glue/rte/bert-base --diff recipe:glue/rte/roberta-base",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Print it."""
    if args.schema or args.reference:
        from encodery.reference import reference, schema

        print(json.dumps(schema(), indent=1) if args.schema else reference(), end="" if args.reference else "\n")
        return 0
    from encodery.config import load

    resolved = load(args.config, rest, allow_code=args.allow_code)
    if args.diff:
        return _differ(resolved.config.plain(), load(args.diff, allow_code=args.allow_code).config.plain())
    for note in resolved.notes:
        print(f"# note: {note}")
    print(annotated(resolved))
    return 0


def annotated(resolved: "Resolved") -> str:
    """The dump with the origin of each value behind it; still a config."""
    from encodery.config import dump
    from encodery.yaml_reader import read_text

    text = dump(resolved)
    read = read_text(text, "dump")
    dotted = {".".join(map(str, key)): line for key, line in read.lines.items()}
    where = {line: resolved.origins[key] for key, line in dotted.items() if key in resolved.origins}
    lines = text.splitlines()
    width = min(60, max(map(len, lines)))
    marked = (f"{line:{width}}  # {where[i]}" if where.get(i) else line for i, line in enumerate(lines, 1))
    return "\n".join(marked)


def _differ(one: dict[str, object], other: dict[str, object]) -> int:
    from encodery.config import differences

    for key, old, new in differences(one, other):
        print(f"{key}: {json.dumps(old)} -> {json.dumps(new)}")
    return 0
