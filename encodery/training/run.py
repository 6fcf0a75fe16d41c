"""Does a run: finds its directory, resumes what it holds (training/resume.py decides), trains, ends with DONE."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from encodery.config import load
from encodery.config.load import Resolved
from encodery.core import files
from encodery.core.environment import environment, version
from encodery.core.progress import Portion, Progress
from encodery.core.signals import StopRequest
from encodery.core.text import counted
from encodery.distributed import comm
from encodery.errors import EncoderyError, RunFailed, Stopped, UserError
from encodery.methods._perturbation import Perturbation
from encodery.models import pooling
from encodery.runs.directory import RunDir
from encodery.runs.identity import identity_of_config
from encodery.tasks.base import Task
from encodery.training import build, optim, resume
from encodery.training.build import Built, Inputs
from encodery.training.loop import StepReport
from encodery.training.session import Session
from encodery.training.task_data import data_lines, data_of, skipped_rows, summary


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
    resolved, inputs = (resolved, inputs) if restart else resume.as_begun(resolved, inputs, out)
    identity = resume.same_identity(identity_of_config(resolved, inputs.digests))
    run = opened(Path(out) if out else resume.own_path(resolved, identity), restart, progress)
    with run.lock():
        run.clean()
        resume.require_undamaged(run)
        named = resume.check_same(run, resolved, inputs, identity, allow_change, progress) if run.writes else {}
        done = comm.from_main(run.is_done)
        longer = done and comm.from_main(allow_change and resume.asks_for_steps(run, resolved))
        if done and not longer:
            leave_finished(run, progress)
            yield run, None
            return
        if longer:
            resume.require_checkpoint(run)
        inputs = replace(inputs, auto_pooling=comm.from_main(resume.pooling_of_run(run)))
        built = build_for(run, resolved, inputs, progress)
        if longer and (short := resume.not_longer(run, built.state.total)):
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
    if optim.still_run(resolved.config.optim, built.state.total):
        session.log("WARNING the run has one step, at a rate of 0: more steps (train.epochs) or optim.warmup=0 train")
    session.resume()
    if longer:
        session.prolong()
    if session.state.step == 0 or has_other_method(session):
        show_perturbations(session, resolved)
    if not resolved.config.train.shard:
        comm.require_equal(built.model.named_parameters(), "the weights")


def has_other_method(session: Session) -> bool:
    """Whether the run goes on from here with another method, or another length of its perturbations."""
    changes: list[dict[str, Any]] = session.run.info().get("changes", [])
    return any(
        change["step"] == session.state.step and any(key.startswith("method.") for key in change["before"])
        for change in changes[-1:]
    )


def show_perturbations(session: Session, resolved: Resolved) -> None:
    """Say what a method's perturbations do to the loss of the model before it is trained for them."""
    if not comm.is_main():
        return
    method, built = resolved.method, session.built
    micro = built.batches.at(0) if isinstance(method, Perturbation) else []
    preview = method.preview(built.model, micro[0]) if isinstance(method, Perturbation) and micro else None
    if preview:
        session.log(preview.line())
    if preview or "perturbation" in session.run.info():  # that of an earlier method
        session.run.update_info(perturbation=preview.to_dict() if preview else None)


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
        hardware=resume.hardware(resolved),
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
        **data_of(built.tasks_data),
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
