"""The one door to transformers' loaders. A model folder's own code never runs, and transformers never asks about it.

Without `trust_remote_code=False` transformers asks on standard input whether to run the code that a folder brings, and
takes the next line of piped data for the answer. Every `from_pretrained` and `from_config` of the package goes
through these two functions.
"""

import json
from pathlib import Path
from typing import Any

from encodery.errors import UserError

_CONFIGS = ("config.json", "tokenizer_config.json")
_ATTENTION = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal", "attn_impl")


def from_folder(kind: Any, folder: Path | str, **options: Any) -> Any:
    """`kind.from_pretrained(folder)`, for configs, tokenizers and models, without any code of the folder."""
    _refuse_kernels(Path(folder))
    try:
        return kind.from_pretrained(folder, trust_remote_code=False, **options)
    except ValueError as error:
        raise _sentence(Path(folder), error) from None


def from_config(kind: Any, config: Any, **options: Any) -> Any:
    """`kind.from_config(config)` without any code that the config names."""
    return kind.from_config(config, trust_remote_code=False, **options)


def _sentence(folder: Path, error: ValueError) -> ValueError | UserError:
    """What transformers says of code that it would need, as advice for people; any other error as it is."""
    if "custom code" not in str(error):
        return error
    named = [name for name in _CONFIGS if "auto_map" in _read(folder / name)]
    return UserError(
        f"{folder}: needs Python code of its own (auto_map in {' and '.join(named) or 'its config'}), which encodery "
        "never runs; convert the model to an architecture that transformers has"
    )


def _refuse_kernels(folder: Path) -> None:
    """An attention implementation such as `somebody/kernel` would be fetched from the hub and run."""
    config = _read(folder / "config.json")
    for key in _ATTENTION:
        if "/" in str(config.get(key) or ""):
            raise UserError(
                f"{folder / 'config.json'}: {key}: {config[key]} is code of the hub, which encodery never runs; "
                "remove the key"
            )


def _read(path: Path) -> dict[str, Any]:
    """A JSON mapping; empty where there is none, which transformers will report better."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
