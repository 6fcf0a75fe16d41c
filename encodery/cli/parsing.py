"""Command lines: declared options go to argparse, everything else that looks like a setting is an override."""

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from encodery.cli.print_table import FORMATS
from encodery.errors import UserError

_SETTING = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*=", re.DOTALL)

SHOWN = 4  # verbs that an error lists

_OLD_NAME = "{} is called {} now; the old name works until the next release"

# Options that many verbs have, with the same meaning everywhere.
_SHARED: dict[str, dict[str, Any]] = {
    "--data": {"metavar": "DIR", "help": "folder with data sets"},
    "--device": {"default": "auto", "help": "auto, cpu, cuda, cuda:1, mps"},
    "--precision": {
        "choices": ["fp32", "bf16", "fp16"],
        "default": "fp32",
        "help": "bf16 or fp16 is faster where the device multiplies it, and rounds the logits; default: fp32",
    },
    "--allow-code": {"action": "store_true", "help": "execute Python files that are stored in a run directory"},
    "--executor": {"choices": ["local", "slurm", "ray"], "default": "local", "help": "default: local"},
    "--quiet": {"action": "store_true", "help": "print only the result"},
    "--format": {
        "choices": FORMATS,
        "help": "rich: aligned, as wide as the terminal; md: Markdown; default: rich at a terminal, md in a pipe",
    },
    "--fresh": {
        "action": "store_true",
        "dest": "restart",
        "help": "start again; old runs are moved aside, not deleted",
    },
    "--skip-bad-rows": {"action": "store_true", "help": "leave out rows that cannot be used, and count them"},
}


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Paragraphs are filled to the width of the terminal; examples stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        items = re.split(r"\n(?=\n|[\w-]+: )", text.strip())  # an empty line, or `name: …` at the start of a line
        filled = [textwrap.fill(" ".join(item.split()), width, break_on_hyphens=False) for item in items]
        blank = ["\n" if item.startswith("\n") else "" for item in items]
        return "\n".join(f"{above}{item}" for above, item in zip(blank, filled, strict=True))


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence, and whose help keeps the layout of the examples."""

    def __init__(self, prog: str, about: str) -> None:
        super().__init__(prog=prog, description=about, formatter_class=_Formatter, allow_abbrev=False)
        self.words: list[str] = []

    def examples(self, *lines: str) -> None:
        """Shown at the end of --help."""
        self.epilog = "\n".join(["examples:", *(f"  {line}" for line in lines)])

    def shared(self, *names: str, help: str | None = None) -> None:
        """Options that many verbs have; `help` says what is particular about one here."""
        for name in names:
            self.add_argument(name, **_SHARED[name] | ({"help": help} if help else {}))

    def formats(self, *more: str, help: str, old: Mapping[str, str] | None = None) -> None:
        """`--format` with further words of this verb; `old` words work for one release more, with a line on stderr."""

        def word(given: str) -> str:
            new = (old or {}).get(given, given)
            if new != given:
                print(
                    f"--format {given} is called {new} now; the old name works until the next release", file=sys.stderr
                )
            return new

        self.add_argument("--format", type=word, choices=(*FORMATS, *more), help=help)

    def renamed(self, old: str, new: str) -> None:
        """The old spelling of an option works for one release more, with a line on stderr."""
        target = self.options()[new]
        self.add_argument(
            old, action=_Renamed, target=target, nargs=target.nargs, dest=target.dest, default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )  # fmt: skip

    def no_verify(self) -> None:
        """For verbs that open models; `run_verb` heeds it."""
        self.add_argument(
            "--no-verify", action="store_true",
            help="check the files of finished runs by size only, not by sha256, for very large models",
        )  # fmt: skip

    def columns(self, where: str = "columns of a file given to --on, if they are not detected") -> None:
        """For verbs that a data file can be given to; `columns_of` reads them."""
        group = self.add_argument_group(where)
        for name, about in (("text", "the text"), ("text2", "the second text"), ("label", "the label")):
            group.add_argument(f"--{name}-column", metavar="NAME", help=f"column of {about}")
        group.add_argument("--rename-labels", metavar="OLD=NEW,…", help="labels of the file that have other names")
        self.shared("--skip-bad-rows")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:  # type: ignore[override]
        """As argparse does it; the words are kept for errors."""
        self.words = list(args or ())
        return super().parse_known_args(args, namespace)

    def _for_a_file(self, message: str) -> str | None:
        """`evaluate RUN gold.csv`: the option that takes the file, where it is what is missing."""
        from encodery.config.layers import is_data_file  # brings pydantic, which --help does not need

        option = next((one for one in ("--on", "--file") if "required" in message and one in message), None)
        named = next((word for word in self.words if not word.startswith("-") and is_data_file(word)), None)
        return f"{option} {named}" if option and named else None

    def error(self, message: str) -> NoReturn:
        """Say it as a person would, with the nearest option."""
        if meant := self._for_a_file(message):
            raise UserError(f"{self.prog}: give a data file with {meant.split()[0]}: {meant}")
        unknown = message.removeprefix("unrecognized arguments: ").partition(" ")[0]  # a word may be empty
        word = unknown.partition("=")[0]
        near = self._alike(word) if unknown != message else None
        hint = f"Did you mean {near}?" if near else f"{self._elsewhere(word)}See `{self.prog} --help`."
        raise UserError(f"{self.prog}: {message}. {hint}")

    def _alike(self, word: str) -> str | None:
        """The option that an unknown one may mean: spelt nearly so, or longer or shorter, as --output for --out."""
        plain = {name.strip("-"): name for name in self.options() if name.startswith("--")}
        wanted = word.strip("-").replace("_", "-")  # dashes before it would make all options alike
        near = difflib.get_close_matches(wanted, plain, n=1, cutoff=0.8)
        begins = [one for one in plain if one.startswith(wanted) or wanted.startswith(one)] if len(wanted) > 2 else []
        return next((plain[one] for one in (*near, *begins) if len(one) > 2), None)

    def _elsewhere(self, word: str) -> str:
        """Which other verbs have an option of this name; blank where none has."""
        from encodery.cli.verbs import VERBS

        having = []
        for verb in VERBS if word.startswith("--") else ():
            other, module = Parser("", ""), import_module(verb.module)
            module.arguments(other)
            option = other.options().get(word)
            having += [verb.name] if option and option.help != argparse.SUPPRESS else []
        names = ", ".join(having[:SHOWN]) + (", …" if len(having) > SHOWN else "")
        return f"It is an option of {names}. " if having else ""

    def nearest(self, word: str) -> str | None:
        """The option that a misspelt one without a value may mean."""
        plain = [name for name, action in self.options().items() if action.nargs == 0 and name.startswith("--")]
        return next(iter(difflib.get_close_matches(word, plain, n=1, cutoff=0.8)), None)

    def options(self) -> dict[str, argparse.Action]:
        """Declared options by their spelling."""
        return self._option_string_actions


class _Renamed(argparse.Action):
    """Says the new spelling, then does what it does."""

    def __init__(self, *words: Any, target: argparse.Action, **options: Any) -> None:
        super().__init__(*words, **options)
        self.target = target

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        new = max(self.target.option_strings, key=len)
        print(_OLD_NAME.format(option, new), file=sys.stderr)
        self.target(parser, namespace, values, option)


def columns_of(args: argparse.Namespace) -> dict[str, Any]:
    """How the command line says that a file is read: its columns, and what is done with bad rows."""
    columns = {"text": args.text_column, "text2": args.text2_column, "label": args.label_column}
    columns |= {"labels": _new_names(args.rename_labels)} if args.rename_labels else {}
    return columns | ({"skip_bad_rows": True} if args.skip_bad_rows else {})


def _new_names(text: str) -> dict[str, str]:
    """`ja=yes,nein=no`; a name with a comma or an equals sign is quoted as in YAML: "{'a,b': c}"."""
    if text.lstrip().startswith("{"):
        from encodery.core import yaml

        tree = yaml.read_text(text, "--rename-labels").tree
        if isinstance(tree, dict):
            return {str(old): str(new) for old, new in tree.items()}
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if not pairs or not all(old.strip() and new.strip() for old, _, new in pairs):
        raise UserError(f"--rename-labels {text}: expected OLD=NEW pairs with commas between, such as ja=yes,nein=no")
    return {old.strip(): new.strip() for old, _, new in pairs}


def without_bad_rows(args: argparse.Namespace, rest: list[str], key: str = "tasks") -> list[str]:
    """The settings of a verb that takes a config, and --skip-bad-rows as one of them."""
    return [*rest, f"{key}.skip_bad_rows=true"] if args.skip_bad_rows else rest


def split(parser: Parser, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words for the parser, and overrides. argparse alone would take the value of an unknown option for a file name."""
    for_parser: list[str] = []
    overrides: list[str] = []
    bare: list[str] = []  # settings without a value, at the end so that none takes the next word for one
    left = list(words)
    while left:
        word = left.pop(0)
        action = parser.options().get(word.partition("=")[0]) if word.startswith("-") else None
        if action is not None:
            takes_value = action.nargs is None and "=" not in word
            for_parser += [word, *([left.pop(0)] if takes_value and left else [])]
        elif word.startswith("--") and len(word) > 2:
            takes_value = "=" not in word and bool(left) and not _is_option(parser, left[0])
            if not takes_value and "=" not in word and (near := parser.nearest(word)):
                raise UserError(f"there is no option {word}; did you mean {near}?")
            if takes_value:
                overrides += [word, left.pop(0)]
            else:
                (overrides if "=" in word else bare).append(word)
        else:
            (overrides if _SETTING.match(word) else for_parser).append(word)
    return for_parser, [*overrides, *bare]


def _is_option(parser: Parser, word: str) -> bool:
    """Whether a word cannot be a value: -o is an option, and -1 is not."""
    return word.startswith("--") or word in parser.options()
