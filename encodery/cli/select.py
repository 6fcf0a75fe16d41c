"""Choose training data: order the examples of a split by a selector, and write selection.jsonl with its metadata.

A selection is used as `tasks: {name: glue/mnli, subset: DIR, fraction: 0.1}`, or as a file of its own (--export).

--analyse describes the clusters: sizes, labels against chance, typical words, examples, how stable other
numbers of clusters are, and a map (clusters.json, map.json, pictures). Runs in `runs` show how hard each cluster is.

--overlap selects nothing: it prints how many rows the selections share.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.cli.parsing import Parser, without_bad_rows
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.selection.select import Asking, Say
    from encodery.selectors.base import Pool


def arguments(parser: Parser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, or nothing (settings only)")
    parser.add_argument("-o", "--out", metavar="DIR", help="output; default: selections/<task>-<selector>-<seed>")
    parser.add_argument("--export", metavar="FILE", help="also write the selected rows, as csv, tsv, jsonl or Parquet")
    parser.add_argument("--analyse", action="store_true", help="clusters: also write sizes, labels, examples and a map")
    parser.add_argument(
        "--map", choices=["pca", "tsne", "umap"], default="pca", help="--analyse: projection of the map; default: pca"
    )
    parser.add_argument("--map-rows", type=int, metavar="N", help="rows of the map; default: 20,000 (tsne: 5,000)")
    parser.add_argument("--try-k", metavar="K,…", help="--analyse: numbers of clusters to compare; default: around k")
    parser.add_argument("--by", metavar="COLUMN,…", help="columns of the data that summaries and maps break down by")
    parser.add_argument("--overlap", nargs="+", metavar="DIR", help="print how many rows these selections share")
    parser.shared("--skip-bad-rows", "--allow-code", "--quiet")
    parser.shared("--format", help="format of the table of --overlap: rich (default at a terminal), md, csv, json")
    parser.examples(
        "encodery select --pool glue/mnli --selector random -o selections/random",
        "encodery select --pool glue/mnli --selector.kind clusters --embed.model runs/mnli -o selections/stream",
        "encodery select --pool glue/mnli --selector.kind el2n --runs runs/mnli-1,runs/mnli-2 -o selections/el2n",
        "encodery select --pool reviews.csv --selector.kind dedup --export unique.csv",
        "encodery select --pool reviews.csv --selector.kind confident --runs runs/folds --export clean.csv",
        "encodery select stream.yaml --analyse --map tsne --by genre",
        "encodery select --overlap selections/stream selections/el2n",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.core.files import as_name
    from encodery.selection.export_rows import export, require_ending
    from encodery.selection.overview import require_map
    from encodery.selection.select import choose, load, pool_of
    from encodery.selection.summary import write_summary

    def say(line: str) -> None:
        if not args.quiet:
            print(line, file=sys.stderr)

    if args.overlap:
        return _overlap(args, rest)
    rest = without_bad_rows(args, rest, "pool")
    asking = load(args.config, rest, args.allow_code)
    kind = asking.options.selector["kind"]
    stem = Path(args.config).stem if args.config else f"{asking.task.name}-{kind}-{asking.options.seed}"
    folder = Path(args.out) if args.out else Path("selections") / as_name(stem)
    if args.analyse and kind != "clusters":
        raise UserError(f"--analyse: needs clusters, and {kind} has none")
    if args.analyse:
        require_map(args.map)
    if args.export:
        require_ending(Path(args.export))
    columns = _columns(args.by, asking)
    pool = pool_of(asking, say)
    chosen = choose(asking, say, pool)
    chosen.require_own(folder)
    path = chosen.write(folder)
    write_summary(chosen, pool, folder, columns)
    print(f"{path}: {len(chosen.ids):,} of {chosen.meta['pool']:,} rows by {kind}")
    if args.export:
        print(f"{export(chosen, asking.task, asking.options.split, Path(args.export))}: these rows")
    file = getattr(asking.task, "train", None)  # of people's own files
    named = os.path.relpath(file) if file and Path(file).is_file() else f"--model NAME --tasks.name {asking.task.name}"
    args.next = f"encodery train {named} --tasks.subset {folder} --tasks.fraction 10%"
    if args.analyse:
        _analyse(args, asking, pool, folder, columns, say)
    return 0


def _columns(names: str | None, asking: "Asking") -> dict[str, dict[str, str]]:
    """Column → id → value; one that is not there is refused before the work."""
    from encodery.tasks.sources.columns import column

    return {name: column(asking.task, asking.options.split, name) for name in (names or "").split(",") if name}


def _overlap(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.cli.print_table import show
    from encodery.core import files
    from encodery.selection.summary import overlap, overlap_table

    if args.config or rest:
        raise UserError("--overlap: compares existing selections; give no config and no settings")
    shared = overlap(args.overlap)
    show(overlap_table(shared), args.format)
    if args.out:
        Path(args.out).mkdir(parents=True, exist_ok=True)
        files.write_json(Path(args.out) / "overlap.json", shared)
    return 0


def _analyse(
    args: argparse.Namespace,
    asking: "Asking",
    pool: "Pool",
    folder: Path,
    columns: dict[str, dict[str, str]],
    say: "Say",
) -> None:
    from encodery.selection.cluster_count import count_lines, parse_counts, usual_counts
    from encodery.selection.difficulty import difficulty
    from encodery.selection.overview import Options, analyse
    from encodery.selection.select import runs_of

    selector: Any = asking.selector
    counts = parse_counts(args.try_k) if args.try_k else usual_counts(selector.number(pool), min(len(pool), 5000))
    options = Options(args.map, columns, difficulty(pool, runs_of(asking)), counts, selector.algorithm, args.map_rows)
    overview = analyse(selector.clusters(pool), selector.points(pool), pool, folder, options)
    for line in count_lines(overview["k_choice"], len(pool)):
        say(line)
    purity, chance = overview["purity"], overview["purity_by_chance"]
    shape = "" if overview["silhouette"] is None else f", silhouette of these clusters {overview['silhouette']:.3f}"
    sizes = f"{overview['clusters_found']} clusters, median {overview['size']['median']:g} rows"
    print(f"{sizes}, label purity {purity:.3f} (by chance {chance:.3f}){shape} ({folder / 'clusters.json'})")
