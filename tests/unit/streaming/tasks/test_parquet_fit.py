"""Which Parquet files tasks read themselves: those alone whose rows are certainly what Spark reads."""

import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketline as bl
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import WriteScope
from bucketline.streaming.tasks.outcome import read_outcome
from bucketline.streaming.tasks.parquet_files import FilePart, ParquetFiles, shares_of
from bucketline.streaming.tasks.parquet_fit import UnfitFileError, columns_in_file, row_groups_of
from bucketline.streaming.tasks.parquet_read import file_rows
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import ReadParquetTask, ReadPlan, to_each
from bucketline.streaming.tasks.wire import UNFIT, TaskResult, routed_note

UTC = pa.timestamp("us", "UTC")
NTZ = pa.timestamp("us")
BEFORE_SPARK_3 = {b"org.apache.spark.version": b"2.4.8"}
LEGACY = {b"org.apache.spark.version": b"3.5.0", b"org.apache.spark.legacyDateTime": b""}
OF_SPARK = {b"org.apache.spark.version": b"4.0.0"}


def written(path: Path, rows: pa.Table, **options: object) -> FilePart:
    pq.write_table(rows, path, **options)
    size = path.stat().st_size
    return FilePart(str(path), 0, size, size)


def source(declared: pa.Schema, *parts: FilePart, ignores_case: bool = True, old_dates: bool = True) -> ParquetFiles:
    names = {name: name for name in declared.names}
    return ParquetFiles((parts,), declared, declared, names, ignores_case, old_dates)


def read(declared: pa.Schema, *parts: FilePart) -> pa.Table:
    return pa.concat_tables(file_rows(parts, source(declared, *parts)))


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        (pa.array([1, None], pa.int8()), pa.int8()),
        (pa.array([1, None], pa.int32()), pa.int32()),
        (pa.array([1, None]), pa.int64()),
        (pa.array([float("nan"), -0.0], pa.float32()), pa.float32()),
        (pa.array([True, None]), pa.bool_()),
        (pa.array(["a", None]), pa.string()),
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array([b"\xff", None]), pa.binary()),
        (pa.array([datetime.date(1, 1, 1)]), pa.date32()),
        (pa.array([Decimal("-1.20")], pa.decimal128(12, 2)), pa.decimal128(12, 2)),
        (pa.array([1, -(2**62)], NTZ), NTZ),
        (pa.array([1, -1], pa.timestamp("ms", "Asia/Tokyo")), UTC),
    ],
    ids=str,
)
def test_a_column_of_the_declared_type_is_read(tmp_path: Path, values: pa.Array, declared: pa.DataType) -> None:
    part = written(tmp_path / "f", pa.table({"C": values}))
    found = read(pa.schema([("c", declared)]), part)["c"].combine_chunks()
    # As texts: NaN is not equal to itself, and zero is to its negative.
    assert (found.type, str(found)) == (declared, str(values.cast(declared)))


@pytest.mark.parametrize(
    ("values", "declared", "options"),
    [
        (pa.array([1], pa.int32()), pa.int64(), {}),
        (pa.array([1], pa.int32()), pa.int8(), {}),
        (pa.array([1], pa.uint32()), pa.int64(), {}),
        (pa.array([1], pa.uint64()), pa.int64(), {}),
        (pa.array([1.5], pa.float32()), pa.float64(), {}),
        (pa.array(np.array([1.5], np.float16)), pa.float32(), {}),
        (pa.array([b"a"]), pa.string(), {}),
        (pa.array(["a"]), pa.binary(), {}),
        (pa.array([b"aa"], pa.binary(2)), pa.binary(), {}),
        (pa.array([Decimal("1.2")], pa.decimal128(11, 2)), pa.decimal128(12, 2), {}),
        (pa.array([Decimal("1.2")], pa.decimal128(12, 1)), pa.decimal128(12, 2), {}),
        (pa.array([1], pa.timestamp("ns")), NTZ, {"version": "2.6"}),
        (pa.array([1], pa.timestamp("us")), NTZ, {"use_deprecated_int96_timestamps": True}),
        (pa.array([1], pa.timestamp("us")), UTC, {}),
        (pa.array([1], UTC), NTZ, {}),
        (pa.array([1], pa.time64("us")), pa.int64(), {}),
        (pa.array([1], pa.duration("us")), pa.int64(), {}),
        (pa.array([[1]]), pa.int64(), {}),
        (pa.array([{"c": 1}]), pa.int64(), {}),
        (pa.array([2**62], pa.timestamp("ms")), NTZ, {}),
    ],
    ids=str,
)
def test_a_column_of_any_other_type_is_for_spark(
    tmp_path: Path, values: pa.Array, declared: pa.DataType, options: dict[str, object]
) -> None:
    part = written(tmp_path / "f", pa.table({"c": values, "d": [1]}), **options)
    with pytest.raises(UnfitFileError, match=f"{tmp_path}/f: ") as refused:
        read(pa.schema([("c", declared), ("d", pa.int64())]), part)
    assert refused.value.code == "PARQUET_READER"


