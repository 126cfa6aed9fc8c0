"""Google's storage on this machine: fake-gcs-server, which Go builds once into the test cache.

It does not know the requests by which files are written over the XML interface: a `GcsFront` before it does.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.parse import quote

from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.objects.object_io import ObjectIO
from tests.support.peers.jars import cache_dir
from tests.support.servers.gcs_front import GcsFront
from tests.support.servers.s3_server import BUCKET, START_TIMEOUT_S, free_port

VERSION = "1.52.2"
_BUILD_TIMEOUT_S = 3600


class FakeGcs:
    """One bucket, `BUCKET`; `storage` are the storage options that reach it, `bare_storage` those without the front."""

    def __init__(self) -> None:
        self.bare = f"http://127.0.0.1:{free_port()}"
        self._front = GcsFront(self.bare)
        self.endpoint = self._front.endpoint
        self._folder = Path(tempfile.mkdtemp(prefix="bucketline-gcs-"))
        self.storage, self.bare_storage = self.storage_at(self.endpoint), self.storage_at(self.bare)

    def storage_at(self, endpoint: str) -> dict[str, str]:
        """Storage options for a server at this address."""
        # A key without a login: the client signs its requests with nothing.
        key = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        file = self._folder / f"{endpoint.rpartition(':')[2]}.json"
        file.write_text(json.dumps({**key, "private_key_id": ""}))
        return {
            "fs.gs.storage.root.url": endpoint,
            "fs.gs.auth.type": "service-account-json-keyfile",
            "fs.gs.auth.service.account.json.keyfile": str(file),
        }

    def new_folder(self) -> tuple[ObjectIO, str]:
        """An IO and a folder of its own that nobody else uses."""
        io, root = file_io_for(f"gs://{BUCKET}/{uuid.uuid4().hex}", self.storage)
        assert isinstance(io, ObjectIO)
        return io, root

    def new_uri(self) -> str:
        """A URI that nobody else uses."""
        return f"gs://{BUCKET}/{uuid.uuid4().hex}/shop.db/t"

    def __enter__(self) -> Self:
        place = self.bare.removeprefix("http://")
        host, _, port = place.partition(":")
        options = ["-scheme", "http", "-host", host, "-port", port, "-public-host", place, "-backend", "memory"]
        self._server = subprocess.Popen(
            [_program(), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder
        )
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(ConnectionError, TimeoutError, URLError):
                self._post("/storage/v1/b?project=p", json.dumps({"name": BUCKET}).encode(), "application/json")
                self._front.__enter__()
                return self
            if self._server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("fake-gcs-server did not start")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._front.__exit__(kind, error, at)
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_copy(self, folder: Path) -> str:
        """A URI that nobody else uses, under which the files of a local folder lie."""
        name = uuid.uuid4().hex
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            key = quote(f"{name}/t/{file.relative_to(folder)}", safe="")
            self._post(f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={key}", file.read_bytes(), "text/plain")
        return f"gs://{BUCKET}/{name}/t"

    def _post(self, path: str, data: bytes, kind: str) -> None:
        request = urllib.request.Request(f"{self.bare}{path}", data, {"Content-Type": kind}, method="POST")
        with urllib.request.urlopen(request, timeout=30):
            pass


def _program() -> str:
    """fake-gcs-server's program; builds it the first time, which takes some minutes."""
    folder = cache_dir() / f"fake-gcs-server-{VERSION}"
    if not (folder / "fake-gcs-server").exists():
        go = shutil.which("go")
        if go is None:
            raise RuntimeError("fake-gcs-server needs Go")
        module = f"github.com/fsouza/fake-gcs-server@v{VERSION}"
        environment = {**os.environ, "GOBIN": str(folder.absolute())}
        subprocess.run([go, "install", module], env=environment, check=True, timeout=_BUILD_TIMEOUT_S)
    return str(folder / "fake-gcs-server")
