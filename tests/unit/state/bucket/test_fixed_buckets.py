"""Bucket functions against Java's buckets: vectors, a row-at-a-time Hive hash, and golden tables."""

import json
import struct
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.table.choices import BucketFunction
from bucketline.state.bucket.fixed import assign_fixed_buckets
from bucketline.state.bucket.mode import bucket_keys, total_buckets
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema, decode_schema
from bucketline.state.types.binary_row import Timestamp, hash_rows
from bucketline.state.types.logical import DataType, TypeRoot, parse_type
from tests.support.models.internal_values import column_of

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "data"
BUCKETED = sorted(path.name for path in GOLDEN.glob("expected/*.buckets.jsonl"))


def _bucket(value: object, text: str, function: BucketFunction, count: int = 100) -> int:
    data_type = parse_type(text)
    return int(assign_fixed_buckets([column_of([value], data_type)], [data_type], count, function)[0].as_py())


@pytest.mark.parametrize(
    ("value", "text", "bucket"),
    [(-1, "INT", 99), (-1, "BIGINT", 99), (None, "INT", 0), (205, "BIGINT", 5), (-(2**63), "BIGINT", 92)],
)
def test_mod_floors(value, text, bucket) -> None:
    assert _bucket(value, text, BucketFunction.MOD) == bucket


@pytest.mark.parametrize("texts", [("STRING",), ("SMALLINT",), ("INT", "INT")])
def test_mod_takes_one_int_or_bigint_only(texts) -> None:
    types = [parse_type(t) for t in texts]
    with pytest.raises(UnsupportedTableError):
        assign_fixed_buckets([column_of([None], t) for t in types], types, 4, BucketFunction.MOD)


@pytest.mark.parametrize(
    ("value", "text", "bucket"),
    [
        (-1, "INT", 47),
        (123456789012345, "BIGINT", 13),
        ("abcdefg", "STRING", 92),
        (19723, "DATE", 23),
        (1.5, "FLOAT", 20),
        (None, "STRING", 0),
        (-0.0, "DOUBLE", 0),
    ],
)
def test_hive_buckets_are_those_of_java(value, text, bucket) -> None:
    assert _bucket(value, text, BucketFunction.HIVE) == bucket


def _int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _polynomial(numbers: list[int]) -> int:
    found = 0
    for number in numbers:
        found = _int32(31 * found + number)
    return found


def _hive(value: object, data_type: DataType) -> int:
    """Hive's hash of one value, written from its description and not from the code under test."""
    if value is None:
        return 0
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        unscaled, scale = int("".join(map(str, digits))), -exponent
        while scale > 0 and unscaled % 10 == 0:
            unscaled, scale = unscaled // 10, scale - 1
        words = [unscaled >> 32 * k & 0xFFFFFFFF for k in (3, 2, 1, 0)]
        return _int32(31 * _polynomial(words) * (-1 if value < 0 else 1) + scale)
    if isinstance(value, float):
        if data_type.root is TypeRoot.FLOAT:
            return 0 if value == 0 else int(struct.unpack("<i", struct.pack("<f", value))[0])
        value = 0 if value == 0 else int(struct.unpack("<q", struct.pack("<d", value))[0])
        return _int32(value ^ (value % 2**64 >> 32))
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return _polynomial([b - 256 if b > 127 else b for b in value])
    assert isinstance(value, int)
    return _int32(value ^ (value % 2**64 >> 32)) if data_type.root is TypeRoot.BIGINT else int(value)


HIVE_COLUMNS: dict[str, list[object]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-128, 127, None],
    "SMALLINT": [-32768, 1, None],
    "INT": [-(2**31), 2**31 - 1, None],
    "BIGINT": [-(2**63), 2**63 - 1, -1],
    "FLOAT": [-2.25, 3.5e38 / 2, 0.0],
    "DOUBLE": [-2.25, 1e300, -1e-300],
    "STRING": ["", "héllo wörld", "x" * 300],
    "BYTES": [b"\xff\x80", b"\x00", None],
    "DATE": [-1, 0, 19723],
    "TIME": [0, 86_399_999, None],
    "DECIMAL(9, 2)": [Decimal("-12.80"), Decimal("100.00"), Decimal("0.01")],
    "DECIMAL(18, 0)": [Decimal(10**17), Decimal(-(2**32)), Decimal(0)],
    "DECIMAL(38, 10)": [Decimal(-(10**27)).quantize(Decimal("1")), Decimal("-0.0000000001"), Decimal("12345678901.5")],
}


