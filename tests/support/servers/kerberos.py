"""HDFS with Kerberos on this machine: MiniDFSCluster and MiniKdc in one JVM, which Maven brings once."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.peers.jars import CHECKOUT, class_path_on_spark


class KerberosHdfs:
    """One name node at `uri`, and the login of the user `alice`, who owns `/alice`. The C library of Kerberos reads its
    settings once in a process, so that clients are processes of their own: `run`.
    """

    def __init__(self, protection: str) -> None:
        """`protection` is what data and calls are protected by: `authentication`, `integrity` or `privacy`."""
        self._folder, self._protection = Path(tempfile.mkdtemp(prefix="bucketline-kerberos-")), protection

    def __enter__(self) -> Self:
        jars = class_path_on_spark("hdfs", "kdc")
        options = ["-Xmx700m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        program = str(CHECKOUT / "tests" / "support" / "java" / "KerberosTool.java")
        (self._folder / "kdc").mkdir()
        with (self._folder / "log").open("wb") as log:
            self._server = subprocess.Popen(
                ["java", *options, "-cp", jars, program, str(self._folder), self._protection],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        said: dict[str, str] = {}
        assert self._server.stdout is not None
        for line in self._server.stdout:
            if line.strip() == "ready":
                break
            key, _, value = line.strip().partition("=")
            said[key] = value
        else:
            raise RuntimeError(f"HDFS did not start:\n{(self._folder / 'log').read_text()[-4000:]}")
        self.uri, self.principal, self.keytab, self._settings = (
            said[key] for key in ("uri", "principal", "keytab", "krb5")
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def storage(self) -> dict[str, str]:
        """The storage options of a client, without a login."""
        return {
            "hadoop.hadoop.security.authentication": "kerberos",
            "hadoop.dfs.data.transfer.protection": self._protection,
        }

    @property
    def login(self) -> dict[str, str]:
        """The storage options with the keytab."""
        return {"security.kerberos.login.principal": self.principal, "security.kerberos.login.keytab": self.keytab}

    def run(self, tickets: str, module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a module with a cache of tickets of that name, which other runs may have filled."""
        own = {"KRB5_CONFIG": self._settings, "KRB5CCNAME": f"FILE:{self._folder / tickets}", **environment}
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, **own},
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
