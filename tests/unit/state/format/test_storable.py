"""What a file format has no place for is known before there is a table with it."""

import pytest

from bucketline.conf.table.choices import FileFormat
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.storable import check_storable, refuse_columns
from bucketline.state.types.columns_text import parse_columns


@pytest.mark.parametrize(
    "columns",
    ["f TIMESTAMP(9), c TIMESTAMP(3)", "c TIMESTAMP_LTZ(6), f ARRAY<TIMESTAMP(7)>", "f TIMESTAMP_LTZ(8), c TIMESTAMP"],
)
def test_mixed_timestamps_are_refused_by_name(columns: str) -> None:
    with pytest.raises(UnsupportedTableError, match=r"column 'f' .* 'c' "):
        refuse_columns(FileFormat.PARQUET, parse_columns(columns))


@pytest.mark.parametrize(
    "columns", ["a TIMESTAMP(9), b TIMESTAMP_LTZ(7)", "a TIMESTAMP(0), b TIMESTAMP_LTZ(6)", "a INT"]
)
def test_timestamps_of_one_sort_are_fine(columns: str) -> None:
    refuse_columns(FileFormat.PARQUET, parse_columns(columns))


@pytest.mark.parametrize(
    "kind",
    ["TIMESTAMP(9)", "TIMESTAMP_LTZ(7)", "TIME(6)", "ROW<a TIMESTAMP(9)>", "MULTISET<INT>", "ARRAY<MULTISET<DATE>>"],
)
def test_what_java_does_not_read_in_avro_is_refused_with_the_way_out(kind: str) -> None:
    with pytest.raises(UnsupportedTableError, match=r"column c.*; choose another type, or parquet") as caught:
        check_storable(TableSchema(0, parse_columns(f"k INT, c {kind}"), 1, (), (), {"file.format": "avro"}))
    assert str(caught.value.fields["column"]).startswith("c")


def test_a_table_of_an_earlier_release_is_written_on_though_java_does_not_read_it() -> None:
    refuse_columns(FileFormat.AVRO, parse_columns("c MULTISET<INT>"))


@pytest.mark.parametrize("kind", ["TIMESTAMP(6)", "TIME(3)", "MULTISET<STRING>", "MAP<INT, INT>", "MULTISET<CHAR(3)>"])
def test_what_java_reads_in_avro_is_fine(kind: str) -> None:
    refuse_columns(FileFormat.AVRO, parse_columns(f"c {kind}"))


@pytest.mark.parametrize(
    ("options", "is_fine"),
    [
        ({}, True),
        ({"file.format": "avro"}, False),
        ({"file.format.per.level": "0:avro"}, False),
        ({"file.format": "avro", "file.format.per.level": "0:orc"}, False),
        ({"changelog-file.format": "avro"}, True),
        ({"changelog-file.format": "avro", "changelog-producer": "input"}, False),
        ({"bucket": "-2"}, True),
    ],
    ids=str,
)
def test_every_format_that_the_options_name_has_a_place_for_the_columns(options: dict[str, str], is_fine: bool) -> None:
    schema = TableSchema(0, parse_columns("k INT NOT NULL, t TIMESTAMP(9)"), 1, (), ("k",), options)
    if is_fine:
        check_storable(schema)
        return
    with pytest.raises(UnsupportedTableError, match="column t"):
        check_storable(schema)
