"""MariaDB of the system on this machine, in a folder of its own, with a log that Debezium reads."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as Xml
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.servers.s3_server import free_port

USER, PASSWORD = "debezium", "some-password"
_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_STARTS_WITHIN_S = 300


class MariaDb:
    """One server with the database `shop`; `settings` go to the server."""

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="bucketline-mariadb-"))
        self._socket = self._folder / "socket"
        self._settings = {"log-bin": "binlog", "binlog-format": "ROW", "server-id": "1", **settings}

    def __enter__(self) -> Self:
        data = self._folder / "data"
        owner = f"--user={self._user()}"
        log_in = "--auth-root-authentication-method=normal"
        # Another user may not write to ours.
        spare = f"--tmpdir={self._folder}"
        _run("mariadb-install-db", "--no-defaults", owner, f"--datadir={data}", log_in, spare)
        self._process = subprocess.Popen(
            [
                *(_program("mariadbd"), "--no-defaults", owner, f"--datadir={data}", f"--socket={self._socket}"),
                spare,
                *(f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve"),
                *(f"--{name}={value}" for name, value in self._settings.items()),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "log").open("wb"),
        )
        self._wait()
        self.run(
            f"create user {USER}@'%' identified by '{PASSWORD}'; grant all on *.* to {USER}@'%'; create database shop"
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(60)
        shutil.rmtree(self._folder)

    def run(self, statements: str) -> None:
        """Runs SQL, in `shop` once it is there."""
        self._client(statements)

    def rows(self, query: str) -> list[dict[str, str | None]]:
        """The rows of a query, each value as MariaDB's text of it. Bytes need `hex`."""
        found = Xml.fromstring(self._client(query, "--xml"))
        return [
            {str(f.get("name")): None if f.get(_NIL) else f.text or "" for f in row.iter("field")}
            for row in found.iter("row")
        ]

    def _client(self, statements: str, *options: str) -> str:
        there = ["--database=shop"] if (self._folder / "data" / "shop").is_dir() else []
        names = ["--no-defaults", f"--socket={self._socket}", "--user=root", "--default-character-set=utf8mb4"]
        return _run("mariadb", *names, *there, *options, put_in=statements)

    def _wait(self) -> None:
        until = time.monotonic() + _STARTS_WITHIN_S
        while True:
            try:
                self.run("select 1")
                return
            except RuntimeError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((self._folder / "log").read_text(errors="replace")[-3000:]) from None
                time.sleep(0.2)

    def _user(self) -> str:
        """Who the server runs as; it refuses to be root, and the folder is the user's then."""
        user = pwd.getpwuid(os.getuid())
        if user.pw_uid == 0:
            known = {entry.pw_name: entry for entry in pwd.getpwall()}
            user = known.get("mysql") or known["nobody"]  # without the package of the whole server there is no mysql
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        return user.pw_name


def _run(name: str, *arguments: str, put_in: str = "") -> str:
    command = [_program(name), *arguments]
    done = subprocess.run(command, input=put_in, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr or done.stdout}")
    return done.stdout


def _program(name: str) -> str:
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise RuntimeError(f"there is no {name}: install MariaDB")
    return program
