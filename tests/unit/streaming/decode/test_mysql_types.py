"""Types of MySQL's columns, as Canal writes them."""

import pyarrow as pa
import pytest

from bucketline.streaming.decode.mysql_types import column_type, is_labeled, labeled_text


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("TINYINT(1)", pa.bool_()),
        ("tinyint(1) unsigned", pa.int16()),
        ("tinyint", pa.int8()),
        ("TINYINT(2) unsigned zerofill", pa.int16()),
        ("smallint", pa.int16()),
        ("smallint unsigned", pa.int32()),
        ("mediumint(8) unsigned", pa.int64()),
        ("int(11)", pa.int32()),
        ("INT unsigned", pa.int64()),
        ("bigint", pa.int64()),
        ("BIGINT(16) unsigned zerofill", pa.decimal128(20, 0)),
        ("serial", pa.decimal128(20, 0)),
        ("bit", pa.bool_()),
        ("bit(1)", pa.bool_()),
        ("bit(8)", pa.int64()),
        ("bit(64)", pa.decimal128(20, 0)),
        ("bool", pa.bool_()),
        ("year", pa.int32()),
        ("float", pa.float32()),
        ("DOUBLE PRECISION(10,7) unsigned zerofill", pa.float64()),
        ("real", pa.float64()),
        ("DECIMAL(8, 0)", pa.decimal128(8, 0)),
        ("numeric(8,3) unsigned", pa.decimal128(8, 3)),
        ("FIXED(40,3)", pa.string()),
        ("decimal", pa.string()),
        ("date", pa.date32()),
        ("time(3)", pa.time32("ms")),
        ("datetime", pa.timestamp("ms")),
        ("DATETIME(3)", pa.timestamp("ms")),
        ("timestamp(6)", pa.timestamp("us")),
        ("datetime(26)", pa.timestamp("us")),
        ("varchar(20)", pa.string()),
        ("longtext", pa.string()),
        ("json", pa.string()),
        ("varbinary(20)", pa.binary()),
        ("mediumblob", pa.binary()),
        ("point", pa.binary()),
        ("enum('a','b')", pa.string()),
        ("SET('a','b')", pa.list_(pa.string())),
        ("something new", pa.string()),
        ("", pa.string()),
    ],
)
def test_the_type_of_a_new_column(declared: str, expected: pa.DataType) -> None:
    assert column_type(declared) == expected


@pytest.mark.parametrize(
    ("declared", "number", "expected"),
    [
        ("enum('s','m','l')", "3", "l"),
        ("ENUM('s', 'm')", "1", "s"),
        ("enum('it''s','a,b')", "1", "it's"),
        ("enum('it''s','a,b')", "2", "a,b"),
        ("enum('s')", "0", ""),
        ("set('a','b','c')", "0", ""),
        ("set('a','b','c')", "6", "b,c"),
    ],
)
def test_the_label_of_a_number(declared: str, number: str, expected: str) -> None:
    assert is_labeled(declared)
    assert labeled_text(declared, number) == expected


@pytest.mark.parametrize(
    ("declared", "number"), [("enum('s')", "2"), ("set('a','b')", "4"), ("enum('s')", "s"), ("set('a')", "-1")]
)
def test_a_number_without_a_label_is_refused(declared: str, number: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        labeled_text(declared, number)
