"""Train one model on all GLUE tasks, each with its recipe and several seeds, and print one table.

MODEL is a recipe family (electra-small, roberta-base, …; `encodery recipes` lists them), or a hub name or folder. A
model without a recipe is trained with the settings of bert-base (or of --like). Any setting can be given as
--a.b VALUE or a.b=VALUE. Common settings: --data DIR, --device cpu, --seed N, --optim.lr X, --train.epochs N.
"""

import argparse

from encodery.cli.parsing import Parser, without_bad_rows
from encodery.errors import UserError

TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")


def arguments(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", help="recipe family, hub name or folder")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds per task; default: 5")
    parser.add_argument("--only", metavar="TASK,TASK", help=f"some of {', '.join(TASKS)}, wnli")
    parser.add_argument(
        "--like",
        default="bert-base",
        metavar="FAMILY",
        help="recipe family for a model without recipes of its own; default: bert-base",
    )
    parser.add_argument("--submit", metavar="ZIP", help="also write the test files of the median run of each task")
    parser.add_argument("--fill", choices=["majority"], help="what to submit for tasks that were not trained (wnli)")
    parser.add_argument("-o", "--out", metavar="DIR", help="default: runs/glue-<model>")
    parser.shared("--fresh", "--format", "--skip-bad-rows")
    parser.add_argument("--allow-change", action="store_true", help="continue even if settings or data have changed")
    parser.shared("--quiet", help="print only the table")
    parser.renamed("--restart", "--fresh")
    parser.examples(
        "encodery glue electra-small",
        "encodery glue roberta-base --only rte,mrpc --seeds 3 --data GLUE",
        "encodery glue ./my-encoder --like bert-base train.epochs=2",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Train what is not trained yet, then print the table."""
    from encodery.cli.print_table import show
    from encodery.core.files import as_name
    from encodery.report import table

    family, extra = family_of(args.model, args.like)
    out = args.out or f"runs/glue-{as_name(args.model.rstrip('/').rpartition('/')[2])}"
    wanted = args.only.split(",") if args.only else list(TASKS)
    bad = sorted(set(wanted) - {*TASKS, "wnli"})
    if bad:
        raise UserError(f"--only: there is no GLUE task {', '.join(bad)}; choose from {', '.join(TASKS)}, wnli")
    rest = [*extra, *without_bad_rows(args, rest)]
    failed = [task for task in wanted if not _train(args, task, family, f"{out}/{task}", rest)]
    rows = table.table([out])
    show(table.markdown(rows), args.format, rows.settings)
    args.next = f"encodery submit {out}, encodery report {out} -o report.html"
    if args.submit:
        _submit(out, args)
    if failed:
        print(f"not trained: {', '.join(failed)}")
    return 1 if failed else 0


def family_of(model: str, like: str) -> tuple[str, list[str]]:
    """The recipe family of a model, and the override that puts the model in where it is not the family's own."""
    from encodery import recipes
    from encodery.core import yaml

    families = sorted({name.split("/")[2] for name in recipes.names() if name.startswith("glue/")})
    if model in families:
        return model, []
    for family in families:
        tree = yaml.read_file(recipes.path(f"glue/_base/{family}"), family).tree
        if isinstance(tree, dict) and model == (tree.get("model") or {}).get("name"):
            return family, []
    if like not in families:
        raise UserError(f"--like: there is no recipe family {like}; choose from {', '.join(families)}")
    return like, [f"model.name={model}"]


def _train(args: argparse.Namespace, task: str, family: str, out: str, rest: list[str]) -> bool:
    """All seeds of a task; a task whose data are not here is said and skipped."""
    from encodery.errors import EncoderyError, Stopped
    from encodery.training.run import train_seeds

    options = argparse.Namespace(
        config=f"recipe:glue/{task}/{family}", out=out, seeds=args.seeds, restart=args.restart,
        allow_change=args.allow_change, allow_code=False, quiet=args.quiet,
    )  # fmt: skip
    try:
        _, failures = train_seeds(options, rest)
    except Stopped:
        raise
    except EncoderyError as error:
        print(f"glue/{task}: {error}")
        return False
    return not failures


def _submit(out: str, args: argparse.Namespace) -> None:
    from encodery.cli import submit

    submit.make(submit.picked([out], "median"), args.submit, fill=args.fill, quiet=args.quiet)
