"""An S3 store on this machine for as long as a test session lasts: moto's server, which keeps objects in memory."""

import re
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.error import URLError

from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.objects.object_io import ObjectIO

START_TIMEOUT_S = 120.0
BUCKET = "lake"
KEY_ID, KEY = "some-id", "some-key"


class S3Server:
    """One bucket, `BUCKET`; `storage` are the storage options that reach it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def storage(self) -> dict[str, str]:
        return storage_of(self.endpoint)

    def __enter__(self) -> Self:
        self._server = self.start()
        if not self.await_start():
            raise RuntimeError(f"{type(self).__name__} did not start; is its program installed?")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server is not None
        self._server.kill()
        self._server.wait()
        self.stop()

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the server."""
        command = [sys.executable, "-m", "tests.support.servers.moto_in_turn", str(self.port)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def await_start(self) -> bool:
        """Whether the server is there, with its bucket."""
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until and self._server is not None and self._server.poll() is None:
            with suppress(URLError, ConnectionError, TimeoutError):
                make_bucket(self.endpoint, BUCKET)
                return True
        return False

    def stop(self) -> None:
        """Removes what the server leaves."""

    def new_folder(self) -> tuple[ObjectIO, str]:
        """An IO and a folder of its own that nobody else uses."""
        return object_io(f"s3://{BUCKET}/{uuid.uuid4().hex}", self.endpoint)

    def new_uri(self) -> str:
        """A URI that nobody else uses."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}/shop.db/t"


def wait_until(is_so: Callable[[], bool]) -> None:
    """Waits for what happens on its own. Raises TimeoutError."""
    until = time.monotonic() + START_TIMEOUT_S
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError("it did not come to pass")


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def storage_of(endpoint: str) -> dict[str, str]:
    """Storage options for a server at this address."""
    return {
        "s3.endpoint": endpoint,
        "s3.access-key": KEY_ID,
        "s3.secret-key": KEY,
        "s3.path.style.access": "true",
        "s3.region": "us-east-1",
    }


def object_io(uri: str, endpoint: str) -> tuple[ObjectIO, str]:
    """As `file_io_for`, for a server at this address."""
    io, root = file_io_for(uri, storage_of(endpoint))
    assert isinstance(io, ObjectIO)
    return io, root


def make_bucket(endpoint: str, bucket: str) -> None:
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
    with urllib.request.urlopen(request, timeout=5):
        pass


def parts_left(endpoint: str, bucket: str, prefix: str = "") -> list[str]:
    """Keys of the uploads in parts that were begun, and neither completed nor given up; those with a prefix alone, as
    other tests may leave some on the same server."""
    with urllib.request.urlopen(f"{endpoint}/{bucket}?uploads", timeout=5) as answer:
        keys = re.findall("<Key>([^<]*)</Key>", answer.read().decode())
    return [key for key in keys if key.startswith(prefix)]
