"""Export a run's model as a clean folder for transformers, and verify that it says the same there.

An address such as s3://bucket/name gets a copy of the verified folder, through fsspec.
"""

import argparse
from pathlib import Path

from encodery.cli.parsing import Parser


def arguments(parser: Parser) -> None:
    """From where, to where."""
    parser.add_argument("run", metavar="RUN", help="run directory or model folder")
    parser.add_argument("folder", metavar="DIR", help="a folder that does not exist yet, or an address (s3://…)")
    parser.add_argument("--on", metavar="TASK", help="whose head is exported, if the run has several")
    parser.examples(
        "encodery export runs/rte rte-model",
        "encodery export runs/all rte-model --on glue/rte",
        "encodery export runs/rte s3://bucket/rte-model",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Copy, verify, say what it is."""
    from encodery.export import export, export_away
    from encodery.remote import is_remote

    away = is_remote(args.folder)
    done = export_away(args.run, args.folder, args.on) if away else export(args.run, Path(args.folder), args.on)
    same = f"{done.rows} texts give the same logits (to {done.difference:.0e})"
    print(f"{done.folder}: opens with {done.opens_with}; {same}")
    if not done.opens_with.startswith("transformers"):
        print("  AutoModel opens the encoder in it; the head is in heads/, because transformers has no class for it")
    return 0
