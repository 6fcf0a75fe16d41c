"""Export a run's model as a clean folder for transformers, and verify that its outputs are the same there.

With --onnx: as model.onnx with tokenizer and config, compared with torch on a few texts; --int8 adds model_int8.onnx.
An address such as s3://bucket/name gets a copy of the verified folder, through fsspec.
"""

import argparse
from pathlib import Path

from encodery.cli.parsing import Parser
from encodery.core.text import counted


def arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="run directory or model folder")
    parser.add_argument("folder", metavar="DIR", help="a folder that does not exist yet, or an address (s3://…)")
    parser.add_argument("--head", metavar="TASK", help="the task whose head is exported, if the run has several")
    parser.renamed("--on", "--head")
    parser.add_argument("--onnx", action="store_true", help="for ONNX Runtime instead (extra `onnx`)")
    parser.add_argument("--int8", action="store_true", help="with --onnx: also write an int8 model, for CPUs")
    parser.add_argument(
        "--tolerance", type=float, metavar="X", help="with --onnx: largest difference to torch; default 1e-4"
    )
    parser.no_verify()
    parser.examples(
        "encodery export runs/rte rte-model",
        "encodery export runs/all rte-model --head glue/rte",
        "encodery export runs/rte s3://bucket/rte-model",
        "encodery export runs/rte rte-onnx --onnx --int8",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.errors import UserError

    if args.onnx:
        return _onnx(args)
    if args.int8 or args.tolerance is not None:
        raise UserError("--int8 and --tolerance need --onnx")
    from encodery.core.remote_files import is_remote
    from encodery.exchange.export import export, export_away
    from encodery.report.public_card import heads_beside

    away = is_remote(args.folder)
    done = export_away(args.run, args.folder, args.head) if away else export(args.run, Path(args.folder), args.head)
    outputs = "logits" if done.what == "the model" else "hidden states"
    same = (
        f"{counted(done.rows, 'text')} give{'' if done.rows > 1 else 's'} the same {outputs} (to {done.difference:.0e})"
    )
    print(f"{done.folder}: {done.what}; opens with {done.opens_with}; {same}")
    if done.not_there:
        print(f"  {done.not_there}")
    if not done.opens_with.startswith("transformers"):
        print(f"  {heads_beside()}")
    if done.thresholds:
        limits = ", ".join(f"{label} above {limit:.4f}" for label, limit in done.thresholds.items())
        print(f"  thresholds in encodery.json ({limits}): encodery applies them, transformers alone does not")
    if done.scale_and_shift:
        scale, shift = done.scale_and_shift
        print(
            f"  an answer is {scale:.6g} · logit + {shift:.6g} (in encodery.json): encodery computes it, "
            "transformers alone gives the logit"
        )
    if not away:
        args.next = f"{done.opens_with} in your program; encodery serve {args.run}; encodery publish {args.run}"
    return 0


def _onnx(args: argparse.Namespace) -> int:
    import tempfile

    from encodery.exchange.export import export
    from encodery.exchange.export_onnx import TOLERANCE, export_onnx

    tolerance = TOLERANCE if args.tolerance is None else args.tolerance
    with tempfile.TemporaryDirectory() as nowhere:
        alone = Path(nowhere) / "model"  # one head of several, as if it had been trained alone
        source = export(args.run, alone, args.head).folder if args.head else args.run
        found = export_onnx(source, Path(args.folder), args.int8, tolerance)
    for one in found:
        against = f"largest difference to torch {one.difference:.1e}, cosine {one.cosine:.6f}"
        print(f"{Path(args.folder) / one.path.name}: {', '.join(one.outputs)}; {counted(one.rows, 'text')}, {against}")
    return 0
