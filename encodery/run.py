"""Does a run: finds its directory, refuses what does not fit it, resumes, trains, ends with DONE."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from encodery import __version__, build, checkpoint, config, files, optim, world, yaml_reader
from encodery.build import Built, Inputs, PoolingSource
from encodery.config import Resolved
from encodery.environment import environment
from encodery.errors import EncoderyError, Stopped, UserError
from encodery.follower import Follower
from encodery.identity import FORM, changes, recognises
from encodery.loop import StepReport, steps_in_all
from encodery.methods._perturb import Perturbation
from encodery.models import pooling
from encodery.progress import Portion, Progress, spell_scores
from encodery.report.card import model_card
from encodery.rundir import RunDir, default_path, now
from encodery.session import Session
from encodery.signals import StopRequest
from encodery.tasks.base import Task


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
    with StopRequest(early=True) as stop, prepared(resolved, out, restart, allow_change, progress, stop) as session:
        if isinstance(session, RunDir):
            return session
        try:
            stop.begin()
            session.loop(watch)
            conclude(session, resolved)
        except (Exception, KeyboardInterrupt) as error:
            note_end(session.run, error)
            raise
        finally:
            progress.stop()
        return session.run


def note_end(run: RunDir, error: BaseException) -> None:
    """Write down how a run ended that is not done: tables show it as failed or stopped."""
    state = "stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed"
    with suppress(EncoderyError, OSError):  # a full disk must not hide the first failure
        run.log(f"{state}: {error}")
        run.update_info(ended={"state": state, "error": str(error)})


@contextmanager
def prepared(
    resolved: Resolved, out: Path | str | None, restart: bool, allow_change: bool, progress: Progress, stop: StopRequest
) -> Iterator["Session | RunDir"]:
    """A locked run directory with everything built and resumed; a finished one is given back as it is."""
    if resolved.config.threads:
        torch.set_num_threads(resolved.config.threads)
    world.join()
    progress = progress if world.leads() else Progress(quiet=True)
    with world.one_by_one():
        inputs = build.find_inputs(resolved)
    identity = same_identity(config.identity(resolved, inputs.digests))
    run = opened(Path(out) if out else own_path(resolved, identity), restart, progress)
    with run.lock() if world.leads() else nullcontext():
        run.clean()
        named: dict[str, Any] = {}
        if world.leads():
            named = check_same(run, resolved, inputs, identity, allow_change, progress)
        done = world.from_lead(run.is_done)
        longer = done and world.from_lead(allow_change and asks_for_steps(run, resolved))
        if longer:
            require_checkpoint(run)
        elif done:
            progress.say(f"{run.path} is done already (--restart begins anew)")
            if world.leads() and run.drop_left_checkpoints():
                progress.say(f"{run.path}: removed the checkpoints that were left when its process was killed")
            world.rest()
            yield run
            return
        inputs = replace(inputs, auto_pooling=world.from_lead(pooling_of_run(run)))
        try:  # before anything is written: a mistake leaves no run behind
            with world.one_by_one(), Portion(resolved.tasks[0][0].name, progress.quiet, progress.every) as tick:
                built = build.build(resolved, inputs, tick)
            options = resolved.config.train
            optim.require_warmup(resolved.config.optim, steps_in_all(built.batches, options.epochs, options.max_steps))
        except BaseException:
            run.forget()
            raise
        if longer and (short := not_longer(run, resolved, built)):
            progress.say(short)
            world.rest()
            yield run
            return
        if world.leads():
            run.reopen()
            begin(run, resolved, inputs, named)
            run.update_info(auto_pooling=built.model.encoder.pooling, pooling=pooling.of_heads(built.card))
        session = Session(run, resolved, built, progress, stop, named.get("identity", identity))
        if world.leads():
            run.update_info(steps=session.state.total)
        data = [line for subject in built.subjects for line in data_lines(subject.task)]
        for note in [*resolved.notes, *built.notes, *data]:
            session.tell(note)
        session.resume()
        if longer:
            session.prolong()
        if session.state.step == 0:
            show_perturbations(session, resolved)
        if not resolved.config.train.shard:
            world.require_equal(built.model.named_parameters(), "the weights")
        yield session


def asks_for_steps(run: RunDir, resolved: Resolved) -> bool:
    """Whether another number of steps or epochs is asked for than the run was made with."""
    old = yaml_reader.read_text(run.config_text(), "config.yaml").tree
    found = changes(old, resolved.config.plain(), [task for task, _ in resolved.tasks])
    return any(key in ("train.max_steps", "train.epochs") for key, _, _ in found)


def require_checkpoint(run: RunDir) -> None:
    """Only with its last checkpoint can a finished run be trained for longer: model/ has no optimiser."""
    if not world.from_lead(bool(checkpoint.steps(run.checkpoints))):
        raise UserError(
            f"{run.path} is done, and its checkpoints were not kept, so it cannot be trained for more steps. Train it "
            "again with --restart and train.keep_checkpoints=true, which keeps the last one; or begin a new run from "
            f"its weights with --model {run.path}."
        )


def not_longer(run: RunDir, resolved: Resolved, built: Built) -> str | None:
    """A sentence if a finished run has taken as many steps as are asked for."""
    options = resolved.config.train
    total = steps_in_all(built.batches, options.epochs, options.max_steps)
    last = world.from_lead(max(checkpoint.steps(run.checkpoints), default=0))
    if total > last:
        return None
    return f"{run.path} is done already with {last} steps; to train it for longer, ask for more than that, not {total}"


def show_perturbations(session: Session, resolved: Resolved) -> None:
    """Say what a method's perturbations do to the loss of the model before it is trained for them."""
    method = resolved.method
    if not isinstance(method, Perturbation) or not world.leads():
        return
    micro = session.built.batches.at(0)
    found = method.preview(session.built.model, micro[0]) if micro else None
    if found:
        session.tell(found.line())
        session.run.update_info(perturbation=found.plain())


