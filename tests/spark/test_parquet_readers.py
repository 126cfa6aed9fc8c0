"""Parquet files read by tasks themselves, beside Spark's own reading: the same rows, or left to Spark."""

import datetime
import logging
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.store.table.table import open_table
from bucketline.streaming.batch.files.parquet_batch import ParquetReader, files_of
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.job.run import run_job
from bucketline.streaming.tasks.parquet_files import ParquetFiles
from bucketline.streaming.tasks.parquet_fit import UnfitFileError
from bucketline.streaming.tasks.parquet_read import file_rows
from bucketline.streaming.tasks.read_task import Frame

pytestmark = pytest.mark.spark
BY_SPARK_4 = pytest.mark.skipif(
    pyspark.__version__.startswith("3."),
    reason="Spark 3.5 refuses INT32 where BIGINT is declared, and tasks leave to it what has dates and is not by Spark",
)

DDL = (
    "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(9,2), h DECIMAL(18,4), i DECIMAL(38,10), "
    "j STRING, k BINARY, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ, o BOOLEAN, p STRING"
)
EDGES = [-(2**62), -1, 0, None, 253_402_300_800_000_000]
NAN = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
BAD_TEXT = pa.Array.from_buffers(pa.string(), 5, pa.array([b"a", b"\xff", b"b", b"c", b"d"]).buffers())

ROWS = pa.table(
    {
        "a": pa.array([-128, 127, 0, None, 1], pa.int8()),
        "b": pa.array([-(2**15), 2**15 - 1, 0, None, 1], pa.int16()),
        "c": pa.array([-(2**31), 2**31 - 1, 0, None, 1], pa.int32()),
        "d": pa.array([-(2**63), 2**63 - 1, 0, None, 1], pa.int64()),
        "e": pa.array([float("nan"), -0.0, float("inf"), None, 1e-45], pa.float32()),
        "f": pa.array([*NAN, -0.0, None, 5e-324], pa.float64()),
        "g": pa.array([Decimal("-9999999.99"), Decimal("0.00"), None, None, Decimal("1.10")], pa.decimal128(9, 2)),
        "h": pa.array([Decimal("-99999999999999.9999"), None, None, None, Decimal("1.1")], pa.decimal128(18, 4)),
        "i": pa.array([Decimal("9" * 28 + "." + "9" * 10), None, None, None, Decimal(-1)], pa.decimal128(38, 10)),
        "j": ["", "\U0001f600", "a\0b", None, "ü"],
        "k": [b"", b"\xff\x00", b"a", None, b"z"],
        "l": pa.array([-719162, -141428, 0, None, 2932896], pa.int32()).cast(pa.date32()),
        "m": pa.array(EDGES).cast(pa.timestamp("us", "UTC")),
        "n": pa.array(EDGES).cast(pa.timestamp("us")),
        "o": [True, False, True, None, False],
        "p": pa.array(["x", "y", "x", None, "x"]).dictionary_encode(),
    }
)


def put(name: str, values: pa.Array) -> pa.Table:
    return ROWS.set_column(ROWS.column_names.index(name), name, values)


def ints(arrow_type: pa.DataType) -> pa.Array:
    return pa.array([1, 2, 3, 4, 5]).cast(arrow_type)


NO_BATCH = BatchIdentity("no-query", 0, None, None, None)

READ: Mapping[str, tuple[pa.Table, dict[str, Any]]] = {
    "every type": (ROWS, {}),
    "decimals as integers": (ROWS, {"store_decimal_as_integer": True}),
    "no dictionaries, other pages": (ROWS, {"use_dictionary": False, "data_page_version": "2.0", "version": "1.0"}),
    "without types of Arrow": (ROWS, {"store_schema": False, "row_group_size": 2, "compression": "zstd"}),
    "other names, another order, more columns": (
        pa.table({name.upper(): ROWS[name] for name in reversed(ROWS.column_names)} | {"z": [{"y": 1}] * 5}),
        {},
    ),
    "columns are missing": (ROWS.drop(["b", "g", "j", "m"]), {}),
    "milliseconds": (
        put("n", ints(pa.timestamp("ms"))).set_column(12, "m", ints(pa.timestamp("ms", "Asia/Tokyo"))),
        {},
    ),
    "wide texts": (put("j", ROWS["j"].cast(pa.large_string())), {}),
    "no rows": (ROWS.slice(0, 0), {}),
}

FOR_SPARK: Mapping[str, tuple[pa.Table, dict[str, Any]]] = {
    "unsigned": (put("d", ints(pa.uint32())), {}),
    "wider": (put("d", ints(pa.int32())), {}),
    "narrower": (put("c", ints(pa.int64())), {}),
    "another scale": (put("g", ROWS["g"].cast(pa.decimal128(10, 3))), {}),
    "nanoseconds": (put("n", ints(pa.timestamp("ns"))), {"version": "2.6"}),
    "INT96": (ROWS, {"use_deprecated_int96_timestamps": True}),
    "time of day": (put("d", ints(pa.time64("us"))), {}),
    "without UTC": (put("m", ints(pa.timestamp("us"))), {}),
    "before Spark 3": (ROWS.replace_schema_metadata({"org.apache.spark.version": "2.4.0"}), {}),
    "nested": (put("d", pa.array([[1]] * 5)), {}),
    "twice": (ROWS.append_column("A", ROWS["a"]), {}),
    "no UTF-8": (put("j", BAD_TEXT), {}),
    "milliseconds that are too many": (put("n", pa.array([2**62] * 5).cast(pa.timestamp("ms"))), {}),
}


