"""The command `encodery`: finds the verb, runs it, and turns every ending into an exit code (0, 1, 2, 3, 130)."""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from encodery.cli.verbs import FIRST, GROUPS, VERBS, Verb
from encodery.core.process import is_main_process
from encodery.errors import EncoderyError, Stopped, UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and "OMP_WAIT_POLICY" not in os.environ:  # read when torch is loaded
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # threads soon let go of a core: docs/results/speed.md
    wanted = "--traceback" in words or os.environ.get("ENCODERY_TRACEBACK", "") not in ("", "0")
    with _ending_on_sigterm(program=argv is None):
        return _code_of([word for word in words if word != "--traceback"], wanted)


def _code_of(words: list[str], wanted: bool) -> int:
    """Do it; how it ended as a code, with a sentence where something went wrong."""
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, so that a closed pipe is noticed below and not at exit
        return code
    except SystemExit as end:  # argparse, after --help
        return end.code if isinstance(end.code, int) else 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _Sigterm:
        return _ended(Stopped("stopped by SIGTERM; run the same command again"), wanted)
    except KeyboardInterrupt as stop:  # a verb may say what it has kept
        print(f"Stopped. {stop}".rstrip(), file=sys.stderr)
        return 130
    except EncoderyError as error:
        return _ended(error, wanted)
    except Exception as error:
        if _sigterm.is_set():  # a library that was being imported made another error of it
            return _ended(Stopped("stopped by SIGTERM; run the same command again"), wanted)
        from encodery.core.system_errors import as_sentence

        known = as_sentence(error) if _own_code(error) is None else None
        return _bug(error, wanted) if known is None else _ended(known.with_traceback(error.__traceback__), wanted)


_sigterm = threading.Event()  # whether one has come


class _Sigterm(BaseException):
    """Raised by the signal; no Exception, since libraries catch those while they are imported."""


@contextmanager
def _ending_on_sigterm(program: bool) -> Iterator[None]:
    """SIGTERM ends any verb with a sentence; the first one counts, so that a second does not cut the sentence off.

    Verbs that have something to save install handlers of their own while they do.
    """

    def receive(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _sigterm.set()
        raise _Sigterm

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    _sigterm.clear()
    signal.signal(signal.SIGTERM, receive)
    try:
        yield
    finally:
        if not (program and signal.getsignal(signal.SIGTERM) == signal.SIG_IGN):  # Python takes a while to end
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _dispatch(words: list[str]) -> int:
    _require_folder()
    for stream in (sys.stdout, sys.stderr):  # names of files may hold what the terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    first = words[0] if words else "--help"
    if first in ("-h", "--help", "help"):
        print(overview())
        return 0
    if first in ("-V", "--version"):
        print(f"encodery {_version()}")
        return 0
    return run_verb(_verb(first), words[1:])


def _require_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the folder that this command runs in was deleted; change to another one (cd) first") from None


def run_verb(verb: Verb, words: list[str]) -> int:
    """Parse the rest of the line with the verb's own options, and do it."""
    from encodery.cli.parsing import Parser, split

    module = import_module(verb.module)
    parser = Parser(f"encodery {verb.name}", module.__doc__ or verb.help)
    module.arguments(parser)
    if "--quiet" not in parser.options():
        parser.shared("--quiet", help="print neither progress nor next steps")
    if {"-h", "--help"} & set(words) and hasattr(module, "narrow"):
        module.narrow(parser, words)  # an action of the verb has help of its own
    known, rest = split(parser, words) if verb.overrides else (words, [])
    args = parser.parse_args(known)
    if "://" in str(getattr(args, "out", None)):
        from encodery.core.remote_files import refuse_address

        refuse_address("-o", args.out)
    quiet = bool(args.quiet)
    with _sign_of_life(verb.name, quiet), _checking(sizes_only=getattr(args, "no_verify", False)):
        code = int(module.run(args, rest))
    if code == 0 and (line := getattr(args, "next", None)) and not quiet and sys.stderr.isatty():
        print(f"next: {line}", file=sys.stderr)
    return code


@contextmanager
def _checking(sizes_only: bool) -> Iterator[None]:
    """--no-verify: files of finished runs are compared by size alone."""
    if not sizes_only:
        yield
        return
    from encodery.core import files

    with files.sizes_only():
        yield


@contextmanager
def _sign_of_life(verb: str, quiet: bool) -> Iterator[None]:
    """At a terminal something moves until the verb says something."""
    if quiet or not sys.stderr.isatty() or not is_main_process():
        yield
        return
    from encodery.cli.spinner import Spinner

    with Spinner(verb):
        yield


def _verb(name: str) -> Verb:
    import difflib

    verbs = {verb.name: verb for verb in VERBS}
    if name not in verbs:
        near = difflib.get_close_matches(name, verbs, n=1)
        hint = f"Did you mean `encodery {near[0]}`?" if near else "`encodery --help` lists the verbs."
        raise UserError(f"There is no verb '{name}'. {hint}")
    return verbs[name]


def overview() -> str:
    """What `encodery --help` prints: the six that most people need, then the others by group."""
    width = max(len(verb.name) for verb in VERBS)
    by_name = {verb.name: f"  {verb.name:{width}}  {verb.help}" for verb in VERBS}
    lines = [
        "usage: encodery VERB …     (`encodery VERB --help` has options and examples)",
        "",
        *(by_name[name] for name in FIRST),
        "",
    ]
    for group, about in GROUPS.items():
        mine = [by_name[verb.name] for verb in VERBS if verb.group == group and verb.name not in FIRST]
        lines += [f"{about.capitalize()}:", *mine, ""] if mine else []
    lines.append("First steps: `encodery train reviews.csv`, `encodery demo`.")
    lines.append("`encodery --version`; --traceback after any verb shows where a failure happened.")
    return "\n".join(lines)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("encodery")
    except PackageNotFoundError:
        return "(a copy that is not installed)"


def _ended(error: EncoderyError, traceback: bool) -> int:
    if isinstance(error, Stopped) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until the sentence is printed
    if traceback:
        _show(error)
    alike = not is_main_process() and error.exit_code in (2, 3)  # every process of a run says the same
    if not alike:
        print(str(error), file=sys.stderr)
    return error.exit_code


def _bug(error: Exception, traceback: bool) -> int:
    """What a person cannot act on is our fault: say so, and keep the traceback for the log."""
    import logging

    from encodery.core.redact import scrub

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
    """`mine.py:4` if the failure happened in a person's own component (see config/components.py)."""
    import traceback

    own = {module.__file__ for name, module in sys.modules.items() if name.startswith("encodery_own_")}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _show(error: Exception) -> None:
    import traceback

    from encodery.core.redact import scrub

    print(scrub("".join(traceback.format_exception(error))), file=sys.stderr)