@pytest.mark.parametrize("text", HIVE_COLUMNS)
def test_hive_hashes_a_column_as_it_hashes_each_value(text) -> None:
    data_type, values = parse_type(text), HIVE_COLUMNS[text]
    found = assign_fixed_buckets([column_of(values, data_type)], [data_type], 2**31 - 1, BucketFunction.HIVE)
    assert found.to_pylist() == [(_hive(v, data_type) & 0x7FFFFFFF) % (2**31 - 1) for v in values]


def test_hive_takes_columns_in_order() -> None:
    types = [parse_type("INT"), parse_type("STRING")]
    columns = [pa.array([7, None]), pa.chunked_array([["b"], ["b"]])]
    found = assign_fixed_buckets([columns[0].cast(pa.int32()), columns[1]], types, 1000, BucketFunction.HIVE)
    assert found.to_pylist() == [(31 * 7 + 98) % 1000, 98]


def test_hive_does_not_take_timestamps() -> None:
    with pytest.raises(UnsupportedTableError):
        _bucket(Timestamp(0, 0), "TIMESTAMP(3)", BucketFunction.HIVE)


@pytest.mark.parametrize("count", [1, 2, 7, 100, 2**31 - 1])
def test_default_buckets_are_absolute_remainders_and_in_range(count) -> None:
    types = [parse_type("INT")]
    columns = [pa.array(np.arange(-50_000, 50_000, dtype=np.int32))]
    found = assign_fixed_buckets(columns, types, count)
    assert found.type == pa.int32()
    assert found.to_pylist() == [abs(h) % count for h in hash_rows(columns, types).to_pylist()]


def test_the_bucket_function_is_the_one_the_options_name() -> None:
    def schema(**options: str) -> TableSchema:
        return TableSchema(id=0, fields=(), highest_field_id=-1, options=options)

    assert schema().settings.bucket.function is BucketFunction.DEFAULT
    assert schema(**{"bucket-function.type": "mod"}).settings.bucket.function is BucketFunction.MOD
    with pytest.raises(OptionError, match="'murmur': must be one of default, mod, hive"):
        _ = schema(**{"bucket-function.type": "murmur"}).settings.bucket.function


def _column(texts: list[object], data_type: DataType) -> pa.Array:
    """Values as golden files write them."""
    root = data_type.root
    if root is TypeRoot.DECIMAL:
        return pa.array([Decimal(str(t)) for t in texts], pa.decimal128(data_type.precision, data_type.scale))
    if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return pa.array([bytes.fromhex(str(t)) for t in texts])
    if root is TypeRoot.DATE:
        return pa.array(texts, pa.string()).cast(pa.date32())
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return pa.array(texts, pa.string()).cast(pa.timestamp("us"))
    return column_of(texts, data_type)


def test_the_golden_tables_are_there() -> None:
    assert sum(name.startswith("shared.bucket_") for name in BUCKETED) >= 14, GOLDEN


@pytest.mark.parametrize("name", BUCKETED)
def test_rows_of_golden_tables_get_the_buckets_paimon_put_them_in(name) -> None:
    rows = [json.loads(line) for line in (GOLDEN / "expected" / name).read_text().splitlines()]
    directory = GOLDEN / "shared.db" / name.removeprefix("shared.").removesuffix(".buckets.jsonl")
    schema = decode_schema((directory / "schema" / "schema-0").read_bytes())
    fields = schema.select(bucket_keys(schema))
    types = [f.type for f in fields]
    columns = [_column([r[f.name] for r in rows], f.type) for f in fields]
    found = assign_fixed_buckets(columns, types, total_buckets(schema), schema.settings.bucket.function)
    assert rows
    assert found.to_pylist() == [r["__paimon_bucket"] for r in rows]
