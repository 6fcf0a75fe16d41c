"""Does a run: finds its directory, refuses what does not fit it, resumes, trains, ends with DONE."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from encodery.config import load
from encodery.config.layers import flat
from encodery.config.load import Resolved
from encodery.core import files, yaml
from encodery.core.environment import environment, version
from encodery.core.progress import Portion, Progress
from encodery.core.signals import StopRequest
from encodery.core.text import counted
from encodery.distributed import comm
from encodery.errors import EncoderyError, RunFailed, Stopped, UserError
from encodery.inference import open_model
from encodery.methods._perturbation import Perturbation
from encodery.models import pooling
from encodery.runs.directory import RunDir, default_path, now
from encodery.runs.identity import FORM, changes, content_of, identity_of_config, recognises
from encodery.tasks.base import Task
from encodery.tasks.sources.own_files import Own
from encodery.tasks.sources.rows import equal_texts
from encodery.training import build, checkpoint, optim
from encodery.training.build import Built, Inputs, PoolingSource
from encodery.training.loop import StepReport
from encodery.training.session import Session
from encodery.training.task_data import data_lines, data_of, skipped_rows, summary

Change = tuple[str, Any, Any]


def train_run(
    resolved: Resolved,
    out: Path | str | None = None,
    *,
    restart: bool = False,
    allow_change: bool = False,
    progress: Progress | None = None,
    watch: Callable[[StepReport], None] | None = None,
) -> RunDir:
    """Train as the config says. Run again = go on; a finished run is left as it is."""
    progress = progress or Progress(quiet=True)
    with (
        StopRequest(early=True) as stop,
        prepared(resolved, out, restart, allow_change, progress, stop) as (run, session),
    ):
        if session is None:
            return run
        try:
            stop.begin()
            session.loop(watch)
            session.finish()
        except (Exception, KeyboardInterrupt) as error:
            note_end(run, error)
            raise
        finally:
            progress.stop()
        return run


def note_end(run: RunDir, error: BaseException) -> None:
    """Write down how a run ended that is not done: tables show it as failed or stopped."""
    state = "stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed"
    with suppress(EncoderyError, OSError):  # a full disk must not hide the first failure
        run.log(f"{state}: {error}")
        run.update_info(ended={"state": state, "error": str(error)})


@contextmanager
def prepared(
    resolved: Resolved, out: Path | str | None, restart: bool, allow_change: bool, progress: Progress, stop: StopRequest
) -> Iterator[tuple[RunDir, Session | None]]:
    """A locked run directory with everything built and resumed; no session where the run is finished already."""
    if resolved.config.threads:
        torch.set_num_threads(resolved.config.threads)
    comm.join()
    progress = progress if comm.is_main() else Progress(quiet=True)
    with comm.one_by_one():
        inputs = build.find_inputs(resolved)
    resolved, inputs = (resolved, inputs) if restart else as_begun(resolved, inputs, out)
    identity = same_identity(identity_of_config(resolved, inputs.digests))
    run = opened(Path(out) if out else own_path(resolved, identity), restart, progress)
    with run.lock():
        run.clean()
        named = check_same(run, resolved, inputs, identity, allow_change, progress) if run.writes else {}
        done = comm.from_main(run.is_done)
        longer = done and comm.from_main(allow_change and asks_for_steps(run, resolved))
        if done and not longer:
            leave_finished(run, progress)
            yield run, None
            return
        if longer:
            require_checkpoint(run)
        inputs = replace(inputs, auto_pooling=comm.from_main(pooling_of_run(run)))
        built = build_for(run, resolved, inputs, progress)
        if longer and (short := not_longer(run, built.state.total)):
            progress.say(short)
            comm.end_run()
            yield run, None
            return
        if run.writes:
            begin(run, resolved, inputs, built, named)
        session = Session(run, resolved, built, progress, stop, named.get("identity", identity))
        announce_and_resume(session, resolved, longer)
        yield run, session


def leave_finished(run: RunDir, progress: Progress) -> None:
    """Say that nothing is to be done, and remove what a killed process may have left."""
    progress.say(f"{run.path} is done already (--fresh starts again)")
    if run.drop_left_checkpoints():
        progress.say(f"{run.path}: removed the checkpoints that were left when its process was killed")
    comm.end_run()


def build_for(run: RunDir, resolved: Resolved, inputs: Inputs, progress: Progress) -> Built:
    """Everything that a session needs, before anything is written: a mistake leaves no run behind."""
    try:
        with comm.one_by_one(), Portion(resolved.tasks[0][0].name, progress.quiet, progress.every) as on_progress:
            built = build.build(resolved, inputs, on_progress)
        optim.require_warmup(resolved.config.optim, built.state.total)
    except BaseException:
        run.forget()
        raise
    return built


def announce_and_resume(session: Session, resolved: Resolved, longer: bool) -> None:
    """Say what is trained on what, and resume: the session is then where its run was left."""
    built = session.built
    data = [line for task_data in built.tasks_data for line in data_lines(task_data.task)]
    for note in [*resolved.notes, *built.notes, *data, *summary(built.tasks_data)]:
        session.log(note)
    session.resume()
    if longer:
        session.prolong()
    if session.state.step == 0:
        show_perturbations(session, resolved)
    if not resolved.config.train.shard:
        comm.require_equal(built.model.named_parameters(), "the weights")


def asks_for_steps(run: RunDir, resolved: Resolved) -> bool:
    """Whether another number of steps or epochs is asked for than the run was made with."""
    old = yaml.read_text(run.config_text(), "config.yaml").tree
    found = changes(old, resolved.config.to_dict(), [task for task, _ in resolved.tasks])
    return any(key in ("train.max_steps", "train.epochs") for key, _, _ in found)


def require_checkpoint(run: RunDir) -> None:
    """Only with its last checkpoint can a finished run be trained for longer: model/ has no optimiser."""
    if not comm.from_main(bool(checkpoint.steps(run.checkpoints))):
        raise UserError(
            f"{run.path} is done, and its checkpoints were not kept, so it cannot be trained for more steps. Train it "
            "again with --fresh and train.keep_checkpoints=true, which keeps the last one; or begin a new run from "
            f"its weights with --model {run.path}."
        )


def not_longer(run: RunDir, total: int) -> str | None:
    """A sentence if a finished run has taken as many steps as are asked for."""
    last = comm.from_main(max(checkpoint.steps(run.checkpoints), default=0))
    if total > last:
        return None
    return f"{run.path} is done already with {last} steps; to train it for longer, ask for more than that, not {total}"


def show_perturbations(session: Session, resolved: Resolved) -> None:
    """Say what a method's perturbations do to the loss of the model before it is trained for them."""
    method = resolved.method
    if not isinstance(method, Perturbation) or not comm.is_main():
        return
    micro = session.built.batches.at(0)
    found = method.preview(session.built.model, micro[0]) if micro else None
    if found:
        session.log(found.line())
        session.run.update_info(perturbation=found.to_dict())


