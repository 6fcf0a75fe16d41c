"""Embed: one vector for each example of a split, as a memory-mapped matrix with the examples' ids.

A folder comes out: vectors.npy (float32), ids.json, meta.json. A killed command goes on at the first missing piece.
"""

import argparse
from pathlib import Path

from encodery.cli.parsing import Parser
from encodery.errors import UserError


def arguments(parser: Parser) -> None:
    """Which model, on what, which vector."""
    parser.add_argument("model", metavar="RUN|MODEL", help="run directory, model folder or hub name")
    parser.add_argument(
        "--on", required=True, metavar="TASK:SPLIT", help="such as glue/mnli:train; default split: dev, else test"
    )
    parser.add_argument("-o", "--out", metavar="DIR", help="where to; default: the cache, named by content")
    parser.add_argument("--site", choices=["cls", "pooler", "mean"], default="cls", help="default: cls")
    parser.add_argument("--layer", type=int, default=-1, help="0: embeddings, -1: the last block (default)")
    parser.add_argument("--max-length", type=int, metavar="N", help="tokens; default: the run's, else 128")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="sequences at once")
    parser.add_argument("--int8", action="store_true", help="quantised, through ONNX Runtime (extra `onnx`)")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.examples(
        "encodery embed runs/mnli --on glue/mnli:train -o mnli-cls",
        "encodery embed sentence-transformers/all-MiniLM-L6-v2 --on glue/mnli:train --site mean",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Embed, and say where it lies."""
    from encodery.embed import EmbedOptions, embed, open_source
    from encodery.on import asked
    from encodery.progress import Counting
    from encodery.rundir import RunDir

    runs = [RunDir.open(args.model)] if Path(args.model, "run.json").is_file() else []
    meant = asked(args.on, args.data, runs)
    if len(meant) != 1:
        raise UserError(f"--on {args.on}: which split? " + ", ".join(one.key for one in meant))
    options = EmbedOptions(
        site=args.site, layer=args.layer, max_length=args.max_length, batch_size=args.batch_size, int8=args.int8
    )
    source = open_source(args.model, "cpu" if args.int8 else args.device, layout="rows" if args.int8 else "auto")
    rows = len(meant[0].task.examples(meant[0].split))
    with Counting(f"embed {meant[0].key}", rows, args.quiet) as tick:
        found = embed(source, meant[0], options, Path(args.out) if args.out else None, tick)
    size = f"{found.meta['count']:,} × {found.meta['width']}"
    print(f"{found.folder}: {meant[0].key}, {size}, {args.site} of layer {found.meta['layer']}")
    return 0
