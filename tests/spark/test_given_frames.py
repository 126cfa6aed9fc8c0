"""Frames that a caller gives to a sink: tasks read those that are nothing but columns of Parquet files, with the rows
that Spark has, and Spark reads all others. Streams and frames are drawn.

`BUCKETLINE_GIVEN_FRAMES_SEED` draws those of another run again, one of the numbers that a failure prints.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.files.parquet_batch import ParquetReader, files_of
from bucketline.streaming.batch.identity import read_identity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.tasks.parquet_files import ParquetFiles
from bucketline.streaming.tasks.parquet_fit import UnfitFileError
from bucketline.streaming.tasks.parquet_read import file_rows
from bucketline.streaming.tasks.read_task import Frame
from tests.support.models.sweeps import share_of
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark
LEAVES_DATES = pyspark.__version__.startswith("3.")
"""Spark 3.5 refuses old dates in files of other programs, so tasks leave all such files with dates to Spark."""

BY_SPARK_4 = pytest.mark.skipif(
    LEAVES_DATES,
    reason="Spark 3.5 refuses INT32 where BIGINT is declared, and tasks leave to it what has dates and is not by Spark",
)

_FRAMES_EACH = 10
_ROWS = 7
DDL = "id BIGINT, name STRING, price DECIMAL(9,2), at TIMESTAMP, day DATE, f DOUBLE, raw BINARY, n STRUCT<x: INT>"

Step = Callable[[Any, random.Random], Any]


class Way(IntEnum):
    """Who may read a frame."""

    TASKS = 0
    ANY = 1
    SPARK = 2


@dataclass
class Source:
    """Files of a stream, and how Spark is told to read them. `is_for_spark` where no frame of it is for tasks, and
    `is_unfit` where some are."""

    name: str
    ddl: str = DDL
    options: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    write: dict[str, Any] = field(default_factory=dict)
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows
    folder: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    is_for_spark: bool = False
    is_unfit: bool = False


def rows(first: int) -> pa.Table:
    ids = range(first, first + _ROWS)
    table = pa.table(
        {
            "id": pa.array([i if i % 5 else None for i in ids], pa.int64()),
            "name": [f"n{i} \U0001f600" if i % 3 else None for i in ids],
            "price": pa.array([Decimal(i) / 4 for i in ids], pa.decimal128(9, 2)),
            "at": pa.array([i * 10**15 for i in ids], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "day": pa.array([i * 1000 for i in ids], pa.int32()).cast(pa.date32()),
            "f": [i / 3 for i in ids],
            "raw": [bytes([i % 256, 0]) for i in ids],
            "n": [{"x": i} for i in ids],
        }
    )
    return table.set_column(7, "n", table["n"].cast(pa.struct([("x", pa.int32())])))


def renamed(name: str, to: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.rename_columns([to if c == name else c for c in table.column_names])


def cast(name: str, arrow_type: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.column_names.index(name), name, table[name].cast(arrow_type))


def of_spark_2(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata({"org.apache.spark.version": "2.4.0"})


SOURCES = (
    Source("plain"),
    Source("small row groups", write={"row_group_size": 2, "compression": "zstd"}),
    Source("columns missing in files", change=lambda table: table.drop(["f", "day"])),
    Source("other case", ddl=DDL.replace("name", "NAME").replace("price", "Price"), change=renamed("id", "ID")),
    Source("case counts", conf={"spark.sql.caseSensitive": "true"}, change=renamed("name", "NAME")),
    Source("row by row", conf={"spark.sql.parquet.enableVectorizedReader": "false"}),
    Source("not null", ddl=DDL.replace("f DOUBLE", "f DOUBLE NOT NULL COMMENT 'a number'")),
    Source("listing", options={"pathGlobFilter": "*.parquet", "recursiveFileLookup": "true", "latestFirst": "true"}),
    Source("merged", options={"mergeSchema": "true"}, is_for_spark=True),
    Source("calendar", options={"datetimeRebaseMode": "LEGACY"}, is_for_spark=True),
    Source("corrupt", options={"ignoreCorruptFiles": "true"}, is_for_spark=True),
    Source("corrupt by setting", conf={"spark.sql.files.ignoreCorruptFiles": "true"}, is_for_spark=True),
    Source("missing by setting", conf={"spark.sql.files.ignoreMissingFiles": "true"}, is_for_spark=True),
    Source("partitions", folder="part=1/", is_for_spark=True),
    Source("defaults", metadata={"EXISTS_DEFAULT": "7", "CURRENT_DEFAULT": "7"}, is_for_spark=True),
    Source("INT96", write={"use_deprecated_int96_timestamps": True}, is_unfit=True),
    Source("narrow", change=cast("id", pa.int32()), is_unfit=True),
    Source(
        "of old Spark", change=lambda t: t.replace_schema_metadata({"org.apache.spark.version": "2.4"}), is_unfit=True
    ),
)


def some_columns(frame: Any, draw: random.Random) -> list[str]:
    """Some columns, in any order."""
    left = [c for c in frame.columns if draw.random() < 0.7] or frame.columns[:1]
    draw.shuffle(left)
    return left


def given_twice(frame: Any, draw: random.Random) -> Any:
    return frame.select("*", F.col(draw.choice(frame.columns)).alias(f"again{draw.random()}".replace(".", "_")))


def one(frame: Any, draw: random.Random) -> str:
    return str(draw.choice(frame.columns))


PLAIN_STEPS: dict[str, Step] = {
    "nothing": lambda frame, draw: frame,
    "select": lambda frame, draw: frame.select(*some_columns(frame, draw)),
    "rename": lambda frame, draw: frame.withColumnRenamed(one(frame, draw), f"r{draw.randrange(10**9)}"),
    "swap names": lambda frame, draw: frame.toDF(*draw.sample(frame.columns, len(frame.columns))),
    "alias": lambda frame, draw: frame.alias("x").select("x.*"),
    "twice": given_twice,
    "drop": lambda frame, draw: frame.drop(frame.columns[-1]) if len(frame.columns) > 1 else frame,
    "true filter": lambda frame, draw: frame.where("1 = 1"),
    "copied over": lambda frame, draw: frame.withColumn(one(frame, draw), F.col(one(frame, draw))),
    "hint": lambda frame, draw: frame.hint("broadcast"),
}
COLUMN_STEPS: dict[str, Step] = {
    "cast": lambda frame, draw: frame.withColumn(one(frame, draw), F.col(one(frame, draw)).cast("string").cast("int")),
    "changed": lambda frame, draw: frame.withColumn("more", F.hex(F.col(one(frame, draw)).cast("string"))),
    "literal": lambda frame, draw: frame.withColumn("more", F.lit(1)),
    "file name": lambda frame, draw: frame.withColumn("more", F.input_file_name()),
    "number": lambda frame, draw: frame.withColumn("more", F.rand(1)),
    "of two": lambda frame, draw: frame.withColumn("more", F.array(F.col(one(frame, draw)))[0]),
    "null": lambda frame, draw: frame.withColumn("more", F.lit(None).cast("string")),
}
ROW_STEPS: dict[str, Step] = {
    "filter": lambda frame, draw: frame.where(F.col(one(frame, draw)).isNotNull()),
    "repartition": lambda frame, draw: frame.repartition(2),
    "coalesce": lambda frame, draw: frame.coalesce(1),
    "union": lambda frame, draw: frame.union(frame),
}
FRAME_STEPS: dict[str, Step] = {
    "sample": lambda frame, draw: frame.sample(0.5, seed=1),
    "limit": lambda frame, draw: frame.limit(3),
    "sort": lambda frame, draw: frame.orderBy(one(frame, draw)),
    "distinct": lambda frame, draw: frame.distinct(),
    "no row": lambda frame, draw: frame.where("1 = 0"),
    "persisted": lambda frame, draw: frame.persist(),
    "checkpoint": lambda frame, draw: frame.localCheckpoint(),
    "other frame": lambda frame, draw: frame.sparkSession.createDataFrame([(1,)], "id BIGINT"),
    "its rows": lambda frame, draw: frame.sparkSession.createDataFrame(frame.rdd, frame.schema),
    "sorted within": lambda frame, draw: frame.sortWithinPartitions(one(frame, draw)),
    "joined": lambda frame, draw: frame.crossJoin(frame.sparkSession.range(1).withColumnRenamed("id", "joined")),
}
STREAM_STEPS: dict[str, Step] = {
    "file's name": lambda frame, draw: frame.where(F.col("_metadata.file_name").isNotNull()),
    "observe": lambda frame, draw: frame.observe(f"o{draw.randrange(10**9)}", F.count(F.lit(1)).alias("c")),
    "random": lambda frame, draw: frame.where("0.7 > rand()"),
    "other files": lambda frame, draw: frame.union(frame),
}


def drawn(frame: Any, draw: random.Random, more: dict[str, Step]) -> tuple[Any, Way, str]:
    """A frame that was made of the given one, who may read it, and the steps. A column that was computed may be dropped
    again, so that tasks may read what is left."""
    steps, way = list[str](), Way.TASKS
    kinds = (*((Way.TASKS, PLAIN_STEPS),) * 5, (Way.ANY, COLUMN_STEPS), (Way.SPARK, ROW_STEPS | more))
    for _ in range(draw.randrange(3)):
        kind, of = draw.choice(kinds)
        name = draw.choice(list(of))
        frame, way = of[name](frame, draw), max(way, kind)
        steps.append(name)
    return frame, way, ", ".join(steps)


def test_tasks_read_a_given_frame_that_is_columns_of_files_with_the_rows_of_spark_and_no_other(
    spark: Any, tmp_path: Path
) -> None:
    seed = int(os.environ.get("BUCKETLINE_GIVEN_FRAMES_SEED", random.SystemRandom().randrange(10**9)))
    for number in range(share_of(12)):
        draw = random.Random(seed + number)
        source = SOURCES[(seed + number) % len(SOURCES)]
        found = frames_of(spark, tmp_path / f"{number}", source, draw)
        assert len(found) == _FRAMES_EACH, f"seed {seed + number}"
        for steps, way, expected, got in found:
            where = f"seed {seed + number}: {source.name}: {steps}"
            is_left = source.is_for_spark or source.is_unfit or LEAVES_DATES
            assert got is not None or way is not Way.TASKS or is_left, where
            assert got is None or not (way is Way.SPARK or source.is_for_spark), where
            assert got is None or got == expected, where


Found = list[tuple[str, Way, Any, Any]]


def frames_of(spark: Any, root: Path, source: Source, draw: random.Random) -> Found:
    """Some frames of one batch of a stream: their steps, who may read them, and their rows in both ways."""
    folder = root / "in" / source.folder
    folder.mkdir(parents=True)
    for i in range(draw.randrange(1, 4)):
        pq.write_table(source.change(rows(draw.randrange(100))), folder / f"{i} %é.parquet", **source.write)
    session = spark.newSession()
    for key, value in source.conf.items():
        session.conf.set(key, value)
    schema = schema_of(session, source)
    stream = session.readStream.schema(schema).options(**source.options).parquet(str(root / "in"))
    stream = stream.select(*draw.sample(stream.columns, len(stream.columns)))
    nested = draw.random() < 0.2
    stream = stream if nested else stream.drop("n")
    stream, stream_way, stream_steps = drawn(stream, draw, STREAM_STEPS)
    if source.metadata and "id" not in stream.columns:
        stream = stream.withColumn("more", F.lit(1))
    found: Found = []

    def look(frame: Any, batch_id: int) -> None:
        identity = read_identity(frame.sparkSession, batch_id, None)
        for _ in range(_FRAMES_EACH):
            given, way, steps = drawn(frame, draw, FRAME_STEPS)
            reader = ParquetReader(is_required=False, takes_any_frame=True)
            got = read_by_tasks(files_of(Frame(given), given, identity, reader))
            way = max(way, stream_way, Way.ANY if nested else Way.TASKS)
            expected = given.toArrow() if got is not None else None
            found.append((f"{stream_steps} / {steps} ({reader.given_up.said})", way, bits(expected), bits(got)))
            frame.sparkSession.catalog.clearCache()

    query = stream.writeStream.foreachBatch(look).option("checkpointLocation", str(root / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    return found


def schema_of(session: Any, source: Source) -> StructType:
    """The columns of a source; `StructType.fromDDL` is missing in Spark 3.5."""
    schema: StructType = session.createDataFrame([], source.ddl).schema
    if source.metadata:
        schema["id"].metadata = source.metadata
    return schema


def read_by_tasks(source: Any) -> pa.Table | None:
    """What tasks read; None where Spark reads, at the latest when a task has looked at a file."""
    if not isinstance(source, ParquetFiles):
        return None
    try:
        tables = [table for share in source.shares for table in file_rows(share, source)]
    except UnfitFileError:
        return None
    return pa.concat_tables([source.columns.empty_table(), *tables])


def bits(table: pa.Table | None) -> Any:
    """Names, types and values; moments before the year 1 have no value of Python."""
    if table is None:
        return None
    columns = [c.combine_chunks() for c in table.columns]
    values = [_texts(c) if pa.types.is_floating(c.type) or pa.types.is_temporal(c.type) else c for c in columns]
    return table.schema.names, [str(f.type) for f in table.schema], [c.to_pylist() for c in values]


def _texts(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


@BY_SPARK_4
def test_a_sink_has_its_tasks_read_given_files_until_one_is_for_spark_and_none_where_spark_is_asked_for(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("who", pa.string())])
    stream = FileStream(tmp_path, "id BIGINT, name STRING, more INT")
    names = ["a", "b"]
    for ids in (pa.array([1, 2]), pa.array([2, 3], pa.int32()), pa.array([3, 4])):
        stream.add(pa.table({"id": ids, "name": names, "more": pa.array([0, 0], pa.int32())}))
    for reader, by_spark in (("auto", [0, 2, 2]), ("spark", [2, 2, 2])):
        table = create_table(str(tmp_path / reader / "t"), columns, ("id",), options={"bucket": "2"})
        sink = TableSink(table.path, {"frame-reader": reader})
        stream.checkpoint = tmp_path / reader / "checkpoint"
        query = stream.run(spark, lambda frame, batch_id, to=sink: to(frame.selectExpr("name AS who", "id"), batch_id))
        assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"] or p["batchId"] < 1] == by_spark
        found = {row["id"]: row["who"] for row in open_table(table.path).to_arrow().to_pylist()}
        assert found == {1: "a", 2: "a", 3: "a", 4: "b"}
        assert open_table(table.path).snapshots().num_rows == len(by_spark)
    assert (
        caplog.text.count("from now on Spark reads the files instead of bucketline's tasks (frame-reader = auto)") == 1
    )
