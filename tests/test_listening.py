"""Nothing of ours listens; what others start for us is told to keep quiet."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import encodery
from encodery.sweep import on_ray
from encodery.sweep.file import Resources

SERVERS = {"http.server", "socketserver", "wsgiref.simple_server", "xmlrpc.server", "flask", "uvicorn", "aiohttp"}
PACKAGE = Path(encodery.__file__).parent


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_S7_no_module_of_ours_brings_a_server() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 200
    assert [(path.name, name) for path in files for name in imported(path) if name in SERVERS] == []


def test_S7_a_local_ray_has_no_dashboard_and_sends_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    on_ray._import()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    given: dict[str, Any] = {}

    class Ray:
        def is_initialized(self) -> bool:
            return False

        def init(self, **options: Any) -> None:
            if options.get("address") != "local":
                raise ConnectionError("no cluster")
            given.update(options)

    on_ray.connect(Ray(), Resources(devices="cpu:1"))
    assert given["include_dashboard"] is False
