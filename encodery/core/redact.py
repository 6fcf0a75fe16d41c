"""Secrets stay out of files: what looks like one is written as `***`.

A value is a secret if it has the shape of a known kind of token, if an environment variable with a telling name
(HF_TOKEN, PGPASSWORD, AZURE_STORAGE_KEY, SLACK_WEBHOOK) holds it, or if it stands under a telling key.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

HIDDEN = "***"
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}"
    r"|\bapi_org_[A-Za-z0-9]{8,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bsk-[\w-]{16,}|\b[srp]k_(?:live|test)_\w{16,}|\bA(?:KIA|SIA)[0-9A-Z]{16}\b"
    r"|\bxox[abeprs]-[\w-]{10,}|\bxapp-[\w-]{10,}|\bAIza[\w-]{35}|\bya29\.[\w-]{16,}"
    r"|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}|\bdop_v1_[0-9a-f]{32,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"  # a JSON web token
    r"|(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/-]{8,}"
    r"|(?<=/api/webhooks/)\d+/[\w-]{8,}"
    r"|(?<=AccountKey=)[\w+/=]{16,}|(?<=SharedAccessKey=)[\w+/=]{16,}|(?<=[?&]sig=)[\w%+/=-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)",  # user and password in an address
    re.DOTALL,
)
_WORDS = (
    r"(?:token|secret|\w*password|passwd|passphrase|pass|api_?key|access_?key(?:_id)?|private_?key|secret_?key"
    r"|storage_?key|account_?key|credentials?|webhook)"
)
_KEY = re.compile(rf"(?:^|[_.-]){_WORDS}$|[_.-]pwd$", re.IGNORECASE)  # PWD alone is a folder
# Names of environment variables only: a setting may well be called `key` or `url`.
_NAME = re.compile(
    r"token(?!iz)|secret|passw|passphrase|credential|webhook|(?:^|_)pass(?:$|_)|_pwd(?:$|_)|apikey|connection_?string",
    re.IGNORECASE,
)
_WEAK_NAME = re.compile(
    r"(?:^|_)(?:key|auth|sas|dsn|cookie|jwt|bearer|signature|database_url|key_id)(?:$|_)", re.IGNORECASE
)
_VOCABULARY = re.compile(r"(?:^|[_.-])(?:pad|mask|cls|sep|unk|bos|eos|per)[_-]token$", re.IGNORECASE)  # not secret
_YAML_LINE = re.compile(r"""^([ \t]*(?:-[ ]+)?["']?([\w.-]+)["']?[ \t]*:[ \t]+)(\S.*?)([ \t]+\#.*)?$""", re.MULTILINE)
_YAML_INLINE = re.compile(r"""([{,]\s*["']?([\w.-]+)["']?\s*:\s*)("[^"]*"|'[^']*'|[^,{}\[\]\s]+)""")
_ARGUMENT = re.compile(r"^(-{0,2}([\w.-]+)=)(.*)$", re.DOTALL)
_PLAIN = re.compile(r"^(?:null|~|true|false|[{\[].*|[-+]?[\d.]+(?:e[-+]?\d+)?)$", re.IGNORECASE)
_PLAIN_WORD = re.compile(r"[A-Za-z]+(?:[ _.-][A-Za-z]+)*")
_SHORTEST = 8  # shorter values of the environment are words like "none", which may stand in any text


def is_secret_key(key: str) -> bool:
    """Whether a value under this key is nobody's business (`hf_token`, not `tokenizer` or `mask_token`)."""
    key = key.lstrip("-")
    return bool(_KEY.search(key)) and not _VOCABULARY.search(key)


def scrub(text: str) -> str:
    """Hide in free text what is known or looks like a token."""
    for secret in _secrets():
        text = text.replace(secret, HIDDEN)
    return _SHAPES.sub(HIDDEN, text)


def _secrets() -> list[str]:
    """Secret values of the environment, the longest first, since one may hold another."""
    values = {value for name, value in os.environ.items() if len(value) >= _SHORTEST and _is_secret(name, value)}
    return sorted(values, key=len, reverse=True)


def _is_secret(name: str, value: str) -> bool:
    """By the name; a name such as SORT_KEY counts only where the value is not a plain word, and a path never does."""
    telling = _telling(name)
    if telling == "no" or (telling == "weakly" and _PLAIN_WORD.fullmatch(value)):
        return False
    return not (value.startswith(("/", "~", ".")) and os.path.exists(os.path.expanduser(value)))


@cache  # each line of a log asks this of the whole environment
def _telling(name: str) -> Literal["yes", "weakly", "no"]:
    """Whether the name of a variable says that it holds a secret."""
    if is_secret_key(name) or (_NAME.search(name) is not None and not _VOCABULARY.search(name)):
        return "yes"
    return "weakly" if _WEAK_NAME.search(name) else "no"


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


# What says where on a machine something lay.

_PATH = re.compile(r"(?<![\w./:])/(?:[\w.@+~-]+/)+([\w.@+~-]+)")


def without_paths(text: str) -> str:
    """Absolute paths lose their folders: a page is handed on, and says nothing of the machine it was made on."""
    return _PATH.sub(r"…/\1", text)
