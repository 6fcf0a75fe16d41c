"""Score prediction files of any program: jsonl, tsv or csv with a column of ids and one of predictions.

For SQuAD also the official {id: text} in JSON, for HANS McCoy's .txt (a header, then `exN,label`), for tags CoNLL
columns (a word and its tag a line, the sentences in the order of the labelled file). Several files are
seeds of one model: mean, standard deviation and range. --against compares two files example by example.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from encodery.cli.parsing import Parser, columns_of
from encodery.errors import UserError


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="files with the columns id (or index, idx) and prediction (or label)"
    )
    parser.add_argument(
        "--on",
        required=True,
        metavar="TASK[:SPLIT]|FILE",
        help="such as glue/rte:dev, a file with labels such as gold.csv, or a config or run and its split",
    )
    parser.add_argument("--head", metavar="TASK", help="the task that is meant, of a config or run with several")
    parser.add_argument(
        "--null-odds", metavar="FILE", help="SQuAD: JSON with the odds of no answer by id, for the best threshold"
    )
    parser.add_argument(
        "--against", metavar="FILE", help="another prediction file to compare with: which is right where they differ"
    )
    parser.shared("--data", "--allow-code")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.shared("--format", help="rich, md or csv prints a table, json is the same as --json; default: a line")
    parser.columns()
    parser.examples(
        "encodery score answers.csv --on gold.csv",
        "encodery score answers.conll --on gold.conll",
        "encodery score predictions.jsonl --on glue/rte:dev",
        "encodery score RTE.tsv --on glue/rte:dev --json",
        "encodery score answers.csv --on runs/reviews:dev",
        "encodery score answers.csv --on runs/all:dev --head table/topic",
        "encodery score predictions.json --on squad/v2:dev --null-odds null_odds.json",
        "encodery score bert_preds.txt --on hans",
        "encodery score seed-1.jsonl seed-2.jsonl seed-3.jsonl --on hans",
        "encodery score mine.jsonl --against theirs.jsonl --on hans",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.inference.task_argument import resolve_split
    from encodery.scoring.prediction_files import answers_of, with_predicted_labels
    from encodery.tasks.forms.hans_figures import caution
    from encodery.tasks.table import Table

    args.json = args.json or args.format == "json"
    meant = resolve_split(args.on, args.data, allow_code=args.allow_code, columns=columns_of(args), head=args.head)
    if len(meant) > 1:
        raise UserError(f"--on {args.on}: which split? " + ", ".join(one.key for one in meant))
    task, split = meant[0]
    if args.head not in (None, task.name):
        raise UserError(f"--head {args.head}: {args.on} is {task.name}; --head is for a config or run of several tasks")
    if isinstance(task, Table) and Path(args.on).is_file():
        task = with_predicted_labels(task, args.files)
    if args.against and len(args.files) > 1:
        raise UserError("--against: compares two files, so give exactly one before it")
    said = [answers_of(file, task, split, args.null_odds)[0] for file in args.files]
    examples = task.examples(split)
    scores = [task.score(one, examples) for one in said]
    alarms = [f"{f}: {a}" for f, one in zip(args.files, said, strict=True) for a in task.alarms(one, examples)]
    more: dict[str, Any] = {"alarms": alarms} if alarms else {}
    if args.against:
        from encodery.report.examples import paired

        other, _ = answers_of(args.against, task, split)
        more["against"] = paired(examples, said[0], other)
    note = task.origin(split).note
    if args.json:
        more |= {"note": note} if note else {}
        print(json.dumps({meant[0].key: _plain(scores) | more}, indent=1))
        return 0
    if note:
        print(f"WARNING {meant[0].key} {note}", file=sys.stderr)
    if args.format:
        _show_table(meant[0].key + caution(note), scores, args.format)
    args.next = f"encodery score {args.files[0]} --against OTHER --on {args.on}  # which of two files is right where"
    _print(meant[0].key + caution(note), task, [] if args.format else scores, said, examples, more)
    return 0


def _plain(scores: list[dict[str, float]]) -> dict[str, Any]:
    from encodery.tasks.forms.hans_figures import together

    if len(scores) == 1:
        return dict(scores[0])
    from encodery.report.stats import t_interval

    intervals = {name: t_interval([one[name] for one in scores]) for name in scores[0]}
    return {name: {**cell, "interval": intervals[name]} for name, cell in together(scores).items()}


def _show_table(key: str, scores: list[dict[str, float]], form: str) -> None:
    """A row for each metric: its value, or over several files the mean and what belongs to it."""
    from encodery.cli import print_table

    names = ("mean", "sd", "low", "high") if len(scores) > 1 else ("score",)
    found = {name: cell if isinstance(cell, dict) else {"score": cell} for name, cell in _plain(scores).items()}
    rows = [(key, name, *(f"{cell[one]:.4f}" for one in names)) for name, cell in found.items()]
    print_table.show(print_table.of_rows(("data", "metric", *names), rows), form)


def _over_seeds(cell: dict[str, Any]) -> str:
    """Mean ± sd, the range, and the interval of the mean where there are enough files."""
    interval = cell["interval"]
    sure = "; 95 % interval of the mean {:.4f} to {:.4f}".format(*interval) if interval else ""
    return f"{cell['mean']:.4f} ± {cell['sd']:.4f} (from {cell['low']:.4f} to {cell['high']:.4f}{sure})"


def _print(key: str, task: Any, scores: list[dict[str, float]], said: Any, examples: Any, more: dict[str, Any]) -> None:
    order = [task.main_metric, *(name for name in scores[0] if name != task.main_metric)] if scores else []
    if not scores:
        pass  # they are in a table already
    elif len(scores) > 1:
        for name, cell in ((name, _plain(scores)[name]) for name in order):
            print(f"{key}  {name} {_over_seeds(cell)}")
    elif page := task.pages(said[0], examples).get("report.txt"):
        print(page, end="")
        print("\n" + "  ".join([key, *(f"{name} {scores[0][name]:.4f}" for name in order[:2])]))
    else:
        print("  ".join([key, *(f"{name} {scores[0][name]:.4f}" for name in order)]))
    pairs = more.get("against", [])
    for row in pairs:
        adjusted = f", after Holm {row['p_holm']:.4g}" if len(pairs) > 1 else ""
        print("{what}: only this one right {won}, only the other {lost}, McNemar p {p:.4g}".format(**row) + adjusted)
    for sentence in more.get("alarms", []):
        print(f"ALARM {sentence}", file=sys.stderr)
