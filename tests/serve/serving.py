"""A tiny trained run, and `encodery serve` on it: a real process on a free port of loopback."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encodery.cli import main
from tests.toolbox.forked_python import ForkedPython
from tests.toolbox.runs import config_for


def train(folder: Path, task: Mapping[str, Any], name: str) -> Path:
    """A run of a few steps."""
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(config_for(folder, dict(task))))
    assert main(["train", str(file), "--out", str(folder / name), "--quiet"]) == 0
    return folder / name


@dataclass
class Served:
    """A server that answers."""

    process: "subprocess.Popen[str]"
    host: str
    port: int
    lines: list[str]

    def ask(
        self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, raw: bytes | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        given = ({"Content-Type": "application/json"} if data is not None else {}) | dict(headers or {})
        connection.request("POST" if data is not None else "GET", path, data, given)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, json.loads(text) if answer.getheader("content-type", "").startswith(
            "application/json"
        ) else text

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self, number: int = signal.SIGINT) -> int:
        """End it as a person would; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def served(run: Path | str, *options: str, fresh: bool = False, **environment: str) -> Iterator[Served]:
    """`encodery serve RUN --port 0`, once it says that it listens; a fresh one has made its imports itself."""
    words = [sys.executable, "-m", "encodery", "serve", str(run), "--port", "0", "--threads", "1", *options]
    start = subprocess.Popen if fresh else ForkedPython
    process = start(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment)
    lines: list[str] = []
    try:
        port = _port(process, lines)
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True)
        reader.start()
        yield Served(process, "127.0.0.1", port, lines)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)


def _port(process: "subprocess.Popen[str]", lines: list[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if " is served at http://" in line:
            return int(line.split(" is served at http://")[1].split(" ")[0].rpartition(":")[2])
    raise AssertionError("".join(lines))
