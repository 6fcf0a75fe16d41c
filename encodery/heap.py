"""Keep freed memory in the process: a step frees what the next one asks for again."""

import contextlib
import ctypes

# The names of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep() -> None:
    """Tell glibc to give neither large blocks nor the end of its heap back to the system; elsewhere nothing changes.

    By itself it returns every block above 32 MB (the gradient of the word embeddings) and, after the backward pass, the
    activations; then the kernel clears each page anew, which is a tenth of a step on short texts.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # not glibc
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, -1)
