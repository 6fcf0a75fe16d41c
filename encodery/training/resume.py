"""Whether a run directory holds this very run, and so is resumed: other seeds, data or settings are refused.

A run is recognised by its identity (runs/identity.py), and its checkpoints by the identity that they were saved with.
With `--allow-change` a person says that a run goes on although it is another one; run.json keeps what was before. What
the checkpoint itself holds, and how a session is put back to it, is training/checkpoint.py's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from encodery.config.layers import flat
from encodery.config.load import Resolved
from encodery.core import yaml
from encodery.core.progress import Progress
from encodery.distributed import comm
from encodery.errors import UserError
from encodery.inference import open_model
from encodery.runs.directory import RunDir, default_path, now
from encodery.runs.identity import FORM, changes, content_of, identity_of_config, recognises
from encodery.tasks.base import Task
from encodery.tasks.sources.own_files import Own
from encodery.tasks.sources.rows import equal_texts
from encodery.training import checkpoint
from encodery.training.build import Inputs, PoolingSource

Change = tuple[str, Any, Any]


# Which run it is, and where it goes.


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


# What differs from the run that the directory holds.


def require_undamaged(run: RunDir) -> None:
    """Refuse a finished run whose files were changed since, before anything is compared with what they say."""
    if problem := comm.from_main(run.problem() if run.is_done else None):
        raise UserError(problem)


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
    if lines:
        require_allowed(run, resolved, lines, allow_change)
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


def require_allowed(run: RunDir, resolved: Resolved, lines: Sequence[str], allow_change: bool) -> None:
    """A person may allow a change; of a finished run that has no more steps to take nobody would see it."""
    listing = "\n".join(lines)
    if not allow_change:
        raise UserError(
            f"{run.path} was made with other settings:\n{listing}\n"
            "Give another -o, start again with --fresh, or continue anyway with --allow-change."
        )
    if run.is_done and not asks_for_steps(run, resolved):
        if checkpoint.steps(run.checkpoints):
            advice = "give another -o, start again with --fresh, or ask for more steps too."
        else:
            advice = (
                "give another -o, or start again with --fresh (its checkpoints were not kept, so it cannot be trained "
                "for more steps)."
            )
        raise UserError(
            f"{run.path} is done, and was made with other settings:\n{listing}\n"
            f"Nothing is left to train with these: {advice}"
        )


def with_change(
    run: RunDir, info: dict[str, Any], inputs: Inputs, resolved: Resolved, lines: Sequence[str]
) -> dict[str, Any]:
    """What run.json says of settings that a person allowed to change: whose checkpoints count, and what was before."""
    before = setting_changes(run, info, inputs, resolved) if run.config.is_file() else []
    change = {
        "step": max(checkpoint.steps(run.checkpoints), default=0), "time": now(),
        "text": "; ".join(line.strip() for line in lines), "before": earlier_settings(run, before) if before else {},
    }  # fmt: skip
    return {"went_on_from": earlier_identities(run, info), "changes": [*info.get("changes", []), change]}


def earlier_settings(run: RunDir, changed: Sequence[Change]) -> dict[str, Any]:
    """What brings back the settings of the directory, by key. Another kind (of a method) has other keys: of its section
    all that were there, and none that were not."""
    held = flat(yaml.read_text(run.config_text(), str(run.config)).tree)
    kinds = [key.removesuffix("kind") for key, _, _ in changed if key.endswith(".kind")]
    other = {key: value for key, value in held.items() if key.startswith(tuple(kinds))}
    return {key: was for key, was, _ in changed if not key.startswith(tuple(kinds))} | other


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


# What may differ: hardware, at the price of rounding, and what an earlier version left open.


def other_hardware(info: dict[str, Any], resolved: Resolved) -> Iterator[str]:
    """What is computed on something else than before, a sentence each."""
    for name, here in hardware(resolved).items():
        before = info.get("hardware", {}).get(name, 1 if name == "processes" else None)
        if before != here:
            yield f"{name} was {before}, is now {here}: bit-identity with an undisturbed run is not promised"


def hardware(resolved: Resolved) -> dict[str, Any]:
    """What may differ on resume, at the price of rounding."""
    device = str(open_model.pick_device(resolved.config.device))
    return {"device": device, "threads": torch.get_num_threads(), "processes": comm.size()}


def pooling_of_run(run: RunDir) -> PoolingSource:
    """What `model.pooling: auto` means for a run: on resume what it meant before, whatever the folder says now."""
    info = run.info()
    if not info.get("identity"):
        return "folder"
    found: PoolingSource = info.get("auto_pooling", "config")  # absent: begun before heads could read anything else
    return found


# A finished run may be trained for longer.


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