def same_identity(identity: str) -> str:
    """The identity of the run, which all its processes must find."""
    if len(set(world.gather(identity))) > 1:
        raise UserError("the processes of this run see different settings or data; put the same files on all machines")
    return identity


def own_path(resolved: Resolved, identity: str) -> Path:
    """Where a run without -o goes: where it was begun, by an earlier version too, or a folder of that identity."""
    path, tasks = default_path(resolved.name, identity), [task for task, _ in resolved.tasks]
    others = sorted(path.parent.glob(f"{path.name[:-8]}{'[0-9a-f]' * 8}")) if not path.exists() else []
    return next(
        (one for one in others if RunDir(one).problem() is None and recognises(RunDir(one), identity, tasks)), path
    )


def opened(path: Path, restart: bool, progress: Progress) -> RunDir:
    """The directory of the run: the first process makes it, the others look at it."""
    if not world.leads():
        world.wait()
        return Follower(path)
    if restart and (old := RunDir(path).move_aside()):
        progress.say(f"the old run was moved to {old}")
    run = RunDir.create(path)
    world.wait()
    return run


def conclude(session: Session, resolved: Resolved) -> None:
    """The end of training: all processes answer the evaluation splits, the first writes what came out."""
    world.wait()  # for the last checkpoint, which may be the best one
    result = session.finish()
    if world.leads():
        finish(session, resolved, result)
    world.rest()


def what_changed(run: RunDir, info: dict[str, Any], inputs: Inputs, resolved: Resolved, identity: str) -> list[str]:
    """What differs from the run that the directory holds, a line each; nothing: it is the same run, or none."""
    known = info.get("identity")
    if known is not None and not recognises(run, identity, [task for task, _ in resolved.tasks]):
        settings = changed_settings(run, info, inputs, resolved)
        return settings or [f"  the content of {' or '.join(changed_inputs(info, inputs, resolved))}"]
    newest, _ = (None, []) if run.is_done else checkpoint.latest(run.checkpoints)
    saved_by = checkpoint.identity_of(newest) if newest else None
    if newest and saved_by and saved_by not in (identity, known, *went_on_from(info)):
        settings = changed_settings(run, info, inputs, resolved) if run.config.is_file() else []
        return settings or [f"  {newest.path} was saved by another run"]
    if known or saved_by:
        return []
    if run.config.is_file():  # begun, but only the settings say what
        return changed_settings(run, info, inputs, resolved)
    return [f"  {newest.path} does not say which run saved it, and config.yaml is missing"] if newest else []


def went_on_from(info: dict[str, Any]) -> list[str]:
    """The identities that the run had before `--allow-change`: their checkpoints are its own."""
    return info.get("went_on_from") or []


def earlier_identities(run: RunDir, info: dict[str, Any]) -> list[str]:
    """Whose checkpoints will count as this run's, because a person said so."""
    newest, _ = checkpoint.latest(run.checkpoints)
    found = {*went_on_from(info), info.get("identity"), checkpoint.identity_of(newest) if newest else None}
    return sorted(str(one) for one in found - {None})


