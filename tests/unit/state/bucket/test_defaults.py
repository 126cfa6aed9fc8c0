"""Nulls become the column's default when they are written; a NOT NULL column does not."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.bucket.defaults import default_scalar
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.columns_text import parse_columns


def with_defaults(path: Path, columns: str, **defaults: str) -> Table:
    table = create_table(str(path / "shop.db" / "t"), columns, ("id",), options={"bucket": "1"})
    schema = handle_of(table).table_schema
    fields = tuple(replace(f, default_value=defaults.get(f.name)) for f in schema.fields)
    assert handle_of(table).schema_store.create(replace(schema, id=1, fields=fields))
    return open_table(table.path)


def test_nulls_become_defaults(tmp_path: Path) -> None:
    table = with_defaults(tmp_path, "id BIGINT NOT NULL, n INT, s STRING, b STRING", n="7", s="'none'")
    table.write(pa.table({"id": [1, 2], "n": pa.array([None, 3], pa.int32()), "s": pa.array([None, "x"]),
                          "b": pa.array([None, None], pa.string())}))  # fmt: skip
    assert table.to_arrow().to_pylist() == [
        {"id": 1, "n": 7, "s": "none", "b": None},
        {"id": 2, "n": 3, "s": "x", "b": None},
    ]


def test_a_default_does_not_rescue_a_null_in_a_not_null_column(tmp_path: Path) -> None:
    table = with_defaults(tmp_path, "id BIGINT NOT NULL, n INT NOT NULL", n="7")
    with pytest.raises(SchemaMismatchError, match="n"):
        table.write(pa.table({"id": [1], "n": pa.array([None], pa.int32())}))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("BOOLEAN", "true", True),
        ("DECIMAL(5,2)", "1.50", Decimal("1.50")),
        ("DATE", "2024-02-29", dt.date(2024, 2, 29)),
        ("TIMESTAMP(3)", "'2024-02-29 12:30:00'", dt.datetime(2024, 2, 29, 12, 30)),
        ("STRING", "''", ""),
        ("DOUBLE", "1.5", 1.5),
    ],
)
def test_defaults_are_read_as_the_type_of_their_column(kind: str, text: str, value: object) -> None:
    (field,) = parse_columns(f"c {kind}")
    assert default_scalar(replace(field, default_value=text)).as_py() == value


def test_a_default_that_cannot_be_filled_in_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = with_defaults(tmp_path, "id BIGINT NOT NULL, n INT", n="many")
    with pytest.raises(UnsupportedTableError, match="default value 'many'"):
        table.write(pa.table({"id": [1], "n": pa.array([1], pa.int32())}))
    assert table.snapshots().num_rows == 0
