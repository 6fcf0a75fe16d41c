"""Tokenise the corpus (or tasks) of a config ahead of training. Run again to resume where it stopped.

Without -o the tokens go into the cache, where `encodery train` with the same config finds them. With -o it
writes a folder that can be copied to other machines: tasks: {name: corpus, prepared: DIR}. The bytes do not depend on
--workers or --executor; with ray or slurm the folder (or the cache) must be visible to all machines.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser, without_bad_rows
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.data.corpus.workers import Workers


def arguments(parser: Parser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, recipe:NAME, or nothing (settings only)")
    parser.add_argument("-o", "--out", metavar="DIR", help="folder for the blocks of a corpus; default: the cache")
    parser.add_argument("--workers", type=int, metavar="N", help="processes; default: one per core")
    parser.shared("--executor", help="where shards are processed; default: this machine")
    parser.shared("--skip-bad-rows", "--allow-code", "--quiet")
    parser.examples(
        "encodery prepare pretrain.yaml -o prepared",
        "encodery prepare pretrain.yaml -o /shared/prepared --executor slurm",
        "encodery prepare --model.tokenizer vocab.txt --tasks.name corpus \\\n"
        "      --tasks.files 'text/*.txt' --train.max_length 128 -o prepared",
    )


def workers(args: argparse.Namespace) -> "Workers":
    """Processes of this machine, or a cluster's."""
    if args.executor == "local":
        return args.workers  # type: ignore[no-any-return]
    from encodery.sweep.shard_jobs import engine_of, shards_elsewhere

    return shards_elsewhere(lambda folder: engine_of(args.executor, folder))


def run(args: argparse.Namespace, rest: list[str]) -> int:
    if args.workers is not None and (args.workers < 1 or args.executor != "local"):
        raise UserError(f"--workers {args.workers}: must be at least 1, and is for --executor local only")
    from encodery.config.load import load
    from encodery.core.progress import Portion
    from encodery.training.prepare import prepare_run, report_lines

    resolved = load(args.config, without_bad_rows(args, rest), allow_code=args.allow_code, weights=False)
    with Portion(resolved.tasks[0][0].name, args.quiet) as on_progress:
        done = list(prepare_run(resolved, Path(args.out) if args.out else None, workers(args), on_progress))
    if args.out and done:
        args.next = f"encodery train {args.config or '…'} --tasks.name corpus --tasks.prepared {args.out}"
    for one in done:
        print(one.folder)
        for line in report_lines(one.report) if one.report else ():
            print(f"  {line}")
    return 0
