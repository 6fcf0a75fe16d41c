"""Emulators of S3 and GS on loopback, and a cable to them that can be cut in the middle of an upload."""

import importlib.util
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.engines.two_hosts import Server, until

PACKAGES = {"s3": ("s3fs", "moto"), "gs": ("gcsfs", "gcp_storage_emulator")}
WRITES = (b"PUT ", b"POST /upload")  # how a client begins to send a file
BUCKET = "bucket"


def missing(kind: str) -> str | None:
    """Why a store cannot be emulated here; None where it can."""
    absent = [name for name in PACKAGES[kind] if importlib.util.find_spec(name) is None]
    return f"packages {', '.join(absent)} not found (`make engines` installs them)" if absent else None


class Store:
    """`with Store("s3") as store:` an empty store with one bucket; clients find it by `variables()`."""

    def __init__(self, kind: str) -> None:
        self.kind, self.port = kind, free_port()
        self.log = Path(tempfile.mkstemp(prefix=f"{kind}-", suffix=".log")[1])
        self.cable = Cable(self.port)

    def __enter__(self) -> "Store":
        words = {
            "s3": ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            "gs": ["-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={self.port}", "--in-memory"],
        }
        self.server = Server([sys.executable, *words[self.kind]], self.log)
        try:
            until(lambda: listens(self.port), 90, f"the emulator of {self.kind} listens", self.log)
        except BaseException:
            self.__exit__()
            raise
        self.cable.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.cable.end()
        self.server.end(5)
        self.log.unlink()

    def variables(self) -> dict[str, str]:
        """The environment of a client."""
        address = f"http://127.0.0.1:{self.cable.port}"
        if self.kind == "gs":
            names = ("STORAGE_EMULATOR_HOST", "FSSPEC_GS_TOKEN", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT")
            return dict(zip(names, (address, "anon", "false"), strict=True))
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1"}
        return {"AWS_ENDPOINT_URL": address, "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true", **keys}

    def system(self) -> Any:
        """A file system that has not seen this store before."""
        import fsspec

        return fsspec.filesystem(self.kind, skip_instance_cache=True)

    def buckets(self) -> set[str]:
        """The buckets there are."""
        return {str(one).strip("/") for one in self.system().ls("", detail=False)}

    def content(self, folder: str) -> dict[str, bytes]:
        """The files below a folder of the bucket."""
        system, root = self.system(), f"{BUCKET}/{folder}/"
        return {path.removeprefix(root): system.cat_file(path) for path in system.find(root)}


class Cable:
    """A port that leads to another one, until as many uploads as allowed have begun."""

    def __init__(self, target: int) -> None:
        self.target, self.uploads, self.allowed = target, 0, float("inf")
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, uploads: float) -> None:
        """From now on let so many uploads through, then nothing."""
        self.uploads, self.allowed = 0, uploads

    def end(self) -> None:
        self.door.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self.door.accept()[0]
            except OSError:  # the test is over
                return
            if self.uploads > self.allowed:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(*ends, near), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source is client and data.startswith(WRITES):
                    self.uploads += 1
                if self.uploads > self.allowed:
                    break
                target.sendall(data)
        for end in (source, target):  # a mere close() is not seen while the other thread waits in recv()
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
