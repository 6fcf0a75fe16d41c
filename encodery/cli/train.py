"""Train: pretrain or fine-tune an encoder as a config, a recipe, or flags alone say. Run again = go on.

Any setting can be given as --a.b VALUE, --a.b=VALUE or a.b=VALUE; `encodery config` prints what it comes to, and
`encodery config --reference` all there are. A task that is a corpus means pretraining; --tasks.subset and
--tasks.fraction train on a part of the rows; --train.dynamics records what `encodery select` needs for el2n and kin.
"""

import argparse
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.rundir import RunDir


def arguments(parser: Parser) -> None:
    """What to train and where."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, recipe:NAME, or nothing (settings only)")
    parser.add_argument("-o", "--out", metavar="DIR", help="run directory; default: runs/<name>-<hash>")
    parser.add_argument("--seeds", type=int, metavar="N", help="train N times, with this seed and the next ones")
    parser.add_argument("--restart", action="store_true", help="begin anew; the old run is moved aside, not deleted")
    parser.add_argument("--allow-change", action="store_true", help="go on although settings or data have changed")
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.add_argument(
        "--skip-bad-rows", action="store_true", help="leave bad rows out; they go to bad_rows.jsonl in the run"
    )
    parser.add_argument("--quiet", action="store_true", help="print only the result")
    parser.examples(
        "encodery train --model roberta-base --tasks glue/rte",
        "encodery train recipe:glue/rte/electra-small --seeds 5",
        "encodery train rte.yaml optim.lr=3e-5 -o runs/rte-3e-5",
        "encodery train recipe:toy/nli                      # no download, half a minute",
        "encodery train recipe:pretrain/electra-tiny -o runs/tiny",
        "encodery train --model runs/tiny --tasks.name glue/mnli --tasks.subset selections/stream --tasks.fraction 10%",
        "encodery train mnli.yaml --train.dynamics eval -o runs/mnli-dynamics",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Train once or for several seeds."""
    from encodery.many import train_seeds
    from encodery.report import tables

    if args.skip_bad_rows:
        rest = [*rest, "tasks.skip_bad_rows=true"]
    try:
        runs, failures = train_seeds(args, rest)
    except UserError as error:
        raise UserError(f"{error}{_hint(rest)}") from None
    for path, sentence in failures.items():
        print(f"failed: {path}: {sentence}")
    if len(runs) > 1:
        print(tables.markdown(tables.table([r.path for r in runs])))
    elif runs:
        print(last_line(runs[0]))
    return 1 if failures else 0


def _hint(rest: list[str]) -> str:
    """People write a grid as in a sweep; one run takes one value."""
    values = [word.partition("=")[2] if "=" in word else word for word in rest]
    lists = [value for value in values if "," in value and value[:1] not in "[{\"'"]
    return f"\n{lists[0]}: a list of values is a grid: `encodery sweep run` trains them all." if lists else ""


def last_line(run: "RunDir") -> str:
    """The scores and where the run is."""
    result = run.read_scores()
    shown = [
        f"{key} {result['main'][key]} {values[result['main'][key]]:.4f}" for key, values in result["scores"].items()
    ]
    return "  ".join([*shown, f"({run.path})"])
