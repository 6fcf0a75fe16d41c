"""From what a person typed to a folder with config, safetensors and tokenizer files."""

import contextlib
import hashlib
import json
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from encodery.config.schema import DEFAULT_MODEL
from encodery.core import files
from encodery.core.text import first_line
from encodery.errors import EncoderyError, RunFailed, UserError
from encodery.runs import finished
from encodery.runs.directory import RunDir, find_runs

# Weights come as safetensors only: pickled checkpoints are never opened.
FILES = ["*.json", "*.txt", "*.safetensors", "*.model", "merges.txt"]
BIN, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"  # only `encodery import bin` opens them
KEPT = "kept"  # folder of a run: its models on the way, by percent of the steps
SHOWN = 5  # runs that an error lists
NEAR = 2  # folders below one that was named: a sweep's runs are there, and `/` is not searched whole
TOKENIZER_PATTERNS = ["*.json", "*.txt", "*.model"]
SHIPPED = Path(__file__).parent / "petit"  # the encoder that comes with encodery
SHIPPED_NAMES = (DEFAULT_MODEL, f"encodery/{DEFAULT_MODEL}")
# Keys of config.json that make an encoder one of petit's size.
SIZES = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spm.model"]


@dataclass(frozen=True)
class Folder:
    """A model folder on this disk, and which revision of what it is."""

    path: Path
    name: str
    revision: str | None = None

    def digest(self) -> str:
        """Hash of what the folder says: weights, config and tokenizer. A hub revision is its own digest."""
        if self.revision:
            return f"{self.name}@{self.revision}"
        joint = hashlib.sha256()
        for file in [self.path] if self.path.is_file() else sorted(self.path.iterdir()):
            if file.suffix in {".json", ".safetensors", ".txt", ".model"} and file.name != "encodery.json":
                joint.update(file.name.encode())
                joint.update(bytes.fromhex(files.known_sha256(file)))
        return joint.hexdigest()


def digest_of_all(names: Sequence[str], near: Path | None = None, head: str | None = None) -> str:
    """What stands for several models, such as the teachers of a task."""
    each = [resolve(name, None, near, head=head).digest() for name in names]
    return files.digest_text("\n".join(each))


def resolve(
    name: str, revision: str | None = None, near: Path | None = None, download: bool = True, head: str | None = None
) -> Folder:
    """A folder, a run directory (its model/), what a run kept on the way (`runs/x@25%`), petit, or a hub name.

    `head`: of a run that kept the best weights of each task, those of this one.
    """
    if name in SHIPPED_NAMES:
        return _shipped(name, near)
    run, share = share_of(name)
    for base in (near, Path()):
        path = (base or Path()) / run
        for folder in [_kept(path, name, share)] if share else [_scored(path, name, head), path]:
            if found := _weights(folder):
                require_intact(found)
                _require_safetensors(found, name)
                return Folder(found.resolve(), name)
        if files.is_run(path):
            raise UserError(f"model {name}: this run has no model/ yet; let it finish first")
    if share:
        raise UserError(f"model {name}: there is no run {run}")
    refuse_many(name, near)
    if any(((base or Path()) / name).is_file() for base in (near, Path())):
        raise UserError(f"model {name}: is a file; a model is a run, a model folder or a name on the hub")
    if is_path(name):
        raise UserError(f"model {name}: no such folder (a model folder holds config.json and model.safetensors)")
    return _from_hub(name, revision, download)


def _shipped(name: str, near: Path | None) -> Folder:
    """The encoder that comes with encodery; a model folder of the same name is a doubt that its owner settles."""
    for base in (near or Path(), Path()):
        if _weights(base / name) or _weights(base / name / "model"):
            raise UserError(
                f"model {name}: is the encoder that comes with encodery, and a folder here; "
                f"write ./{name} for the folder, or {other_name(name)} for the encoder"
            )
    return Folder(SHIPPED, name)


def is_like_shipped(folder: Path) -> bool:
    """Whether a model has the size and the vocabulary of the shipped encoder, as what continues it has."""
    try:
        own, shipped = (_size_and_pieces(one) for one in (folder, SHIPPED))
    except (OSError, ValueError, KeyError, TypeError):  # not a folder as transformers writes it
        return False
    return own == shipped