def same_identity(identity: str) -> str:
    """The identity of the run, which all its processes must find."""
    if len(set(comm.gather(identity))) > 1:
        raise UserError("the processes of this run see different settings or data; put the same files on all machines")
    return identity


def own_path(resolved: Resolved, identity: str) -> Path:
    """Where a run without -o goes: where it was begun, by an earlier version too, or a folder of that identity."""
    path, tasks = default_path(resolved.name, identity), [task for task, _ in resolved.tasks]
    others = sorted(path.parent.glob(f"{path.name[:-8]}{'[0-9a-f]' * 8}")) if not path.exists() else []
    return next(
        (one for one in others if RunDir(one).problem() is None and recognises(RunDir(one), identity, tasks)), path
    )


def as_begun(resolved: Resolved, inputs: Inputs, out: Path | str | None) -> tuple[Resolved, Inputs]:
    """A run that was begun when equal texts were not kept together keeps its split; every other run is as given."""
    divided = [(i, task) for i, (task, _) in enumerate(resolved.tasks) if divides_equal_texts(task)]
    if not divided:
        return resolved, inputs
    tasks, entries, digests = list(resolved.tasks), [*resolved.config.tasks], dict(inputs.digests)
    for i, task in divided:
        before = type(task).model_validate({**task.to_dict(), "equal_texts": "apart"})
        tasks[i], entries[i] = (before, tasks[i][1]), {**entries[i], "equal_texts": "apart"}
        digests[f"tasks.{i}.data"] = content_of(before)
    earlier = replace(resolved, config=resolved.config.model_copy(update={"tasks": entries}), tasks=tasks)
    identity = identity_of_config(earlier, digests)
    run = RunDir(Path(out) if out else own_path(earlier, identity))
    if run.problem() is not None or not recognises(run, identity, [task for task, _ in tasks]):
        return resolved, inputs
    held = yaml.read_text(run.config_text(), str(run.config)).tree["tasks"]
    if any(held[i].get("equal_texts", "apart") != "apart" for i, _ in divided):
        return resolved, inputs
    return earlier, replace(inputs, digests=digests)


