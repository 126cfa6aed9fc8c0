"""A read by pypaimon in its own environment: `python -m tests.bench.pypaimon_solo WHAT PATH`; `read` takes one core,
`read-all-cores` takes all.

Prints what `solo` prints.
"""

import json
import os
import sys
import time

import pyarrow as pa
from pypaimon.table.file_store_table import FileStoreTable

from tests.bench.watch import own_peak_bytes


def main(what: str, path: str) -> None:
    if what == "read":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
    started, cpu = time.monotonic(), time.process_time()
    builder = FileStoreTable.from_path(path).new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": found.num_rows, "peak_bytes": own_peak_bytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
