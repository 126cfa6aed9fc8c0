"""Works on a table under a limit of the system, as a process of its own: a limit is for a whole process."""

import os
import resource
import signal
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

import bucketline as bl

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        ("text", pa.string()),
    ]
)
MODES: dict[str, dict[str, str]] = {
    "fixed": {"bucket": "2"},
    "vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "dynamic": {"bucket": "-1"},
    "cross-partition": {"bucket": "-1"},
    "postpone": {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"},
    "append": {"bucket": "-1"},
}
ROWS = 3000


def rows(turn: int) -> pa.Table:
    ids = range(ROWS)
    texts = [f"{i * 7919 % 10007:05d}{turn}" for i in ids]
    return pa.table({"id": ids, "part": [(i + turn) % 3 for i in ids], "text": texts}, schema=COLUMNS)


def work(said: Connection, folder: Path, mode: str, form: str, limit: str, count: int) -> None:
    """Says in lines of text what each step came to: its name, then `ok`, or the error's class and code; the last line
    is `whole`, or the error that ended it. `limit` is file-size (bytes) or open-files (more than are open)."""
    os.environ |= {"TMPDIR": str(folder), "HOME": str(folder)}
    with open(said.fileno(), "w", closefd=False) as lines, redirect_stdout(lines), redirect_stderr(lines):
        try:
            _work(folder, mode, form, limit, count)
        except BaseException:
            traceback.print_exc()
            raise


def _work(folder: Path, mode: str, form: str, limit: str, count: int) -> None:
    table = bl.create_table(
        f"{folder}/shop.db/t",
        COLUMNS,
        primary_key=() if mode == "append" else ("id",),
        partition_by=("part",) if mode == "cross-partition" else (),
        options={"file.format": form, **MODES[mode]},
    )
    table.write(rows(0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    kind = resource.RLIMIT_FSIZE if limit == "file-size" else resource.RLIMIT_NOFILE
    most = count if limit == "file-size" else _next_file() + 1 + count
    resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
    steps: dict[str, Callable[[], object]] = {
        "write": lambda: table.write(rows(1)),
        "compact": table.compact,
        "read": table.to_arrow,
        "expire": lambda: table.expire_snapshots(retain_min=1, retain_max=1),
        "tag": lambda: table.create_tag("kept"),
        "alter": lambda: table.add_column("more", "INT"),
    }
    for name, step in steps.items():
        try:
            step()
            print(name, "ok", flush=True)
        except bl.BucketlineError as e:
            print(name, type(e).__name__, e.code, flush=True)
    resource.setrlimit(kind, (resource.getrlimit(kind)[1],) * 2)
    assert table.doctor(rows=True) == []
    wanted = 2 * ROWS if mode == "append" and table.to_arrow().num_rows > ROWS else ROWS
    assert mode == "postpone" or table.to_arrow().num_rows == wanted
    print("whole", flush=True)


def _next_file() -> int:
    """The number of the next file, above those of all that are open: the limit is for numbers, and a forked process has
    gaps among them."""
    newest = max(map(int, os.listdir("/proc/self/fd")))
    while (number := os.open(os.devnull, os.O_RDONLY)) < newest:
        pass
    os.close(number)
    return number
