"""Export a run's model as a clean folder for transformers, and verify that it says the same there.

With --onnx: as model.onnx with tokenizer and config, compared with torch on a few texts; --int8 adds model_int8.onnx.
"""

import argparse
from pathlib import Path

from encodery.cli.parsing import Parser


def arguments(parser: Parser) -> None:
    """From where, to where, in which form."""
    parser.add_argument("run", metavar="RUN", help="run directory or model folder")
    parser.add_argument("folder", metavar="DIR", help="a folder that does not exist yet")
    parser.add_argument("--onnx", action="store_true", help="for ONNX Runtime instead (extra `onnx`)")
    parser.add_argument("--int8", action="store_true", help="with --onnx: also quantised to 8 bits, for CPUs")
    parser.add_argument(
        "--tolerance", type=float, metavar="X", help="with --onnx: largest difference to torch; default 1e-4"
    )
    parser.examples(
        "encodery export runs/rte rte-model",
        "encodery export runs/rte rte-onnx --onnx --int8",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Copy, verify, say what it is."""
    from encodery.errors import UserError

    if args.onnx:
        return _onnx(args)
    if args.int8 or args.tolerance is not None:
        raise UserError("--int8 and --tolerance belong to --onnx")
    from encodery.export import export

    done = export(args.run, Path(args.folder))
    same = f"{done.rows} texts give the same logits (to {done.difference:.0e})"
    print(f"{done.folder}: opens with {done.opens_with}; {same}")
    if not done.opens_with.startswith("transformers"):
        print("  AutoModel opens the encoder in it; the head is in heads/, because transformers has no class for it")
    return 0


def _onnx(args: argparse.Namespace) -> int:
    from encodery.export_onnx import TOLERANCE, export_onnx

    tolerance = TOLERANCE if args.tolerance is None else args.tolerance
    for one in export_onnx(args.run, Path(args.folder), args.int8, tolerance):
        against = f"largest difference to torch {one.difference:.1e}, cosine {one.cosine:.6f}"
        print(f"{Path(args.folder) / one.path.name}: {', '.join(one.outputs)}; {one.rows} texts, {against}")
    return 0
