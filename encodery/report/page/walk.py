"""Files of a name at and below some folders."""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

_NEVER = {"checkpoints", "shards", "kept", "model"}


def below(folders: Sequence[Path], pattern: str) -> Iterator[Path]:
    """In the order of their paths; hidden folders, weights and what was moved aside are not entered."""
    seen: set[Path] = set()
    for folder in folders:
        for place, inner, names in os.walk(folder):
            inner[:] = sorted(name for name in inner if name[0] != "." and name not in _NEVER and ".old-" not in name)
            for name in sorted(names):
                path = Path(place, name)
                if fnmatch(name, pattern) and path.resolve() not in seen:
                    seen.add(path.resolve())
                    yield path
