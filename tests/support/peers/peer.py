"""Paimon Java and pypaimon as judges of our tables, and as writers of tables that we read.

Each runs as one process that serves many commands (`java/PaimonTool.java`, `pypaimon_tool.py`); both speak the same
lines of JSON and the same text form of rows (`tests.support.peers.rows`). Tests use the fixtures
`paimon_java` and `pypaimon`.
"""

import importlib.util
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support.peers.jars import CHECKOUT, cache_dir, class_path, class_path_on_spark, exclusive
from tests.support.peers.rows import Field, Row

HERE = Path(__file__).resolve().parents[1]
ANSWER_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 10.0
INSTALL_TIMEOUT_S = 900
PYPAIMON_REQUIREMENTS = ("pypaimon==2.1.0", "pyarrow==19.0.1")


class PeerError(Exception):
    """A peer refused a command: `kind` is its exception's class, the message ends with its own trace."""

    def __init__(self, peer: str, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{peer}: {kind}: {message}\n{trace}")
        self.kind = kind
        self.reason = message


class PeerLostError(Exception):
    """A peer's process ended or stayed silent; the message ends with what it wrote to stderr."""


class Peer:
    """One serving process. Not for several threads at once."""

    name = "peer"

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix=f"bucketline-{self.name}-")
        self._stderr_path = Path(self._scratch.name) / "stderr"
        with self._stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
                env=dict(environment),
                cwd=CHECKOUT,
            )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._pump = threading.Thread(target=_pump, args=(self._stdout, self._lines), daemon=True)
        self._pump.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; a second call does nothing."""
        if self._process.poll() is None:
            self._stdin.close()
            try:
                self._process.wait(CLOSE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._pump.join()
        self._stdout.close()
        self._scratch.cleanup()

    def request(self, command: str, /, **arguments: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The rows and the final answer of one command; arguments that are None are left out.

        Errors: PeerError when the peer refuses; PeerLostError when it dies or does not answer in time (it is killed).
        """
        line = {"command": command} | {name: value for name, value in arguments.items() if value is not None}
        try:
            self._stdin.write(json.dumps(line) + "\n")
            self._stdin.flush()
        except (BrokenPipeError, ValueError) as problem:
            raise self._lost("is gone") from problem
        rows: list[dict[str, Any]] = []
        while True:
            try:
                text = self._lines.get(timeout=ANSWER_TIMEOUT_S)
            except queue.Empty as problem:
                # Its late answer would be taken for the next command's.
                self._process.kill()
                raise self._lost(f"did not answer {command!r} in {ANSWER_TIMEOUT_S:.0f} s") from problem
            if text is None:
                raise self._lost(f"ended while it ran {command!r}")
            answer = json.loads(text)
            if "row" in answer:
                rows.append(answer["row"])
            elif "done" in answer:
                return rows, answer["done"]
            else:
                raise PeerError(self.name, answer["error"], answer["message"], answer["trace"])

    def create(
        self,
        table: Path | str,
        fields: Iterable[Field],
        *,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Makes a table; a field is `{"name": ..., "type": "INT NOT NULL" or Paimon's JSON of a nested type}`."""
        self.request(
            "create",
            table=str(table),
            fields=[dict(field) for field in fields],
            primary_keys=list(primary_keys),
            partition_keys=list(partition_keys),
            options=dict(options or {}),
        )

    def read(
        self,
        table: Path | str,
        *,
        equals: Row | None = None,
        system: str | None = None,
        buckets: bool = False,
        row_kinds: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """The rows of a table, or of its system table `system`; `options` are dynamic (`scan.snapshot-id`, ...).

        `equals` keeps rows with these values, through the peer's own pruning; `buckets` adds `__paimon_bucket`;
        `row_kinds` adds `_row_kind` (Java only).
        """
        return self.request(
            "read" if equals is None else "filter-read",
            table=str(table),
            equals=equals,
            system=system,
            buckets=buckets,
            row_kinds=row_kinds,
            options=dict(options or {}),
        )[0]

    def files(self, table: Path | str) -> list[dict[str, Any]]:
        """The rows of `$files`."""
        return self.request("files", table=str(table))[0]

    def write(
        self,
        table: Path | str,
        rows: Iterable[Row],
        *,
        mode: str = "batch",
        commit_user: str | None = None,
        commit_identifier: int | None = None,
        write_only: bool | None = None,
        wait_compaction: bool | None = None,
        overwrite: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> int | None:
        """Writes and commits rows, and returns the latest snapshot's id afterwards (None: the table has none).

        Columns that a row leaves out are null. For Java a row may carry `_row_kind` (`+I`, `-U`, `+U`, `-D`) and
        `_bucket`; it compacts inline unless `write_only`. `mode="stream"` needs `commit_identifier`.
        """
        with tempfile.NamedTemporaryFile("w", dir=self._scratch.name, suffix=".jsonl", encoding="utf-8") as file:
            file.writelines(json.dumps(dict(row)) + "\n" for row in rows)
            file.flush()
            _, done = self.request(
                "write",
                table=str(table),
                rows=file.name,
                mode=mode,
                commit_user=commit_user,
                commit_identifier=commit_identifier,
                write_only=write_only,
                wait_compaction=wait_compaction,
                overwrite=None if overwrite is None else dict(overwrite),
                options=dict(options or {}),
            )
        snapshot_id: int | None = done["snapshot_id"]
        return snapshot_id

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _lost(self, what: str) -> PeerLostError:
        said = self._stderr_path.read_text(errors="replace") if self._stderr_path.exists() else ""
        return PeerLostError(f"{self.name} {what} (exit status {self._process.poll()}):\n{said[-4000:]}")


class PaimonJava(Peer):
    """Paimon's Java library, from its bundle jar, with Hadoop's classes from PySpark's jars."""

    name = "paimon-java"

    def __init__(self, zone: str = "UTC") -> None:
        java = shutil.which("java")
        if java is None:
            raise PeerLostError("java is not on PATH")
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            raise PeerLostError("pyspark is not installed; its jars carry Hadoop's classes")
        libraries = Path(found.origin).parent / "jars" / "*"
        super().__init__(
            [
                java,
                "-Xmx1g",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                f"-Duser.timezone={zone}",
                "-cp",
                f"{class_path('paimon')}{os.pathsep}{libraries}",
                str(HERE / "java" / "PaimonTool.java"),
                "serve",
            ],
            os.environ,
        )

    def compact(self, table: Path | str, *, full: bool = True, options: Mapping[str, str] | None = None) -> int | None:
        """Compacts every bucket, also of write-only tables; returns the latest snapshot's id."""
        _, done = self.request("compact", table=str(table), full=full, options=dict(options or {}))
        snapshot_id: int | None = done["snapshot_id"]
        return snapshot_id

    def changes(
        self, table: Path | str, since: int, *, options: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """What a streaming read sees after snapshot `since`, in order, with `_row_kind` and `_snapshot`."""
        return self.request("changes", table=str(table), since=since, options=dict(options or {}))[0]

    def unite(self, function: str, parts: Sequence[bytes | Sequence[int]]) -> tuple[bytes, float]:
        """What Paimon's aggregate function makes of values, and how many numbers that holds, of sketches an estimate.

        `function` is rbm64, theta_sketch or hll_sketch. A part is a stored value, or the numbers to store; one part
        comes back as it is.
        """
        told = [part.hex() if isinstance(part, bytes) else list(part) for part in parts]
        _, done = self.request("unite", function=function, parts=told)
        return bytes.fromhex(done["bytes"]), done["count"]

    def prune_check(self, table: Path | str, conditions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """For each condition (`column`, `operator`, `value` or `values`) what pruning by it spares and loses.

        An answer holds `planned` of `files` data files, and the rows `lost` and `extra` against testing every row.
        """
        return self.request("prune-check", table=str(table), conditions=[dict(c) for c in conditions])[0]


class PaimonCatalogs(Peer):
    """Paimon Java's catalogs, and the REST server of its own tests (`java/CatalogTool.java`), with more jar sets."""

    name = "paimon-catalogs"

    def __init__(self, *jar_sets: str) -> None:
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        path = class_path_on_spark("paimon", "paimon-catalogs", *jar_sets)
        super().__init__(["java", *options, "-cp", path, str(HERE / "java" / "CatalogTool.java")], os.environ)

    def do(self, command: str, /, **arguments: Any) -> Any:
        """The answer of one command."""
        return self.request(command, **arguments)[1]


class PyPaimon(Peer):
    """pypaimon in its own virtual environment, since its dependencies are not ours."""

    name = "pypaimon"

    def update(self, table: Path | str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Sets columns of rows of a table with data evolution; a row has `_ROW_ID` and the columns."""
        self.request("update", table=str(table), columns=list(columns), rows=[dict(row) for row in rows])

    def delete(self, table: Path | str, row_ids: Sequence[int]) -> None:
        """Deletes rows of a table with data evolution and deletion vectors."""
        self.request("delete", table=str(table), row_ids=list(row_ids))

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        super().__init__([str(pypaimon_python()), "-m", "tests.support.peers.pypaimon_tool", "serve"], environment)


def pypaimon_python() -> Path:
    """The interpreter of `$BUCKETLINE_PYPAIMON_VENV`, taken as it is, or of our own environment, made when missing."""
    given = os.environ.get("BUCKETLINE_PYPAIMON_VENV")
    if given:
        python = Path(given) / "bin" / "python"
        if not python.exists():
            raise PeerLostError(f"BUCKETLINE_PYPAIMON_VENV has no interpreter: {python}")
        return python
    venv = cache_dir() / "pypaimon-venv"
    python = venv / "bin" / "python"
    done = venv / "installed.txt"
    wanted = "\n".join(PYPAIMON_REQUIREMENTS)
    with exclusive("pypaimon-venv"):
        if not done.exists() or done.read_text() != wanted:
            _run([sys.executable, "-m", "venv", "--clear", str(venv)])
            _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PYPAIMON_REQUIREMENTS])
            done.write_text(wanted)
    return python


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise PeerLostError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")


def _pump(stdout: IO[str], lines: "queue.SimpleQueue[str | None]") -> None:
    for line in stdout:
        lines.put(line)
    lines.put(None)
