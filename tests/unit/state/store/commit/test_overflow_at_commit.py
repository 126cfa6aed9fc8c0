"""Rows that have no result with those of a table are refused before they are committed; what is in a table already can
always be read and compacted.
"""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import Table, create_table
from tests.support.tables.edited_manifests import edit_manifests

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("total", pa.int32()), ("times", pa.int8())])
FUNCTIONS = {"fields.total.aggregate-function": "sum", "fields.times.aggregate-function": "product"}


def table(path: Path, **options: str) -> Table:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    settings = {"bucket": "1", "merge-engine": "aggregation", **FUNCTIONS, **named}
    return create_table(str(path / "t"), COLUMNS, ("id",), options=settings)


def rows(*values: tuple[int, int | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(COLUMNS.names, v, strict=True)) for v in values], schema=pa.schema(list(COLUMNS))
    )


@pytest.mark.parametrize(
    ("stored", "added", "column"),
    [
        ((1, 2**31 - 5, None), (1, 5, None), "total"),
        ((1, -(2**31), None), (1, -1, None), "total"),
        ((1, None, 64), (1, None, 2), "times"),
    ],
)
def test_what_overflows_with_the_stored_value_is_refused(
    tmp_path: Path, stored: tuple[int, int | None, int | None], added: tuple[int, int | None, int | None], column: str
) -> None:
    found = table(tmp_path)
    found.write(rows(stored, (2, 7, 7)))
    with pytest.raises(SchemaMismatchError, match=f"column {column}: the (sum|product) of its values does not fit"):
        found.write(rows(added))
    assert found.snapshots().num_rows == 1 and found.to_arrow().num_rows == 2


def test_what_fits_is_taken_however_close_it_comes(tmp_path: Path) -> None:
    found = table(tmp_path)
    found.write(rows((1, 2**31 - 6, 63), (2, 1, 1)))
    found.write(rows((1, 5, 2), (3, 2**31 - 1, 127)))
    found.write(rows((2, 2**31 - 2, -128)))
    read = {r["id"]: (r["total"], r["times"]) for r in found.to_arrow().to_pylist()}
    assert read == {1: (2**31 - 1, 126), 2: (2**31 - 1, -128), 3: (2**31 - 1, 127)}


def test_a_wider_column_is_the_remedy(tmp_path: Path) -> None:
    found = table(tmp_path)
    found.write(rows((1, 2**31 - 1, None)))
    with pytest.raises(SchemaMismatchError, match="give the column a wider type"):
        found.write(rows((1, 1, None)))
    wider = found.alter_column("total", type="BIGINT")
    wider.write(rows((1, 1, None)).cast(wider.schema))
    assert wider.to_arrow()["total"].to_pylist() == [2**31]


def test_statistics_clear_a_bucket_without_a_read(tmp_path: Path) -> None:
    """The oldest file is gone from the disk, which only a read of it would notice."""
    found = table(tmp_path)
    found.write(rows((1, 1000, 2)))
    (data,) = (tmp_path / "t/bucket-0").glob("data-*")
    data.rename(tmp_path / "elsewhere")
    found.write(rows((1, 1000, 2)))
    (tmp_path / "elsewhere").rename(data)
    assert found.to_arrow()["total"].to_pylist() == [2000]


@pytest.mark.parametrize(
    "more",
    [
        {"changelog-producer": "lookup", "write-only": "true"},
        {"changelog-producer": "lookup"},
        {"deletion-vectors.enabled": "true"},
    ],
)
def test_tables_that_look_older_values_up_refuse_it_as_well(tmp_path: Path, more: dict[str, str]) -> None:
    found = create_table(
        str(tmp_path / "t"),
        COLUMNS,
        ("id",),
        options={"bucket": "1", "merge-engine": "aggregation", **FUNCTIONS, **more},
    )
    found.write(rows((1, 2**31 - 1, None)))
    with pytest.raises(SchemaMismatchError, match="column total: the sum"):
        found.write(rows((1, 1, None)))
    found.write(rows((2, 1, None)))
    found.compact()
    assert found.to_arrow()["total"].to_pylist() == [2**31 - 1, 1]


