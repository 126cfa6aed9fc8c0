"""The rows in which two snapshots differ, as a DataFrame: Spark's tasks compare the buckets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.read.difference import BucketPair, DifferencePlan, plan_difference
from bucketline.state.store.read.splits import TablePlace
from bucketline.state.store.sql.between import Differing
from bucketline.state.store.system.changes import differing_rows
from bucketline.state.types.char_text import chars_of
from bucketline.streaming.batch.preflight import require_classic
from bucketline.streaming.reader.spark_rows import fit, spark_arrow, spark_schema
from bucketline.streaming.sql.table_frame import frame_of_splits


def difference_frame(spark: Any, table: TableHandle, tags: Differing, *, as_log: bool) -> Any:
    """Returns a DataFrame of the rows in which the snapshots of two tags differ. Each task compares one bucket.

    The rows are new and changed rows, with the table's columns. If `as_log` is true, removed rows are included, and the
    first column is `rowkind` (`+I`, `+U` or `-D`). Raises the errors of `plan_difference`, and UnsupportedTableError
    for a column for which Spark has no type.
    """
    require_classic(spark)
    plan = plan_difference(table, tags.since, tags.until)
    columns, _ = differing_rows(DifferencePlan(plan.place, ()), as_log=as_log)
    schema = spark_schema(columns, chars_of(plan.place.schema.fields))
    return frame_of_splits(spark, plan.pairs, _Compare(plan.place, as_log), schema)


@dataclass(frozen=True, slots=True)
class _Compare:
    """Compares a bucket at two snapshots, in a task. Yields the rows that differ, in the types that Spark reads."""

    place: TablePlace
    as_log: bool

    def __call__(self, pair: BucketPair) -> Iterator[pa.RecordBatch]:
        columns, rows = differing_rows(DifferencePlan(self.place, (pair,)), as_log=self.as_log)
        target = spark_arrow(columns)
        for batch in rows:
            yield fit(batch, target)