def _size_and_pieces(folder: Path) -> tuple[dict[str, object], object]:
    config, tokenizer = (
        json.loads((folder / name).read_text(encoding="utf-8")) for name in ("config.json", "tokenizer.json")
    )
    return {key: config.get(key) for key in SIZES}, tokenizer["model"]["vocab"]


def other_name(name: str) -> str:
    """The shipped encoder's other spelling."""
    return next(spelling for spelling in SHIPPED_NAMES if spelling != name)


def require_intact(folder: Path) -> None:
    """Refuse a folder of a finished run whose files are not as the run wrote them."""
    folder = folder.absolute()
    if run := finished.of_folder(folder):
        run.require_intact(folder)


def share_of(name: str) -> tuple[str, str]:
    """`runs/x@25%` → runs/x and 25; without a share the second is empty."""
    match = re.fullmatch(r"(.+)@(\d+(?:\.\d+)?)%", name)
    return (match[1], f"{float(match[2]):g}") if match else (name, "")


def kept_on_the_way(names: Sequence[str]) -> list[RunDir]:
    """The runs of `runs/x@25%` among these names."""
    places = [place for place, share in map(share_of, names) if share]
    return [RunDir.open(place) for place in places if files.is_run(place)]


def _kept(run: Path, name: str, share: str) -> Path:
    """Where a run keeps the model of a share of its steps."""
    if share == "100":
        return run / "model"
    kept = run / KEPT
    if run.is_dir() and _weights(kept / share) is None:
        there = sorted((float(entry.name) for entry in kept.iterdir() if _weights(entry)) if kept.is_dir() else ())
        have = ", ".join(f"{number:g} %" for number in there) or "nothing; set train.keep_at"
        raise UserError(f"model {name}: this run kept no model at {share} %; it has {have}")
    return kept / share


def _scored(run: Path, name: str, head: str | None) -> Path:
    """Where the weights lie that a run was scored with: on a task, or on all of them."""
    folder, model = RunDir(run).weights_of(head), run / "model"
    if folder != model and _weights(folder) is None:
        raise UserError(
            f"model {name}: {folder} is missing, which the scores of {head} are of (train.select: each): "
            f"{finished.REMEDY}; {model} has the weights that all tasks share"
        )
    return folder


def _weights(folder: Path) -> Path | None:
    """The folder with the encoder: of an ELECTRA pair the discriminator."""
    return next((path for path in (folder, folder / "discriminator") if (path / "config.json").exists()), None)


def refuse_many(name: str, near: Path | None) -> None:
    """A folder of several runs, such as the seeds of `train --seeds`, is no model; say which there are."""
    for path in (Path(near or "", name), Path(name)):
        runs = [str(found.run.path) for found in find_runs(path, depth=NEAR)] if path.is_dir() else []
        if runs:
            listed = ", ".join(runs[:SHOWN]) + (", …" if len(runs) > SHOWN else "")
            raise UserError(f"model {name}: is a folder of {len(runs)} runs; give one of them: {listed}")


def is_path(name: str) -> bool:
    """Whether a person meant a folder and not a hub name: by its form, or because there are runs beside it."""
    if name.startswith((".", "/", "~", "runs/")) or name.count("/") > 1:
        return True
    folder = Path(name).parent
    beside = folder.iterdir() if "/" in name and folder.is_dir() else ()
    return any(files.is_run(one) for one in beside)


def resolve_tokenizer(name: str, near: Path, download: bool = True) -> Folder:
    """A vocab.txt, a tokenizer or model folder, a run directory, petit, or a hub name; no weights are needed."""
    if name in SHIPPED_NAMES:
        return _shipped(name, near)
    run, share = share_of(name)
    inner = (
        ("model", "model/discriminator")
        if share in ("", "100")
        else (f"{KEPT}/{share}", f"{KEPT}/{share}/discriminator")
    )
    for path in [base / run / part for base in (near, Path()) for part in ("", *inner)]:
        if path.is_file() or any((path / file).exists() for file in TOKENIZER_FILES):
            if path.is_dir():
                require_intact(path)
            return Folder(path.resolve(), name)
    if is_path(name) or name.endswith(".txt"):
        raise UserError(f"tokenizer {name}: no such file, and no such folder with a tokenizer.json")
    folder = _download(name, None, f"tokenizer {name}", TOKENIZER_PATTERNS, TOKENIZER_FILES, download)
    return Folder(folder, name, folder.name)


