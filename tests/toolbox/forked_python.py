"""`python -m MODULE` without seconds of imports: forked from this process, which has made them."""

import os
import runpy
import signal
import subprocess
import sys
import traceback
from typing import Any

Fds = tuple[int, int, int]  # stdin, stdout, stderr; -1 is inherited


class ForkedPython(subprocess.Popen[Any]):
    """As `subprocess.Popen`, but a module of this Python runs in a fork: same files, session, folder and environment.

    /proc/PID/environ stays that of this process. Whatever is not `python -m MODULE` is executed as always. A test that
    is about the start of a program, or about what it imports, does not use this.
    """

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, restore_signals: Any, gid: Any, gids: Any, uid: Any, umask: Any,
        start_new_session: bool, *more: Any,
    ) -> None:  # fmt: skip
        words = [] if shell or isinstance(args, str | bytes) else [os.fspath(word) for word in args]
        if words[:1] != [sys.executable] or [word for word in words[1:3] if word != "-u"][:1] != ["-m"]:
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
                p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
                start_new_session, *more,
            )  # fmt: skip
            return
        sys.stdout.flush(), sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            if start_new_session:
                os.setsid()
            if cwd is not None:
                os.chdir(cwd)
            if env is not None:
                os.environ.clear()
                os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in env.items()})
            _enter(words[words.index("-m") + 1 :], (p2cread, c2pwrite, errwrite), pass_fds)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def _enter(words: list[str], streams: Fds, pass_fds: Any) -> None:
    """In the fork: become the module."""
    code: Any = 1
    try:
        kept = [os.dup(number if one < 0 else one) for number, one in enumerate(streams)]
        for number, one in enumerate(kept):
            os.dup2(one, number)
        last = 2
        for one in sorted(pass_fds):
            os.closerange(last + 1, one)
            last = one
        os.closerange(last + 1, min(os.sysconf("SC_OPEN_MAX"), 1 << 20))
        for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        sys.argv = words
        if not hasattr(sys.modules.get(words[0]), "__path__"):
            sys.modules.pop(words[0], None)  # or runpy warns that it is there already
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
