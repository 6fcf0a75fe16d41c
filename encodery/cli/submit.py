"""Write the eleven GLUE test files into one zip, and check them. Test predictions are taken from the runs, or computed.

Where tasks have several seeds, --pick chooses by dev score, or takes the seeds that you name. An MNLI run also predicts
the mismatched and the diagnostic set. What is missing is named; --fill majority writes it with the commonest
label of the training set, and the file beside the zip says so.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from encodery.cli.parsing import Parser
from encodery.core.text import counted
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.inference.task_argument import TaskSplit
    from encodery.runs.directory import RunDir
    from encodery.tasks.base import Answer


def arguments(parser: Parser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN", help="one run for each task, or folders with such runs")
    parser.add_argument(
        "--pick",
        metavar="best|median|TASK=SEED,…",
        help="which of several seeds: by dev score, or such as rte=7,cola=3",
    )
    parser.add_argument("-o", "--out", default="glue.zip", metavar="ZIP", help="default: glue.zip")
    parser.add_argument("--fill", choices=["majority"], help="what to submit for tasks without a run")
    parser.add_argument("--check", metavar="ZIP", help="only check this submission")
    parser.shared("--data", "--device")
    parser.shared("--quiet", help="print neither progress nor notes")
    parser.examples(
        "encodery submit runs/cola runs/sst2 runs/mnli runs/rte --fill majority",
        "encodery submit runs/glue-electra-small --pick best -o electra.zip",
        "encodery submit --check somebodys.zip",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.scoring.glue_submission import check_submission

    if args.check:
        check_submission(args.check)
        print(f"{args.check}: eleven files, as the GLUE site expects them")
        return 0
    if not args.runs:
        raise UserError("Which runs? Write `encodery submit RUN…`, or `--check ZIP`.")
    picks = picked(args.runs, args.pick) if args.pick else dict.fromkeys(args.runs, "")
    make(picks, args.out, fill=args.fill, data=args.data, device=args.device, quiet=args.quiet)
    args.next = f"upload {args.out} to the GLUE site"
    return 0


def picked(folders: Sequence[str], how: str) -> dict[str, str]:
    """One run of each task, and why it; also says so."""
    from encodery.report.pick_seed import pick

    picks, remarks = pick(folders, how)
    for task, one in picks.items():
        print(f"{task}  {one.run}  ({one.words})")
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)
    return {str(one.run): one.words for one in picks.values()}


def make(
    picks: Mapping[str, str],
    out: str,
    *,
    fill: Literal["majority"] | None = None,
    data: str | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> None:
    """Write the zip and say what is in it. `picks`: runs or folders, and why each was picked."""
    from encodery.scoring.glue_submission import write_submission

    answers: dict[str, Mapping[str, Answer]] = {}
    runs = runs_by_part(list(picks))
    if fill is None:
        require_all(set(runs))
        require_rows(runs, data)
    for part, one in runs.items():
        answers |= test_answers(one, part, data, device, quiet)
    sources = {part: source_of(one, part, picks.get(str(one.path))) for part, one in runs.items()}
    report = write_submission(answers, out, fill, sources)
    print(f"{out}: {counted(len(report['rows']), 'file')}, checked")
    if report["filled"]:
        print(f"filled with the majority, NOT answered by a model: {', '.join(report['filled'])}")


def source_of(run: "RunDir", part: str, why: str | None) -> dict[str, Any]:
    """What the file beside the zip says of a run: its folder's name, seed and dev score, and why it was picked."""
    key, scores = f"glue/{part}:dev", run.read_scores()
    metric = scores.get("main", {}).get(key)
    score = scores.get("scores", {}).get(key, {}).get(metric)
    about = {"run": run.path.resolve().name, "seed": run.info().get("seed", {}).get("init")}
    return about | {"dev": {metric: score} if score is not None else {}, "picked": why or "the run that was given"}


def require_all(parts: set[str]) -> None:
    """Say what is missing before hours are spent on predicting the rest."""
    from encodery.scoring.glue_submission import FILES

    have = parts | ({"ax"} if "mnli" in parts else set())
    missing = [name for name, file in FILES.items() if file.part not in have]
    if missing:
        raise UserError(f"no run for {', '.join(missing)}: train and give these too, or add --fill majority")


