"""ParaGen's dotted names in our words, for `sweep import` of the command lines in its search.json.

A table and the few rules it needs. Its YAML files are not read.
"""

import difflib
from typing import NamedTuple

from encodery.config.schema import Entry
from encodery.errors import UserError

ROOTS = ("task", "env")  # of a ParaGen config; ours has neither
_OPTIM, _TRAINER = "task.trainer.optimizer.", "task.trainer."

# ParaGen's name -> our key.
KEYS = {
    "task.model.pretrained_model": "model.name",
    "task.model.init_mag": "method.init_mag",
    "task.model.adv_lr": "method.adv_lr",
    "task.model.max_norm": "method.max_norm",
    "task.tokenizer.tokenizer_name": "model.tokenizer",
    "task.data.train.sampler.max_samples": "train.batch_size",
    _OPTIM + "lr.max_rate": "optim.lr",
    _OPTIM + "lr.warmup_steps": "optim.warmup",
    _OPTIM + "lr.total_steps": "train.max_steps",
    _OPTIM + "betas": "optim.betas",
    _OPTIM + "eps": "optim.eps",
    _OPTIM + "weight_decay": "optim.weight_decay",
    _OPTIM + "clip_norm": "optim.clip",
    _TRAINER + "max_steps": "train.max_steps",
    _TRAINER + "max_epochs": "train.epochs",
    _TRAINER + "log_interval": "train.log",
    _TRAINER + "early_stopping_tolerance": "train.patience",
    _TRAINER + "validate_interval_epoch": "train.evaluate",
    _TRAINER + "validate_interval_step": "train.evaluate",
    "env.seed": "seed",
    "env.device": "device",
    "env.fp16": "train.precision",
}
# Values that are written differently here; {} is ParaGen's number.
WORDS = {
    _TRAINER + "validate_interval_epoch": "{} epochs",
    _TRAINER + "validate_interval_step": "{} steps",
    "env.fp16 True": "fp16",
    "env.fp16 False": "fp32",
}
# Names without a counterpart, and what to do instead.
INSTEAD = {
    "task.class": "`tasks` sets this: --tasks glue/rte",
    "task.mode": "the verb sets this: encodery train, evaluate, predict",
    "task.model.class": "the method sets this: --method freelb, or --method plain",
    _TRAINER + "class": "the method sets this: --method freelb, or --method plain",
    _OPTIM + "class": "write --optim.kind adamw or adamax",
    _OPTIM + "lr.class": "write --optim.schedule linear, cosine, constant or wsd",
    _OPTIM + "update_frequency": "train.batch_size counts all examples of an update: multiply",
    _TRAINER + "save_model_dir": "the run directory holds it: -o DIR",
    _TRAINER + "tensorboard_dir": "the run directory holds metrics.jsonl: -o DIR",
    "env.log_filename": "the run directory holds log.txt: -o DIR",
}


class Named(NamedTuple):
    """An override in our words, and a line that says so; for our own names they stay as they were, without a line."""

    key: str
    text: str
    note: str = ""


def translate(key: str, text: str) -> Named:
    """ParaGen's name and value in our words; one that nobody knows is refused with the nearest.

    Whoever catches the error says which name it was.
    """
    if key.partition(".")[0] not in ROOTS or "." not in key:
        return Named(key, text)
    if key in INSTEAD:
        raise UserError(f"this option of ParaGen has no counterpart here; {INSTEAD[key]}.")
    if key not in KEYS:
        raise UserError(f"unknown option of ParaGen{nearest(key)}")
    if key == "task.model.max_norm" and is_zero(text):
        raise UserError("in ParaGen 0 means no perturbation, here no limit; write method.max_norm yourself.")
    ours, value = KEYS[key], spelled(key, text)
    return Named(ours, value, f"ParaGen's {key} is {ours} here: {ours}={value}.")


def is_zero(text: str) -> bool:
    """Whether this is some spelling of 0."""
    try:
        return float(text) == 0
    except ValueError:
        return False


def spelled(key: str, text: str) -> str:
    """The value as it is written here. Python's tuples are lists in YAML."""
    given = text.strip()
    if key in WORDS:
        return WORDS[key].format(given)
    if f"{key} {given}" in WORDS:
        return WORDS[f"{key} {given}"]
    return f"[{given[1:-1]}]" if given.startswith("(") and given.endswith(")") else text


def nearest(key: str) -> str:
    """Another name that was meant: one of ParaGen's, or ours with `tasks`."""
    legal = [*KEYS, *(f"tasks.{name}" for name in Entry.model_fields)]
    near = difflib.get_close_matches(key, legal, n=1, cutoff=0.5)
    same_end = [name for name in legal if name.rpartition(".")[2] == key.rpartition(".")[2]]
    found = same_end or near
    return f"; did you mean {found[0]}?" if found else f"; there are: {', '.join(KEYS)}."
