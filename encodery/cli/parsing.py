"""Command lines: declared options go to argparse, everything else that looks like a setting is an override."""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

from encodery.errors import UserError

_SETTING = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*=", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence, and whose help keeps the layout of the examples."""

    def __init__(self, prog: str, about: str) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=prog, description=about, formatter_class=raw, allow_abbrev=False)

    def examples(self, *lines: str) -> None:
        """Shown at the end of --help."""
        self.epilog = "\n".join(["examples:", *(f"  {line}" for line in lines)])

    def no_verify(self) -> None:
        """For verbs that open models; `run_verb` heeds it."""
        self.add_argument(
            "--no-verify", action="store_true",
            help="compare the files of finished runs by size alone, not by sha256: for huge models",
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        """Say it as a person would, with the nearest option."""
        unknown = message.removeprefix("unrecognized arguments: ").partition(" ")[0]  # a word may be empty
        near = difflib.get_close_matches(unknown.partition("=")[0], self.options(), n=1)
        hint = f" Did you mean {near[0]}?" if unknown != message and near else f" See `{self.prog} --help`."
        raise UserError(f"{self.prog}: {message}.{hint}")

    def options(self) -> dict[str, argparse.Action]:
        """Declared options by their spelling."""
        return self._option_string_actions


def split(parser: Parser, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words for the parser, and overrides. argparse alone would take the value of an unknown option for a file name."""
    known: list[str] = []
    overrides: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        action = parser.options().get(word.partition("=")[0]) if word.startswith("-") else None
        if action is not None:
            takes_value = action.nargs is None and "=" not in word
            known += [word, *([left.pop(0)] if takes_value and left else [])]
        elif word.startswith("--") and len(word) > 2:
            takes_value = "=" not in word and bool(left) and not left[0].startswith("--")
            overrides += [word, *([left.pop(0)] if takes_value else [])]
        else:
            (overrides if _SETTING.match(word) else known).append(word)
    return known, overrides
