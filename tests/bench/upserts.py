"""A stream of upserts with default compaction, against Delta's MERGE in foreachBatch."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import input_stream, session, timed_run
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, DDL, upserts
from tests.bench.watch import WorkerWatch

BATCHES = 10
BATCH_ROWS = 500_000
KEYS = 2_000_000


def run(size: Size, root: Path) -> Sequence[Result]:
    rows, keys = size.rows(BATCH_ROWS), size.rows(KEYS)
    stream = input_stream(root / "source", upserts(BATCHES, rows, key_range=keys, seed=1))
    ours: list[float] = []
    theirs: list[float] = []
    with session(root, delta=True) as spark, WorkerWatch() as watch:
        for _ in range(size.repeats):
            for old in ("ours", "theirs"):
                shutil.rmtree(root / old, ignore_errors=True)
            table = create_table(str(root / "ours" / "t"), COLUMNS, ("id",), options={"bucket": "4"})
            ours.append(timed_run(stream, spark, TableSink(table.path), root / "ours" / "checkpoint"))
            merge = DeltaMerge(spark, str(root / "theirs" / "t"))
            theirs.append(timed_run(stream, spark, merge, root / "theirs" / "checkpoint"))
        found = (spark.read.format("delta").load(str(root / "theirs" / "t")).count(), table.to_arrow(["id"]).num_rows)
        assert found[0] == found[1], found
    return [
        Result(
            name="3b",
            what="ten batches of upserts with default compaction, four fixed buckets, against Delta MERGE",
            rows=BATCHES * rows,
            seconds=median(ours),
            other_seconds=median(theirs),
            written_bytes=folder_bytes(root / "ours" / "t"),
            worker_peak_bytes=watch.peak_bytes,
            ratio=paired_ratio(theirs, ours),
            at_least=2.9,
            memory_limit_bytes=1 << 30,
            detail={"ours": ours, "delta": theirs, "delta_bytes": folder_bytes(root / "theirs" / "t")},
        )
    ]


class DeltaMerge:
    """foreachBatch of a Delta table: rows of a batch replace those of the same id."""

    def __init__(self, spark: Any, path: str) -> None:
        self._target = f"delta.`{path}`"
        spark.sql(f"CREATE TABLE {self._target} ({DDL}) USING delta")

    def __call__(self, frame: Any, batch_id: int) -> None:
        frame.createOrReplaceTempView("changes")
        frame.sparkSession.sql(
            f"MERGE INTO {self._target} t USING changes s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
