"""Choose training data: orders the examples of a split by a selector, and writes selection.jsonl with its meta file.

The config has the keys pool (a task), selector ({kind: …} or its name), split, embed or embeddings, runs, fraction or
count, seed. A training config then says `tasks: {name: glue/mnli, subset: DIR, fraction: 0.1}`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from encodery.cli.parsing import Parser
from encodery.errors import UserError


def arguments(parser: Parser) -> None:
    """From what, to where."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, or nothing (settings only)")
    parser.add_argument("-o", "--out", metavar="DIR", help="where to; default: selections/<task>-<selector>-<seed>")
    parser.add_argument("--analyse", action="store_true", help="clusters: sizes, labels, examples and a map as well")
    parser.add_argument("--map", choices=["pca", "tsne", "umap"], default="pca", help="of --analyse; default: pca")
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.add_argument("--quiet", action="store_true", help="print only the result")
    parser.examples(
        "encodery select --pool glue/mnli --selector random -o selections/random",
        "encodery select --pool glue/mnli --selector.kind clusters --embed.model runs/mnli -o selections/stream",
        "encodery select --pool glue/mnli --selector.kind el2n --runs runs/mnli-1,runs/mnli-2 -o selections/el2n",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Choose, write, say where it lies."""
    from encodery.paths import as_name
    from encodery.selection import choose, load, pool_of

    def say(line: str) -> None:
        if not args.quiet:
            print(line, file=sys.stderr)

    asking = load(args.config, rest, args.allow_code)
    kind = asking.options.selector["kind"]
    stem = Path(args.config).stem if args.config else f"{asking.task.name}-{kind}-{asking.options.seed}"
    folder = Path(args.out) if args.out else Path("selections") / as_name(stem)
    if args.analyse and kind != "clusters":
        raise UserError(f"--analyse: looks at clusters; {kind} makes none")
    pool = pool_of(asking, say)
    chosen = choose(asking, say, pool)
    chosen.require_own(folder)
    path = chosen.write(folder)
    print(f"{path}: {len(chosen.ids):,} of {chosen.meta['pool']:,} rows by {kind}")
    if args.analyse:
        _analyse(asking.selector, pool, folder, args.map)
    return 0


def _analyse(selector: Any, pool: Any, folder: Path, how: Any) -> None:
    from encodery.select._analysis import analyse

    found = analyse(selector.clusters(pool), selector.points(pool), pool, folder, how)
    purity, chance = found["purity"], found["purity_by_chance"]
    shape = "" if found["silhouette"] is None else f", silhouette {found['silhouette']:.3f}"
    sizes = f"{found['clusters_found']} clusters, median {found['size']['median']:g} rows"
    print(f"{sizes}, label purity {purity:.3f} (by chance {chance:.3f}){shape} ({folder / 'clusters.json'})")
