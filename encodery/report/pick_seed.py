"""Of several seeds of each task the run to go on with: the best on dev, the median, or a named seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from encodery.errors import UserError
from encodery.report import records
from encodery.report.groups import setting, varying
from encodery.report.records import Record
from encodery.tasks.forms.metric_table import lower_is_better

OPTIMISTIC = (
    "picking the best of several seeds on dev makes the dev scores of the picked runs optimistic: quote the mean or "
    "the median of all seeds as the dev score"
)


@dataclass(frozen=True)
class Picked:
    """A run, and why it."""

    run: Path
    words: str


def pick(folders: Sequence[str | Path], how: str) -> tuple[dict[str, Picked], list[str]]:
    """GLUE task -> its run. `how` is best, median, or seeds by task: `rte=7,cola=3`."""
    wanted = _seeds(how)
    found, remarks = records.read(folders)
    by_task: dict[str, list[Record]] = {}
    for record in found:
        if record.task.startswith("glue/"):
            by_task.setdefault(record.task, []).append(record)
        else:
            remarks.append(f"{record.path} is left out: {record.task or 'its task'} is not a GLUE task")
    if not by_task:
        raise UserError("; ".join([f"no runs of GLUE tasks below {', '.join(map(str, folders))}", *remarks[:3]]))
    if wanted is not None:
        _require_tasks(wanted, by_task)
        by_task = {task: members for task, members in by_task.items() if _short(task) in wanted}
    picked = {task: _of_task(task, members, how, wanted) for task, members in by_task.items()}
    if how == "best" and any(len(members) > 1 for members in by_task.values()):
        remarks.append(OPTIMISTIC)
    return picked, remarks


def _short(task: str) -> str:
    return task.removeprefix("glue/")


def _seeds(how: str) -> dict[str, str] | None:
    """`rte=7,glue/cola=3` -> {rte: 7, cola: 3}; None for best and median."""
    if how in ("best", "median"):
        return None
    pairs = [one.strip().partition("=") for one in how.split(",")]
    if not all(task and equals and seed for task, equals, seed in pairs):
        raise UserError(f"--pick {how}: expected best, median, or seeds by task such as rte=7,cola=3")
    return {_short(task): seed for task, _, seed in pairs}


def _require_tasks(wanted: Mapping[str, str], by_task: Mapping[str, Sequence[Record]]) -> None:
    have = {_short(task) for task in by_task}
    unknown = [task for task in wanted if task not in have]
    if unknown:
        raise UserError(f"--pick: there is no run of {', '.join(unknown)}; there are {', '.join(sorted(have))}")
    left = sorted(have - set(wanted))
    if left:
        raise UserError(f"--pick: say which seed of {', '.join(left)} too, or give only folders of the named tasks")


def _of_task(task: str, members: Sequence[Record], how: str, wanted: Mapping[str, str] | None) -> Picked:
    _require_one_configuration(task, members)
    done = [record for record in members if record.done]
    if not done:
        raise UserError(
            f"{task}: its only run is not finished"
            if len(members) == 1
            else f"{task}: none of its {len(members)} runs is finished"
        )
    if wanted is not None:
        return _named(task, done, wanted[_short(task)])
    scored = [(value, record) for record in done if (value := _dev_score(record)) is not None]
    if not scored:
        raise UserError(f"{task}: no run has a dev score to pick by; name a seed, such as --pick {_short(task)}=1")
    lower = lower_is_better(_metric(done[0]))
    ranked = sorted(scored, key=lambda pair: (pair[0] if lower else -pair[0], str(pair[1].seed)))
    place = 0 if how == "best" else len(ranked) // 2  # of an even number the lower one: a run cannot be half of two
    value, record = ranked[place]
    words = f"{how} of {len(ranked)} seeds on dev: seed {record.seed}, {_metric(record)} {value:.4f}"
    left = len(members) - len(done)
    return Picked(record.path, words + (f" ({left} more not finished)" if left else ""))


def _named(task: str, done: Sequence[Record], seed: str) -> Picked:
    records = [record for record in done if str(record.seed) == seed]
    if not records:
        have = ", ".join(str(record.seed) for record in done)
        raise UserError(f"--pick {_short(task)}={seed}: no finished run has that seed; there are {have}")
    score = _dev_score(records[0])
    words = f"seed {seed}, as asked" + (f", {_metric(records[0])} {score:.4f} on dev" if score is not None else "")
    return Picked(records[0].path, words)


def _require_one_configuration(task: str, members: Sequence[Record]) -> None:
    """Seeds of one configuration can be picked from; which configuration is better is for the table to say."""
    keys = varying(members)
    kinds = dict.fromkeys(", ".join(f"{key}={setting(one.settings, key)}" for key in keys) for one in members)
    if len(kinds) > 1:
        listed = "".join(f"\n  {words}" for words in sorted(kinds))
        raise UserError(f"{task} has several configurations:{listed}\nGive the folders of one of them.")


def _metric(record: Record) -> str:
    return record.main.get(f"{record.task}:dev", "")


def _dev_score(record: Record) -> float | None:
    return record.value(f"{record.task}:dev", _metric(record))