def test_texts_that_are_no_utf8_are_for_spark(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    part = written(tmp_path / "f", pa.table({"c": bad}))
    with pytest.raises(UnfitFileError, match="Invalid UTF8"):
        read(pa.schema([("c", pa.string())]), part)


def test_columns_that_tasks_hand_over_are_chosen_and_renamed_and_null_where_no_declared_one_is_meant(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ID": [1, 2], "b": ["x", "y"], "c": [0.5, None]}), path)
    declared = pa.schema([("id", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    columns = pa.schema([("again", pa.int64()), ("c", pa.int64()), ("more", pa.string())])
    part = FilePart(str(path), 0, path.stat().st_size, path.stat().st_size)
    files = ParquetFiles(((part,),), declared, columns, {"again": "id", "c": "id"})
    assert pa.concat_tables(file_rows((part,), files)).to_pydict() == {
        "again": [1, 2],
        "c": [1, 2],
        "more": [None, None],
    }


def test_names_are_found_as_spark_finds_them(tmp_path: Path) -> None:
    rows = pa.table({"a": [1], "A": [2], "b": [3], "ü": [4]})
    part = written(tmp_path / "f", rows)
    with pq.ParquetFile(part.path) as file:
        with pytest.raises(UnfitFileError, match="the file has column 'a' 2 times"):
            columns_in_file(file, source(pa.schema([("a", pa.int64())])))
        exact = source(pa.schema([("A", pa.int64()), ("B", pa.int64())]), ignores_case=False)
        assert columns_in_file(file, exact) == {"A": "A"}
        assert columns_in_file(file, source(pa.schema([("B", pa.int64()), ("n", pa.int64())]))) == {"B": "b"}
        with pytest.raises(UnfitFileError, match="with exactly the name"):
            columns_in_file(file, source(pa.schema([("Ü", pa.int64())])))
        with pytest.raises(UnfitFileError, match="none of the declared columns"):
            columns_in_file(file, source(pa.schema([("n", pa.int64())])))


@pytest.mark.parametrize(
    ("footer", "old_dates", "is_read"),
    [
        ({}, True, True),
        ({}, False, False),
        (OF_SPARK, False, True),
        (BEFORE_SPARK_3, True, False),
        (LEGACY, True, False),
    ],
)
def test_dates_that_may_be_of_another_calendar_are_for_spark(
    tmp_path: Path, footer: dict[bytes, bytes], old_dates: bool, is_read: bool
) -> None:
    rows = pa.table({"c": pa.array([1], pa.date32()), "n": [1]}).replace_schema_metadata(footer)
    part = written(tmp_path / "f", rows)
    with pq.ParquetFile(part.path) as file:
        assert columns_in_file(file, source(pa.schema([("n", pa.int64())]), old_dates=old_dates)) == {"n": "n"}
        dated = source(pa.schema([("c", pa.date32())]), old_dates=old_dates)
        if is_read:
            assert columns_in_file(file, dated) == {"c": "c"}
        else:
            with pytest.raises(UnfitFileError):
                columns_in_file(file, dated)


def test_parts_of_a_file_have_each_of_its_row_groups_once_and_in_order(tmp_path: Path) -> None:
    rows = pa.table({"c": range(1000), "s": [str(i) * (i % 50) for i in range(1000)]})
    whole = written(tmp_path / "f", rows, row_group_size=37)
    metadata, size = pq.read_metadata(whole.path), whole.file_size
    for step in (301, 5000, size):
        parts = [FilePart(whole.path, at, min(size, at + step), size) for at in range(0, size, step)]
        found = [group for part in parts for group in row_groups_of(metadata, part)]
        assert found == list(range(metadata.num_row_groups))
    halves = FilePart(whole.path, 0, size // 2, size), FilePart(whole.path, size // 2, size, size)
    assert read(pa.schema([("c", pa.int64())]), *halves)["c"].to_pylist() == list(range(1000))


@pytest.mark.parametrize("use_dictionary", [False, True])
def test_a_large_row_group_comes_in_slices(tmp_path: Path, use_dictionary: bool) -> None:
    rows = pa.table({"c": range(200_000), "s": ["x" * 400] * 200_000})
    part = written(tmp_path / "f", rows, use_dictionary=use_dictionary)
    columns = pa.schema([("c", pa.int64()), ("s", pa.string()), ("n", pa.null())])
    slices = list(file_rows((part,), source(columns, part)))
    assert len(slices) > 3 and max(found.nbytes for found in slices) < 20 << 20
    assert pa.concat_tables(slices)["c"].to_pylist() == list(range(200_000))
    assert slices[0].schema == columns and slices[0]["n"].null_count == len(slices[0])


def test_each_task_of_the_next_stage_hears_of_a_file_that_is_for_spark() -> None:
    """A task that reads again, as what it had sent is lost, may say so after some of them have ended."""
    note = routed_note(UNFIT, origin=3, row_count=0, blob=b"f: it has changed")
    assert [(r.task, r.kind, r.run) for r in to_each(note, Destination(3))] == [(n, UNFIT, note.run) for n in range(3)]


def test_the_driver_learns_which_file_is_for_spark(tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "shop.db" / "t"), "id BIGINT", options={"bucket": "-1"})
    session = table_at(open_handle(table.path), {}).refreshed()
    stages = session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "u"), NO_ROWS)
    part = FilePart(str(tmp_path / "gone"), 0, 9, 9)
    reading = ReadPlan(stages.seal, Destination(1, stages.assigners), None, 1)
    said = list(ReadParquetTask(reading, source(pa.schema([("id", pa.int64())]), part))())
    with pytest.raises(UnfitFileError, match=r"gone: .*No such file") as error:
        read_outcome([TaskResult(r.kind, bytes(r.run.blob)) for r in said], stages.write.write.access)
    assert error.value.fields == {"path": part.path}


def test_a_file_that_has_changed_or_has_checksums_is_for_spark(tmp_path: Path) -> None:
    declared = pa.schema([("c", pa.int64())])
    part = written(tmp_path / "f", pa.table({"c": [1]}))
    with pytest.raises(UnfitFileError, match="the size of the file has changed since"):
        read(declared, FilePart(part.path, 0, part.end + 1, part.file_size + 1))
    (tmp_path / ".f.crc").write_bytes(b"crc")
    with pytest.raises(UnfitFileError, match="checksums"):
        read(declared, part)
    (tmp_path / "f").unlink()
    (tmp_path / ".f.crc").unlink()
    with pytest.raises(UnfitFileError, match="No such file"):
        read(declared, part)


def test_few_bytes_are_one_share_in_the_order_of_the_tasks() -> None:
    small = [[FilePart("a", 0, 10, 10)], [FilePart("b", 0, 10, 10), FilePart("c", 0, 10, 10)]]
    assert [p.path for p in shares_of(small)[0]] == ["a", "b", "c"]
    large = [[FilePart("a", 0, 5 << 20, 9 << 20)], [FilePart("a", 5 << 20, 9 << 20, 9 << 20)]]
    assert shares_of(large) == tuple(map(tuple, large))
