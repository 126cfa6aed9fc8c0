"""Writers without Spark, each in a process of its own: `python -m tests.bench.rivals.plain NAME WHAT FOLDER`.

NAME is `ours`, `pypaimon` or `rust`; WHAT and what is printed are those of `one`. The table is there already, with
`write-only`, as neither of the others compacts. Nothing of bucketline is imported for the others.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.watch import own_peak_bytes

STARTED = time.monotonic()
READS = 3
TABLE = "warehouse/w.db/t"


def _ours(path: Path) -> tuple[Callable[[pa.Table], object], Callable[[], int]]:
    table = import_module("bucketline").open_table(str(path))
    return table.write, lambda: sum(batch.num_rows for batch in table.to_batches())


def _pypaimon(path: Path) -> tuple[Callable[[pa.Table], object], Callable[[], int]]:
    table = import_module("pypaimon.table.file_store_table").FileStoreTable.from_path(str(path))

    def write(data: pa.Table) -> None:
        builder = table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(data)
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()

    def read() -> int:
        builder = table.new_read_builder()
        return int(builder.new_read().to_arrow(builder.new_scan().plan().splits()).num_rows)

    return write, read


def _rust(path: Path) -> tuple[Callable[[pa.Table], object], Callable[[], int]]:
    catalog: Any = import_module("pypaimon_rust.datafusion").PaimonCatalog
    options = {"warehouse": str(path.parent.parent)}

    def table() -> Any:
        return catalog(options).get_table(f"{path.parent.name.removesuffix('.db')}.{path.name}")

    def write(data: pa.Table) -> None:
        builder = table().new_batch_write_builder()
        writer = builder.new_write()
        for batch in data.to_batches():
            writer.write_arrow(batch)
        builder.new_commit().commit(writer.prepare_commit())
        writer.close()

    def read() -> int:
        builder = table().new_read_builder()
        found = builder.new_read().read(builder.new_scan().plan().splits())
        return sum(batch.num_rows for batch in found)

    return write, read


WRITERS = {"ours": _ours, "pypaimon": _pypaimon, "rust": _rust}


def main(name: str, what: str, folder: Path) -> None:
    write, read = WRITERS[name](folder / TABLE)
    inputs = sorted((folder / "input").glob("*.parquet"))
    if what == "stream":
        warm, _ = WRITERS[name](folder / "warehouse" / "w.db" / "warm")
        for path in sorted((folder / "warm").glob("*.parquet")):
            warm(pq.read_table(path))
        found = _stream(write, inputs) | _sizes(folder / TABLE)
    else:
        write(pq.read_table(inputs[-1]))
        found = {"restart_seconds": time.monotonic() - STARTED, "restart_cpu": time.process_time()}
        timed = [_timed(read) for _ in range(READS)]
        found |= {"read_seconds": [t[0] for t in timed], "read_cpu": [t[1] for t in timed], "rows": timed[-1][2]}
    print(json.dumps({**found, "peak_bytes": own_peak_bytes()}))


def _stream(write: Callable[[pa.Table], object], inputs: Iterable[Path]) -> dict[str, Any]:
    timed = [_timed(partial(_read_and_write, write, path)) for path in inputs]
    return {
        "batch_seconds": [t[0] for t in timed],
        "cpu": sum(t[1] for t in timed),
        "seconds": sum(t[0] for t in timed),
    }


def _read_and_write(write: Callable[[pa.Table], object], path: Path) -> None:
    write(pq.read_table(path))


def _timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    started, cpu = time.monotonic(), time.process_time()
    done = work()
    return time.monotonic() - started, time.process_time() - cpu, done


def _sizes(table: Path) -> dict[str, int]:
    files = [path for path in table.rglob("*") if path.is_file()]
    data = [path for path in files if path.parent.name.startswith("bucket-")]
    return {"bytes": sum(path.stat().st_size for path in files), "data_files": len(data)}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
