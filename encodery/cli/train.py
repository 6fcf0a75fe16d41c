"""Pretrain or fine-tune an encoder: from a data file, a config, a recipe or flags. Run again to resume.

Any setting can be given as --a.b VALUE, --a.b=VALUE or a.b=VALUE; `encodery config` prints the resulting settings, and
`encodery config --reference` lists all keys. Common settings: --model NAME, --tasks NAME, --data DIR, --device cpu,
--seed N, --method NAME, --optim.lr X, --train.epochs N, --train.batch_size N, --train.max_length N, --threads N (CPU
threads; fewer on a busy machine).

With a corpus as its task it pretrains; --tasks.subset and --tasks.fraction train on a part of the rows;
--train.dynamics records what `encodery select` needs for el2n and related selectors.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from encodery.cli.parsing import Parser, without_bad_rows
from encodery.core.process import end_with_parent, is_main_process
from encodery.core.remote_files import check
from encodery.distributed.launch import launched_by_us
from encodery.errors import EncoderyError, UserError

if TYPE_CHECKING:
    from encodery.config.load import Resolved
    from encodery.runs.directory import RunDir


def arguments(parser: Parser) -> None:
    """What to train and where."""
    parser.add_argument(
        "config", nargs="?", metavar="CONFIG|DATA",
        help="a config, recipe:NAME, or nothing (settings only); or a data file (.csv, .tsv, .jsonl, .json, .parquet, "
        ".conll), whose columns are detected",
    )  # fmt: skip
    parser.add_argument("-o", "--out", metavar="DIR", help="run directory; default: runs/<name>-<hash>")
    parser.add_argument(
        "--save-config", metavar="FILE", help="also write the given and detected settings to a config file"
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="train N times, with consecutive seeds")
    parser.add_argument(
        "--folds", type=int, metavar="K", help="cross-validation on your own data: K runs, each fold is dev once"
    )
    parser.shared("--fresh")
    parser.add_argument(
        "--allow-change", action="store_true",
        help="continue a run with changed settings; with more steps, train a finished run for longer",
    )  # fmt: skip
    parser.shared("--allow-code")
    parser.shared("--skip-bad-rows", help="skip bad rows, and list them in the run's bad_rows.jsonl")
    parser.add_argument("--processes", type=int, metavar="N", help="N processes, one per device (starts torchrun)")
    parser.add_argument(
        "--executor", choices=["local", "slurm"], default="local", help="slurm: submit the run as a job"
    )
    parser.add_argument("--nodes", type=int, default=1, metavar="M", help="with slurm: M machines, --processes on each")
    parser.add_argument(
        "--restarts", type=int, default=3, metavar="N",
        help="with --processes: restart them up to N times when one dies (default 3)",
    )  # fmt: skip
    parser.add_argument(
        "--copy-to", metavar="ADDRESS", help="copy the finished run (without checkpoints) there: s3://…, gs://…, hf://…"
    )
    parser.add_argument(
        "--peak-tflops", type=float, metavar="X",
        help="peak rate of a device, for MFU; default: a table of common GPUs",
    )  # fmt: skip
    parser.shared(
        "--format", help="format of the table over --seeds or --folds: rich (default at a terminal), md, csv, json"
    )
    parser.shared("--quiet")
    parser.no_verify()
    parser.renamed("--restart", "--fresh")
    parser.examples(
        "encodery train reviews.csv                         # with petit, the small encoder that comes with encodery",
        "encodery train reviews.csv --model roberta-base",
        "encodery train tickets.csv --model roberta-base --tasks.label team --save-config tickets.yaml",
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
    end_with_parent()
    if args.copy_to:
        check(args.copy_to)
    try:
        check_own_files(args)
        check_settings(args, rest)
        if args.executor == "slurm":
            return on_slurm(args, rest)
        if args.processes is not None and not launched_by_us():
            return in_processes(args, rest)
        from encodery.training.run import train_seeds

        rest = without_bad_rows(args, rest)
        if args.folds is not None:
            return in_folds(args, rest)
        runs, failures = train_seeds(args, rest, lambda resolved: announce(resolved, args))
    except UserError as error:
        raise UserError(f"{error}{_hint(rest)}") from None
    lead = is_main_process()  # of several processes the first one says it
    if args.copy_to and lead:
        copy_away([run.path for run in runs], args.copy_to)
    for path, sentence in failures.items():
        print(f"failed: {path}: {sentence}")
    if not lead:
        return 0
    if len(runs) > 1:
        from encodery.cli.print_table import show
        from encodery.report import table

        made = table.table([r.path for r in runs])
        show(table.markdown(made), args.format, made.settings)
        args.next = f"encodery report {runs[0].path.parent} -o report.html"
    elif runs:
        print(last_line(runs[0]))
        args.next = after_training(runs[0])
    return 1 if failures else 0


def check_own_files(args: argparse.Namespace) -> None:
    """`train RUN -o RUN` takes its settings from the run: what was changed there is named before it is used."""
    if not args.config or not args.out or args.restart:
        return
    from encodery.runs.directory import RunDir

    run, source = RunDir(Path(args.out)), Path(args.config).resolve()
    if run.path.resolve() in (source, source.parent) and run.is_done and (problem := run.problem()):
        raise UserError(problem)


def check_settings(args: argparse.Namespace, rest: list[str]) -> None:
    """What is wrong with the settings is said at once, before the seconds that it takes to import torch."""
    import sys

    from encodery.config.without_torch import NeedsTorch, placeholders

    if "torch" in sys.modules or "RANK" in os.environ:
        return
    try:
        with placeholders():
            from encodery.config.load import load

            load(args.config, rest, allow_code=args.allow_code)
    except EncoderyError:
        raise
    except (Exception, NeedsTorch):  # options are not enough to tell: training looks again
        return


def announce(resolved: "Resolved", args: argparse.Namespace) -> None:
    """Show what a data file was recognised as, and keep the settings where that is asked for."""
    from encodery.config.load import short
    from encodery.core import files
    from encodery.core.progress import Progress

    if not is_main_process():
        return
    if resolved.recognised:
        keeps = "" if args.save_config else " (--save-config FILE keeps it)"
        lines = "".join(f"\n  {line}" for line in short(resolved).splitlines())
        Progress(args.quiet).say(f"{', '.join(resolved.recognised)} is read as this config{keeps}:{lines}")
    if args.save_config:
        path = Path(args.save_config)
        text = short(resolved, path.parent)
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise UserError(f"--save-config {path}: exists already and holds other settings")
        files.write_atomic(path, text)


def in_folds(args: argparse.Namespace, rest: list[str]) -> int:
    """Cross-validation: a run for each fold, then one table."""
    from encodery.config.load import Resolved, load
    from encodery.core.progress import Progress
    from encodery.training.cross_validation import cross_validate

    if args.seeds is not None:
        raise UserError("--folds and --seeds: give one of them; for other seeds run --folds again with --seed and -o")

    def resolve(fold: int | None) -> Resolved:
        words = [] if fold is None else [f"tasks.folds={args.folds}", f"tasks.fold={fold}"]
        return load(args.config, [*rest, *words], allow_code=args.allow_code)

    announce(resolve(None), args)
    done, failures = cross_validate(
        resolve, args.folds, args.out, args.restart, args.allow_change, lambda: Progress(args.quiet)
    )
    if not is_main_process():
        return 0
    for fold, sentence in failures.items():
        print(f"failed: fold {fold}: {sentence}")
    if done is None:
        return 1
    if args.copy_to:
        copy_away([done.path], args.copy_to)
    from encodery.cli.print_table import show

    show(
        f"{done.markdown()}\n\n{done.predictions}: predictions for every row, by the model that was not trained on it",
        args.format,
    )
    args.next = f"encodery report {done.path}, encodery select --pool DATA --selector.kind confident --runs {done.path}"
    return 0


def in_processes(args: argparse.Namespace, rest: list[str]) -> int:
    """Check the settings, then start the processes."""
    from encodery.config.load import load
    from encodery.config.without_torch import light
    from encodery.core.progress import Progress
    from encodery.distributed.launch import launch

    announce(light(lambda: load(args.config, rest, allow_code=args.allow_code)), args)
    launch(["train", *words_of(args), *rest], args.processes, args.restarts, Progress(args.quiet).say)
    return 0


def on_slurm(args: argparse.Namespace, rest: list[str]) -> int:
    """Check the settings, then submit the job."""
    from encodery.config.load import load
    from encodery.config.without_torch import light
    from encodery.core import slurm
    from encodery.core.progress import Progress
    from encodery.distributed.slurm_job import submit

    resolved = light(lambda: load(args.config, rest, allow_code=args.allow_code))
    announce(resolved, args)
    processes = args.processes or 1
    words = ["train", *words_of(args), *rest, f"--processes={processes}", f"--restarts={args.restarts}"]
    folder = (Path(args.out).parent if args.out else Path("runs")) / slurm.FOLDER  # on the disk that machines share
    on_cpu, say = resolved.config.device == "cpu", Progress(args.quiet).say
    job = submit(words, folder, args.nodes, processes, on_cpu=on_cpu, say=say)
    slurm.remember(folder, {Path(args.out or args.config or "train").name: str(job.job_id)})
    print(f"Slurm job {job.job_id}: {args.nodes} × {processes} processes; log: {job.paths.stderr}")
    return 0


def copy_away(runs: list[Path], address: str) -> None:
    """Copies of finished runs; of several each in a folder of its own name."""
    from encodery.core.remote_files import put

    for path in runs:
        put(path, address if len(runs) == 1 else f"{address.rstrip('/')}/{path.name}", leave_out=["checkpoints"])


def words_of(args: argparse.Namespace) -> list[str]:
    """The command line again, without what only starts processes."""
    words = [args.config] if args.config else []
    for name in ("out", "seeds", "folds", "copy_to"):
        if (value := getattr(args, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    flags = ("allow_change", "allow_code", "skip_bad_rows", "no_verify", "quiet")
    words += ["--fresh"] if args.restart else []
    return words + [f"--{name.replace('_', '-')}" for name in flags if getattr(args, name)]


def _hint(rest: list[str]) -> str:
    """People write a grid as in a sweep; one run takes one value."""
    values = [word.partition("=")[2] if "=" in word else word for word in rest]
    lists = [value for value in values if "," in value and value[:1] not in "[{\"'"]
    return f"\n{lists[0]}: a list of values is a grid: `encodery sweep run` trains them all." if lists else ""


def after_training(run: "RunDir") -> str:
    """What people do with a run: look at it and use it; a pretrained encoder is fine-tuned."""
    if not run.read_scores()["majority"]:
        return f"encodery train --model {run.path} --tasks glue/rte  # fine-tune it"
    return f"encodery report {run.path}, encodery predict {run.path} --file new.csv, encodery export {run.path} DIR"


def last_line(run: "RunDir") -> str:
    """The scores and where the run is."""
    result = run.read_scores()
    shown = [
        f"{key} {result['main'][key]} {values[result['main'][key]]:.4f}" for key, values in result["scores"].items()
    ]
    return "  ".join([*shown, f"({run.path})"])
