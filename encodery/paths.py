"""Names and paths that may come from others: limited characters, and never outside their root."""

import hashlib
import re
import unicodedata
from pathlib import Path

from encodery.errors import UserError

_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_LEGAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,149}")


def safe_name(text: str) -> str:
    """A run or sweep name as it stands, or an error if it holds anything but A-Z a-z 0-9 . _ -"""
    if not text or _OTHER.search(text) or text.strip(".") == "" or text.startswith("-"):
        raise UserError(f"'{text}' cannot be a name: use letters, digits, '.', '_' and '-' only, '-' not first.")
    return text


def as_name(text: str) -> str:
    """The nearest safe name: `glue/rte` becomes `glue-rte`."""
    return _OTHER.sub("-", text).strip("-.") or "run"


def file_name(text: str) -> str:
    """A task's name as a name of files: `glue/rte` is `glue-rte`; of any other text what is legal, and a digest of it.

    The digest keeps `a b` and `a+b` apart.
    """
    if ".." in text.split("/"):
        raise UserError(f"'{text}' cannot be a name: it leads out of its folder.")
    plain = text.replace("/", "-")
    if _LEGAL.fullmatch(plain):
        return plain
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{as_name(ascii_only)[:80].rstrip('-.')}-{digest}"


def inside(root: Path, path: Path | str) -> Path:
    """`root / path` with links followed, or an error if that lies outside the root."""
    resolved = (root / path).resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise UserError(f"'{path}' leads out of {root}, which is not allowed.")
    return resolved


def require_new(folder: Path) -> None:
    """A folder that does not exist yet, below one that does."""
    if folder.exists():
        raise UserError(f"{folder}: is already there; give a folder that is not")
    if not folder.resolve().parent.is_dir():
        raise UserError(f"{folder}: the folder {folder.parent} does not exist")
