"""The command `encodery`: finds the verb, runs it, and turns every ending into an exit code (0, 1, 2, 3, 130)."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from encodery.cli.verbs import GROUPS, VERBS, Verb
from encodery.errors import EncoderyError, UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    wanted = "--traceback" in words or os.environ.get("ENCODERY_TRACEBACK", "") not in ("", "0")
    try:
        code = _dispatch([word for word in words if word != "--traceback"])
        sys.stdout.flush()  # here, so that a closed pipe is noticed below and not at exit
        return code
    except SystemExit as end:  # argparse, after --help
        return end.code if isinstance(end.code, int) else 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130
    except EncoderyError as error:
        return _ended(error, wanted)
    except Exception as error:
        return _bug(error, wanted)


def _dispatch(words: list[str]) -> int:
    first = words[0] if words else "--help"
    if first in ("-h", "--help", "help"):
        print(overview())
        return 0
    if first in ("-V", "--version"):
        print(f"encodery {_version()}")
        return 0
    return run_verb(_verb(first), words[1:])


def run_verb(verb: Verb, words: list[str]) -> int:
    """Parse the rest of the line with the verb's own options, and do it."""
    from encodery.cli.parsing import Parser, split

    module = import_module(verb.module)
    parser = Parser(f"encodery {verb.name}", module.__doc__ or verb.help)
    module.arguments(parser)
    known, rest = split(parser, words) if verb.overrides else (words, [])
    args = parser.parse_args(known)
    if not getattr(args, "no_verify", False):
        return int(module.run(args, rest))
    from encodery.digests import sizes_only

    with sizes_only():
        return int(module.run(args, rest))


def _verb(name: str) -> Verb:
    import difflib

    verbs = {verb.name: verb for verb in VERBS}
    if name not in verbs:
        near = difflib.get_close_matches(name, verbs, n=1)
        hint = f"Did you mean `encodery {near[0]}`?" if near else "`encodery --help` lists the verbs."
        raise UserError(f"There is no verb '{name}'. {hint}")
    return verbs[name]


def overview() -> str:
    """What `encodery --help` prints: the verbs by group."""
    lines = ["usage: encodery VERB …     (`encodery VERB --help` says more)", ""]
    width = max(len(verb.name) for verb in VERBS)
    for group, about in GROUPS.items():
        mine = [f"  {verb.name:{width}}  {verb.help}" for verb in VERBS if verb.group == group]
        lines += [f"{group}: {about}", *mine, ""] if mine else []
    lines.append("encodery --version; --traceback after any verb shows where a failure happened.")
    return "\n".join(lines)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("encodery")
    except PackageNotFoundError:
        return "(a copy that is not installed)"


def _ended(error: EncoderyError, traceback: bool) -> int:
    if traceback:
        _show(error)
    alike = os.environ.get("RANK", "0") != "0" and error.exit_code in (2, 3)  # every process of a run says the same
    if not alike:
        print(str(error), file=sys.stderr)
    return error.exit_code


def _bug(error: Exception, traceback: bool) -> int:
    """What a person cannot act on is our fault: say so, and keep the traceback for the log."""
    import logging

    from encodery.scrub import scrub

    log = logging.getLogger("encodery")
    log.addHandler(logging.NullHandler())
    log.error("unexpected failure", exc_info=error)
    if traceback:
        _show(error)
    if place := _own_code(error):
        print(scrub(f"{place}: {type(error).__name__}: {error}. --traceback shows more."), file=sys.stderr)
        return 1
    print(scrub(f"Sorry, this is a bug in encodery: {type(error).__name__}: {error}"), file=sys.stderr)
    print("Please report it with the command and with what it prints when --traceback is added.", file=sys.stderr)
    return 1


def _own_code(error: Exception) -> str | None:
    """`mine.py:4` if the failure happened in a person's own component (see find.py)."""
    import traceback

    own = {module.__file__ for name, module in sys.modules.items() if name.startswith("encodery_own_")}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _show(error: Exception) -> None:
    import traceback

    from encodery.scrub import scrub

    print(scrub("".join(traceback.format_exception(error))), file=sys.stderr)
