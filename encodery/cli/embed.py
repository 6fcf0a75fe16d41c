"""Embed: one vector for each example of a split, as a memory-mapped matrix with the examples' ids.

A folder comes out: vectors.npy (float32), ids.json, meta.json. A killed command goes on at the first missing piece.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.cli.parsing import Parser

if TYPE_CHECKING:
    from encodery.embed import Elsewhere


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
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="sequences at once; default: 64")
    parser.add_argument("--int8", action="store_true", help="quantised, through ONNX Runtime (extra `onnx`)")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    parser.add_argument(
        "--executor", choices=["local", "ray", "slurm"], default="local", help="where pieces are made; default: here"
    )
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.no_verify()
    parser.examples(
        "encodery embed runs/mnli --on glue/mnli:train -o mnli-cls",
        "encodery embed sentence-transformers/all-MiniLM-L6-v2 --on glue/mnli:train --site mean",
    )


def elsewhere(executor: str, job: dict[str, Any]) -> "Elsewhere | None":
    """Who makes the pieces, if not this process."""
    if executor == "local":
        return None
    from encodery.elsewhere import engine_of, pieces_elsewhere

    return pieces_elsewhere(lambda folder: engine_of(executor, folder), job)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Embed, and say where it lies."""
    from encodery.embed import embed, open_all, remote_job
    from encodery.embeddings import EmbedOptions
    from encodery.progress import Counting

    options = EmbedOptions(
        site=args.site, layer=args.layer, max_length=args.max_length, batch_size=args.batch_size, int8=args.int8
    )
    source, meant = open_all(args.model, args.on, args.data, args.device, args.int8, allow_code=args.allow_code)
    rows = len(meant.task.examples(meant.split))
    job = remote_job(args.model, args.on, args.data, options, args.device, args.allow_code)
    with Counting(f"embed {meant.key}", rows, args.quiet) as tick:
        found = embed(source, meant, options, Path(args.out) if args.out else None, tick, elsewhere(args.executor, job))
    size = f"{found.meta['count']:,} × {found.meta['width']}"
    print(f"{found.folder}: {meant.key}, {size}, {args.site} of layer {found.meta['layer']}")
    return 0
