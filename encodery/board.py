"""Memory that processes of one machine share: what one writes there, the others read without a message."""

import mmap
import os
import tempfile

PLACE = "/dev/shm"  # files that are memory, where a system has them


def create(size: int) -> str | None:
    """The name of so many bytes that nobody else may read; None where there is no such place, or no room in it."""
    try:
        number, path = tempfile.mkstemp(prefix="encodery-", dir=PLACE)
    except OSError:
        return None
    try:
        os.posix_fallocate(number, 0, size)  # now, since a page that is lacking later would kill the process
    except OSError:
        os.unlink(path)
        return None
    finally:
        os.close(number)
    return path


def show(path: str | None, size: int) -> mmap.mmap | None:
    """These bytes; None in a process that does not see them, because it is on another machine."""
    if path is None:
        return None
    try:
        number = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return mmap.mmap(number, size) if os.fstat(number).st_size == size else None
    finally:
        os.close(number)
