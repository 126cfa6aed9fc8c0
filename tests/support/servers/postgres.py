"""PostgreSQL of the system on this machine, in a folder of its own, for as long as a test session lasts."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.servers.s3_server import free_port

PASSWORD = "some-password"


class Postgres:
    """One server with the database `postgres`; `uri` is its JDBC address. `settings` go to the server."""

    def __init__(self, **settings: str) -> None:
        self._settings = {"fsync": "off", "listen_addresses": "127.0.0.1", **settings}
        self.port = free_port()
        self.uri = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"
        self.login = {"jdbc.user": "paimon", "jdbc.password": PASSWORD}
        self._folder = Path(tempfile.mkdtemp(prefix="bucketline-postgres-"))

    def __enter__(self) -> Self:
        word = self._folder / "password"
        word.write_text(PASSWORD)
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            for path in (self._folder, word):
                os.chown(path, user.pw_uid, user.pw_gid)
        self._run("initdb", "-A", "md5", "-U", "paimon", f"--pwfile={word}")
        given = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        options = f"-p {self.port} -k {self._folder} {given}"
        self._run("pg_ctl", "-w", "-o", options, "-l", str(self._folder / "log"), "start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def _run(self, name: str, *arguments: str) -> None:
        """Runs one of PostgreSQL's programs; it refuses to be root."""
        command = [_program(name), "-D", str(self._folder / "data"), *arguments]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr or done.stdout}")


def _program(name: str) -> str:
    found = [shutil.which(name), *sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), reverse=True)]
    program = next((f for f in found if f), None)
    if program is None:
        raise RuntimeError(f"there is no {name}: install PostgreSQL")
    return program