def changes(value_type: pa.DataType, *values: tuple[Any, int]) -> pa.Table:
    data = [pa.array([1] * len(values)), pa.array([v for v, _ in values], value_type)]
    return pa.table([*data, pa.array([k for _, k in values], pa.int8())], ["id", "v", "_row_kind"])


def one_column(path: Path, declared: str, function: str, **options: str) -> Table:
    settings = {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": function, **options}
    return create_table(str(path / "t"), f"id BIGINT NOT NULL, v {declared}", ("id",), options=settings)


SHORT = pa.decimal128(4, 2)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("digits", [4, 9, 18, 19, 38])
def test_a_decimal_sum_that_overflows_is_null_and_blocks_nothing(tmp_path: Path, digits: int, file_format: str) -> None:
    found = one_column(tmp_path, f"DECIMAL({digits}, 0)", "sum", **{"file.format": file_format})
    largest, held = Decimal("9" * digits), pa.decimal128(digits, 0)
    for _ in range(2):
        found.write(changes(held, (largest, 0), (largest, 0)))
        assert found.to_arrow()["v"].to_pylist() == [None]
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [None]
    found.write(changes(held, (Decimal(7), 0)))
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [Decimal(7)] and found.doctor(rows=True) == []


@pytest.mark.parametrize(
    ("declared", "function", "held", "stored", "added"),
    [
        ("DECIMAL(4, 2) NOT NULL", "sum", SHORT, Decimal(60), (Decimal(60), 0)),
        ("DECIMAL(20, 0) NOT NULL", "sum", pa.decimal128(20, 0), Decimal("9" * 20), (Decimal(1), 0)),
        ("DECIMAL(4, 2) NOT NULL", "product", SHORT, Decimal(60), (Decimal(2), 0)),
        ("DECIMAL(4, 2)", "product", SHORT, Decimal(10), (Decimal(3), 3)),
        ("INT NOT NULL", "last_value", pa.int32(), 5, (5, 1)),
        ("INT NOT NULL", "last_non_null_value", pa.int32(), 5, (5, 3)),
    ],
)
def test_what_leaves_no_value_in_a_column_that_needs_one_is_refused(
    tmp_path: Path, declared: str, function: str, held: pa.DataType, stored: Any, added: tuple[Any, int]
) -> None:
    found = one_column(tmp_path, declared, function)
    found.write(changes(held, (stored, 0)))
    with pytest.raises(SchemaMismatchError, match="column v"):
        found.write(changes(held, added))
    found.write(
        changes(held, (stored, 1), (stored, 0)) if function.startswith("last") else changes(held, (stored, 0))[:0]
    )
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [stored]


@pytest.mark.parametrize("bucket", ["1", "-2"])
@pytest.mark.parametrize("scale", [20, 38])
def test_a_product_of_decimals_of_many_digits_after_the_point_is_taken_back(
    tmp_path: Path, scale: int, bucket: str
) -> None:
    found = one_column(tmp_path, f"DECIMAL(38, {scale})", "product", bucket=bucket)
    held, half = pa.decimal128(38, scale), Decimal("0.5")
    found.write(changes(held, (half, 0), (half, 0), (half, 3)))
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [half]
    if bucket == "1":
        with pytest.raises(SchemaMismatchError, match="a product cannot retract a zero"):
            found.write(changes(held, (Decimal(0), 3)))


def test_postponed_rows_that_overflow_become_null_when_they_are_moved(tmp_path: Path) -> None:
    """Which bucket they meet is not known when they are written, and refused later they would wait for ever."""
    found = one_column(tmp_path, "INT", "sum", **{"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"})
    for _ in range(2):
        found.write(changes(pa.int32(), (2**31 - 1, 0), (2**31 - 1, 0)))
        found.compact()
        assert found.to_arrow()["v"].to_pylist() == [None]
    found.write(changes(pa.int32(), (4, 0)))
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [4]


PLAIN_AVRO = {"file.format": "avro", "file.compression": "null"}


def double(path: Path) -> None:
    """Puts 120.00 into the place of 60.00 in the only file, as Paimon's merges do."""
    (data,) = (path / "t/bucket-0").glob("data-*")
    before, after = (n.to_bytes(2, "big") for n in (6000, 12000))
    assert data.read_bytes().count(before) == 1
    data.write_bytes(data.read_bytes().replace(before, after))


@pytest.mark.parametrize("more", [{}, {"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}])
def test_a_longer_decimal_that_paimon_has_stored_in_avro_is_null(tmp_path: Path, more: dict[str, str]) -> None:
    found = one_column(tmp_path, "DECIMAL(4, 2)", "sum", **{**PLAIN_AVRO, **more})
    found.write(changes(SHORT, (Decimal(60), 0)))
    double(tmp_path)
    assert found.to_arrow()["v"].to_pylist() == [None]
    assert found.to_arrow(filter="v IS NULL OR v > 5")["v"].to_pylist() == [None]
    found.write(changes(SHORT, (Decimal(50), 3)))
    assert found.to_arrow()["v"].to_pylist() == [Decimal(-50)]
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [Decimal(-50)]


def test_a_longer_decimal_that_paimon_has_stored_is_compacted(tmp_path: Path) -> None:
    found = one_column(tmp_path, "DECIMAL(4, 2)", "sum", **PLAIN_AVRO)
    found.write(changes(SHORT, (Decimal(60), 0)))
    double(tmp_path)
    other = changes(SHORT, (Decimal(1), 0))
    found.write(other.set_column(0, "id", pa.array([0])))
    found.write(other.set_column(0, "id", pa.array([2])))
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [Decimal(1), None, Decimal(1)]


@pytest.mark.parametrize("bucket", ["1", "-1"])
@pytest.mark.parametrize("function", ["max", "first_value", "product"])
def test_a_late_delete_that_a_function_cannot_take_back_is_refused(tmp_path: Path, bucket: str, function: str) -> None:
    """A delete that is newer removes the whole row; a late one is a retract like any other."""
    options = {
        "bucket": bucket,
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "c",
        "fields.c.aggregate-function": function,
        "partial-update.remove-record-on-sequence-group": "g",
    }
    found = create_table(str(tmp_path / "t"), "k INT NOT NULL, g INT, c INT", ("k",), options=options)
    columns = {name: pa.int32() for name in ("k", "g", "c")} | {"_row_kind": pa.int8()}

    def change(k: int, g: int, c: int, kind: int) -> pa.Table:
        return pa.Table.from_pylist([{"k": k, "g": g, "c": c, "_row_kind": kind}], schema=pa.schema(columns))

    found.write(change(1, 2, 5, 0))
    found.write(change(2, 2, 5, 0))
    found.write(change(2, 3, 5, 3))
    with pytest.raises(SchemaMismatchError, match=r"column c: .*cannot retract"):
        found.write(change(1, 1, 0, 3))
    found.write(change(1, 3, 4, 2))
    before = found.to_arrow().to_pylist()
    found.compact()
    assert found.to_arrow().to_pylist() == before and [r["k"] for r in before] == [1]


POSTPONED = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}


@pytest.mark.parametrize(
    ("declared", "function", "stored", "added", "value"),
    [
        ("INT NOT NULL", "sum", (2**31 - 1, 0), (5, 0), 5),
        ("INT NOT NULL", "product", (2**31 - 1, 0), (3, 0), 3),
        ("INT NOT NULL", "last_value", (5, 0), (5, 3), 5),
        ("INT NOT NULL", "last_non_null_value", (5, 0), (6, 1), 5),
        ("INT", "last_value", (5, 0), (5, 3), None),
    ],
)
def test_postponed_rows_without_a_result_block_no_column_that_needs_a_value(
    tmp_path: Path, declared: str, function: str, stored: tuple[int, int], added: tuple[int, int], value: int | None
) -> None:
    found = one_column(tmp_path, declared, function, **POSTPONED)
    found.write(changes(pa.int32(), stored))
    found.write(changes(pa.int32(), added))
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [value]
    found.write(changes(pa.int32(), (4, 0)))
    found.compact()
    # The next value starts from what is there.
    assert found.to_arrow()["v"].to_pylist() == [{"sum": 9, "product": 12}.get(function, 4)]
    assert found.doctor(rows=True) == []


def test_a_column_of_a_sequence_group_that_needs_a_value_keeps_it_when_it_is_taken_back(tmp_path: Path) -> None:
    options = {"bucket": "1", "merge-engine": "partial-update", "fields.g.sequence-group": "c"}
    found = create_table(str(tmp_path / "t"), "k INT NOT NULL, g INT, c INT NOT NULL", ("k",), options=options)
    columns = {name: pa.int32() for name in ("k", "g", "c")} | {"_row_kind": pa.int8()}

    def change(g: int, c: int, kind: int) -> pa.Table:
        return pa.Table.from_pylist([{"k": 1, "g": g, "c": c, "_row_kind": kind}], schema=pa.schema(columns))

    for g, c, kind in ((5, 50, 0), (3, 30, 0), (6, 60, 1)):
        found.write(change(g, c, kind))
    before = found.to_arrow().to_pylist()
    assert before == [{"k": 1, "g": 6, "c": 50}]
    found.compact()
    assert found.to_arrow().to_pylist() == before and found.doctor(rows=True) == []


@pytest.mark.parametrize("function", ["max", "first_value", "bool_or"])
def test_a_late_delete_among_postponed_rows_leaves_what_cannot_take_it_back(tmp_path: Path, function: str) -> None:
    """Another writer's late deletes are such rows as well."""
    held = pa.bool_() if function == "bool_or" else pa.int32()
    options = {
        **POSTPONED,
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "c",
        "fields.c.aggregate-function": function,
        "partial-update.remove-record-on-sequence-group": "g",
    }
    declared = "BOOLEAN" if function == "bool_or" else "INT"
    found = create_table(str(tmp_path / "t"), f"k INT NOT NULL, g INT, c {declared}", ("k",), options=options)

    def change(g: int, c: int, kind: int) -> pa.Table:
        value = bool(c) if function == "bool_or" else c
        columns = {"k": pa.int32(), "g": pa.int32(), "c": held, "_row_kind": pa.int8()}
        return pa.Table.from_pylist([{"k": 1, "g": g, "c": value, "_row_kind": kind}], schema=pa.schema(columns))

    found.write(change(2, 5, 0))
    found.write(change(1, 7, 3))
    found.compact()
    assert found.to_arrow().to_pylist() == [{"k": 1, "g": 2, "c": True if function == "bool_or" else 5}]
    found.write(change(3, 9, 3))
    found.compact()
    assert found.to_arrow().num_rows == 0, "a delete that is newer removes the row"


def doubled(path: Path) -> None:
    """As `double`, in Parquet."""
    (data,) = (path / "t/bucket-0").glob("data-*")
    rows = pq.read_table(data)
    position = rows.schema.get_field_index("v")
    longer = pa.Array.from_buffers(SHORT, 1, [None, pa.py_buffer((12000).to_bytes(16, "little"))])
    rows = rows.set_column(position, rows.schema.field("v"), longer)
    pq.write_table(rows, data, store_decimal_as_integer=True)
    edit_manifests(path / "t", lambda file: replace(file, file_size=data.stat().st_size))


@pytest.mark.parametrize("in_files", [{}, PLAIN_AVRO])
@pytest.mark.parametrize("more", [{}, {"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}])
def test_a_longer_decimal_in_a_column_that_needs_a_value_blocks_nothing(
    tmp_path: Path, more: dict[str, str], in_files: dict[str, str]
) -> None:
    found = one_column(tmp_path, "DECIMAL(4, 2) NOT NULL", "sum", **more, **in_files)
    found.write(changes(SHORT, (Decimal(60), 0)))
    double(tmp_path) if in_files else doubled(tmp_path)
    assert found.to_arrow()["v"].to_pylist() == [None]
    other = changes(SHORT, (Decimal(1), 0))
    found.write(other.set_column(0, "id", pa.array([0])))
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [Decimal(1), None]
    found.write(changes(SHORT, (Decimal(50), 3)))
    found.compact()
    assert found.to_arrow()["v"].to_pylist() == [Decimal(1), Decimal(70)]
