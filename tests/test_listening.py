"""Nothing of ours listens but `serve`; what others start for us is told to keep quiet."""

import ast
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import encodery
from encodery.sweep import ray_cluster
from encodery.sweep.sweep_file import Resources

PACKAGE = Path(encodery.__file__).parent
SERVERS = {"http.server", "socketserver", "wsgiref.simple_server", "xmlrpc.server", "flask", "uvicorn", "aiohttp"}
SERVERS |= {"fastapi", "starlette", "hypercorn", "gunicorn", "waitress"}
MAY = PACKAGE / "serve"


@cache
def imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


def test_S7_no_module_of_ours_but_serve_brings_a_server() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 200
    others = [path for path in files if not path.is_relative_to(MAY)]
    brought = [(path.name, name) for path in others for name in imported(path)]
    assert [pair for pair in brought if {pair[1], pair[1].partition(".")[0]} & SERVERS] == []
    assert any(name == "uvicorn" for path in MAY.rglob("*.py") for name in imported(path))


def test_S7_only_the_verb_serve_reaches_the_server() -> None:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if not path.is_relative_to(MAY)]
    users = [path for path in files if any(name.startswith("encodery.serve") for name in imported(path))]
    assert [path.relative_to(PACKAGE).as_posix() for path in users] == ["cli/serve.py"]


def test_S7_a_local_ray_has_no_dashboard_and_sends_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray_cluster._import()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    given: dict[str, Any] = {}

    class Ray:
        def is_initialized(self) -> bool:
            return False

        def init(self, **options: Any) -> None:
            if options.get("address") != "local":
                raise ConnectionError("no cluster")
            given.update(options)

    ray_cluster.connect(Ray(), Resources(devices="cpu:1"))
    assert given["include_dashboard"] is False
