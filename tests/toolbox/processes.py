"""Several processes for a test, without a second's wait for their imports: forked from a server that has made them."""

import multiprocessing
import os
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.toolbox.preload"])


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _enter(rank: int, environment: dict[str, str], log: str, job: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """One of the processes: as a launcher would have started it."""
    import torch

    torch.set_num_threads(1)
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
    with open(f"{log}-{rank}.txt", "a") as stream, redirect_stderr(stream):
        try:
            code = job(*args)
        except BaseException:
            traceback.print_exc()
            code = 1
    sys.exit(code if isinstance(code, int) else 0)


def start(folder: Path, job: Callable[..., Any], *args: Any, size: int = 2, **more: str) -> list[Any]:
    """Processes that call `job(*args)`; what they say goes to said-<rank>.txt."""
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    kept = {name: os.environ[name] for name in ("ENCODERY_CACHE", "HF_HUB_OFFLINE") if name in os.environ}
    common |= {"GLOO_SOCKET_IFNAME": "lo", **kept, **more}
    made = [CONTEXT.Process(target=_enter, args=(r, common, str(folder / "said"), job, args)) for r in range(size)]
    for process in made:
        process.start()
    return made


def end(processes: list[Any], seconds: float = 120) -> list[int]:
    """Wait for them; their exit codes. None may be left."""
    try:
        for process in processes:
            process.join(seconds)
        assert not any(process.is_alive() for process in processes), "a process still runs"
        return [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.join()


def together(folder: Path, job: Callable[..., Any], *args: Any, size: int = 2, **more: str) -> None:
    """All of them, to a good end."""
    codes = end(start(folder, job, *args, size=size, **more))
    said = "".join(path.read_text() for path in sorted(folder.glob("said-*.txt")))
    assert codes == [0] * size, said


def command(*words: str) -> int:
    """`encodery WORDS`."""
    from encodery.cli import main

    return main(list(words))
