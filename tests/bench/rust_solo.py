"""Writes and merge reads by bucketline and by pypaimon-rust, in turns, in one process:
`python -m tests.bench.rust_solo ROWS TURNS FOLDER`; `FOLDER-all-cores` takes all cores, else one does the work.

Each turn makes a table with a key, writes to it three times, and reads it. Prints `{"ours": {WHAT: [[CPU, SECONDS]]},
"theirs": ...}` as its last line. A first turn warms both up, and is not counted. pypaimon-rust is found on the path.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from bucketline.state.store.table.table import create_table, open_table
from tests.bench.rows import COLUMNS, batches

BUCKETS = 4
WRITES = 3
WHAT = ("write into a new table", "write into a table with rows", "read three writes, merged")
ALL_CORES = "-all-cores"


class Contender(Protocol):
    """A way to write to a table `w.NAME` below a warehouse, and to read it."""

    def write(self, name: str, data: pa.Table) -> None: ...

    def read(self, name: str) -> int: ...


class Ours:
    def __init__(self, warehouse: Path) -> None:
        self._folder = warehouse / "w.db"

    def write(self, name: str, data: pa.Table) -> None:
        open_table(str(self._folder / name)).write(data)

    def read(self, name: str) -> int:
        found: int = open_table(str(self._folder / name)).to_arrow().num_rows
        return found


class Theirs:
    def __init__(self, warehouse: Path) -> None:
        self._catalog: Callable[[dict[str, str]], Any] = import_module("pypaimon_rust.datafusion").PaimonCatalog
        self._options = {"warehouse": str(warehouse)}

    def write(self, name: str, data: pa.Table) -> None:
        builder = self._catalog(self._options).get_table(f"w.{name}").new_batch_write_builder()
        writer = builder.new_write()
        for batch in data.to_batches():
            writer.write_arrow(batch)
        builder.new_commit().commit(writer.prepare_commit())
        writer.close()

    def read(self, name: str) -> int:
        builder = self._catalog(self._options).get_table(f"w.{name}").new_read_builder()
        found = builder.new_read().read(builder.new_scan().plan().splits())
        rows: int = pa.Table.from_batches(found).num_rows
        return rows


def main(row_count: int, turns: int, folder: str) -> None:
    if not folder.endswith(ALL_CORES):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
    root = Path(folder)
    datas = [
        pa.concat_tables(batches(row_count, seed=s, key_range=2 * row_count)).combine_chunks() for s in range(WRITES)
    ]
    contenders: dict[str, Contender] = {"ours": Ours(root), "theirs": Theirs(root)}
    found: dict[str, dict[str, list[tuple[float, float]]]] = {who: {what: [] for what in WHAT} for who in contenders}
    read: set[int] = set()
    for turn in range(turns + 1):
        for who, contender in contenders.items():
            path = root / "w.db" / f"{who}{turn}"
            create_table(str(path), COLUMNS, ("id",), options={"bucket": str(BUCKETS), "write-only": "true"})
            for number, data in enumerate(datas):
                timed = _timed(partial(contender.write, path.name, data))
                if turn and number < 2:
                    found[who][WHAT[number]].append(timed)
            timed = _timed(partial(contender.read, path.name))
            if turn:
                found[who][WHAT[2]].append(timed)
            read.add(contender.read(path.name))
            shutil.rmtree(path)
    assert len(read) == 1, f"both read the same rows, found {read}"
    print(json.dumps(found))


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and time of the work."""
    started, cpu = time.monotonic(), time.process_time()
    work()
    return time.process_time() - cpu, time.monotonic() - started


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
