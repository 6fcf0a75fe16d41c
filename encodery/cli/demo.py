"""From a CSV to a model and its page, without any download. Takes about a minute or two.

The tickets are made up, the toy task comes from a small grammar of our own; do not quote their scores.
"""

import argparse
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser

if TYPE_CHECKING:
    from encodery.runs.directory import RunDir

TICKETS = "tickets.csv"
TOY = "toy/sentiment"
# A quarter of 432 rows is little to score on, a tenth would be less.
SETTINGS = ["tasks.dev_fraction=0.25", "train.epochs=5", "train.evaluate=end"]
NEW = ["You took the monthly fee from my card twice", "The screen stays black when I start the program"]


def arguments(parser: Parser) -> None:
    parser.add_argument("-o", "--out", metavar="DIR", default="runs/demo", help="default: runs/demo")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="seeds per task; default: 2")
    parser.shared("--fresh")
    parser.shared("--quiet", help="print only the results")
    parser.renamed("--restart", "--fresh")
    parser.examples("encodery demo", "encodery demo -o /tmp/demo --seeds 3")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Train on a CSV and on a toy task, show the table, ask the model something, write the page."""
    from encodery.cli import report
    from encodery.cli.print_table import show
    from encodery.core import files
    from encodery.report import table

    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    text = resources.files("encodery.cli").joinpath("assets", TICKETS).read_text(encoding="utf-8")
    files.write_atomic(out / TICKETS, text)
    runs = _train(args, str(out / TICKETS), "tickets", SETTINGS)
    _train(args, f"recipe:{TOY}", "toy", [])
    print(f"\n# encodery table {out}\n")
    made = table.table([out])
    show(table.markdown(made), settings=made.settings)
    print(f"\n# encodery predict {runs[0].path} --text …\n")
    _ask(runs[0].path)
    page = out / "report.html"
    print(f"\n# encodery report {out} -o {page}\n")
    report.write(report.options([str(out)]), page)
    print(f"\nThe runs are in {out}. Open {page} in a browser. Next: encodery train YOUR.csv")
    return 0


def _train(args: argparse.Namespace, config: str, name: str, settings: list[str]) -> "list[RunDir]":
    """Train for all seeds, with the command that does the same."""
    from encodery.training.run import train_seeds

    words = " ".join(f"--{setting.replace('=', ' ')}" for setting in settings)
    print(f"\n# encodery train {config} --seeds {args.seeds} -o {args.out}/{name} {words}".rstrip(), flush=True)
    options = argparse.Namespace(
        config=config, out=f"{args.out}/{name}", seeds=args.seeds, restart=args.restart,
        allow_change=False, allow_code=False, quiet=args.quiet,
    )  # fmt: skip
    return train_seeds(options, settings)[0]


def _ask(run: Path) -> None:
    """Two new tickets, answered by the trained model."""
    from encodery import api

    model = api.load(run)
    for text in NEW:
        answer = model(text)
        print(f"  {text!r}\n    -> {answer.label} ({answer.probabilities[answer.label]:.2f})")
