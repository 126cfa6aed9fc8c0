"""Google's storage on this machine: fake-gcs-server, which Go builds once into the test cache.

It does not know the requests by which files are written over the XML interface, so files get there by the JSON one.
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

from tests.support.jars import cache_dir
from tests.support.s3_server import BUCKET, START_TIMEOUT_S, free_port

VERSION = "1.52.2"
_BUILD_TIMEOUT_S = 3600


class FakeGcs:
    """One bucket, `BUCKET`; `storage` are the storage options that reach it."""

    def __init__(self) -> None:
        self.endpoint = f"http://127.0.0.1:{free_port()}"
        self._folder = Path(tempfile.mkdtemp(prefix="bucketline-gcs-"))
        # A key without a login: the client signs its requests with nothing.
        key = {"gcs_base_url": self.endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        (self._folder / "key.json").write_text(json.dumps({**key, "private_key_id": ""}))
        self.storage = {
            "fs.gs.storage.root.url": self.endpoint,
            "fs.gs.auth.type": "service-account-json-keyfile",
            "fs.gs.auth.service.account.json.keyfile": str(self._folder / "key.json"),
        }

    def __enter__(self) -> Self:
        place = self.endpoint.removeprefix("http://")
        host, _, port = place.partition(":")
        options = ["-scheme", "http", "-host", host, "-port", port, "-public-host", place, "-backend", "memory"]
        self._server = subprocess.Popen(
            [_program(), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder
        )
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(ConnectionError, TimeoutError, URLError):
                self._post("/storage/v1/b?project=p", json.dumps({"name": BUCKET}).encode(), "application/json")
                return self
            if self._server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("fake-gcs-server did not start")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
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
        request = urllib.request.Request(f"{self.endpoint}{path}", data, {"Content-Type": kind}, method="POST")
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
