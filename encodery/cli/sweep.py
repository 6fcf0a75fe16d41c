"""Many runs from one file: plan, run, status, stop, retry, best, import. Run again to resume; finished runs are kept.

A sweep file has a base config and axes (grid, zip, variants, seeds); any config, recipe or data file is a sweep
of one run. On the command line `--a.b 0.1,0.2` is a grid axis, and `--a.b 0.1` a setting of all runs.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encodery.cli.parsing import Parser, without_bad_rows
from encodery.core.text import are, counted
from encodery.errors import UserError

if TYPE_CHECKING:
    from encodery.runs.sweep_spec import RunSpec
    from encodery.sweep.sweep_file import SweepFile

ACTIONS = ["plan", "run", "status", "stop", "retry", "best", "import"]
SHOWN = 40  # runs in a plan
WATCH = 2.0  # seconds between two looks
CLEAR = "\033[H\033[2J"  # what a terminal forgets its lines by


def arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="plan: show the runs, execute nothing; run: start or resume")
    parser.add_argument("what", nargs="*", metavar="FILE|DIR", help="plan, run: sweep.yaml, a config, recipe:NAME or a data file; else: the sweep's folder; retry: also ids; import: search.json")  # fmt: skip # noqa: E501
    parser.add_argument("-o", "--out", metavar="DIR", help="the sweep's folder; default: runs/<name>; import: the file")
    parser.add_argument("--seeds", type=int, metavar="N", help="run each point N times, with consecutive seeds")
    parser.add_argument(
        "--commands", metavar="FILE", help="run: execute the commands in a file, one per line, instead of a sweep"
    )
    parser.add_argument("--dry-run", action="store_true", help="run: show the runs as `plan` does, execute nothing")
    parser.shared("--executor")
    parser.add_argument("--devices", metavar="D", help="all, cuda (every GPU), 0,1 or cpu:2 (two runs at once)")
    parser.add_argument("--runs-per-device", type=int, metavar="N", help="runs at once on each device")
    parser.add_argument("--threads", metavar="N", help="CPU threads per run; default: auto")
    parser.add_argument("--timeout", metavar="TIME", help="time limit of an attempt: 90s, 30m, 2h; default: none")
    parser.add_argument("--retries", type=int, metavar="N", help="retries after a failure; default: 1")
    parser.shared("--skip-bad-rows", help="plan, run: leave out rows that cannot be used, and count them")
    parser.shared("--allow-code")
    parser.add_argument("--now", action="store_true", help="stop: kill, do not wait for checkpoints")
    parser.add_argument("--failed", action="store_true", help="retry: all failed runs (also without ids)")
    parser.add_argument("--export", metavar="FILE", help="best: write the best configuration as a config")
    parser.add_argument("--task", metavar="NAME", help="best: the task to compare on")
    parser.add_argument("--json", action="store_true", help="plan, status, best: print JSON")
    parser.shared("--format", help="plan, status, best: rich, md or csv prints a table, json is the same as --json")
    parser.add_argument("--watch", action="store_true", help="status: refresh every two seconds, until nothing is left")
    parser.shared("--quiet", help="run: print only the result")
    parser.examples(
        "encodery sweep plan recipe:toy/nli --optim.lr 1e-4,5e-4 --seeds 3",
        "encodery sweep run sweep.yaml --devices cpu:2           # run again to resume",
        "encodery sweep run tickets.csv --optim.lr 2e-5,1e-4 --seeds 3",
        "encodery sweep run rte.yaml --method freelb --method.adv_lr 0.05,0.1 --seeds 5 -o runs/freelb",
        "encodery sweep status runs/freelb --watch",
        "encodery sweep stop runs/freelb                         # `sweep run` resumes it",
        "encodery sweep retry runs/freelb                        # queue failed runs again",
        "encodery sweep best runs/freelb --export best.yaml",
        "encodery sweep import search.json -o sweep.yaml         # a file of ManyTasks",
        "encodery sweep run --commands cmds.txt --devices 0,1",
    )


# What each action does, and which options it has: `encodery sweep run --help` shows those alone.
ABOUT = {
    "plan": "Show the runs of a sweep, with their names and how many are done. Nothing is executed.",
    "run": "Start a sweep, or resume it: finished runs are kept; `sweep retry` queues failed ones again.",
    "status": "Show the state of every run of a sweep.",
    "stop": "Stop a sweep: its runs save a checkpoint and end; `encodery sweep run` resumes them.",
    "retry": "Queue failed runs again.",
    "best": "Show the best configuration of a sweep, over its seeds.",
    "import": "Turn a search file of ManyTasks into a sweep file.",
}
_WHAT = {
    "plan": "sweep.yaml, a config, recipe:NAME, a data file (as for train), or nothing (settings only)",
    "run": "sweep.yaml, a config, recipe:NAME, a data file (as for train), or nothing (settings only)",
    "retry": "the sweep's folder, then ids of runs (default: all failed runs)",
    "import": "search.json",
}
_PLACED = ("--out", "--seeds", "--devices", "--runs-per-device", "--threads", "--skip-bad-rows", "--allow-code")
_OPTIONS = {
    "plan": (*_PLACED, "--json", "--format"),
    "run": (*_PLACED, "--commands", "--dry-run", "--executor", "--timeout", "--retries", "--quiet"),
    "status": ("--json", "--format", "--watch"),
    "stop": ("--now",),
    "retry": ("--failed",),
    "best": ("--export", "--task", "--json", "--format"),
    "import": ("--out",),
}


def narrow(parser: Parser, words: list[str]) -> None:
    """Leave in the help what belongs to the action that the words name."""
    action = next((word for word in words if word in ACTIONS), None)
    if action is None:
        return
    parser.prog, parser.description = f"encodery sweep {action}", ABOUT[action]
    if action in ("plan", "run"):
        parser.description += (
            " A sweep file has a base config and\nwhat to vary (grid, zip, variants, seeds); any config, recipe or "
            "data file is a sweep of one run.\nOn the command line `--a.b 0.1,0.2` is a grid axis, and `--a.b 0.1` a "
            "setting of all runs."
        )
    for option in parser.options().values():
        if not {*option.option_strings} & {*_OPTIONS[action], "--help"}:
            option.help = argparse.SUPPRESS
        elif option.help:
            option.help = re.sub(rf"^(\w+, )*{action}(, \w+)*: ", "", option.help)
    positional = {one.dest: one for one in parser._actions if not one.option_strings}
    positional["action"].help = argparse.SUPPRESS
    positional["action"].metavar = ""
    positional["what"].help = _WHAT.get(action, "the sweep's folder")
    if action == "import":
        parser.options()["--out"].help = "the file to write; default: sweep.yaml"
    elif action in ("plan", "run"):
        parser.options()["--out"].help = "the sweep's folder; default: runs/<name>"
    lines = (parser.epilog or "").splitlines()
    parser.epilog = "\n".join([lines[0], *(line for line in lines[1:] if f"sweep {action}" in line)])


def run(args: argparse.Namespace, rest: list[str]) -> int:
    args.json = args.json or args.format == "json"
    doing = {
        "plan": _plan, "run": _run, "status": _status, "stop": _stop, "retry": _retry, "best": _best, "import": _import,
    }  # fmt: skip
    if rest and args.action not in ("plan", "run"):
        raise UserError(f"encodery sweep {args.action} takes no settings ({rest[0]}).")
    if args.action == "run" and args.dry_run:
        if args.commands:
            raise UserError("--dry-run: the lines of --commands are what runs; there is nothing to plan.")
        args.action = "plan"
    return doing[args.action](args, without_bad_rows(args, rest))


def _only_word(args: argparse.Namespace, what: str) -> str:
    if len(args.what) != 1:
        raise UserError(f"encodery sweep {args.action}: give {what}.")
    return str(args.what[0])


def _file(args: argparse.Namespace, rest: list[str]) -> "SweepFile":
    """The sweep that is meant, with the command line on top."""
    from encodery.sweep import command_line, sweep_file

    if len(args.what) > 1:
        raise UserError(f"encodery sweep {args.action}: one file at a time, not {' '.join(args.what)}.")
    if not args.what and not rest:
        raise UserError(
            f"encodery sweep {args.action}: give a sweep file, a config, recipe:NAME, a data file, or settings."
        )
    source = args.what[0] if args.what else None
    if source and Path(source).is_dir():
        raise UserError(f"{source} is a folder; give the file that the sweep was started with.")
    return command_line.apply(sweep_file.read(source), rest, args.seeds)


def _folder(args: argparse.Namespace, file: "SweepFile") -> Path:
    from encodery.core.files import digest_text
    from encodery.sweep.run import not_a_run

    name = file.name if args.what else f"sweep-{digest_text(file.text)[:8]}"
    return not_a_run(Path(args.out) if args.out else Path("runs") / name)


def _plan(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.config.own_code import Code
    from encodery.config.without_torch import light
    from encodery.runs.directory import RunDir
    from encodery.sweep import command_line
    from encodery.sweep.plan import Planner
    from encodery.sweep.resolve import Resolver
    from encodery.sweep.slots import find_slots

    file = _file(args, rest)
    folder = _folder(args, file)
    if file.sweep.search.kind == "tpe":
        space = ", ".join(file.sweep.search.space)
        print(f"{file.sweep.search.n} trials over {space}, each drawn when earlier ones have ended")
        return 0

    def planned() -> tuple[Planner, "list[RunSpec]"]:
        planner = Planner(file, folder, Resolver(Code(args.allow_code), absent_ok=True))
        return planner, planner.specs()

    planner, specs = light(planned)
    _note_absent(planner.resolver.absent)
    if args.json:
        print(json.dumps([_plain(spec) for spec in specs], indent=1))
        return 0
    if args.format:
        _show_plan(specs, folder, args.format)
        return 0
    for spec in specs[:SHOWN]:
        print(spec.name)
    if len(specs) > SHOWN:
        print(f"… and {len(specs) - SHOWN} more (--json lists all)")
    for line in planner.notes():
        print(line)
    done = sum(RunDir(folder / spec.name).is_done for spec in specs)
    resources = command_line.resources(file.sweep, args.devices, args.runs_per_device, args.threads)
    left = _time_left(folder, specs, len(find_slots(resources)))
    print(f"{counted(len(specs), 'run')}, {done} of them done in {folder}{left}")
    args.next = f"encodery sweep run {' '.join(args.what)} …  # with the same arguments"
    return 0


def _note_absent(models: Iterable[str]) -> None:
    what = "the ids of its runs will change once it is, because they depend on its content"
    for name in models:
        print(f"note: {name} is not on this machine: {what}", file=sys.stderr)


def _show_plan(specs: "Sequence[RunSpec]", folder: Path, form: str) -> None:
    """A row for each run: what varies, and whether it is done."""
    from encodery.cli import print_table
    from encodery.runs.directory import RunDir

    axes = list(dict.fromkeys(key for spec in specs for key in spec.axes))
    rows = [
        (spec.name, *(spec.axes.get(key, "") for key in axes), "yes" if RunDir(folder / spec.name).is_done else "no")
        for spec in specs
    ]
    print_table.show(print_table.of_rows(("run", *axes, "done"), rows), form, axes)


def _time_left(folder: Path, specs: "Sequence[RunSpec]", slots: int) -> str:
    """By what the runs took that are done; before the first one is, nobody knows."""
    from encodery.sweep.fixed_plan import OPEN
    from encodery.sweep.state import status

    statuses = {one.id: one for one in status(folder)} if folder.is_dir() else {}
    ended = [statuses[spec.id] for spec in specs if spec.id in statuses and statuses[spec.id].state == "done"]
    took = [one.ended - one.started for one in ended if one.ended and one.started]
    left = sum(state in OPEN for state in _states(specs, statuses)[0])
    if not took or not left:
        return ""
    from encodery.report.table import duration  # it brings numpy

    seconds = sum(took) / len(took) * -(-left // slots)
    return f"; about {duration(seconds)} left with {slots} at once"


def _states(specs: "Sequence[RunSpec]", statuses: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The state of each run, `waiting` where what it needs did not end well; and why, by the name of the run."""
    from encodery.sweep.fixed_plan import blocked

    states = {spec.id: str(statuses[spec.id].state) if spec.id in statuses else "queued" for spec in specs}
    causes = blocked(specs, states)
    names = {spec.id: spec.name for spec in specs}
    reasons = {names[id]: f"waits for {cause} ({states[cause]})" for id, cause in causes.items()}
    return ["waiting" if spec.id in causes else states[spec.id] for spec in specs], reasons


