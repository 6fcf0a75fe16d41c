"""Score a prediction file of anybody: jsonl, tsv or csv with a column for the ids and one for the predictions.

For SQuAD also the official {id: text} in JSON.
"""

import argparse
import json

from encodery.cli.parsing import Parser
from encodery.errors import UserError


def arguments(parser: Parser) -> None:
    """Which file, on what."""
    parser.add_argument("file", metavar="FILE", help="columns id (or index, idx) and prediction (or label)")
    parser.add_argument(
        "--on", required=True, metavar="TASK[:SPLIT]", help="such as glue/rte:dev, or a config or run and its split"
    )
    parser.add_argument("--null-odds", metavar="FILE", help="SQuAD: {id: odds of no answer}, for the best threshold")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets")
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.examples(
        "encodery score predictions.jsonl --on glue/rte:dev",
        "encodery score RTE.tsv --on glue/rte:dev --json",
        "encodery score answers.csv --on runs/reviews:dev",
        "encodery score predictions.json --on squad/v2:dev --null-odds null_odds.json",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Print the scores."""
    from encodery.on import asked
    from encodery.score import score_file

    meant = asked(args.on, args.data, allow_code=args.allow_code)
    if len(meant) > 1:
        raise UserError(f"--on {args.on}: which split? " + ", ".join(one.key for one in meant))
    task, split = meant[0]
    scores = score_file(args.file, task, split, args.null_odds)
    if args.json:
        print(json.dumps({meant[0].key: scores}, indent=1))
        return 0
    order = [task.main_metric, *(name for name in scores if name != task.main_metric)]
    print("  ".join([meant[0].key, *(f"{name} {scores[name]:.4f}" for name in order)]))
    return 0