@BY_SPARK_4
def test_each_file_has_the_rows_that_spark_reads_or_is_left_to_spark(spark: Any, tmp_path: Path) -> None:
    for name, (rows, options) in (READ | FOR_SPARK).items():
        path = tmp_path / f"{name} %é,+.parquet"
        pq.write_table(rows, path, **options)
        frame = spark.read.schema(DDL).parquet(str(path))
        source = files_of(Frame(frame), frame, NO_BATCH, ParquetReader(is_required=True))
        assert isinstance(source, ParquetFiles) and source.is_alone, name
        if name in FOR_SPARK:
            with pytest.raises(UnfitFileError):
                list(file_rows(source.shares[0], source))
            continue
        found = pa.concat_tables([source.columns.empty_table(), *file_rows(source.shares[0], source)])
        assert bits(found) == bits(frame.toArrow()), name
        assert found.num_rows == rows.num_rows, name


def bits(rows: pa.Table) -> list[list[Any]]:
    """The values of each column; numbers as they are stored, as NaN is not equal to itself."""
    as_stored = {
        pa.float32(): pa.int32(),
        pa.float64(): pa.int64(),
        pa.date32(): pa.int32(),
        pa.timestamp("us"): pa.int64(),
        pa.timestamp("us", "UTC"): pa.int64(),
    }
    columns = [column.combine_chunks() for column in rows.columns]
    return [c.view(as_stored[c.type]).to_pylist() if c.type in as_stored else c.to_pylist() for c in columns]


class Input:
    """A job over a folder of files, one a batch."""

    def __init__(self, root: Path) -> None:
        self.root, self.count = root, 0
        (root / "in").mkdir()

    def add(self, rows: pa.Table, **options: Any) -> None:
        path = self.root / f"{self.count}.parquet"
        pq.write_table(rows, path, **options)
        os.utime(path, (1_700_000_000 + self.count,) * 2)
        path.rename(self.root / "in" / path.name)
        self.count += 1

    def job(self, reader: str) -> JobConfig:
        settings = (
            f"table={self.root / reader / 'shop.db' / 't'}",
            "source.format=parquet",
            f"source.options.path={self.root / 'in'}",
            "source.options.maxFilesPerTrigger=1",
            f"source.reader={reader}",
            f"checkpoint={self.root / reader / 'checkpoint'}",
            "trigger=availableNow",
            "create.schema=id BIGINT NOT NULL, at TIMESTAMP_LTZ(6), price DECIMAL(12,2), name STRING, day DATE",
            "create.primary-key=id",
            "create.options.bucket=3",
        )
        return resolve_job(read_assignments(settings))

    def rows(self, reader: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = open_table(str(self.root / reader / "shop.db" / "t")).to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])


def orders(first: int, count: int) -> pa.Table:
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    return pa.table(
        {
            # Each key twice, in different row groups: the later row counts.
            "id": [*range(first, first + count)] * 2,
            "at": pa.array([at + datetime.timedelta(seconds=i) for i in range(2 * count)], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal(i) / 4 for i in range(2 * count)], pa.decimal128(12, 2)),
            "name": [f"{i}" * 300 for i in range(2 * count)],
            "day": pa.array(range(2 * count), pa.int32()).cast(pa.date32()),
        }
    )


@BY_SPARK_4
def test_a_job_writes_the_same_whoever_reads_and_leaves_to_spark_what_is_for_spark(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = Input(tmp_path)
    files.add(orders(0, 4000), row_group_size=250, use_dictionary=False, compression="none")
    files.add(orders(3990, 20).drop(["name"]))
    for reader in ("spark", "native", "auto"):
        run_job(files.job(reader), spark)
    assert files.rows("native") == files.rows("auto") == files.rows("spark")
    assert [row["id"] for row in files.rows("spark")] == list(range(4010))
    for reader in ("native", "auto"):
        assert f"tasks read the files themselves (source.reader = {reader})" in caplog.text
    assert "from now on Spark reads the files" not in caplog.text

    as_int = orders(0, 5).set_column(0, "id", pa.array([*range(5)] * 2, pa.int32()))
    files.add(as_int)
    files.add(orders(20_000, 5))
    snapshots = open_table(files.job("native").table).snapshots().num_rows
    with pytest.raises(
        UnfitFileError, match=r"2\.parquet: column 'id' is declared as int64, but has the type INT32 in the file"
    ) as error:
        run_job(files.job("native"), spark)
    assert error.value.code == "PARQUET_READER"
    assert open_table(files.job("native").table).snapshots().num_rows == snapshots

    run_job(files.job("auto"), spark)
    newest = {row["id"]: row for row in [*files.rows("spark"), *as_int.to_pylist(), *orders(20_000, 5).to_pylist()]}
    assert files.rows("auto") == list(newest.values())
    assert (
        caplog.text.count("from now on Spark reads the files instead of bucketline's tasks (source.reader = auto)") == 1
    )
