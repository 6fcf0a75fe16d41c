"""Train: pretrain or fine-tune an encoder as a config, a recipe, or flags alone say. Run again = go on.

Any setting can be given as --a.b VALUE, --a.b=VALUE or a.b=VALUE; `encodery config` prints what it comes to, and
`encodery config --reference` all there are. Common settings: --model NAME, --tasks NAME, --data DIR, --device cpu,
--seed N, --method NAME, --optim.lr X, --train.epochs N, --train.batch_size N, --train.max_length N.

A task that is a corpus means pretraining; --tasks.subset and --tasks.fraction train on a part of the rows;
--train.dynamics records what `encodery select` needs for el2n and kin.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser
from encodery.errors import UserError
from encodery.launch import launched_by_us
from encodery.remote import check

if TYPE_CHECKING:
    from encodery.rundir import RunDir


def arguments(parser: Parser) -> None:
    """What to train and where."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a file, recipe:NAME, or nothing (settings only)")
    parser.add_argument("-o", "--out", metavar="DIR", help="run directory; default: runs/<name>-<hash>")
    parser.add_argument("--seeds", type=int, metavar="N", help="train N times, with this seed and the next ones")
    parser.add_argument(
        "--folds", type=int, metavar="K", help="cross-validation of own data: K runs, each part of train is dev once"
    )
    parser.add_argument("--restart", action="store_true", help="begin anew; the old run is moved aside, not deleted")
    parser.add_argument(
        "--allow-change",
        action="store_true",
        help="go on although settings changed; more steps prolong a finished run",
    )
    parser.add_argument("--allow-code", action="store_true", help="run Python files that a run directory brings along")
    parser.add_argument(
        "--skip-bad-rows", action="store_true", help="leave bad rows out; they go to bad_rows.jsonl in the run"
    )
    parser.add_argument("--processes", type=int, metavar="N", help="N processes, one per device (starts torchrun)")
    parser.add_argument("--executor", choices=["local", "slurm"], default="local", help="slurm: submit it as a job")
    parser.add_argument("--nodes", type=int, default=1, metavar="M", help="with slurm: M machines, --processes on each")
    parser.add_argument(
        "--restarts", type=int, default=3, metavar="N", help="with --processes: begin again when one dies (default 3)"
    )
    parser.add_argument(
        "--copy-to", metavar="ADDRESS", help="copy the finished run (without checkpoints) there: s3://…, gs://…, hf://…"
    )
    parser.add_argument("--quiet", action="store_true", help="print only the result")
    parser.no_verify()
    parser.examples(
        "encodery train --model roberta-base --tasks glue/rte",
        "encodery train recipe:glue/rte/electra-small --seeds 5",
        "encodery train rte.yaml optim.lr=3e-5 -o runs/rte-3e-5",
        "encodery train mails.yaml --folds 5 -o runs/mails  # one table, and out_of_fold.jsonl",
        "encodery train recipe:toy/nli                      # no download, half a minute",
        "encodery train recipe:pretrain/electra-tiny -o runs/tiny",
        "encodery train --model runs/tiny --tasks.name glue/mnli --tasks.subset selections/stream --tasks.fraction 10%",
        "encodery train mnli.yaml --train.dynamics eval -o runs/mnli-dynamics",
        "encodery train rte.yaml --processes 4              # same as torchrun --nproc-per-node 4 -m encodery …",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Train once or for several seeds, in one process or in several."""
    if args.copy_to:
        check(args.copy_to)
    if args.executor == "slurm":
        return on_slurm(args, rest)
    if args.processes is not None and not launched_by_us():
        return in_processes(args, rest)
    from encodery.many import train_seeds
    from encodery.report import tables

    if args.skip_bad_rows:
        rest = [*rest, "tasks.skip_bad_rows=true"]
    if args.folds is not None:
        return in_folds(args, rest)
    try:
        runs, failures = train_seeds(args, rest)
    except UserError as error:
        raise UserError(f"{error}{_hint(rest)}") from None
    lead = os.environ.get("RANK", "0") == "0"  # of several processes the first one says it
    if args.copy_to and lead:
        copy_away([run.path for run in runs], args.copy_to)
    for path, sentence in failures.items():
        print(f"failed: {path}: {sentence}")
    if not lead:
        return 0
    if len(runs) > 1:
        print(tables.markdown(tables.table([r.path for r in runs])))
    elif runs:
        print(last_line(runs[0]))
    return 1 if failures else 0


def in_folds(args: argparse.Namespace, rest: list[str]) -> int:
    """Cross-validation: a run for each fold, then one table."""
    from encodery.config import Resolved, load
    from encodery.folds import cross_validate
    from encodery.progress import Progress

    if args.seeds is not None:
        raise UserError("--folds and --seeds: give one of them; for other seeds run --folds again with --seed and -o")

    def resolve(fold: int | None) -> Resolved:
        words = [] if fold is None else [f"tasks.folds={args.folds}", f"tasks.fold={fold}"]
        return load(args.config, [*rest, *words], allow_code=args.allow_code)

    done, failures = cross_validate(
        resolve, args.folds, args.out, args.restart, args.allow_change, lambda: Progress(args.quiet)
    )
    if os.environ.get("RANK", "0") != "0":
        return 0
    for fold, sentence in failures.items():
        print(f"failed: fold {fold}: {sentence}")
    if done is None:
        return 1
    if args.copy_to:
        copy_away([done.path], args.copy_to)
    print(f"{done.markdown()}\n\n{done.predictions}: the answer to every row by the model that has not seen it")
    return 0


def in_processes(args: argparse.Namespace, rest: list[str]) -> int:
    """Check the settings, then start the processes."""
    from encodery.config import load
    from encodery.launch import launch
    from encodery.progress import Progress

    load(args.config, rest, allow_code=args.allow_code)
    launch(["train", *words_of(args), *rest], args.processes, args.restarts, Progress(args.quiet).say)
    return 0


def on_slurm(args: argparse.Namespace, rest: list[str]) -> int:
    """Check the settings, then submit the job."""
    from encodery.config import load
    from encodery.on_slurm import submit

    resolved = load(args.config, rest, allow_code=args.allow_code)
    processes = args.processes or 1
    words = ["train", *words_of(args), *rest, f"--processes={processes}", f"--restarts={args.restarts}"]
    folder = Path("runs", ".slurm")
    job = submit(words, folder, args.nodes, processes, on_cpu=resolved.config.device == "cpu")
    print(f"Slurm job {job.job_id}: {args.nodes} × {processes} processes; log: {job.paths.stderr}")
    return 0


def copy_away(runs: list[Path], address: str) -> None:
    """Copies of finished runs; of several each in a folder of its own name."""
    from encodery.remote import put

    for path in runs:
        put(path, address if len(runs) == 1 else f"{address.rstrip('/')}/{path.name}", leave_out=["checkpoints"])


def words_of(args: argparse.Namespace) -> list[str]:
    """The command line again, without what only starts processes."""
    words = [args.config] if args.config else []
    for name in ("out", "seeds", "folds", "copy_to"):
        if (value := getattr(args, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    flags = ("restart", "allow_change", "allow_code", "skip_bad_rows", "no_verify", "quiet")
    return words + [f"--{name.replace('_', '-')}" for name in flags if getattr(args, name)]


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
