"""Old values in a column's current type: what Paimon Java 1.4.2 read after the type was changed."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.partition_text import double_text, float_text
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.cast import read_column
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.logical import DataType
from bucketline.state.types.number_text import float_texts

INF, NAN = float("inf"), float("nan")

READ_BY_JAVA: list[tuple[str, str, list[object], list[object]]] = [
    ("BOOLEAN", "DECIMAL(5, 2)", [True, False], [Decimal("1.00"), Decimal("0.00")]),
    ("INT", "CHAR(3)", [1, -7, 123456], ["1  ", "-7 ", "123"]),
    ("INT", "BOOLEAN", [0, -1], [False, True]),
    ("INT", "TINYINT", [127, 128, -129], [127, -128, 127]),
    ("INT", "DECIMAL(5, 2)", [999, 1000, -7], [Decimal("999.00"), None, Decimal("-7.00")]),
    ("FLOAT", "SMALLINT", [INF, 3.4e38, 1.5], [-1, -1, 1]),
    ("FLOAT", "INT", [3.4e38, -INF, NAN, -2.25], [2**31 - 1, -(2**31), 0, -2]),
    ("FLOAT", "BIGINT", [NAN, INF], [0, 2**63 - 1]),
    ("DOUBLE", "TINYINT", [1e10, INF, 127.9], [-1, -1, 127]),
    ("FLOAT", "STRING", [3.4028234663852886e38, -0.0, NAN], ["3.4028235E38", "-0.0", "NaN"]),
    (
        "DOUBLE",
        "STRING",
        [0.0, 5e-324, -1e308, 1.0, 1e7, -INF],
        ["0.0", "4.9E-324", "-1.0E308", "1.0", "1.0E7", "-Infinity"],
    ),
    ("DOUBLE", "VARCHAR(4)", [1e10, 123456.789], ["1.0E", "1234"]),
    ("DOUBLE", "DECIMAL(12, 0)", [1e308, 2.5, -2.5], [None, Decimal("3"), Decimal("-3")]),
    ("DECIMAL(5, 2)", "FLOAT", [Decimal("-989.51")], [float(np.float32(-989.51))]),
    ("DECIMAL(5, 2)", "DOUBLE", [Decimal("-438.40")], [-438.4]),
    (
        "DECIMAL(5, 2)",
        "DECIMAL(12, 0)",
        [Decimal("999.99"), Decimal("-452.63"), Decimal("0.50")],
        [Decimal(1000), Decimal(-453), Decimal(1)],
    ),
    ("DECIMAL(12, 0)", "DECIMAL(5, 2)", [Decimal(88930690862), Decimal(-7)], [None, Decimal("-7.00")]),
    ("DECIMAL(38, 0)", "DECIMAL(30, 10)", [Decimal(10**38 - 1), Decimal(1)], [None, Decimal("1.0000000000")]),
    (
        "DECIMAL(30, 10)",
        "STRING",
        [Decimal("0E-10"), Decimal("-0.0000000001"), Decimal("-12.5")],
        ["0.0000000000", "-0.0000000001", "-12.5000000000"],
    ),
    ("DECIMAL(30, 10)", "INT", [Decimal("-1.9999999999")], [-1]),
    ("STRING", "BOOLEAN", ["TRUE", "n", "1"], [True, False, True]),
    ("STRING", "INT", ["+3", "-5", "007"], [3, -5, 7]),
    ("STRING", "DECIMAL(5, 2)", ["-3.005", "1e1"], [Decimal("-3.01"), Decimal("10.00")]),
    ("STRING", "CHAR(3)", ["", "abcd"], ["   ", "abc"]),
    ("STRING", "BINARY(2)", ["abc", "a", ""], [b"ab", b"a\0", b"\0\0"]),
    ("BYTES", "VARBINARY(3)", [b"abcd", b"a"], [b"abc", b"a"]),
    ("TIME(3)", "STRING", [60825570, 3600000], ["16:53:45.57", "01:00:00.0"]),
    ("TIME(0)", "STRING", [60825000], ["16:53:45"]),
    ("TIME(3)", "TIMESTAMP(6)", [3723456], [3723456000]),
    ("BIGINT", "TIMESTAMP(9)", [1, -1], [10**9, -(10**9)]),
    ("TIMESTAMP(3)", "BIGINT", [1500, -1500], [1, -1]),
    ("TIMESTAMP(9)", "INT", [1_500_000_000, -1_500_000_000], [1, -1]),
    ("TIMESTAMP(3)", "DATE", [-1, 86_400_000], [0, 1]),
    ("TIMESTAMP(0)", "STRING", [-62135583780000, 0], ["0001-01-01 03:37:00", "1970-01-01 00:00:00"]),
    ("TIMESTAMP(6)", "STRING", [1], ["1970-01-01 00:00:00.000001"]),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "STRING", [1], ["1970-01-01 00:00:00.001"]),
    ("TIMESTAMP(3)", "TIMESTAMP(0)", [1999, -1999], [1000, -1000]),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", [1999, -1001], [1, -2]),
    ("TIMESTAMP(9)", "TIMESTAMP(6)", [1999, -1001], [1, -2]),
]


def _type(text: str) -> DataType:
    return parse_columns(f"c {text}")[0].type


def _array(values: list[object], data_type: DataType) -> pa.Array:
    target = arrow_type(data_type)
    if pa.types.is_temporal(target):
        number = pa.int32() if target.bit_width == 32 else pa.int64()
        return pa.array(values, number).cast(target)
    return pa.array(values, target)


@pytest.mark.parametrize(("old", "new", "values", "expected"), READ_BY_JAVA)
def test_old_values_are_those_that_java_reads(old: str, new: str, values: list[object], expected: list[object]) -> None:
    before, after = _type(old), _type(new)
    found = read_column(_array([None, *values], before), before, after)
    found.validate(full=True)
    assert found.equals(_array([None, *expected], after)), found


@pytest.mark.parametrize("values", [[], [None, None]])
@pytest.mark.parametrize(
    ("old", "new"), [("DOUBLE", "DECIMAL(6, 2)"), ("FLOAT", "DECIMAL(6, 2)"), ("STRING", "BOOLEAN")]
)
def test_a_column_without_values_has_none_afterwards(old: str, new: str, values: list[None]) -> None:
    before, after = (f.type for f in parse_columns(f"a {old}, b {new}"))
    found = read_column(pa.array(values, arrow_type(before)), before, after)
    assert found.type == arrow_type(after) and found.to_pylist() == values


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("DOUBLE", "DECIMAL(5, 2)", INF),
        ("TIMESTAMP(3)", "TIMESTAMP(9)", 253402232160000),
        ("DATE", "TIMESTAMP(9)", 2932896),
        ("STRING", "INT", "12 apples"),
        ("STRING", "BOOLEAN", "maybe"),
        ("BYTES", "STRING", b"\xff"),
    ],
)
def test_a_value_that_would_come_out_wrong_is_refused(old: str, new: str, value: object) -> None:
    with pytest.raises(UnsupportedTableError):
        read_column(_array([value], _type(old)), _type(old), _type(new))


@given(st.lists(st.none() | st.floats(), max_size=20))
def test_numbers_are_written_as_folder_names_write_them(values: list[float | None]) -> None:
    expected = [None if v is None else double_text(v) for v in values]
    assert float_texts(pa.array(values, pa.float64())).to_pylist() == expected


def test_the_smallest_numbers_are_written_with_as_many_digits_as_tell_them_apart() -> None:
    """Found by Hypothesis: the second of these was written as the text of its neighbour, 5.3E-43."""
    numbers = pa.array([1.4e-45, 379 * 2.0**-149, 378 * 2.0**-149, 0.0], pa.float32())
    assert float_texts(numbers).to_pylist() == ["1.4E-45", "5.31E-43", "5.3E-43", "0.0"]


@given(st.lists(st.floats(width=32), max_size=20))
def test_short_numbers_are_written_as_folder_names_write_them(values: list[float]) -> None:
    assert float_texts(pa.array(values, pa.float32())).to_pylist() == [float_text(v) for v in values]


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("l ARRAY<INT>", pa.struct({"element": pa.int32()})),
        ("l ARRAY<INT>", pa.int32()),
        ("l ROW<a INT>", pa.list_(pa.int32())),
        ("l MAP<INT, INT>", pa.list_(pa.struct({"key": pa.int32(), "value": pa.int32()}))),
        ("l ROW<a ARRAY<INT>>", pa.struct({"a": pa.struct({"element": pa.int32()})})),
    ],
)
def test_a_column_of_another_shape_than_declared_is_refused(declared: str, found: pa.DataType) -> None:
    (field,) = parse_columns(declared)
    with pytest.raises(UnsupportedTableError, match=r"cannot read a column of .* is no (ARRAY|ROW|MAP)"):
        read_column(pa.nulls(2, found), field.type, field.type)