def changed_settings(run: RunDir, info: dict[str, Any], inputs: Inputs, resolved: Resolved) -> list[str]:
    """The settings that matter and are not those that the directory holds, a line each."""
    old = yaml_reader.read_text(run.config_text(), str(run.config)).tree
    before = info.get("inputs") or {}
    same = [key for key, digest in inputs.digests.items() if before.get(key) == digest]
    found = changes(old, resolved.config.plain(), [task for task, _ in resolved.tasks], same)
    return [f"  {key}: {was!r} there, {now!r} now" for key, was, now in found]


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
    named: dict[str, Any] = {"identity": identity, "identity_form": FORM}
    notes = []
    if lines := what_changed(run, info, inputs, resolved, identity):
        if not allow_change:
            listing = "\n".join(lines)
            raise UserError(
                f"{run.path} was made with other settings:\n{listing}\n"
                "Give another -o, begin anew with --restart, or go on all the same with --allow-change."
            )
        named["went_on_from"] = earlier_identities(run, info)
        notes.append("went on with changed settings: " + "; ".join(line.strip() for line in lines))
    elif info.get("identity"):
        named = {key: info[key] for key in named if key in info}
    if not info and checkpoint.steps(run.checkpoints):
        progress.say(f"{run.path}: run.json was missing, it is written again")
        notes.append("run.json was missing and was written again")
    for sentence in other_hardware(info, resolved) if info else ():
        progress.say(sentence)
        notes.append(sentence)
    if notes:
        named["notices"] = [*info.get("notices", []), *({"time": now(), "text": text} for text in notes)]
    return named


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
    device = str(build.pick_device(resolved.config.device))
    return {"device": device, "threads": torch.get_num_threads(), "processes": world.size()}


def begin(run: RunDir, resolved: Resolved, inputs: Inputs, named: dict[str, Any]) -> None:
    """Write down what this run is."""
    run.write_config(config.dump(resolved))
    config.keep_code(resolved, run.path)
    tasks = [task for task, _ in resolved.tasks]
    keep_bad_rows(run, tasks)
    revisions = {
        k: f.revision for k, f in (("model", inputs.model), ("init_from", inputs.init_from)) if f and f.revision
    }
    run.update_info(
        ended=None,
        **named,
        name=resolved.name,
        encodery=__version__,
        inputs=inputs.digests,
        revisions=revisions,
        hardware=hardware(resolved),
        environment=environment(),
        seed=resolved.config.seed.plain(),
        task=" + ".join(task.name for task in tasks),
        tasks=[task.name for task in tasks],
        model=resolved.config.model.name or resolved.config.model.plain()["new"],
        method=resolved.config.method["kind"],
        **data_of(tasks),
    )


def data_of(tasks: Sequence[Task]) -> dict[str, Any]:
    """Where the rows of each split came from; of several tasks under the task's name, and as TASK:SPLIT."""
    found = {t.name: {split: origin_of(t, split) for split in t.splits() if t.has(split)} for t in tasks}
    if len(tasks) == 1:
        return {"data": found[tasks[0].name]}
    flat = {f"{name}:{split}": about for name, splits in found.items() for split, about in splits.items()}
    return {"data": flat, "data_of": found}


def keep_bad_rows(run: RunDir, tasks: Sequence[Task]) -> None:
    """The rows that skip_bad_rows left out go into a file, each with its place and what is wrong with it."""
    skipping = [task for task in tasks if getattr(task, "skip_bad_rows", False)]
    bad = [row for task in skipping for split in task.splits() if task.has(split) for row in task.bad_rows(split)]
    if bad:
        lines = [files.plain_json(asdict(row)) for row in dict.fromkeys(bad)]
        files.write_atomic(run.path / "bad_rows.jsonl", "\n".join(lines) + "\n")
        run.log(f"{len(lines)} bad rows were left out; they are in bad_rows.jsonl")


def origin_of(task: Task, split: str) -> dict[str, Any]:
    """Where a split came from, as data."""
    origin = task.origin(split)
    return {k: v for k, v in {**asdict(origin), "part": origin.part}.items() if v or k == "rows"}


def data_lines(task: Task) -> list[str]:
    """Loud lines for data that are not whole or not official."""
    found = {s: task.origin(s) for s in task.splits() if not s.startswith("test") and task.has(s)}
    parts = [f"WARNING {task.name}:{s} {o.part}" for s, o in found.items() if o.part]
    return parts + [f"WARNING {task.name}:{s} {o.note}" for s, o in found.items() if o.note]


def finish(session: Session, resolved: Resolved, result: dict[str, Any]) -> None:
    """Model card, DONE, then the checkpoints may go."""
    run = session.run
    run.write_card(model_card(run, resolved.config.plain(), result))
    for key, scores in result["scores"].items():
        marked = " (best on dev, reported on dev)" if reported_on_choice(result, key) else ""
        marked += threshold_mark(result, key)
        session.tell(f"{key}  {spell_scores(scores, result['main'][key])}{marked}")
    run.finish()
    if not resolved.config.train.keep_checkpoints:
        run.drop_checkpoints()
    session.tell(f"done: {run.path}")


def threshold_mark(result: dict[str, Any], key: str) -> str:
    """What must be said beside a score of answers whose thresholds were chosen."""
    task, _, split = key.rpartition(":")
    if (about := result.get("thresholds", {}).get(task)) is None:
        return ""
    on = about["chosen_on"]
    return f" (threshold chosen on {on}{', reported on ' + on if on == split else ''})"


def reported_on_choice(result: dict[str, Any], key: str) -> bool:
    """Whether a score was taken on the very rows that chose the checkpoint."""
    return bool(result["chosen"].get("chosen_on") == key.rpartition(":")[2])
