"""Own Python files as components, and the one gate through which they are imported.

A file that a person names in a config of theirs runs. Code of a run directory, which may be somebody else's, runs only
if that is allowed: code in such a folder, and code that a config in such a folder names, whoever reads that config.
"""

import importlib.util
import json
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from encodery.config.components import find
from encodery.config.without_torch import need_torch
from encodery.core.files import inside, sha256
from encodery.core.options import Options
from encodery.errors import UserError

FOLDER = "code"  # of a run directory: copies of the Python files that it was made with
LISTING = "files.json"
K = TypeVar("K", bound=Options)


@dataclass
class Code:
    """Whether code of run directories may run, and which own files were used."""

    allowed: bool = False
    also: Path | None = None  # a folder that is a run directory whatever it holds
    used: dict[str, tuple[Path, str]] = field(default_factory=dict)  # file as typed -> (path, sha256)

    def find(self, package: str, kind: str, folder: Path) -> type[Options]:
        """The class that a kind stands for, named by a config in `folder`."""
        if not is_own(kind):
            return find(package, kind)
        file, _, name = kind.rpartition(":")
        path = self.path_of(file, folder)
        if path.is_file():
            self.used[file] = (path, sha256(path))
        return _checked(_import(path), path, name)

    def path_of(self, file: str, folder: Path) -> Path:
        """The gate: where the file is that a config in `folder` names; an error if it may not run."""
        path = (folder / file).resolve()
        naming = self._run_of(folder)
        run = naming or self._run_of(path.parent)
        if run is None:
            return path
        if not self.allowed:
            raise UserError(
                f"{run}: this run directory contains its own code ({file}); read it, then add --allow-code."
            )
        return path if naming is None else _copy(naming, file, path)

    def _run_of(self, folder: Path) -> Path | None:
        if self.also is not None and folder.resolve().is_relative_to(self.also.resolve()):
            return self.also
        return run_directory_of(folder)


def is_own(kind: str) -> bool:
    """Whether a kind names a Python file: `mine.py:Mine`."""
    return ".py:" in kind


def run_directory_of(folder: Path) -> Path | None:
    """The run directory that the folder is, or is in; each of its marks is enough, since others could be removed."""
    folder = folder.resolve()
    return next((one for one in (folder, *folder.parents) if _is_run(one)), None)


def _is_run(folder: Path) -> bool:
    marks = ("run.json", f"{FOLDER}/{LISTING}")
    beside_config = ("DONE", "metrics.jsonl", "scores.json", "checkpoints")
    return any((folder / mark).exists() for mark in marks) or (
        (folder / "config.yaml").exists() and any((folder / mark).exists() for mark in beside_config)
    )


def _copy(run: Path, file: str, path: Path) -> Path:
    """The run directory's copy of a file, unchanged since the run was made; `path` may be that copy itself."""
    copies = kept(run)
    copy, wanted = copies.get(file) or next((pair for pair in copies.values() if pair[0] == path), (None, ""))
    if copy is None or not copy.is_file():
        raise UserError(f"the copy of {file} is missing from the run directory.")
    if sha256(copy) != wanted:
        raise UserError(f"{copy} is not the file that the run was made with (its sha256 differs).")
    return copy


def kept(run: Path) -> dict[str, tuple[Path, str]]:
    """The copies in a run directory: file as typed -> (copy, sha256)."""
    listing = run / FOLDER / LISTING
    if not listing.is_file():
        return {}
    try:
        found: dict[str, list[str]] = json.loads(listing.read_text(encoding="utf-8"))
        return {typed: (inside(run / FOLDER, copy), digest) for typed, (copy, digest) in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise UserError(f"{listing}: damaged; it should list the run's own Python files.") from None


def imported(kind: str, code: Mapping[str, tuple[Path, str]]) -> type[Options]:
    """The class of an own file that has passed the gate before (`Resolved.code`)."""
    file, _, name = kind.rpartition(":")
    path, wanted = code[file]
    module = sys.modules.get(_module_name(path, wanted))
    if module is None:
        raise UserError(f"{path} was changed or moved since its config was read; run the command again")
    return _checked(module, path, name)


def _checked(module: ModuleType, path: Path, name: str) -> type[Options]:
    own = getattr(module, name, None)
    if not (isinstance(own, type) and issubclass(own, Options)):
        raise UserError(f"{path} has no class {name} that derives from encodery's Options.")
    return own


def _module_name(path: Path, content: str) -> str:
    return f"encodery_own_{path.stem}_{content[:12]}"


def _import(path: Path) -> ModuleType:
    """The file as a module; the same content is run once."""
    if not path.is_file():
        raise UserError(f"there is no file {path}; paths are relative to the config that names them.")
    name = _module_name(path, sha256(path))
    if name in sys.modules:
        return sys.modules[name]
    need_torch()  # it may compute anything while it is imported
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "encodery":
            error = ImportError(f"{error}; import what components need from encodery.components")
        line = f":{frames[-1].lineno}" if frames else f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UserError(f"{path}{line}: {type(error).__name__}: {error}") from error
    return module


def of_class(options: Options, wanted: type[K], section: str) -> K:
    """The options of a section, which an own Python file may have derived from something else."""
    if not isinstance(options, wanted):
        raise UserError(
            f"{section}.kind: {type(options).__name__} is not a {section}; derive it from encodery.components."
            f"{wanted.__name__}"
        )
    return options
