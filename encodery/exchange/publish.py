"""A finished run for other people: a folder with model, card and settings, and its upload. Nothing local goes along."""

import getpass
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from encodery.core import files
from encodery.core import yaml as core_yaml
from encodery.core.redact import scrub
from encodery.core.text import first_line
from encodery.errors import RunFailed, UserError
from encodery.inference.answer_head import no_such_head, speaks
from encodery.inference.open_model import load_model
from encodery.models.locate import is_path, require_hub, resolve
from encodery.models.model import read_card
from encodery.report import records
from encodery.report.groups import Row, rows_of
from encodery.report.public_card import public_card
from encodery.runs.directory import RunDir, of_task

SENT = ("*.json", "*.txt", "*.model", "*.safetensors")  # of the model's folder
TEXTS = {".json", ".txt", ".md", ".yaml", ".model"}
VOCABULARIES = {"tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spm.model"}  # any piece may stand there
PATHS = re.compile(r"(?<![\w/:.<])(?:~|[A-Za-z]:)?[/\\][\w.+@-]+(?:[/\\][\w.+@ -]+)+")  # absolute, two steps or more
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
SHORT = 6  # shorter names of machines and people are words like `root`, which stand in many texts


@dataclass(frozen=True)
class Parcel:
    """What would be sent."""

    folder: Path
    sizes: Mapping[str, int]  # file -> bytes
    card: str


def pack(
    source: str | Path, folder: Path, name: str | None = None, license: str | None = None, head: str | None = None
) -> Parcel:
    """Fill a new folder with what may be seen; an unfinished or damaged run is refused.

    `head`: of a run on several tasks that of one, as if it had been trained alone.
    """
    run = RunDir.open(source)
    if not run.is_done:
        raise UserError(f"{run.path} is not finished: run `encodery train` again to finish it; then publish it")
    if not run.model.is_dir():
        raise UserError(f"{run.path} has no model/: there is nothing to publish")
    require_head(run, head)
    config = public(core_yaml.read_text(run.config_text(), str(run.config)).tree)
    with files.atomic_folder(folder) as beside:
        if head:
            copy_head(run, head, beside)
        else:
            copy_model(resolve(str(run.path)).path, beside)
        if not head and (run.model / "generator").is_dir():  # of an ELECTRA pair; the discriminator is the model
            copy_model(run.model / "generator", beside / "generator")
        card = public_text(public_card(run, config, seeds(run), name, license, head, beside))
        (beside / "README.md").write_text(card, encoding="utf-8")
        (beside / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        result = of_task(run.read_scores(), head) if head else run.read_scores()
        kept = {key: result[key] for key in ("scores", "main", "majority", "chosen", "alarms")}
        (beside / "scores.json").write_text(json.dumps(public(kept), indent=1) + "\n", encoding="utf-8")
        if found := list(private(beside, run)):
            raise RunFailed("not published, because it would reveal something local: " + "; ".join(found))
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
    return Parcel(folder, sizes, card)


def require_head(run: RunDir, head: str | None) -> None:
    """Where each task was scored with weights of its own, no single folder has all these scores."""
    card = read_card(resolve(str(run.path)).path) or {"tasks": {}}
    heads = [name for name, about in card["tasks"].items() if speaks(about)]
    if head is not None and head not in heads:
        raise UserError(no_such_head(run.path, head, heads))
    if head is None and run.own_weights():
        raise UserError(
            f"{run.path} has the best weights of each task (train.select: each), and its scores are of these: publish "
            f"one task with --head; it has {', '.join(heads)}"
        )


def copy_head(run: RunDir, head: str, folder: Path) -> None:
    """The model of one head, in a class of transformers where there is one for it."""
    model, tokenizer, card = load_model(resolve(str(run.path), head=head).path, device="cpu", head=head)
    model.save(folder, tokenizer, card)
    make_public(folder)


def copy_model(model: Path, folder: Path) -> None:
    """Weights, tokenizer and cards, in their folders; JSON without local paths."""
    for path in sorted(path for pattern in SENT for path in model.rglob(pattern)):
        inner = path.relative_to(model)
        if any(part.startswith(".") for part in inner.parts):
            continue
        target = folder / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    make_public(folder)


def make_public(folder: Path) -> None:
    """Take local paths out of the cards and settings of a copied model; weights and vocabularies stay as they are."""
    for path in sorted(folder.rglob("*.json")):
        if path.name not in VOCABULARIES:
            text = json.dumps(public(json.loads(path.read_text(encoding="utf-8"))), indent=2, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")
    for path in sorted(folder.rglob("README.md")):
        path.write_text(public_text(path.read_text(encoding="utf-8")), encoding="utf-8")


def seeds(run: RunDir) -> dict[str, Row]:
    """The runs beside this one that differ from it in the seed alone, by data set: its main score over them."""
    found, _ = records.read([run.path.resolve().parent], every=True)
    mine = next(one for one in found if one.path.resolve() == run.path.resolve())
    same = [one for one in found if (one.task, one.settings) == (mine.task, mine.settings)]
    same = [one for one in same if not one.done or one.digests == mine.digests]
    main = mine.main
    return {row.data: row for row in rows_of(same)[0] if main.get(row.data) == row.metric}


# What is local


def public(value: Any) -> Any:
    """Data without local paths: of a path only the last part stays."""
    if isinstance(value, str):
        return public_text(value_without_path(value))
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    return [public(item) for item in value] if isinstance(value, list | tuple) else value


def value_without_path(text: str) -> str:
    """`../data/train.csv` as train.csv; names of the hub and tasks as they are."""
    looks = "/" in text and is_path(text) and "\n" not in text and " " not in text
    return text.rstrip("/").rpartition("/")[2] if looks else text


def public_text(text: str) -> str:
    """Free text without absolute paths and tokens."""
    return scrub(PATHS.sub(lambda match: re.split(r"[/\\]", match[0])[-1], text))


def private(folder: Path, run: RunDir) -> Iterator[str]:
    """What is found that should not go out: names of this machine and person, paths, tokens."""
    words = local_words(run)
    for path in sorted(path for path in folder.rglob("*") if path.suffix in TEXTS):
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.name in VOCABULARIES:
            continue
        yield from (f"{path.name} has {what}" for what, word in words.items() if word and word in text)
        if scrub(text) != text:
            yield f"{path.name} has what looks like a token"


def local_words(run: RunDir) -> dict[str, str]:
    """Names that no reader needs."""
    host = str(run.info().get("environment", {}).get("host") or "")
    long = {"the name of this machine": socket.gethostname(), "the name of the machine it ran on": host}
    long["your user name"] = getpass.getuser() if os.environ.get("USER") else ""
    found = {what: word for what, word in long.items() if len(word) >= SHORT}
    found["the path of the run"] = str(run.path.resolve())
    found["your home folder"] = str(Path.home()) if len(str(Path.home())) > 1 else ""
    return found


# The upload


def require_name(name: str) -> str:
    """`somebody/something`, as the hub wants it."""
    if not NAME.fullmatch(name):
        raise UserError(f"--to {name}: the hub expects OWNER/NAME, of letters, digits, `.`, `_` and `-`")
    return name


def send(folder: Path, name: str, private: bool = True) -> str:
    """The upload itself: one commit in a repository that is made if need be. Gives back its address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    require_hub(f"publishing to {name}")
    api = HfApi()
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Publish with encodery")
    except LocalTokenNotFoundError:
        raise UserError("not logged in to the hub: run `hf auth login` first") from None
    except HfHubHTTPError as error:
        raise RunFailed(f"the hub refused {name}: {scrub(first_line(error))}") from None
    return str(address)
