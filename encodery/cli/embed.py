"""Compute one vector for each example of a split, as a memory-mapped matrix with the examples' ids.

Writes a folder: vectors.npy (float32), ids.json, meta.json. Run it again to resume at the first missing part.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.cli.parsing import Parser, columns_of

if TYPE_CHECKING:
    from encodery.analysis.embed import Elsewhere


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "model", nargs="?", default="petit", metavar="RUN|MODEL",
        help="run directory, model folder or hub name; default: petit, which comes with encodery",
    )  # fmt: skip
    parser.add_argument(
        "--on",
        required=True,
        metavar="TASK:SPLIT|FILE",
        help="such as glue/mnli:train (default split: dev, else test), or a file with texts such as new.csv",
    )
    parser.add_argument(
        "--head",
        metavar="NAME",
        help="of a run with several tasks: the task whose length, and way to read --on, counts; after train.select: "
        "each also whose best weights; default: the weights that all tasks share",
    )
    parser.add_argument("-o", "--out", metavar="DIR", help="output folder; default: the cache, named by content")
    parser.add_argument("--site", choices=["cls", "pooler", "mean"], default="cls", help="default: cls")
    parser.add_argument("--layer", type=int, default=-1, help="0: embeddings, -1: the last layer (default)")
    parser.add_argument(
        "--max-length", type=int, metavar="N", help="maximum sequence length in tokens; default: the run's, else 128"
    )
    parser.add_argument(
        "--batch-size", type=int, default=64, metavar="N", help="sequences per forward pass; default: 64"
    )
    parser.add_argument("--int8", action="store_true", help="use int8 weights through ONNX Runtime (extra `onnx`)")
    parser.shared("--data", "--device")
    parser.shared("--executor", help="where embeddings are computed; default: this machine")
    parser.shared("--allow-code")
    parser.shared("--quiet", help="print no progress")
    parser.no_verify()
    parser.columns()
    parser.examples(
        "encodery embed runs/mnli --on glue/mnli:train -o mnli-cls",
        "encodery embed runs/reviews --on new.csv -o new-vectors",
        "encodery embed sentence-transformers/all-MiniLM-L6-v2 --on glue/mnli:train --site mean",
    )


def elsewhere(executor: str, job: dict[str, Any]) -> "Elsewhere | None":
    """Who makes the pieces, if not this process."""
    if executor == "local":
        return None
    from encodery.sweep.shard_jobs import engine_of, pieces_elsewhere

    return pieces_elsewhere(lambda folder: engine_of(executor, folder), job)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.analysis.embed import embed, open_all, remote_job
    from encodery.core.progress import Counting
    from encodery.data.embeddings import EmbedOptions

    options = EmbedOptions(
        site=args.site, layer=args.layer, max_length=args.max_length, batch_size=args.batch_size, int8=args.int8
    )
    reading: dict[str, Any] = {"allow_code": args.allow_code, "columns": columns_of(args), "head": args.head}
    source, meant = open_all(args.model, args.on, args.data, args.device, args.int8, **reading)
    rows = len(meant.task.examples(meant.split))
    job = remote_job(args.model, args.on, args.data, options, args.device, **reading)
    with Counting(f"embed {meant.key}", rows, args.quiet) as on_progress:
        embedded = embed(
            source, meant, options, Path(args.out) if args.out else None, on_progress, elsewhere(args.executor, job)
        )
    size = f"{embedded.meta['count']:,} × {embedded.meta['width']}"
    print(f"{embedded.folder}: {meant.key}, {size}, {args.site} of layer {embedded.meta['layer']}")
    pool = args.on if Path(args.on).is_file() else meant.task.name
    args.next = f"encodery select --pool {pool} --selector.kind clusters --embeddings {embedded.folder}"
    return 0
