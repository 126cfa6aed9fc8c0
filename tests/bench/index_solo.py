"""The key index of a whole table in a fresh process on one core: `python -m tests.bench.index_solo NAME PATH`.

Prints what `solo` prints. The index lies beside the table.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS
from bucketline.state.store.key_index.ready import IndexOrigin, ready_index
from bucketline.state.store.key_index.rocks import RocksSettings, rocks_options, write_sst
from bucketline.state.store.table.table import open_table
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.cross.cross_write import CrossWrite
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import WriteScope
from tests.bench.watch import own_peak_bytes

_CHUNK = 1 << 16
_VALUE = b"\0" * 8


def floor(path: str, columns: list[pa.Array], sorted_keys: pa.Array) -> int:
    """What nothing can do without: pyarrow reads the key columns, rocksdict writes the keys, sorted for it before."""
    for file in _live_files(path):
        columns += pq.read_table(file, columns=["id"], use_threads=False)["id"].chunks
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as scratch:
        chunks = (sorted_keys.slice(s, _CHUNK).to_pylist() for s in range(0, len(sorted_keys), _CHUNK))
        return write_sst(
            f"{scratch}/keys.sst", rocks_options(RocksSettings()), ((c, [_VALUE] * len(c)) for c in chunks)
        )


def ready(path: str, origin: IndexOrigin) -> int:
    """The index, brought to the table's snapshot."""
    session = table_at(open_handle(path), {"local-directory": f"{path}.index"})
    latest = session.refreshed().view.snapshot
    scope = WriteScope(CompactTrigger.NONE, "bench", key_shares=1)
    cross = session.plan.mode.stages(session.plan, session, scope, NO_ROWS).place
    assert isinstance(cross, CrossWrite) and cross.shares == 1
    index, report = ready_index(cross.index_plan(0), cross.source(), latest)
    index.close()
    assert report.origin is origin, report
    return report.rows_read


def _sorted_keys(path: str) -> pa.Array:
    """All ids of a table, ascending, as they are stored in an index: eight bytes each, big-endian."""
    ids = pa.concat_tables([pq.read_table(f, columns=["id"]) for f in _live_files(path)])["id"].to_numpy()
    ids = ids.copy()
    ids.sort()
    octets = pa.py_buffer((ids.astype("uint64") ^ (1 << 63)).astype(">u8"))
    return pa.Array.from_buffers(pa.binary(8), len(ids), [None, octets])


def _live_files(path: str) -> list[str]:
    """The data files of the newest snapshot; those that were compacted still lie beside them."""
    return [f.removeprefix("file:") for f in open_table(path).files()["file_path"].to_pylist()]


def main(name: str, path: str) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    keys = _sorted_keys(path) if name == "floor" else None
    work: dict[str, Callable[[], int]] = {
        "floor": lambda: floor(path, [], keys),
        "build": lambda: ready(path, IndexOrigin.BUILT),
        "open": lambda: ready(path, IndexOrigin.LOCAL),
    }
    started, cpu = time.monotonic(), time.process_time()
    rows = work[name]()
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": rows, "peak_bytes": own_peak_bytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