def _how_to_retry(states: Iterable[str], folder: Path) -> str | None:
    """What to do about runs that failed."""
    from encodery.sweep.fixed_plan import FAILED

    failed = any(state in FAILED for state in states)
    return f"`encodery sweep retry {folder}` queues failed runs again" if failed else None


def _plain(spec: "RunSpec") -> dict[str, Any]:
    return {key: value for key, value in vars(spec).items() if key != "config"}


def _run(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.core.progress import Progress
    from encodery.sweep import command_line
    from encodery.sweep.run import run_sweep

    if args.commands:
        return _run_commands(args, rest)
    file = _file(args, rest)
    folder = _folder(args, file)
    resources = command_line.resources(file.sweep, args.devices, args.runs_per_device, args.threads)
    limits = command_line.limits(file.sweep, args.timeout, args.retries)
    progress = Progress(args.quiet)
    outcomes = run_sweep(file, folder, resources, limits, args.executor, progress, _again(), args.allow_code)
    args.next = f"encodery table {folder}, encodery report {folder}, encodery sweep best {folder} --export best.yaml"
    return _ended(outcomes, folder)


def _run_commands(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.core.files import as_name
    from encodery.core.progress import Progress
    from encodery.runs.sweep_spec import write_plan
    from encodery.sweep import command_line
    from encodery.sweep.execute import execute
    from encodery.sweep.fixed_plan import FixedPlan
    from encodery.sweep.plan import commands
    from encodery.sweep.run import not_a_run, require_devices
    from encodery.sweep.sweep_file import Sweep

    if args.what or rest or args.seeds is not None:
        raise UserError("--commands: cannot be combined with a sweep file, settings or --seeds.")
    path = Path(args.commands)
    specs = commands(path)
    resources = command_line.resources(Sweep(), args.devices, args.runs_per_device, args.threads)
    require_devices(resources, args.executor)
    folder = not_a_run(Path(args.out) if args.out else Path("runs") / as_name(path.stem))
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(folder, specs, {"command": _again()})
    limits = command_line.limits(Sweep(), args.timeout, args.retries)
    return _ended(execute(folder, FixedPlan(specs), resources, limits, args.executor, Progress(args.quiet)), folder)


def _again() -> list[str]:
    return ["encodery", *sys.argv[1:]]


def _ended(outcomes: Any, folder: Path) -> int:
    """How many ended how; 1 where some failed, 3 where some are left. Runs of older plans do not count."""
    from encodery.runs.sweep_spec import read_plan
    from encodery.sweep.fixed_plan import FAILED, OPEN

    specs = read_plan(folder)
    planned = {spec.id for spec in specs}
    outcomes = [outcome for outcome in outcomes if outcome.id in planned]
    states, _ = _states(specs, {outcome.id: outcome for outcome in outcomes})
    for outcome in outcomes:
        if outcome.state in FAILED:
            print(f"{outcome.state}: {outcome.id} {outcome.error or ''}".rstrip())
    print(f"{_counted(states)} ({folder})")
    if advice := _how_to_retry(states, folder):
        print(advice)
    left = sum(state in OPEN for state in states)
    if left:
        print(f"{counted(left, 'run')} left: the same command resumes")
    if advice:
        return 1
    return 3 if left else 0


def _status(args: argparse.Namespace, rest: list[str]) -> int:
    import time

    folder = Path(_only_word(args, "the sweep's folder"))
    left = _show_status(folder, args.json, args.format)
    while args.watch and left:
        time.sleep(WATCH)
        print(CLEAR if sys.stdout.isatty() else "", end="")
        left = _show_status(folder, args.json, args.format)
    return 0


def _show_status(folder: Path, as_json: bool, form: str | None) -> bool:
    """One line for each run of the plan, not of older plans; whether any run is still to come to its end."""
    from dataclasses import asdict

    from encodery.core.slurm import of_sweep, waiting
    from encodery.runs.sweep_spec import read_plan
    from encodery.sweep.state import status

    specs, statuses = read_plan(folder), {one.id: one for one in status(folder)}
    states, waits = _states(specs, statuses)
    waits = waiting(of_sweep(folder)) | waits
    if as_json:
        rows = [
            _plain(spec) | (asdict(statuses[spec.id]) if spec.id in statuses else {"state": "queued"}) for spec in specs
        ]
        rows = [row | ({"waits": waits[row["name"]]} if row["name"] in waits else {}) for row in rows]
        print(json.dumps(rows, indent=1, default=str))
    elif form:
        from encodery.cli import print_table

        cells = [
            (state, spec.name, *_facts(statuses.get(spec.id), waits.get(spec.name)))
            for spec, state in zip(specs, states, strict=True)
        ]
        print_table.show(print_table.of_rows(("state", "run", "where", "attempt", "why"), cells), form)
    else:
        for spec, state in zip(specs, states, strict=True):
            why = f"  {waits[spec.name]}" if spec.name in waits else ""
            print(f"{state:8} {spec.name}{why}{_details(statuses.get(spec.id))}")
        print(_counted(states) + _time_left(folder, specs, max(states.count("running"), 1)), flush=True)
        if advice := _how_to_retry(states, folder):
            print(advice, flush=True)
    return any(state in ("queued", "running") for state in states)


def _facts(status: Any, waits: str | None) -> tuple[str, str, str]:
    """Where a run is, which attempt it is, and why it waits or failed."""
    if status is None:
        return "", "", waits or ""
    last = (status.error or "").strip().splitlines()[-1:]
    return f"{status.host or ''} {status.device or ''}".strip(), str(status.attempt or ""), waits or "".join(last)


def _details(status: Any) -> str:
    """Where a run is running, or the last lines of one that failed."""
    if status is None or status.state == "done":
        return ""
    where = f"  {status.host} {status.device}, attempt {status.attempt}" if status.state == "running" else ""
    last = (status.error or "").strip().splitlines()[-5:]
    return where + "".join(f"\n         | {line}" for line in last)


def _counted(states: Sequence[str]) -> str:
    from collections import Counter

    return ", ".join(f"{count} {state}" for state, count in sorted(Counter(states).items())) or "nothing to do"


def _stop(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.sweep.execute import stop

    stop(Path(_only_word(args, "the sweep's folder")), args.now)
    return 0


def _retry(args: argparse.Namespace, rest: list[str]) -> int:
    import shlex

    from encodery.runs.sweep_spec import read_about
    from encodery.sweep.execute import retry

    if not args.what or (args.failed and len(args.what) > 1):
        raise UserError("encodery sweep retry: give the sweep's folder, and ids or --failed.")
    folder = Path(args.what[0])
    queued = retry(folder, args.what[1:] or None)
    print(f"{counted(len(queued), 'run')} queued again: {' '.join(queued)}" if queued else "nothing to retry")
    if queued and (command := read_about(folder).get("command")):
        print(f"start {'it' if len(queued) == 1 else 'them'} with: {shlex.join(command)}")
    return 0


def _best(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.core import files
    from encodery.sweep import best

    folder = Path(_only_word(args, "the sweep's folder"))
    tasks = best.ranking(folder)
    if not tasks:
        raise UserError(f"{folder}: no run is done yet.")
    chosen = [best.only(tasks, args.task)] if args.task or args.export else [found[0] for found in tasks.values()]
    if args.export:
        files.write_atomic(Path(args.export), best.export(chosen[0], folder))
    if args.json:
        print(json.dumps([_plain(one.spec) | {"mean": one.mean, "scores": one.scores} for one in chosen], indent=1))
        return 0
    args.next = f"encodery train {args.export} --seeds 5  # new seeds" if args.export else None
    if args.format:
        from encodery.cli import print_table

        rows = [(one.task, one.label, one.metric, f"{one.mean:.4f}", len(one.scores), one.spec.name) for one in chosen]
        print_table.show(
            print_table.of_rows(("task", "settings", "metric", "mean", "n", "best run"), rows), args.format
        )
        return 0
    for best_run in chosen:
        print(best_run)
        others = len(tasks[best_run.task]) - 1
        equal = sum(one.mean == best_run.mean for one in tasks[best_run.task]) - 1
        if equal:
            print(f"  {counted(equal, 'other configuration')} {are(equal)} exactly as good")
        if others:
            print(
                f"  the best of {others + 1} configurations by {best_run.goal}: its score is partly luck, "
                "so train it again with new seeds"
            )
    return 0


def _import(args: argparse.Namespace, rest: list[str]) -> int:
    from encodery.core import files
    from encodery.importers import manytasks

    path = Path(_only_word(args, "a file of ManyTasks"))
    imported = manytasks.read(path)
    out = Path(args.out or ("sweep.yaml" if imported.sweep else "cmds.txt"))
    if out.exists():
        raise UserError(f"{out} already exists; give another file name with -o.")
    files.write_atomic(out, imported.sweep or "".join(f"{line}\n" for line in imported.commands))
    for note in imported.notes:
        print(f"note: {note}")
    how = f"encodery sweep run {out}" if imported.sweep else f"encodery sweep run --commands {out}"
    print(f"{out}: look at it, then `{how}`")
    return 0
