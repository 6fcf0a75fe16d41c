"""Checkpoints: folders that are whole or not there, and that are verified before anything in them is used.

    checkpoints/step-00000120/   one <group>.safetensors per group, state.json, manifest.json

A folder is written beside under a hidden name, each file waited for, the manifest (size and sha256 of every file)
last, then renamed once. So a kill leaves a hidden folder, which nobody reads and the next save removes.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from encodery.core import files
from encodery.core.files import Written, check_name
from encodery.distributed import comm
from encodery.errors import RunFailed

# Writing tensors as a safetensors file, streamed, so that every byte is digested on its way to the disk.
#
# The library's own writer reports a full disk without its error number and leaves the digest to a second reading.
# Reading is the library's.


_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_bytes(path: Path, chunks: Iterator[bytes | memoryview]) -> Written:
    """Write a new file and wait until it is on the disk."""
    digest, size = hashlib.sha256(), 0
    with open(path, "xb", buffering=0) as stream:
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            digest.update(view)
            size += len(view)
            while len(view):  # an unbuffered write may take a part only
                view = view[stream.write(view) :]
        files.sync(stream)
    return Written(size, digest.hexdigest())


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Written:
    """Write tensors of any layout and device as a safetensors file."""
    # the widest first, then by name: so each lies on a multiple of its own width, as the format wants
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    return write_bytes(path, _chunks({name: tensors[name] for name in order}))


def _chunks(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    header: dict[str, object] = {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        kind = _NAMES.get(tensor.dtype)
        if kind is None:
            raise TypeError(f"{name}: tensors of {tensor.dtype} are not stored")
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for tensor in tensors.values():
        if tensor.numel():
            yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, in memory of their own: a view of the file may lie askew, and sums may then differ."""
    with safetensors.safe_open(path, framework="pt") as stream:
        return {name: stream.get_tensor(name).clone() for name in stream.keys()}  # noqa: SIM118 (not a mapping)


FORMAT = 1
RUN = "run"  # in the state: which run the checkpoint is of, and how many records it had; older ones have none
_STEP = re.compile(r"^step-(\d{8,})$")


class Damaged(RunFailed):
    """A checkpoint that must not be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint; tensors are read when asked for."""

    step: int
    path: Path
    state: dict[str, Any]
    groups: tuple[str, ...]
    _tied: dict[str, dict[str, str]] = field(repr=False)

    def tensors(self, group: str) -> dict[str, Tensor]:
        """The tensors of a group by name; names that shared a tensor when it was saved share one again."""
        tied = self._tied[group]
        found = read_tensors(self.path / f"{group}.safetensors")
        return found | {name: found[stored] for name, stored in tied.items()}


def path_of(folder: Path, step: int) -> Path:
    """The folder of the checkpoint that was saved after this step."""
    return folder / f"step-{step:08d}"