def divides_equal_texts(task: Task) -> bool:
    """Whether it is own data some of whose training rows have equal texts, which stay together by default."""
    if not isinstance(task, Own) or task.equal_texts != "together" or task.train is None:
        return False
    rows = [e for split in ("train", *(["dev"] if task.divided else [])) for e in task.examples(split)]
    return len(equal_texts(rows)) < len(rows)


def opened(path: Path, restart: bool, progress: Progress) -> RunDir:
    """The directory of the run: the first process makes it, the others look at it."""
    if not comm.is_main():
        comm.wait()
        return RunDir(path, writes=False)
    if restart and (old := RunDir(path).move_aside()):
        progress.say(f"the old run was moved to {old}")
    run = RunDir.create(path)
    comm.wait()
    return run


def what_changed(run: RunDir, info: dict[str, Any], inputs: Inputs, resolved: Resolved, identity: str) -> list[str]:
    """What differs from the run that the directory holds, a line each; nothing: it is the same run, or none."""
    held = info.get("identity")
    if held is not None and not recognises(run, identity, [task for task, _ in resolved.tasks]):
        changed = [*changed_settings(run, info, inputs, resolved), *other_files(run, info, inputs, resolved)]
        return changed or [f"  the content of {' or '.join(changed_inputs(info, inputs, resolved))}"]
    newest, _ = (None, []) if run.is_done else checkpoint.newest_intact(run.checkpoints)
    saved_by = checkpoint.identity_of(newest) if newest else None
    if newest and saved_by and saved_by not in (identity, held, *went_on_from(info)):
        settings = changed_settings(run, info, inputs, resolved) if run.config.is_file() else []
        return settings or [f"  {newest.path} was saved by another run"]
    if held or saved_by:
        return []
    if run.config.is_file():  # begun, but only the settings say what
        return changed_settings(run, info, inputs, resolved)
    return [f"  {newest.path} does not say which run saved it, and config.yaml is missing"] if newest else []


def trained_at_all(run: RunDir) -> bool:
    """Whether a directory holds anything that another run could spoil: a step, a checkpoint, a result."""
    kept = run.is_done or run.scores.exists() or run.model.exists() or run.kept.exists()
    return kept or bool(checkpoint.steps(run.checkpoints)) or bool(run.metrics())


def went_on_from(info: dict[str, Any]) -> list[str]:
    """The identities that the run had before `--allow-change`: their checkpoints are its own."""
    return info.get("went_on_from") or []


def earlier_identities(run: RunDir, info: dict[str, Any]) -> list[str]:
    """Whose checkpoints will count as this run's, because a person said so."""
    newest, _ = checkpoint.newest_intact(run.checkpoints)
    found = {*went_on_from(info), info.get("identity"), checkpoint.identity_of(newest) if newest else None}
    return sorted(str(one) for one in found - {None})


def changed_settings(run: RunDir, info: dict[str, Any], inputs: Inputs, resolved: Resolved) -> list[str]:
    """The settings that matter and are not those that the directory holds, a line each."""
    found = setting_changes(run, info, inputs, resolved)
    return [f"  {key}: {was!r} there, {now!r} now" for key, was, now in found]


