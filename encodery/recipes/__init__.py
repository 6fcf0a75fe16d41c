"""Settings with a source: YAML files named `glue/rte/electra-small`, for `extends:` and for the command line."""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from encodery.errors import UserError

_ROOT = Path(__file__).parent
_NAME = re.compile(r"[a-z0-9_][a-z0-9._+-]*(/[a-z0-9_][a-z0-9._+-]*)*")
_HEADER = re.compile(r"# (source|deviations|expect): (.*)")


@dataclass(frozen=True)
class About:
    """What a recipe's header says: where its numbers come from, what differs, and the published score."""

    source: str
    deviations: str = ""
    expect: str = ""


def names() -> list[str]:
    """All recipes, sorted; parts that others share (a name beginning with _) are left out."""
    found = (path.relative_to(_ROOT).with_suffix("").as_posix() for path in _ROOT.rglob("*.yaml"))
    return sorted(name for name in found if "/_" not in f"/{name}")


def path(name: str) -> Path:
    """The file of a recipe, also of a shared part."""
    file = _ROOT / f"{name}.yaml"
    if not _NAME.fullmatch(name) or not file.is_file():
        near = difflib.get_close_matches(name, names(), n=3)
        hint = f"Did you mean {', '.join(near)}?" if near else "`encodery recipes` lists them."
        raise UserError(f"There is no recipe '{name}'. {hint}")
    return file


def describe(name: str) -> About:
    """The header of a recipe: comment lines `# source: …`, `# deviations: …`, `# expect: …`, continued by `#   …`."""
    said: dict[str, str] = {}
    topic = ""
    for line in path(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if match := _HEADER.fullmatch(line):
            topic, said[match[1]] = match[1], match[2]
        elif topic:
            said[topic] += f" {line.lstrip('# ')}"
    return About(**said) if "source" in said else About("")
