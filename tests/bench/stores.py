"""Tables on an object store that is far away: 30 ms are added to each answer of a store in this process."""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.bench.result import Result, Size
from tests.support.servers.slow_store import SlowStore, longest_chain
from tests.support.spark.tasks import Cluster

DELAY_S = 0.03
BATCHES = 20
BATCH_LIMIT_S = 0.6
FILES, FILE_ROWS = 100, 42_000
READ_LIMIT_S = 1.0
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.float64()), ("w", pa.float64())])


def run(size: Size, root: Path) -> Sequence[Result]:
    return [_small_batches(root), _many_files(size)]


def _small_batches(root: Path) -> Result:
    """Batches between two compactions, from the call of the sink to its end."""
    seconds, requests, chains = list[float](), list[int](), list[int]()
    uri, checkpoint = "s3://lake/w/shop.db/small", str(root / "checkpoint")
    with SlowStore() as store:
        create_table(uri, COLUMNS, ("id",), options={"bucket": "1"}, storage_options=store.storage)
        folder = {"local-directory": str(root)}
        sink = TableSink(uri, folder, storage_options=store.storage, checkpoint=checkpoint, decode=_as_they_are)
        store.delay_s = DELAY_S
        for number in range(BATCHES):
            frame = Cluster(random.Random(number)).frame(_rows(number, 20), 1)
            identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", "d", checkpoint=checkpoint)
            store.sent.clear()
            started = time.monotonic()
            sink.write(frame, identity)
            if sum(s.method == "PUT" for s in store.sent) == 7:
                seconds.append(time.monotonic() - started)
                requests.append(len(store.sent))
                chains.append(len(longest_chain(store.sent)))
    return Result(
        name="stores",
        what=f"20 rows into an object store, 30 ms added to each of {median(requests):g} requests, "
        f"{median(chains):g} of them one after another; against {BATCH_LIMIT_S} s",
        rows=20,
        seconds=median(seconds),
        other_seconds=BATCH_LIMIT_S,
        written_bytes=0,
        worker_peak_bytes=0,
        ratio=median(seconds) / BATCH_LIMIT_S,
        at_most=1,
        detail={"seconds": seconds, "requests": requests, "chains": chains},
    )


def _many_files(size: Size) -> Result:
    """Each read opens the table anew."""
    uri = "s3://lake/w/shop.db/many"
    files = max(1, int(FILES * size.scale))
    options = {"write-only": "true", "file.compression": "none"}
    with SlowStore() as store:
        table = create_table(uri, COLUMNS, options=options, storage_options=store.storage)
        for number in range(files):
            table.write(_rows(number * FILE_ROWS, FILE_ROWS))
        sizes = [len(data) for key, data in store.objects.items() if "/data-" in key]
        store.delay_s = DELAY_S
        seconds = []
        for _ in range(size.repeats + 1):
            store.sent.clear()
            started = time.monotonic()
            found = open_table(uri, storage_options=store.storage).to_arrow()
            seconds.append(time.monotonic() - started)
            assert found.num_rows == files * FILE_ROWS
    return Result(
        name="stores",
        what=f"reading {files} files of {median(sizes) / 1e6:.2g} MB from an object store, 30 ms added to each of "
        f"{len(store.sent)} requests; against {READ_LIMIT_S} s",
        rows=files * FILE_ROWS,
        seconds=median(seconds[1:]),
        other_seconds=READ_LIMIT_S,
        written_bytes=sum(sizes),
        worker_peak_bytes=0,
        ratio=median(seconds[1:]) / READ_LIMIT_S,
        at_most=1,
        detail={"seconds": seconds},
    )


def _as_they_are(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def _rows(first: int, count: int) -> pa.Table:
    chance = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    return pa.table({"id": ids, "v": chance.random(count), "w": chance.random(count)}, COLUMNS)