def setting_changes(run: RunDir, info: dict[str, Any], inputs: Inputs, resolved: Resolved) -> list[Change]:
    """Key, what it is in the directory, what it is now."""
    old = yaml.read_text(run.config_text(), str(run.config)).tree
    before = info.get("inputs") or {}
    same = [key for key, digest in inputs.digests.items() if before.get(key) == digest]
    return list(changes(old, resolved.config.to_dict(), [task for task, _ in resolved.tasks], same))


def other_files(run: RunDir, info: dict[str, Any], inputs: Inputs, resolved: Resolved) -> list[str]:
    """The data files of tasks with other rows, where they have other names too, a line each."""
    was = flat(yaml.read_text(run.config_text(), str(run.config)).tree)
    now = flat(resolved.config.to_dict())
    other = {key.rpartition(".")[0] for key in changed_inputs(info, inputs, resolved) if key.endswith(".data")}
    keys = [f"tasks.{i}.{name}" for i, (task, _) in enumerate(resolved.tasks) for name in task.paths]
    renamed = [key for key in keys if key.rpartition(".")[0] in other and was.get(key) != now.get(key)]
    return [f"  {key}: {was.get(key)!r} there, {now.get(key)!r} now" for key in renamed]


def changed_inputs(info: dict[str, Any], inputs: Inputs, resolved: Resolved) -> list[str]:
    """Which files differ from what the run was made with, by the settings that name them."""
    before = info.get("inputs", {})
    changed = [key for key, digest in inputs.digests.items() if before.get(key) != digest]
    return changed or [str(path) for path, _ in resolved.code.values()] or ["the inputs"]


def check_same(
    run: RunDir, resolved: Resolved, inputs: Inputs, identity: str, allow_change: bool, progress: Progress
) -> dict[str, Any]:
    """Another seed, data or arithmetic setting is refused; another device or number of threads or processes not.

    Gives what run.json shall say once the run goes on, so that a finished one stays as it is: its identity (that of an
    earlier version's run is kept, because others know it by that), and what its readers should know.
    """
    info: dict[str, Any] = run.info()
    lines = what_changed(run, info, inputs, resolved, identity)
    if lines and not trained_at_all(run):
        progress.say(
            f"{run.path}: an earlier attempt with other settings ended before its first step; this replaces it"
        )
        run.drop_attempt()
        info, lines = {}, []
    if lines and not allow_change:
        listing = "\n".join(lines)
        raise UserError(
            f"{run.path} was made with other settings:\n{listing}\n"
            "Give another -o, start again with --fresh, or continue anyway with --allow-change."
        )
    named: dict[str, Any] = {"identity": identity, "identity_form": FORM}
    notes = []
    if lines:
        named |= with_change(run, info, inputs, resolved, lines)
        notes.append(f"continued with changed settings: {named['changes'][-1]['text']}")
    elif info.get("identity"):
        named = {key: info[key] for key in named if key in info}
    if not info and checkpoint.steps(run.checkpoints):
        progress.say(f"{run.path}: run.json was missing, it is written again")
        notes.append("run.json was missing and was written again")
    goes_on = not run.is_done or (allow_change and asks_for_steps(run, resolved))
    for sentence in other_hardware(info, resolved) if info and goes_on else ():
        progress.say(sentence)
        notes.append(sentence)
    if notes:
        named["notices"] = [*info.get("notices", []), *({"time": now(), "text": text} for text in notes)]
    return named


def with_change(
    run: RunDir, info: dict[str, Any], inputs: Inputs, resolved: Resolved, lines: Sequence[str]
) -> dict[str, Any]:
    """What run.json says of settings that a person allowed to change: whose checkpoints count, and what was before."""
    before = setting_changes(run, info, inputs, resolved) if run.config.is_file() else []
    change = {
        "step": max(checkpoint.steps(run.checkpoints), default=0), "time": now(),
        "text": "; ".join(line.strip() for line in lines), "before": {key: was for key, was, _ in before},
    }  # fmt: skip
    return {"went_on_from": earlier_identities(run, info), "changes": [*info.get("changes", []), change]}


