"""HDFS on this machine: Hadoop's MiniDFSCluster, two name nodes and a data node in one JVM, which Maven brings once."""

import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.hdfs_io import HdfsIO
from tests.support.peers.jars import CHECKOUT, class_path_on_spark


class HdfsCluster:
    """The name service `lake`, also mounted as `viewfs://tables`; `storage` are the storage options that reach it."""

    def __init__(self) -> None:
        self.storage: dict[str, str] = {}
        self._folder = tempfile.mkdtemp(prefix="bucketline-hdfs-")

    def __enter__(self) -> Self:
        options = ["-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        program = str(CHECKOUT / "tests" / "support" / "java" / "HdfsTool.java")
        with open(f"{self._folder}/log", "wb") as log:
            self._server = subprocess.Popen(
                ["java", *options, "-cp", class_path_on_spark("hdfs"), program, f"{self._folder}/data"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        for line in self._lines():
            key, _, value = line.partition("=")
            self.storage[f"hadoop.{key}"] = value
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def fail_over(self) -> None:
        """Makes the other name node the active one."""
        assert self._server.stdin is not None
        self._server.stdin.write("failover\n")
        self._server.stdin.flush()
        self._lines()

    def new_folder(self) -> tuple[HdfsIO, str]:
        """An IO and a folder of its own that nobody else uses."""
        io, root = file_io_for(f"hdfs://lake/{uuid.uuid4().hex}", self.storage)
        assert isinstance(io, HdfsIO)
        io.make_folder(root)
        return io, root

    def new_uri(self, place: str = "hdfs://lake") -> str:
        """A URI that nobody else uses."""
        return f"{place}/{uuid.uuid4().hex}/shop.db/t"

    def _lines(self) -> list[str]:
        """What the server says before `ready` or `done`."""
        assert self._server.stdout is not None
        found: list[str] = []
        for line in self._server.stdout:
            if line.strip() in ("ready", "done"):
                return found
            found.append(line.strip())
        raise RuntimeError(f"HDFS did not start:\n{Path(f'{self._folder}/log').read_text()[-4000:]}")
