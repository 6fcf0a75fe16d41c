"""DONE: what the files of a finished run were when it finished, and how they may change afterwards. No torch.

DONE lists size and sha256 of every file of the run that does not grow on (the log) and does not carry its own digests
(checkpoints), and ends with the digest of what it says itself. Runs of earlier versions lack that, or list nothing but
the digest of the scores.

A later change of several files, such as the answers and scores of an evaluation, is one step: the new files are written
under hidden names, then DONE names them and what they replace, then each takes its place, then DONE forgets what was
replaced. The second of these is the step: a run that was left before it is as it was, one that was left after it is
completed by whoever opens it for writing next. In between every file is one that DONE names.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import IO, Any

from encodery.core import files
from encodery.core.files import Written
from encodery.errors import UserError

NAME = "DONE"
FILES, PENDING, OWN = "files", "pending", "sha256"  # OWN: the digest of all else that DONE says
STATUS = "status.json"  # written by sweeps
UNLISTED = {NAME, "checkpoints", STATUS}  # of a run's own names; logs grow on
CORE = ("config.yaml", "run.json", "scores.json")  # what tables read: compared whenever a run is opened
REMEDY = "restore it from a copy, or train the run again with --fresh"


class Finished:
    """The DONE of a run directory."""

    def __init__(self, run: Path) -> None:
        self.run, self.path = run, run / NAME

    def read(self) -> dict[str, Any]:
        """What it says; an error if it is damaged, or names files that are not the run's."""
        stored: dict[str, Any] = files.read_json(self.path)
        sound = isinstance(stored, dict) and all(isinstance(stored.get(key, {}), dict) for key in (FILES, PENDING))
        if not sound or not all(map(self._is_own, [*stored.get(FILES, {}), *stored.get(PENDING, {})])):
            raise UserError(f"{self.path} is damaged: it does not list the files of this run; {REMEDY}")
        if not all(map(_is_pending, stored.get(PENDING, {}).values())):
            raise UserError(f"{self.path} is damaged, in its list of pending changes; {REMEDY}")
        digest = stored.pop(OWN, None)
        if digest is not None and digest != files.digest(stored):
            raise UserError(f"{self.path} is damaged: its sha256 is not the one at its end; {REMEDY}")
        return stored

    def _store(self, done: Mapping[str, Any]) -> None:
        files.write_json(self.path, {**done, OWN: files.digest(done)})

    def _is_own(self, name: str) -> bool:
        parts = PurePosixPath(name).parts
        return bool(parts) and parts[0] != "/" and ".." not in parts

    def write(self, time: str) -> None:
        """List all files of the run."""
        listed = {name: asdict(files.of_file(self.run / name)) for name in self._names()}
        scores = listed.get("scores.json", {}).get("sha256")
        self._store({"time": time, "scores_sha256": scores, FILES: listed})

    def _names(self) -> list[str]:
        paths = []
        for root, folders, names in os.walk(self.run):
            here = Path(root).relative_to(self.run)
            top = here == Path()
            folders[:] = [name for name in folders if not name.startswith(".") and not (top and name in UNLISTED)]
            kept = [name for name in names if not name.startswith(".") and not (top and _grows(name))]
            paths += [(here / name).as_posix() for name in kept if not Path(root, name).is_symlink()]
        return sorted(paths)

    # Is it still what it was?

    def problem(self) -> str | None:
        """What is wrong with the files that tables read, as a sentence; None if nothing is."""
        done = self.read()
        if "scores.json" not in done.get(FILES, {}) and (sentence := self._old_problem(done)):
            return sentence
        if FILES not in done:
            return None
        sentences = (self._damage(name, done, digest=True) for name in CORE)
        return next((sentence for sentence in sentences if sentence), None)

    def _old_problem(self, done: Mapping[str, Any]) -> str | None:
        digest, scores = done.get("scores_sha256"), self.run / "scores.json"
        if digest is None or files.sha256(scores) == digest:
            return None
        return f"{scores} was changed after the run had finished (DONE has its sha256): {REMEDY}"

    def require_intact(self, folder: Path) -> None:
        """Refuse files of a folder of the run that are not as they were written; sizes alone under `sizes_only`."""
        prefix = folder.relative_to(self.run).as_posix() + "/"
        done = self.read()
        for name in done.get(FILES, {}):
            if name.startswith(prefix) and not name.endswith("README.md"):
                sentence = self._damage(name, done, digest=files.verifying())
                if sentence:
                    raise UserError(sentence)

    def damage_of(self, path: Path) -> str | None:
        """What is wrong with one file of the run, as a sentence; None if nothing is, or if DONE does not list it."""
        done = self.read()
        name = path.relative_to(self.run).as_posix()
        return self._damage(name, done, digest=files.verifying()) if FILES in done else None

    def _damage(self, name: str, done: Mapping[str, Any], *, digest: bool) -> str | None:
        if name not in done[FILES]:
            return None
        path, expected = self.run / name, Written.read(done[FILES][name])
        if expected is None:
            return f"{self.path} is damaged, in its entry of {name}; {REMEDY}"
        sentence = files.damage(path, expected, NAME, digest=digest)
        if sentence is None or self._still_old(path, done.get(PENDING, {}).get(name)):
            return None
        changed = ", it was changed after the run had finished" if path.is_file() else ""
        return f"{sentence}{changed}: {REMEDY}"

    def _still_old(self, path: Path, pending: Mapping[str, Any] | None) -> bool:
        """Whether a file is as it was before a change that is under way, or was left half done."""
        if pending is None:
            return False
        before = Written.read(pending.get("before"))
        return not path.exists() if before is None else files.damage(path, before, NAME) is None

    # Changes

    def complete(self) -> None:
        """Bring a change to its end that its process did not live to complete. With the lock held."""
        if not self.path.is_file():
            return
        done = self.read()
        if pending := done.get(PENDING):
            self._put_in_place(pending)
            self._forget(done)

    def _put_in_place(self, pending: Mapping[str, Any]) -> None:
        with files.io_trouble(f"{self.run} could not be changed", self.run):
            for name, about in pending.items():
                path = self.run / name
                new = path.with_name(about["new"])
                if new.is_file():
                    os.rename(new, path)
                    files.sync_folder(path.parent)

    def _forget(self, done: Mapping[str, Any]) -> None:
        self._store({key: value for key, value in done.items() if key != PENDING})


