"""Numbers in the types of a schema file, with each bit flipped: the right rows, or an error that names the file."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.state.store.datafile.stored_types import check_types
from bucketline.state.store.table.table import create_table, open_table
from bucketline.state.types.logical import DataField, parse_type_text
from tests.support.tables.flips import Flip, try_flips

COLUMNS = (
    "id INT NOT NULL, p DECIMAL(9, 1) NOT NULL, a DECIMAL(12, 2), b DECIMAL(30, 4), t TIMESTAMP(3), u TIMESTAMP(6), "
    "z TIMESTAMP(3) WITH LOCAL TIME ZONE, v VARCHAR(20), l ARRAY<DECIMAL(5, 1)>, r ROW<x DECIMAL(7, 3), y STRING>, "
    "m MAP<STRING, DECIMAL(10, 0)>"
)
MOMENT = datetime(2026, 3, 4, 5, 6, 7, 89000)


def rows() -> pa.Table:
    count = 20
    schema = pa.schema(
        {
            "id": pa.int32(),
            "p": pa.decimal128(9, 1),
            "a": pa.decimal128(12, 2),
            "b": pa.decimal128(30, 4),
            "t": pa.timestamp("ms"),
            "u": pa.timestamp("us"),
            "z": pa.timestamp("ms", "UTC"),
            "v": pa.string(),
            "l": pa.list_(pa.decimal128(5, 1)),
            "r": pa.struct({"x": pa.decimal128(7, 3), "y": pa.string()}),
            "m": pa.map_(pa.string(), pa.decimal128(10, 0)),
        }
    )
    one = {
        "p": Decimal("1.5"),
        "a": Decimal("12.34"),
        "b": Decimal("123456789.1234"),
        "t": MOMENT,
        "u": MOMENT,
        "z": MOMENT.replace(tzinfo=UTC),
        "v": "some text",
        "l": [Decimal("1.5")],
        "r": {"x": Decimal("1.234"), "y": "y"},
        "m": [("k", Decimal(7))],
    }
    return pa.Table.from_pylist([one | {"id": i} for i in range(count)], schema)


def instants(path: str) -> pa.Table:
    """The rows, with all timestamps in one unit."""
    found = open_table(path).to_arrow()
    return found.cast(
        pa.schema(
            [f.with_type(pa.timestamp("us", f.type.tz)) if pa.types.is_timestamp(f.type) else f for f in found.schema]
        )
    )


def flips_of_numbers(path: Path) -> Iterator[Flip]:
    for found in re.finditer(rb'"(?:DECIMAL|TIMESTAMP|VARCHAR)(\([^)]*\))', path.read_bytes()):
        for offset in range(*found.span(1)):
            yield from (Flip(path, offset, bit) for bit in range(8))


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_no_flipped_bit_of_a_number_in_a_type_changes_rows(form: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    options = {"file.format": form, "bucket": "1"}
    table = create_table(path, COLUMNS, primary_key=("p", "id"), partition_by=("p",), options=options)
    table.write(rows())
    flips = flips_of_numbers(tmp_path / "t" / "schema" / "schema-0")
    # ORC files state no unit of time.
    read = (lambda: instants(path)) if form == "orc" else lambda: open_table(path).to_arrow()
    found = try_flips(flips, {"all": read})
    assert found.wrong == []
    assert found.raw == []
    assert found.unnamed == []
    assert found.errors["CORRUPT_FILE"] > 200
    # One bit of a length, or of a precision within one unit, changes no row.
    assert found.right > 10


def field(text: str) -> list[DataField]:
    return [DataField(0, "d", parse_type_text(text)), DataField(1, "t", parse_type_text("TIMESTAMP(3)"))]


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("DECIMAL(13, 2)", pa.decimal128(12, 2)),
        ("DECIMAL(12, 3)", pa.decimal128(12, 2)),
        ("DECIMAL(3, 2)", pa.decimal128(30, 2)),
        ("TIMESTAMP(7)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("ms")),
    ],
)
def test_a_type_that_is_the_files_but_for_one_bit_is_refused(declared: str, found: pa.DataType) -> None:
    with pytest.raises(CorruptFileError, match=rf"column d is {re.escape(declared)} in the schema"):
        check_types({"d": found, "t": pa.timestamp("ms")}, field(declared), has_units=True)


@pytest.mark.parametrize(
    ("declared", "found", "second"),
    [
        ("DECIMAL(12, 2)", pa.decimal128(12, 2), "ms"),
        # Widened by another tool.
        ("DECIMAL(20, 2)", pa.decimal128(11, 2), "ms"),
        # A writer with rules of its own.
        ("TIMESTAMP(6)", pa.timestamp("ns"), "us"),
        ("STRING", pa.decimal128(12, 2), "ms"),
    ],
)
def test_other_differences_between_schema_and_file_are_no_flipped_bit(
    declared: str, found: pa.DataType, second: str
) -> None:
    check_types({"d": found, "t": pa.timestamp(second)}, field(declared), has_units=True)
    check_types({}, field(declared), has_units=True)


def test_formats_without_units_of_time_are_not_asked_for_them() -> None:
    check_types({"d": pa.timestamp("ns")}, field("TIMESTAMP(3)"), has_units=False)


def damaged(path: Path, old: bytes, new: bytes) -> str:
    table = create_table(str(path), "id INT, n1 BIGINT", options={"deletion-vectors.enabled": "true", "bucket": "-1"})
    table.write(pa.table({"id": pa.array([1], pa.int32()), "n1": [2]}))
    file = path / "schema" / "schema-0"
    file.write_bytes(file.read_bytes().replace(old, new))
    return str(path)


def test_an_option_that_cannot_be_read_names_the_schema_file_it_is_from(tmp_path: Path) -> None:
    path = damaged(tmp_path / "t", b'"true"', b'"trug"')
    with pytest.raises(OptionError, match=f"'trug'.*{re.escape(path)}/schema/schema-0"):
        open_table(path).to_arrow()
    with pytest.raises(OptionError) as given:
        open_table(damaged(tmp_path / "u", b"", b""), options={"scan.snapshot-id": "x"}).to_arrow()
    assert "schema-0" not in str(given.value)


def test_a_column_that_is_missing_names_the_schema_file_that_lacks_it(tmp_path: Path) -> None:
    path = damaged(tmp_path / "t", b'"n1"', b'"n3"')
    for read in (
        lambda: open_table(path).to_arrow(columns=["n1"]),
        lambda: open_table(path).to_arrow(filter=pc.field("n1") == 2),
        lambda: open_table(path).to_arrow(filter="n1 = 2"),
    ):
        with pytest.raises(BucketlineError, match=f"(?s)n1.*{re.escape(path)}/schema/schema-0") as found:
            read()
        assert found.value.code in ("SCHEMA_MISMATCH", "OPTION")


def test_a_map_with_optional_keys_is_refused_and_not_called_damaged(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT, m MAP<STRING, INT>")
    table.write(pa.Table.from_pylist([{"k": 1, "m": [("a", 2)]}], schema=table.schema))
    file = Path(table.files()["file_path"][0].as_py())
    # The footer says of each column whether it is required (0) or optional (2), and then its name.
    required = b"\x25\x00\x18\x03key"
    whole = file.read_bytes()
    assert whole.count(required) == 1
    file.write_bytes(whole.replace(required, b"\x25\x02\x18\x03key"))
    with pytest.raises(UnsupportedTableError, match=rf"{file.name}: a MAP in this Parquet file has optional keys"):
        open_table(table.path).to_arrow()
