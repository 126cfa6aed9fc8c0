"""The procedures of `Table` (compact, rescale), run in tasks of Spark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketline.conf.table.read_options import named_branch
from bucketline.state.store.catalog.table_handle import TableHandle, open_handle
from bucketline.state.store.engine.engine import Jobs, Outcome, Parts, Rows, SpreadEngine
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.rescale import rescale_table
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.batch.failure import explained_in_one_line
from bucketline.streaming.batch.preflight import check_session, require_classic
from bucketline.streaming.tasks.spark_engine import SparkEngine


@dataclass(frozen=True, slots=True)
class _Explained:
    """The engine of a Spark session. It raises errors of Spark as SparkFailedError."""

    engine: SparkEngine

    @property
    def workers(self) -> Workers:
        return self.engine.workers

    def run(self, work: Stages[Parts] | Jobs) -> Outcome:
        with explained_in_one_line():
            return self.engine.run(work)

    @contextmanager
    def rows(self, data: object, row_kinds: object = None) -> Iterator[Rows]:
        check_session(self.engine.spark)
        with self.engine.rows(data, row_kinds) as rows:
            yield _ExplainedRows(rows)


@dataclass(frozen=True, slots=True)
class _ExplainedRows:
    """A caller's rows, which tasks of a Spark session read. Errors of Spark are raised as SparkFailedError."""

    rows: Rows

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    @property
    def source(self) -> Any:
        return self.rows.source

    def each(self, look: Callable[[Iterator[pa.Table]], Iterator[bytes]]) -> list[bytes]:
        with explained_in_one_line():
            return self.rows.each(look)


def spark_engine(spark: Any) -> SpreadEngine:
    """Returns the engine that works in tasks of a Spark session: `table.compact(engine=spark_engine(spark))`.

    Raises OptionError for a session of Spark Connect. The engine raises errors of Spark as SparkFailedError.
    """
    require_classic(spark)
    return _Explained(SparkEngine(spark))


def compact(
    spark: Any,
    path: str,
    strategy: str = "full",
    partitions: Sequence[Mapping[str, object]] | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    order_by: Sequence[str] | None = None,
    order_strategy: str | None = None,
) -> int | None:
    """Compacts a table in Spark tasks, and returns the new snapshot's id; None if there was nothing to do.

    `strategy` is "full" or "minor". `partitions` are mappings from partition column to value; None means all
    partitions. `options` override the table's options for this call, and may set its `branch`. `storage_options` say
    how to reach the table's storage. `order_by` and `order_strategy` sort the rows of an append table without buckets,
    as in `Table.compact`.

    Postponed rows are moved to their buckets on the way. A partition without a number of buckets gets
    `postpone.default-bucket-num` buckets, or as many as Spark has cores.

    Raises the errors of `Table.compact`, and SparkFailedError for errors of Spark.
    """
    engine, table = spark_engine(spark), _opened(path, options, storage_options)
    return compact_table(
        table,
        strategy,
        partitions,
        order_by=order_by,
        order_strategy=order_strategy,
        engine=engine,
        options=options,
    )


def rescale(
    spark: Any,
    path: str,
    bucket_num: int,
    partitions: Sequence[Mapping[str, object]] | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> int | None:
    """Changes the number of buckets of partitions, in Spark tasks.

    Returns the new snapshot's id; None if there was nothing to do. See `compact` and `Table.rescale` for the arguments
    and the errors.
    """
    engine, table = spark_engine(spark), _opened(path, options, storage_options)
    return rescale_table(table, bucket_num, partitions, engine=engine, options=options)


def _opened(path: str, options: Mapping[str, str] | None, storage: Mapping[str, str] | None) -> TableHandle:
    return open_handle(path, storage, named_branch(options or {}))