class Change:
    """New versions of files of a finished run, which take their places together."""

    def __init__(self, finished: Finished) -> None:
        self.finished = finished
        self.new: dict[str, Path] = {}  # name in the run -> hidden file with the new content

    @contextmanager
    def open(self, path: Path) -> Iterator[IO[bytes]]:
        """A stream for the new content of a file."""
        hidden = files.hidden_sibling(path)
        with files.io_trouble(f"{path} could not be written", path.parent), open(hidden, "xb") as stream:
            self.new[path.relative_to(self.finished.run).as_posix()] = hidden
            yield stream
            files.sync(stream)

    def current(self, path: Path) -> Path:
        """Where the content of a file is: what this change writes, or what is there."""
        return self.new.get(path.relative_to(self.finished.run).as_posix(), path)

    def commit(self) -> None:
        if not self.new:
            return
        done = self.finished.read()
        listed = done.get(FILES, {})
        entries = {name: asdict(files.of_file(path)) for name, path in self.new.items()}
        if "scores.json" in entries:
            done["scores_sha256"] = entries["scores.json"]["sha256"]
        pending = {n: {"new": path.name, "before": self._before(n, listed)} for n, path in self.new.items()}
        done = {**done, FILES: {**listed, **entries}}
        for folder in {path.parent for path in self.new.values()}:
            files.sync_folder(folder)
        self.finished._store({**done, PENDING: pending})
        self.new = {}
        self.finished._put_in_place(pending)
        self.finished._forget(done)

    def _before(self, name: str, listed: Mapping[str, Any]) -> Any:
        path = self.finished.run / name
        if name in listed or not path.is_file():
            return listed.get(name)
        return asdict(files.of_file(path))

    def undo(self) -> None:
        """Leave everything as it was."""
        for hidden in self.new.values():
            hidden.unlink(missing_ok=True)


def _is_pending(entry: Any) -> bool:
    """Whether an entry of DONE names a hidden file of ours, in the folder of the file that it replaces."""
    return isinstance(entry, dict) and files.is_hidden_sibling(entry.get("new"))


def _grows(name: str) -> bool:
    return name in UNLISTED or (name.startswith("log.") and name.endswith(".txt"))


def of_folder(folder: Path) -> Finished | None:
    """The DONE of the finished run that a folder is a part of: `RUN/model`, `RUN/kept/25`, `RUN/model/generator`."""
    above = [path for path in list(folder.parents)[:3] if (path / NAME).is_file() and files.is_run(path)]
    return Finished(above[0]) if above else None
