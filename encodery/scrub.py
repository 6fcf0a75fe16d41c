"""Secrets stay out of files: what looks like one is written as `***`.

A value is a secret if it has the shape of a known kind of token, if an environment variable with a telling name
(HF_TOKEN, WANDB_API_KEY) holds it, or if it stands under a telling key.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}"
    r"|\bapi_org_[A-Za-z0-9]{8,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bsk-[\w-]{16,}|\bAKIA[0-9A-Z]{16}\b|\bxox[abprs]-[\w-]{10,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user and password in an address
)
_WORDS = r"(?:token|secret|password|passwd|api_?key|access_?key|private_?key|credentials?)"
_KEY = re.compile(rf"(?:^|[_.-]){_WORDS}$", re.IGNORECASE)
_VOCABULARY = re.compile(r"(?:^|[_.-])(?:pad|mask|cls|sep|unk|bos|eos|per)[_-]token$", re.IGNORECASE)  # not secret
_YAML_LINE = re.compile(r"""^([ \t]*(?:-[ ]+)?["']?([\w.-]+)["']?[ \t]*:[ \t]+)(\S.*?)([ \t]+\#.*)?$""", re.MULTILINE)
_YAML_INLINE = re.compile(r"""([{,]\s*["']?([\w.-]+)["']?\s*:\s*)("[^"]*"|'[^']*'|[^,{}\[\]\s]+)""")
_ARGUMENT = re.compile(r"^(-{0,2}([\w.-]+)=)(.*)$", re.DOTALL)
_PLAIN = re.compile(r"^(?:null|~|true|false|[{\[].*|[-+]?[\d.]+(?:e[-+]?\d+)?)$", re.IGNORECASE)
_SHORTEST = 8  # shorter values of the environment are words like "none", which may stand in any text


def is_secret_key(key: str) -> bool:
    """Whether a value under this key is nobody's business (`hf_token`, not `tokenizer` or `mask_token`)."""
    key = key.lstrip("-")
    return bool(_KEY.search(key)) and not _VOCABULARY.search(key)


def scrub(text: str) -> str:
    """Hide in free text what is known or looks like a token."""
    for secret in _known():
        text = text.replace(secret, HIDDEN)
    return _SHAPES.sub(HIDDEN, text)


def _known() -> list[str]:
    """Secret values of the environment, the longest first, since one may hold another."""
    values = {value for name, value in os.environ.items() if len(value) >= _SHORTEST and is_secret_key(name)}
    return sorted(values, key=len, reverse=True)


def scrub_data(value: Any) -> Any:
    """The same for nested data, by its keys too."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {key: _scrub_entry(key, item) for key, item in value.items()}
    return [scrub_data(item) for item in value] if isinstance(value, list | tuple) else value


def _scrub_entry(key: Any, value: Any) -> Any:
    secret = isinstance(value, str) and isinstance(key, str) and is_secret_key(key)
    return HIDDEN if secret else scrub_data(value)


def scrub_yaml(text: str) -> str:
    """The same for a config file; comments and layout stay."""
    return scrub(_YAML_INLINE.sub(_hide_value, _YAML_LINE.sub(_hide_value, text)))


def _hide_value(match: re.Match[str]) -> str:
    start, key, value = match[1], match[2], match[3]
    rest = (match[4] or "") if match.re is _YAML_LINE else ""
    return start + (f'"{HIDDEN}"' if is_secret_key(key) and not _PLAIN.match(value) else value) + rest


def scrub_arguments(arguments: list[str]) -> list[str]:
    """The same for a command line: `--token x`, `--token=x`, `token=x`."""
    shown: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        match = _ARGUMENT.match(argument)
        if match and is_secret_key(match[2]):
            argument = match[1] + HIDDEN
        elif before.startswith("-") and "=" not in before and is_secret_key(before) and not argument.startswith("-"):
            argument = HIDDEN
        shown.append(scrub(argument))
    return shown