def _from_hub(name: str, revision: str | None, download: bool) -> Folder:
    folder = _download(name, revision, f"model {name}", FILES, ["*.safetensors"], download)
    if not list(folder.glob("*.safetensors")):
        raise UserError(f"model {name}: no safetensors weights there; {_convert(name)}")
    return Folder(folder, name, folder.name)


def _convert(name: str) -> str:
    """What to do with weights in a form that is never opened here."""
    out = name.rstrip("/").rpartition("/")[2]
    return f"if it has a {BIN}, convert it once: `encodery import bin {name} {out}-safetensors`, and train from that"


def _require_safetensors(folder: Path, name: str) -> None:
    """A folder that has only pickled weights is named with what to do; one without any is told by transformers."""
    if _bins(folder) and not list(folder.glob("*.safetensors")):
        raise UserError(f"model {name}: no safetensors weights there; {_convert(name)}")


def _bins(folder: Path) -> list[Path]:
    return [file for file in (folder / BIN, folder / BIN_INDEX) if file.is_file()]


def resolve_bin(name: str, revision: str | None) -> Folder:
    """The folder of a model with pickled weights: on this disk, or of the hub."""
    path = Path(name).expanduser()
    if path.is_dir():
        if not _bins(path):
            raise UserError(f"{name}: there is no {BIN} in it")
        return Folder(path, name)
    if is_path(name):
        raise UserError(f"model {name}: no such folder")
    patterns = [*TOKENIZER_PATTERNS, "pytorch_model*.bin"]
    folder = _download(name, revision, f"model {name}", patterns, [BIN, BIN_INDEX])
    if not _bins(folder):
        raise UserError(f"model {name}: there is no {BIN} there; if it has safetensors, give it to --model as it is")
    return Folder(folder, name, folder.name)


def files_beside_weights(folder: Path) -> list[Path]:
    """Config and tokenizer files of a model folder."""
    found = {file for pattern in TOKENIZER_PATTERNS for file in folder.glob(pattern) if file.is_file()}
    return sorted(file for file in found if file.name != BIN_INDEX)


def _download(
    name: str, revision: str | None, what: str, patterns: list[str], needed: list[str], download: bool = True
) -> Path:
    """The snapshot on this disk if it has one of the needed files, else the hub's."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    from encodery.core.hub_requests import asked_again

    try:
        with contextlib.suppress(LocalEntryNotFoundError):
            here = Path(snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=True))
            if any(list(here.glob(pattern)) for pattern in needed):  # else somebody fetched only the config, say
                return here
        if not download:
            raise UserError(f"{what} is not on this disk")
        require_hub(what)
        return Path(asked_again(lambda: str(snapshot_download(name, revision=revision, allow_patterns=patterns))))
    except HFValidationError as error:
        raise UserError(f"{what}: neither a folder here nor a name the hub could have ({error})") from None
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise _no_download(what, error) from None


def _no_download(what: str, error: Exception) -> EncoderyError:
    """What the hub said, or that it gave no answer; its client wraps either where its cache has no files."""
    from huggingface_hub.errors import HfHubHTTPError

    from encodery.core.hub_requests import ADVICE, out_of_order

    cause = error if isinstance(error, HfHubHTTPError) else error.__cause__ or error
    said = first_line(cause)
    if out_of_order(cause):
        return RunFailed(f"{what}: the hub says {said}, {ADVICE}")
    if isinstance(cause, HfHubHTTPError):
        return UserError(f"{what}: the hub says {said}; check the name")
    return RunFailed(f"{what}: the hub gave no answer ({said}); run the same command later")


def require_hub(what: str) -> None:
    """One clear sentence instead of a minute of retries where there is no network."""
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    proxy = None if proxy_bypass(endpoint.hostname or "") else getproxies().get(endpoint.scheme)
    door = urlsplit(proxy) if proxy else endpoint
    try:
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
            raise OSError("HF_HUB_OFFLINE is set")
        port = door.port or (80 if door.scheme == "http" else 443)
        socket.create_connection((door.hostname or "", port), timeout=5).close()
    except OSError as error:
        raise UserError(
            f"{what} is not on this disk and the hub cannot be reached ({error}); "
            "download it where there is a network and give its folder instead"
        ) from None
