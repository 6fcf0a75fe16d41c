"""Failures from outside (disks, memory, the system) as sentences. What is left is a bug of ours."""

import errno
import os
import re

from encodery.core import files
from encodery.core.text import first_line
from encodery.errors import EncoderyError, RunFailed, UserError

# What a person typed or has set up wrongly; all other errors of the system are failures of the run.
_INPUT = {
    errno.ENOENT: "check the name",
    errno.ENOTDIR: "check the name",
    errno.EISDIR: "give a file",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ELOOP: "its links form a loop",
    errno.EACCES: "change its permissions, or choose another folder",
    errno.EPERM: "change its permissions, or choose another folder",
    errno.EEXIST: "choose another name",
    errno.ENOTEMPTY: "choose another folder",
    errno.EINVAL: "check the name",
}
_FAILED = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some space and run the same command again",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EROFS: "it is mounted read-only; choose another folder",
    errno.EIO: "check the disk, then run the same command again",
    errno.ESTALE: "check the network disk, then run the same command again",
    errno.ENOMEM: "close other programs and run the same command again",
    errno.EAGAIN: "close other programs and run the same command again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files",
}
_MEMORY = re.compile(r"out of memory|can.t allocate memory|not enough memory|Unable to allocate|bad_alloc", re.I)
_ADVICE = "lower train.token_budget or train.micro_batch (the gradient stays the same), or use a smaller model"


def as_sentence(error: BaseException) -> EncoderyError | None:
    """The error in words that a person can act on; None for what only a programmer can."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _MEMORY.search(str(error))):
        return RunFailed(f"out of memory ({first_line(error)[:200]}): {_ADVICE}")
    error = files.from_safetensors(error) or error
    if isinstance(error, OSError) and error.errno is not None:
        where = error.filename if isinstance(error.filename, str | os.PathLike) else ""
        return _of_system(error.errno, _short(os.fspath(where)) if where else "", error.strerror or str(error))
    return None


def _of_system(number: int, where: str, reason: str) -> EncoderyError | None:
    if number in _INPUT and where:
        return UserError(f"{where}: {reason}; {_INPUT[number]}")
    if number in _FAILED:
        return RunFailed(f"{where or 'the system says'}: {reason}; {_FAILED[number]}")
    return None


def _short(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:100]}… ({len(name):,} characters)"
