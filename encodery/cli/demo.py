"""The whole story on toy tasks, without any download: train, score, compare, look. Takes about a minute or two.

The toy tasks come from a small grammar of our own; nobody should quote their scores.
"""

import argparse
from pathlib import Path

from encodery.cli.parsing import Parser

STORY = ("toy/sentiment", "toy/nli")


def arguments(parser: Parser) -> None:
    """Where to put it."""
    parser.add_argument("-o", "--out", metavar="DIR", default="runs/demo", help="default: runs/demo")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="seeds per task; default: 2")
    parser.add_argument("--restart", action="store_true", help="begin anew; old runs are moved aside")
    parser.add_argument("--quiet", action="store_true", help="print only the results")
    parser.examples("encodery demo", "encodery demo -o /tmp/demo --seeds 3")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Train on two toy tasks, show the table, ask the model something, write the page."""
    from encodery.cli import report
    from encodery.many import train_seeds
    from encodery.report import tables

    runs = []
    for task in STORY:
        name = task.partition("/")[2]
        print(f"\n# encodery train recipe:{task} --seeds {args.seeds} -o {args.out}/{name}", flush=True)
        options = argparse.Namespace(
            config=f"recipe:{task}", out=f"{args.out}/{name}", seeds=args.seeds, restart=args.restart,
            allow_change=False, allow_code=False, quiet=args.quiet,
        )  # fmt: skip
        runs += train_seeds(options, [])[0]
    print(f"\n# encodery table {args.out}\n")
    print(tables.markdown(tables.table([args.out])))
    print(f"\n# encodery predict {runs[0].path} --text …\n")
    _ask(runs[0].path)
    page = Path(args.out) / "report.html"
    print(f"\n# encodery report {args.out} -o {page}\n")
    report.write(report.options([args.out]), page)
    print(f"\nThe runs are in {args.out}. Open {page} in a browser. Next: encodery train --help")
    return 0


def _ask(run: Path) -> None:
    """Two sentences of the dev set, answered by the trained model."""
    import encodery as en
    from encodery.tasks.toy import Toy

    model = en.load(run)
    for example in Toy(part=STORY[0].partition("/")[2]).examples("dev")[:2]:
        answer = model(example.texts[0])
        sure = answer.probabilities[answer.label]
        print(f"  {example.texts[0]!r}\n    -> {answer.label} ({sure:.2f}), truly {example.label}")