def save(folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Write checkpoint step-<step> and return its folder; an intact one of that step is kept as it is.

    `state` is JSON data (a tuple comes back as a list); call it from one thread of one process.
    """
    text = _state_text(tensors, state)
    for group in tensors:
        check_name(group)
    final = path_of(folder, step)
    temporary = files.hidden_sibling(final)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.remove_leftovers(folder)
        if final.exists() and _is_intact(final):
            return final
        _fill(temporary, step, tensors, text)
        files.replace_folder(temporary, final)
    except OSError as error:
        message = files.trouble(f"checkpoint {final} could not be saved", folder, error)
        shutil.rmtree(temporary, ignore_errors=True)
        raise RunFailed(f"{message}. {_last_good(folder)}") from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def newest_intact(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint, and a sentence for each newer one that was skipped."""
    skipped: list[str] = []
    for step in sorted(steps(folder), reverse=True):
        try:
            return load(path_of(folder, step)), skipped
        except Damaged as damage:
            skipped.append(f"checkpoint of step {step} skipped: {damage}")
    return None, skipped


def newest_for_all_processes(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint, for all processes: the first finds it, the others open the same one."""
    newest, skipped = newest_intact(folder) if comm.is_main() else (None, [])
    for sentence in skipped:
        say(sentence)
    path = comm.from_main(str(newest.path) if newest else None)
    return load(Path(path)) if path and newest is None else newest


def load(path: Path) -> Checkpoint:
    """One checkpoint, verified to the last bit; Damaged names the file that is not as it was written."""
    try:
        step, listed = _read_manifest(path)
        for name in sorted(listed):
            _verify(path / name, listed[name])
        stored = json.loads((path / "state.json").read_bytes())
    except OSError as error:
        raise Damaged(f"{error.filename or path} cannot be read ({error.strerror})") from error
    return Checkpoint(step, path, stored["state"], tuple(stored["tied"]), stored["tied"])


def identity_of(found: Checkpoint) -> str | None:
    """The identity of the run that saved a checkpoint."""
    known: str | None = found.state.get(RUN, {}).get("identity")
    return known


def records_of(found: Checkpoint) -> int:
    """How many records metrics.jsonl had when the checkpoint was saved."""
    return int(found.state.get(RUN, {}).get("records", 0))


def prune(folder: Path, keep: Collection[int]) -> None:
    """Remove all checkpoints but these. Keep two at least: the newest may turn out damaged."""
    with files.io_trouble(f"{folder} could not be cleaned up", folder):
        for step in sorted(steps(folder) - set(keep)):
            path = path_of(folder, step)
            gone = files.hidden_sibling(path, "old")
            os.rename(path, gone)  # so that no half-removed checkpoint has a name
            shutil.rmtree(gone)
        files.remove_leftovers(folder)


def last_steps(folder: Path, count: int, until: int) -> set[int]:
    """The last steps up to `until` with a checkpoint. Those beyond were skipped as damaged: they must not count."""
    return set(sorted(step for step in steps(folder) if step <= until)[-count:])


def steps(folder: Path) -> set[int]:
    """The steps of which there is a checkpoint, intact or not."""
    if not folder.is_dir():
        return set()
    return {int(match[1]) for path in folder.iterdir() if (match := _STEP.match(path.name))}


def _fill(folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: bytes) -> None:
    folder.mkdir()
    written = {"state.json": write_bytes(folder / "state.json", iter([state]))}
    for group, named in tensors.items():
        tied = _tied(named)
        stored = {name: tensor for name, tensor in named.items() if name not in tied}
        written[f"{group}.safetensors"] = write_tensors(folder / f"{group}.safetensors", stored)
    write_bytes(folder / "manifest.json", iter([_manifest_text(step, written)]))
    files.sync_folder(folder)


def _tied(named: Mapping[str, Tensor]) -> dict[str, str]:
    """Which names are the very same numbers in memory as an earlier name: {name: the earlier one}."""
    first: dict[tuple[object, ...], str] = {}
    tied = {}
    for name, tensor in named.items():
        place = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and first.setdefault(place, name) != name:
            tied[name] = first[place]
    return tied


def _state_text(tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> bytes:
    _check_plain(state, "state")
    tied = {group: _tied(named) for group, named in tensors.items()}
    return json.dumps({"state": state, "tied": tied}, indent=1).encode()


def _check_plain(value: Any, where: str) -> None:
    """Refuse what JSON would change silently, such as numbers as keys."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: key {key!r} is not a string")
            _check_plain(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _check_plain(item, f"{where}[{number}]")
    elif not isinstance(value, str | int | float | None):
        raise TypeError(f"{where}: {type(value).__name__} is not JSON data")


def _manifest_text(step: int, written: Mapping[str, Written]) -> bytes:
    listed = {name: asdict(written[name]) for name in sorted(written)}
    return json.dumps({"format": FORMAT, "step": step, "files": listed}, indent=1).encode()


def _read_manifest(path: Path) -> tuple[int, dict[str, Written]]:
    """Step and files. The text must be exactly what we would write, so no bit of it can flip unnoticed."""
    manifest = path / "manifest.json"
    if not manifest.is_file():
        raise Damaged(f"{manifest} is missing")
    text = manifest.read_bytes()
    try:
        content = json.loads(text)
        step, listed = content["step"], {name: Written(**entry) for name, entry in content["files"].items()}
        ours = text == _manifest_text(step, listed) and path == path_of(path.parent, step)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{manifest} is damaged: it is not a manifest") from None
    if not ours or "state.json" not in listed:
        raise Damaged(f"{manifest} is damaged: it does not belong to this checkpoint, or is of another version")
    return step, listed


def _verify(path: Path, expected: Written) -> None:
    if sentence := files.damage(path, expected, "the manifest"):
        raise Damaged(sentence)


def _is_intact(path: Path) -> bool:
    with suppress(Damaged):
        load(path)
        return True
    return False


def _last_good(folder: Path) -> str:
    with suppress(OSError):
        good, _ = newest_intact(folder)
        if good is not None:
            return f"The last good checkpoint is intact: {good.path}"
    return "There was no checkpoint before it"