def require_rows(runs: "Mapping[str, RunDir]", data: str | None) -> None:
    """Say whose test rows are not here, also before the rest is predicted."""
    from encodery.inference.task_argument import resolve_split

    missing = []
    for part, run in runs.items():
        for name, split in files_of(part):
            if not run.predictions_path(f"glue/{name}", split).is_file():
                one = resolve_split(f"glue/{name}:{split}", data, [run])[0]
                missing += [] if one.task.has(split) else [one.key]
    if missing:
        raise UserError(
            f"there are no test rows of {', '.join(missing)} in the data folder: put them there "
            "(`encodery data get glue --to DIR` fetches them), or add --fill majority"
        )


def files_of(part: str) -> list[tuple[str, str]]:
    """The test sets (task, split) that a run of a task answers."""
    from encodery.scoring.glue_submission import FILES

    parts = (part, "ax") if part == "mnli" else (part,)
    return [(file.part, file.split) for file in FILES.values() if file.part in parts]


def runs_by_part(folders: Sequence[str]) -> "dict[str, RunDir]":
    """GLUE task -> its one run."""
    from encodery.runs.directory import find_runs

    by_part: dict[str, RunDir] = {}
    for item in find_runs(*folders):
        if item.problem:
            raise UserError(item.problem)
        names = [name.partition("/") for name in item.run.task_names()]
        if all(family != "glue" for family, _, _ in names):
            raise UserError(f"{item.run.path}: was trained on {item.run.info().get('task')}, which is not a GLUE task")
        for part in [part for family, _, part in names if family == "glue"]:
            if part in by_part:
                raise UserError(
                    f"glue/{part} has two runs, {by_part[part].path} and {item.run.path}: give one of them, "
                    f"or choose with --pick best, median or {part}=SEED"
                )
            by_part[part] = item.run
    if not by_part:
        raise UserError(f"{', '.join(folders)}: there are no runs in it")
    return by_part


def test_answers(
    run: "RunDir", part: str, data: str | None, device: str, quiet: bool
) -> "dict[str, Mapping[str, Answer]]":
    """All test sets that this run answers: from its predictions, or made and kept there now."""
    from encodery.inference.task_argument import resolve_split
    from encodery.scoring.prediction_files import read_predictions

    answers: dict[str, Mapping[str, Answer]] = {}
    model: Any = None
    for name, split in files_of(part):
        path = run.predictions_path(f"glue/{name}", split)
        if path.is_file():
            answers[f"glue/{name}:{split}"] = read_predictions(path)
            continue
        asked = resolve_split(f"glue/{name}:{split}", data, [run])[0]
        if not _is_here(asked):
            continue
        model = model or _open(run, device)
        answers[asked.key] = _make_answers(model, asked, run, quiet)
    return answers


def _is_here(asked: "TaskSplit") -> bool:
    """Whether the rows can be had; if not, says why: the file is then missing, or filled."""
    try:
        return len(asked.task.examples(asked.split)) > 0
    except UserError as error:
        print(f"{asked.key} cannot be answered: {error}", file=sys.stderr)
        return False


def _open(run: "RunDir", device: str) -> Any:
    """The model, with all that is slow to import: only where answers are missing."""
    from encodery.inference.classifier import open_classifier
    from encodery.inference.evaluate import require_run

    require_run(run)
    return open_classifier(run.path, device, undecided=True)


def _make_answers(model: Any, asked: "TaskSplit", run: "RunDir", quiet: bool) -> "Mapping[str, Answer]":
    from encodery.core.progress import Counting
    from encodery.inference.evaluate import evaluate, keep_in_run

    with Counting(asked.key, len(asked.task.examples(asked.split)), quiet) as on_progress:
        evaluation = evaluate([model], asked, on_progress=on_progress)
    path: Path = keep_in_run(run, evaluation)
    if not quiet:
        print(f"{asked.key}  {counted(len(evaluation.answers), 'prediction')}  ({path})", file=sys.stderr)
    return evaluation.answers
