"""Print the resulting settings of a config, a recipe or a command line, with the origin of each value."""

import argparse
import json
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser, without_bad_rows

if TYPE_CHECKING:
    from encodery.config.load import Resolved


def arguments(parser: Parser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, recipe:NAME or a run directory")
    parser.add_argument("--diff", metavar="OTHER", help="show only what differs in another config")
    parser.add_argument(
        "--schema", action="store_true", help="print all keys, types, defaults and meanings as JSON schema"
    )
    parser.add_argument("--reference", action="store_true", help="print the same as a page of Markdown")
    parser.shared("--skip-bad-rows", "--allow-code")
    parser.examples(
        "encodery config rte.yaml",
        "encodery config recipe:glue/rte/electra-small optim.lr=1e-4",
        "encodery config --model roberta-base --tasks glue/rte --train.epochs 10",
        "encodery config recipe:glue/rte/bert-base --diff recipe:glue/rte/roberta-base",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Print it; that needs options alone, so nobody waits for torch."""
    from encodery.config.without_torch import light

    if args.schema or args.reference:
        from encodery.config.reference import reference, schema

        text = light(lambda: json.dumps(schema(), indent=1) + "\n" if args.schema else reference())
        print(text, end="")
        return 0
    from encodery.config.load import load

    resolved = light(lambda: load(args.config, without_bad_rows(args, rest), allow_code=args.allow_code))
    if args.diff:
        other = light(lambda: load(args.diff, allow_code=args.allow_code))
        return _differ(resolved.config.to_dict(), other.config.to_dict())
    for note in resolved.notes:
        print(f"# note: {note}")
    print(annotated(resolved))
    args.next = "encodery train …  # with the same arguments"
    return 0


def annotated(resolved: "Resolved") -> str:
    """The dump with the origin of each value behind it; still a config."""
    from encodery.config.load import dump
    from encodery.core.yaml import read_text

    text = dump(resolved)
    read = read_text(text, "dump")
    dotted = {".".join(map(str, key)): line for key, line in read.lines.items()}
    where = {line: resolved.origins[key] for key, line in dotted.items() if key in resolved.origins}
    lines = text.splitlines()
    width = min(60, max(map(len, lines)))
    marked = (f"{line:{width}}  # {where[i]}" if where.get(i) else line for i, line in enumerate(lines, 1))
    return "\n".join(marked)


def _differ(one: dict[str, object], other: dict[str, object]) -> int:
    from encodery.config.load import differences

    for key, old, new in differences(one, other):
        print(f"{key}: {json.dumps(old)} -> {json.dumps(new)}")
    return 0