def other_hardware(info: dict[str, Any], resolved: Resolved) -> Iterator[str]:
    """What is computed on something else than before, a sentence each."""
    for name, here in hardware(resolved).items():
        before = info.get("hardware", {}).get(name, 1 if name == "processes" else None)
        if before != here:
            yield f"{name} was {before}, is now {here}: bit-identity with an undisturbed run is not promised"


def pooling_of_run(run: RunDir) -> PoolingSource:
    """What `model.pooling: auto` means for a run: on resume what it meant before, whatever the folder says now."""
    info = run.info()
    if not info.get("identity"):
        return "folder"
    found: PoolingSource = info.get("auto_pooling", "config")  # absent: begun before heads could read anything else
    return found


def hardware(resolved: Resolved) -> dict[str, Any]:
    """What may differ on resume, at the price of rounding."""
    device = str(open_model.pick_device(resolved.config.device))
    return {"device": device, "threads": torch.get_num_threads(), "processes": comm.size()}


def begin(run: RunDir, resolved: Resolved, inputs: Inputs, built: Built, named: dict[str, Any]) -> None:
    """Write down what this run is."""
    run.reopen()
    run.write_config(load.dump(resolved))
    load.keep_code(resolved, run.path)
    tasks = [task for task, _ in resolved.tasks]
    keep_bad_rows(run, tasks)
    revisions = {
        k: f.revision for k, f in (("model", inputs.model), ("init_from", inputs.init_from)) if f and f.revision
    }
    run.update_info(
        ended=None,
        **named,
        name=resolved.name,
        encodery=version(),
        inputs=inputs.digests,
        revisions=revisions,
        hardware=hardware(resolved),
        environment=environment(),
        seed=resolved.config.seed.to_dict(),
        task=" + ".join(task.name for task in tasks),
        tasks=[task.name for task in tasks],
        model=resolved.config.model.name or resolved.config.model.to_dict()["new"],
        method=resolved.config.method["kind"],
        auto_pooling=built.model.encoder.pooling,
        pooling=pooling.of_heads(built.card),
        attention=built.attention,
        steps=built.state.total,
        **data_of(tasks),
    )


def keep_bad_rows(run: RunDir, tasks: Sequence[Task]) -> None:
    """The rows that skip_bad_rows left out go into a file, each with its place and what is wrong with it."""
    bad = [row for task in tasks for row in skipped_rows(task)]
    if bad:
        lines = [files.plain_json(asdict(row)) for row in bad]
        files.write_atomic(run.bad_rows, "\n".join(lines) + "\n")
        run.log(f"{counted(len(lines), 'bad row')} left out, listed in bad_rows.jsonl")


# The same run for several seeds, one after the other in this process.


def train_seeds(
    args: argparse.Namespace, rest: list[str], announce: Callable[[Resolved], None] = lambda _: None
) -> tuple[list[RunDir], dict[str, str]]:
    """Train for one or several seeds: the runs that ended well, and a sentence for each that failed."""
    peak = args.peak_tflops * 1e12 if getattr(args, "peak_tflops", None) is not None else None
    if peak is not None and not peak > 0:
        raise UserError("--peak-tflops: must be above 0")
    first = load.load(args.config, rest, allow_code=args.allow_code)
    announce(first)
    if args.seeds is None:
        resolved = [(args.out, first)]
    elif args.seeds < 1:
        raise UserError("--seeds: must be at least 1")
    else:
        start = first.config.seed.init
        seeds = range(start, start + args.seeds)
        again = [load.load(args.config, [*rest, f"seed={s}"], allow_code=args.allow_code) for s in seeds]
        outs = [Path(args.out) / f"seed-{s}" if args.out else None for s in seeds]
        resolved = list(zip(outs, again, strict=True))
    runs, failures = [], {}
    for out, config_of_seed in resolved:
        try:
            progress = Progress(args.quiet, peak=peak)
            runs.append(
                train_run(config_of_seed, out, restart=args.restart, allow_change=args.allow_change, progress=progress)
            )
        except RunFailed as error:
            if len(resolved) == 1 or comm.size() > 1:  # several processes cannot go on apart
                raise
            failures[f"seed {config_of_seed.config.seed.init}"] = str(error)
    comm.leave()
    return runs, failures
