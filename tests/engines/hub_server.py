"""A stand-in for the hub on loopback: creates repositories, takes commits (plain files and LFS), gives them back.

It knows one token; private repositories are not found without it, and a wrong one is refused; `broken` requests get a
503 first. Old commits can be asked for. Models and data sets are one kind of thing to it.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

TOKEN = "hf_" + "standin" * 5
REPOSITORY = r"(?P<name>[^/]+/[^/]+?)"
REVISION = r"(?P<revision>[^/]+)"
KIND = "(?:models|datasets)"


class Repository:
    def __init__(self, private: bool) -> None:
        self.private, self.files = private, dict[str, bytes]()
        self.commit = hashlib.sha1(b"empty").hexdigest()
        self.history = {self.commit: self.files}

    def take(self, changes: dict[str, bytes]) -> None:
        """A commit."""
        self.files = self.files | changes
        lines = [f"{path} {blob(content)}" for path, content in sorted(self.files.items())]
        self.commit = hashlib.sha1("\n".join(lines).encode()).hexdigest()
        self.history[self.commit] = self.files

    def at(self, revision: str | None) -> str | None:
        """The commit that a revision means."""
        wanted = self.commit if revision in (None, "main") else str(revision)
        return wanted if wanted in self.history else None


class Hub:
    """`with Hub() as hub: hub.address`."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.broken = 0  # downloads that fail before one works
        self.unknown: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": self}))
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "Hub":
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def say(self, code: int, body: Any = b"", **heads: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for key, value in {**heads, "Content-Length": str(len(data))}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def answer(self) -> None:
        body, path = self.body(), self.path.partition("?")[0]
        for pattern, needs_token, act in ROUTES:
            if match := re.fullmatch(pattern, path):
                wrong = "Authorization" in self.headers and not self.known()
                if wrong or (needs_token and not self.known()):
                    return self.say(401, {"error": "Invalid username or password."})
                return act(self, body, **match.groupdict())
        self.hub.unknown.append(f"{self.command} {self.path}")
        self.say(404, {"error": "unknown"})

    do_GET = do_POST = do_PUT = do_HEAD = answer

    def known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def snapshot(self, name: str, revision: str | None) -> tuple[Repository, str, dict[str, bytes]] | None:
        """A repository, one of its commits, and the files of that."""
        found = self.hub.repositories.get(name)
        if found is None or (found.private and not self.known()):
            self.say(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return None
        if (commit := found.at(revision)) is None:
            self.say(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
            return None
        return found, commit, found.history[commit]

    def who(self, body: bytes) -> None:
        self.say(200, {"name": "me", "type": "user", "auth": {"accessToken": {"role": "write"}}})

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        about = {"url": f"{self.hub.address}/{name}", "name": name}
        if name in self.hub.repositories:
            return self.say(409, {"error": "exists", **about})
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        self.hub.repositories[name] = Repository(private)
        self.say(200, about)

    def check_yaml(self, body: bytes) -> None:
        self.say(200, {"errors": [], "warnings": []})

    def preupload(self, body: bytes, name: str) -> None:
        paths = [one["path"] for one in json.loads(body)["files"]]
        modes = ["lfs" if path.endswith(".safetensors") else "regular" for path in paths]
        rows = zip(paths, modes, strict=True)
        self.say(200, {"files": [{"path": p, "uploadMode": mode, "shouldIgnore": False} for p, mode in rows]})

    def batch(self, body: bytes, name: str) -> None:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.hub.address}/lfs/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        self.say(200, {"transfer": "basic", "objects": objects}, Content_Type="application/vnd.git-lfs+json")

    def lfs(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.large[oid] = body
        self.say(200)

    def commit(self, body: bytes, name: str) -> None:
        repository, changes = self.hub.repositories[name], dict[str, bytes]()
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                changes[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                changes[value["path"]] = self.hub.large[value["oid"]]
        repository.take(changes)
        address = f"{self.hub.address}/{name}/commit/{repository.commit}"
        self.say(200, {"success": True, "commitUrl": address, "commitOid": repository.commit, "hookOutput": ""})

    def info(self, body: bytes, name: str, revision: str | None = None) -> None:
        if self.out_of_order():
            return
        if found := self.snapshot(name, revision):
            repository, commit, files = found
            rows = [{"rfilename": path, "size": len(content)} for path, content in files.items()]
            about = {"id": name, "modelId": name, "sha": commit, "private": repository.private, "tags": []}
            self.say(200, {**about, "siblings": rows})

    def tree(self, body: bytes, name: str, revision: str, folder: str | None = None) -> None:
        if found := self.snapshot(name, revision):
            inside = {path: data for path, data in found[2].items() if path.startswith(f"{folder}/" if folder else "")}
            if folder and not inside:
                return self.say(404, {"error": "no such folder"}, X_Error_Code="EntryNotFound")
            if not re.search("recursive=(true|1)", self.path, re.I):
                skip = len(folder) + 1 if folder else 0
                deeper = {path[:skip] + path[skip:].partition("/")[0] for path in inside if "/" in path[skip:]}
                inside = {path: data for path, data in inside.items() if "/" not in path[skip:]}
                folders = [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in sorted(deeper)]
                return self.say(200, folders + [entry(path, data) for path, data in inside.items()])
            self.say(200, [entry(path, data) for path, data in inside.items()])

    def paths(self, body: bytes, name: str, revision: str) -> None:
        if found := self.snapshot(name, revision):
            text = body.decode()
            asked = json.loads(text)["paths"] if text.startswith("{") else parse_qs(text).get("paths", [])
            files = found[2]
            folders = [path for path in asked if any(one.startswith(f"{path}/") for one in files)]
            rows = [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in folders]
            self.say(200, rows + [entry(path, files[path]) for path in asked if path in files])

    def resolve(self, body: bytes, name: str, revision: str, file: str) -> None:
        if self.command == "GET" and self.out_of_order():
            return
        if (found := self.snapshot(name, revision)) is None:
            return
        if (content := found[2].get(file)) is None:
            return self.say(404, {}, X_Error_Code="EntryNotFound")
        heads = {"ETag": f'"{blob(content)}"', "X_Repo_Commit": found[1], "Content_Type": "application/octet-stream"}
        self.say(200, content, **heads)

    def out_of_order(self) -> bool:
        """Whether this request was answered with a 503."""
        if self.hub.broken > 0:
            self.hub.broken -= 1
            self.say(503, {"error": "try again"})
            return True
        return False


def entry(path: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": path, "size": len(content), "oid": blob(content)}


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


ROUTES: list[tuple[str, bool, Callable[..., None]]] = [
    (r"/api/whoami-v2", True, Handler.who),
    (r"/api/repos/create", True, Handler.create),
    (r"/api/validate-yaml", False, Handler.check_yaml),
    (rf"/api/models/{REPOSITORY}/preupload/.*", True, Handler.preupload),
    (rf"/{REPOSITORY}\.git/info/lfs/objects/batch", True, Handler.batch),
    (r"/lfs/(?P<oid>\w+)", False, Handler.lfs),
    (rf"/api/models/{REPOSITORY}/commit/.*", True, Handler.commit),
    (rf"/api/{KIND}/{REPOSITORY}/tree/{REVISION}(?:/(?P<folder>.+))?", False, Handler.tree),
    (rf"/api/{KIND}/{REPOSITORY}/paths-info/{REVISION}", False, Handler.paths),
    (rf"/api/{KIND}/{REPOSITORY}(?:/revision/{REVISION})?", False, Handler.info),
    (rf"/(?:datasets/)?{REPOSITORY}/resolve/{REVISION}/(?P<file>.+)", False, Handler.resolve),
]
