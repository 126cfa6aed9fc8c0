"""A sum or product that leaves its type is refused before it is committed: stored, no read of the bucket would pass."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import Table, create_table

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
