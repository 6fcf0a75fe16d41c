"""The process that listens: its address, its token, how it begins and how it ends. Nothing else of encodery listens."""

import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery.core.extras import install
from encodery.errors import UserError

TOKEN = "ENCODERY_SERVE_TOKEN"
SHORTEST = 16  # characters of a token
NEEDED = f"serve needs two more packages: {install('serve')}"


@dataclass(frozen=True)
class Address:
    """Where to listen, and what a client must know."""

    host: str
    port: int
    token: str | None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(file: str | None) -> str | None:
    """The token of a file or of the environment; never of the command line, which other users of a machine can read."""
    try:
        token = Path(file).read_text(encoding="utf-8").strip() if file else os.environ.get(TOKEN, "").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--token-file {file}: cannot be read ({error})") from None
    if (file or token) and len(token) < SHORTEST:
        raise UserError(f"the token of {file or TOKEN} has {len(token)} characters; it needs at least {SHORTEST}")
    if not token.isascii():
        raise UserError(f"the token of {file or TOKEN} must be plain ASCII, since it is sent as a header")
    return token or None


def require_token(address: Address) -> None:
    """Any other host than loopback is reached by others."""
    if not address.loopback and address.token is None:
        raise UserError(
            f"--host {address.host}: others can reach this address, so a token is required: set {TOKEN} or "
            "--token-file (for example: openssl rand -hex 32 > token); without one only 127.0.0.1 is served"
        )


def open_socket(address: Address) -> socket.socket:
    """The socket, so that a port that is taken is a sentence, and port 0 a free one."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise UserError(f"--host {address.host} --port {address.port}: cannot listen there ({error})") from None
    return listener


def url(address: Address, listening: socket.socket) -> str:
    """Where people find it."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"http://{host}:{listening.getsockname()[1]}"


def run_server(app: Any, listening: socket.socket, started: Callable[[], None], connections: int) -> None:
    """Serve until SIGINT or SIGTERM; what is being answered then is answered first, for at most five seconds."""
    try:
        import uvicorn
    except ImportError:
        raise UserError(NEEDED) from None

    class Server(uvicorn.Server):
        """uvicorn raises the signal again at its end, which would look like a failure."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Both signals ask it to end; a second one ends it at once."""
            before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for one, handler in before.items():
                    signal.signal(one, handler)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Says that it is there once it is."""
            await super().startup(sockets)
            started()

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, date_header=False, lifespan="off",
        limit_concurrency=connections, timeout_graceful_shutdown=5, timeout_keep_alive=30, ws="none", workers=1,
    )  # fmt: skip
    Server(config).run(sockets=[listening])
