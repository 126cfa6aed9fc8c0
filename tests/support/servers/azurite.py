"""Azure's blob store on this machine: azurite, an emulator, which npm installs once into the test cache."""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import time
import urllib.request
import uuid
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import HTTPError, URLError

import pytest

from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.objects.object_io import ObjectIO
from tests.support.peers.jars import CHECKOUT
from tests.support.servers.s3_server import START_TIMEOUT_S, free_port

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's own, which everybody knows."""

CONTAINER = "lake"


class Azurite:
    """One container, `CONTAINER`; while it runs, the environment says where it is."""

    storage: dict[str, str] = {}  # noqa: RUF012 - what S3Server has too; here the environment says it all

    def __init__(self) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._environment = pytest.MonkeyPatch()
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        self._server = subprocess.Popen(
            [_program(), "--blobHost", "127.0.0.1", "--blobPort", str(self.port), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(ConnectionError, TimeoutError, URLError):
                self._make_container()
                break
            if self._server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("azurite did not start")
        self._environment.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        self._environment.setenv("AZURITE_BLOB_STORAGE_URL", self.endpoint)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._environment.undo()
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def new_folder(self) -> tuple[ObjectIO, str]:
        """An IO and a folder of its own that nobody else uses."""
        io, root = file_io_for(f"az://{CONTAINER}/{uuid.uuid4().hex}", {})
        assert isinstance(io, ObjectIO)
        return io, root

    def new_uri(self) -> str:
        """A URI that nobody else uses."""
        return f"az://{CONTAINER}/{uuid.uuid4().hex}/shop.db/t"

    def _make_container(self) -> None:
        date = formatdate(usegmt=True)
        path = f"/{ACCOUNT}/{CONTAINER}"
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:2021-08-06\n/{ACCOUNT}{path}\nrestype:container"
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
        headers = {
            "x-ms-date": date,
            "x-ms-version": "2021-08-06",
            "Content-Length": "0",
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
        }
        asked = urllib.request.Request(f"{self.endpoint}{path}?restype=container", method="PUT", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=5):
                pass
        except HTTPError as e:
            raise RuntimeError(f"azurite: {e.read().decode()}") from e


def _program() -> str:
    """azurite's program; installs it the first time."""
    cache = Path(os.environ.get("BUCKETLINE_TEST_CACHE", CHECKOUT / ".venv" / ".cache"))
    folder = cache / f"azurite-{VERSION}"
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError("azurite needs Node: install Node 20 or later, with npm")
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"azurite@{VERSION}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
    return str(program)
