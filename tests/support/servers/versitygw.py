"""An S3 gateway on this machine that keeps objects as files: versitygw, which Go builds once into the test cache.

Unlike a mock it creates an object on a condition atomically, whoever asks.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.support.peers.jars import CHECKOUT
from tests.support.servers.s3_server import BUCKET, KEY, KEY_ID, START_TIMEOUT_S, S3Server

VERSION = "1.8.0"
_BUILD_TIMEOUT_S = 3600


class VersityGateway(S3Server):
    """As `S3Server`."""

    def start(self) -> subprocess.Popen[bytes]:
        self._folder = tempfile.mkdtemp(prefix="versitygw-")
        os.mkdir(f"{self._folder}/{BUCKET}")
        return subprocess.Popen(
            [_program(), "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", self._folder],
            env={**os.environ, "ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": KEY},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def folder(self) -> str:
        """Where the objects lie as files."""
        return self._folder

    def await_start(self) -> bool:
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        return False

    def stop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _program() -> str:
    """versitygw's program; builds it the first time, which takes some minutes."""
    cache = Path(os.environ.get("BUCKETLINE_TEST_CACHE", CHECKOUT / ".venv" / ".cache"))
    folder = cache / f"versitygw-{VERSION}"
    if not (folder / "versitygw").exists():
        go = shutil.which("go")
        if go is None:
            raise RuntimeError("versitygw needs Go 1.25 or later")
        module = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
        environment = {**os.environ, "GOBIN": str(folder.absolute())}
        subprocess.run([go, "install", module], env=environment, check=True, timeout=_BUILD_TIMEOUT_S)
    return str(folder / "versitygw")
