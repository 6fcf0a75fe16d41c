"""Head importance: how much the loss of a task depends on each attention head, for the task and for each example.

Writes a folder: instances.npy [examples, layers, heads], task.npy, ids.json, meta.json. `heads compare` gives the
correlations of such folders. Run it again to resume at the first missing part. See docs/task-selection.md.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from encodery.cli.parsing import Parser, columns_of
from encodery.errors import UserError

COMPARE = "compare"
SHOWN = 8  # heads that are named


def arguments(parser: Parser) -> None:
    parser.add_argument("what", nargs="+", metavar="RUN | compare DIR DIR…", help="a model; or folders to compare")
    parser.add_argument(
        "--on", nargs="+", action="extend", metavar="TASK[:SPLIT]", help="such as glue/rte; default split: train"
    )
    parser.add_argument(
        "-o", "--out", metavar="DIR", help="output folder, one per task if there are several; default: the cache"
    )
    parser.add_argument(
        "--estimator", choices=["mask", "kv_weight", "kv_weight_released"], default="mask",
        help="mask: gradient of a gate on each head (default); kv_weight: of the key and value matrices; "
        "kv_weight_released: of their columns, as in the released GradTS code",
    )  # fmt: skip
    parser.add_argument("--dropout", action="store_true", help="keep dropout on, as the released code does")
    parser.add_argument(
        "--max-rows", type=int, metavar="N", help="maximum number of examples, a random sample; default: all"
    )
    parser.add_argument(
        "--all-rows", action="store_true",
        help="use the full train split; default for the run's own tasks: the rows it was trained on",
    )  # fmt: skip
    parser.add_argument("--head", metavar="NAME", help="the task whose head is used, if the names are ambiguous")
    parser.add_argument("--by", choices=["kendall", "pearson", "spearman"], help="compare: default all three")
    parser.add_argument(
        "--norm", choices=["l1", "l2", "none"], default="l1", help="normalisation of each layer; default: l1"
    )
    parser.shared("--data", "--device", "--allow-code")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.shared("--format", help="format of compare's tables: rich (default at a terminal), md, csv, json")
    parser.shared("--quiet", help="print no progress")
    parser.no_verify()
    parser.columns()
    parser.examples(
        "encodery heads runs/rte --on glue/rte -o heads/rte",
        "encodery heads runs/reviews --on gold.csv -o heads/reviews",
        "encodery heads runs/rte --on glue/rte --max-rows 500 --estimator kv_weight",
        "encodery heads compare heads/rte heads/mrpc heads/cola --by kendall --json",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    if args.what[0] == COMPARE:
        return _compare(args)
    if len(args.what) != 1 or not args.on:
        raise UserError("heads: give one run and --on TASK, or: heads compare DIR DIR…")
    from encodery.analysis.head_importance import HeadOptions, chosen, measure, request, rows_of_run
    from encodery.core import files
    from encodery.core.progress import Counting
    from encodery.inference.classifier import open_classifier
    from encodery.inference.task_argument import resolve_split
    from encodery.models.locate import kept_on_the_way
    from encodery.runs.directory import RunDir
    from encodery.tasks import split_name

    options = HeadOptions(estimator=args.estimator, dropout=args.dropout, max_rows=args.max_rows)
    runs = [RunDir.open(args.what[0])] if files.is_run(args.what[0]) else kept_on_the_way(args.what)
    words = [text if split_name(text)[1] or Path(text).is_file() else f"{text}:train" for text in args.on]
    reading: dict[str, Any] = {"allow_code": args.allow_code, "columns": columns_of(args), "head": args.head}
    splits = [one for text in words for one in resolve_split(text, args.data, runs, models=args.what, **reading)]
    model = open_classifier(args.what[0], args.device, allow_code=args.allow_code, undecided=True)
    printed = []
    for asked in splits:
        rows = rows_of_run(runs[0], asked, args.allow_code) if runs and not args.all_rows else None
        given = request(model, asked, options, args.head, rows)
        folder = Path(args.out) / (files.as_name(asked.key) if len(splits) > 1 else "") if args.out else None
        with Counting(f"heads {asked.key}", len(chosen(given)), args.quiet) as on_progress:
            importance = measure(given, folder, on_progress)
        printed.append(_about(importance, args.norm))
        if not args.json:
            _print(importance, printed[-1])
    if args.json:
        print(json.dumps(printed, indent=1))
    args.next = f"encodery heads compare {printed[0]['folder']} OTHER  # tasks by the heads that they depend on"
    return 0


def _about(importance: Any, norm: Any) -> dict[str, Any]:
    """What is worth knowing at once."""
    heads = [f"{layer}.{head}" for layer, head in importance.order(norm)]
    halves = importance.halves(norm)
    matrix = importance.matrix(norm).tolist()
    return {"folder": str(importance.folder), **importance.meta, "halves": halves, "matrix": matrix, "norm": norm,
            "order": heads}  # fmt: skip


def _print(found: Any, about: dict[str, Any]) -> None:
    shape = " × ".join(map(str, found.instances.shape))
    print(f"{found.folder}: {shape} (examples × layers × heads), {about['estimator']}")
    by = "" if about["norm"] == "none" else f" ({about['norm']}-normalised layers)"
    first, last = about["order"][:SHOWN], about["order"][: -SHOWN - 1 : -1]
    print(f"  most important{by}, as layer.head: {', '.join(first)}; least: {', '.join(last)}")
    print(f"  Kendall's tau between the matrices of two halves of the examples: {about['halves']:.3f}")


def _compare(args: argparse.Namespace) -> int:
    from encodery.core import files
    from encodery.runs.head_matrices import Importance, compare, table

    if len(args.what) < 3:
        raise UserError("heads compare: give two or more folders written by `encodery heads`")
    kinds: list[Any] = [args.by] if args.by else ["kendall", "pearson", "spearman"]
    given = [Importance.open(folder) for folder in args.what[1:]]
    comparisons = [compare(given, kind, args.norm) for kind in kinds]
    for note in comparisons[0].notes:
        print(f"WARNING {note}", file=sys.stderr)
    data = json.dumps([one.to_dict() for one in comparisons], indent=1)
    if args.out:
        files.write_atomic(Path(args.out), data + "\n")
    if args.json:
        print(data)
    else:
        from encodery.cli.print_table import show

        show("\n\n".join(map(table, comparisons)), args.format)
    return 0
