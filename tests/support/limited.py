"""Works on a table under a limit of the system: `python -m tests.support.limited FOLDER MODE FORMAT LIMIT N`.

It prints one line for each step: its name, then `ok`, or the error's class and code. LIMIT is `file-size` (bytes) or
`open-files` (more than are open).
"""

import os
import resource
import signal
import sys
from collections.abc import Callable

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


def main(folder: str, mode: str, form: str, limit: str, count: int) -> None:
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
    most = count if limit == "file-size" else len(os.listdir("/proc/self/fd")) + count
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


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
