"""BinaryRow bytes and hashes against what Paimon Java writes, and the Arrow shapes a column may come in."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.bucket.fixed import assign_fixed_buckets
from bucketline.state.errors import CorruptFileError, SchemaMismatchError, UnsupportedTableError
from bucketline.state.types.binary_row import Timestamp, decode_row, encode_row, encode_rows, hash_rows
from bucketline.state.types.hashes.murmur import murmur_ragged, murmur_words
from bucketline.state.types.logical import DataType, TypeRoot, parse_type
from tests.support.models.internal_values import column_of

MILLIS = 1704067200123
LONG = "longer-than-seven"
ZEROS8 = "00" * 8

# (values, types, row bytes without arity, hash, default bucket of 100), from Paimon Java 2.0.0
JAVA = [
    ((1,), ("INT",), "0000000000000000 0100000000000000", 1465514398, 98),
    ((-1,), ("INT",), "0000000000000000 ffffffff00000000", 1133687267, 67),
    ((None,), ("INT",), "0001000000000000 0000000000000000", -1748325344, 44),
    ((123456789012345,), ("BIGINT",), "0000000000000000 79df0d8648700000", 2069159288, 88),
    ((-2,), ("TINYINT",), "0000000000000000 fe00000000000000", 1831745471, 71),
    ((-2,), ("SMALLINT",), "0000000000000000 feff000000000000", 557672611, 11),
    ((True,), ("BOOLEAN",), "0000000000000000 0100000000000000", 1465514398, 98),
    ((1.5,), ("FLOAT",), "0000000000000000 0000c03f00000000", -173842779, 79),
    ((-0.0,), ("DOUBLE",), "0000000000000000 0000000000000080", 302122119, 19),
    (("",), ("STRING",), "0000000000000000 0000000000000080", 302122119, 19),
    (("abcdefg",), ("STRING",), "0000000000000000 6162636465666787", -1431907323, 23),
    (("abcdefgh",), ("STRING",), "0000000000000000 0800000010000000 6162636465666768", -843760178, 78),
    (("abcdefghi",), ("STRING",), "0000000000000000 0900000010000000 61626364656667686900000000000000", 890550442, 42),
    (("héllo",), ("STRING",), "0000000000000000 68c3a96c6c6f0086", -452836664, 64),
    ((b"\1\2\3",), ("BYTES",), "0000000000000000 0102030000000083", 1066645297, 97),
    ((19723,), ("DATE",), "0000000000000000 0b4d000000000000", -1439008885, 85),
    ((3600000,), ("TIME",), "0000000000000000 80ee360000000000", -2060102702, 2),
    ((Timestamp(MILLIS, 0),), ("TIMESTAMP(3)",), "0000000000000000 7bf451c28c010000", 985649424, 24),
    (
        (Timestamp(MILLIS, 456000),),
        ("TIMESTAMP(6)",),
        "0000000000000000 40f5060010000000 7bf451c28c010000",
        941252157,
        57,
    ),
    (
        (Timestamp(MILLIS, 456789),),
        ("TIMESTAMP(9)",),
        "0000000000000000 55f8060010000000 7bf451c28c010000",
        -1093231341,
        41,
    ),
    ((None,), ("TIMESTAMP(6)",), "0001000000000000 0000000010000000 0000000000000000", -340882661, 61),
    ((None,), ("TIMESTAMP(3)",), "0001000000000000 0000000000000000", -1748325344, 44),
    ((Decimal("-123.45"),), ("DECIMAL(18, 2)",), "0000000000000000 c7cfffffffffffff", 280263423, 23),
    (
        (Decimal("-123.45"),),
        ("DECIMAL(19, 2)",),
        "0000000000000000 0200000010000000 cfc7000000000000 0000000000000000",
        -605613085,
        85,
    ),
    ((None,), ("DECIMAL(38, 10)",), "0001000000000000 0000000010000000" + ZEROS8 * 2, -1380280760, 60),
    ((Decimal(0),), ("DECIMAL(38, 0)",), "0000000000000000 0100000010000000" + ZEROS8 * 2, 728486185, 85),
    (
        (Decimal(128),),
        ("DECIMAL(38, 0)",),
        "0000000000000000 0200000010000000 0080000000000000" + ZEROS8,
        -795104203,
        3,
    ),
    (
        (Decimal(-128),),
        ("DECIMAL(38, 0)",),
        "0000000000000000 0100000010000000 8000000000000000" + ZEROS8,
        1196242097,
        97,
    ),
    (
        (LONG, 7, "x", Timestamp(1, 1000)),
        ("STRING", "INT", "STRING", "TIMESTAMP(6)"),
        "0000000000000000 1100000028000000 0700000000000000 7800000000000081 e803000040000000"
        "6c6f6e6765722d74 68616e2d73657665 6e00000000000000 0100000000000000",
        -1149469450,
        50,
    ),
    (
        (None, None, LONG, None),
        ("STRING", "DECIMAL(38, 0)", "STRING", "TIMESTAMP(6)"),
        "000b000000000000 0000000000000000 0000000028000000 1100000038000000 0000000050000000"
        + ZEROS8 * 2
        + "6c6f6e6765722d74 68616e2d73657665 6e00000000000000"
        + ZEROS8,
        1884559715,
        15,
    ),
]
CASES = pytest.mark.parametrize(("values", "types", "row", "row_hash", "bucket"), JAVA)


def _types(texts: tuple[str, ...]) -> list[DataType]:
    return [parse_type(t) for t in texts]


def _columns(rows: list[tuple[object, ...]], types: list[DataType]) -> list[pa.Array]:
    return [column_of(values, t) for values, t in zip(zip(*rows, strict=True), types, strict=True)]


@CASES
def test_one_row_is_encoded_as_java_does(values, types, row, row_hash, bucket) -> None:
    kinds = _types(types)
    data = len(types).to_bytes(4, "big") + bytes.fromhex(row)
    assert encode_row(values, kinds).hex() == data.hex()
    assert decode_row(data, kinds) == values


@CASES
def test_columns_are_encoded_and_hashed_as_java_does(values, types, row, row_hash, bucket) -> None:
    kinds = _types(types)
    bare = bytes.fromhex(row)
    columns = _columns([values] * 3, kinds)
    rows = encode_rows(columns, kinds, with_arity=False)
    assert rows.to_pylist() == [bare] * 3
    assert encode_rows(columns, kinds, with_arity=True).to_pylist() == [len(types).to_bytes(4, "big") + bare] * 3
    assert hash_rows(columns, kinds).to_pylist() == [row_hash] * 3
    assert murmur_words(np.frombuffer(bare * 3, "<u4").reshape(3, -1)).tolist() == [row_hash] * 3
    assert assign_fixed_buckets(columns, kinds, 100).to_pylist() == [bucket] * 3


def test_the_empty_row_is_an_arity_and_a_null_area() -> None:
    assert encode_row((), ()) == bytes(12)
    assert decode_row(bytes(12), ()) == ()
    assert murmur_words(np.zeros((1, 2), np.uint32)).tolist() == [-1670924195]


def test_null_bits_go_on_in_the_second_word_after_56_fields() -> None:
    types = [parse_type("INT")] * 60
    values = [*range(57), None, 58, 59]
    row = encode_row(values, types)
    assert row[4:20].hex() == "0000000000000000" + "0200000000000000"
    columns = [column_of([v], types[0]) for v in values]
    assert encode_rows(columns, types, with_arity=True).to_pylist() == [row]
    assert decode_row(row, types) == tuple(values)


def test_a_partition_of_many_types_is_the_one_java_wrote() -> None:
    types = _types(("STRING", "DATE", "TIMESTAMP(6)", "DECIMAL(20, 2)", "BOOLEAN", "DOUBLE"))
    values = ("fifteen byte ü", 19723, Timestamp(MILLIS, 456000), Decimal("15.00"), True, 1e10)
    row = encode_row(values, types)
    slots = "0f00000038000000 0b4d000000000000 40f5060048000000 0200000050000000 0100000000000000 000000205fa00242"
    assert row[:60] == bytes.fromhex("00000006 0000000000000000" + slots)
    assert row[76:].hex() == "7bf451c28c010000" + "05dc" + "00" * 14
    empty = encode_row(("", None, None, None, None, None), types)
    assert empty[4:12].hex() == "003e" + "00" * 6 and empty[12:20].hex() == ZEROS8[2:] + "80"
    assert len(empty) == 4 + 8 + 6 * 8 + 8 + 16
    for expected in (values, ("", None, None, None, None, None)):
        assert encode_rows(_columns([expected], types), types, with_arity=True)[0].as_py() == encode_row(
            expected, types
        )


STRINGS = ["", None, "abcdefg", "abcdefgh", "é" * 20, "x" * 1000, "y"]


@pytest.mark.parametrize(
    "shape",
    [
        lambda a: a.cast(pa.large_string()),
        lambda a: a.cast(pa.string_view()),
        lambda a: a.dictionary_encode(),
        lambda a: pa.chunked_array([a.slice(0, 3), a.slice(3)]),
        lambda a: pa.chunked_array([a.slice(0, 3).dictionary_encode(), a.slice(3).dictionary_encode()]),
        lambda a: pa.concat_arrays([pa.array(["other", None]), a, pa.array(["z"])]).slice(2, len(a)),
        lambda a: pa.chunked_array([pa.concat_arrays([pa.array([None]).cast(pa.string()), a])]).slice(1),
    ],
    ids=["large", "view", "dictionary", "chunked", "chunked dictionary", "sliced", "sliced chunk"],
)
def test_strings_encode_alike_in_every_arrow_shape(shape) -> None:
    types = [parse_type("STRING")]
    found = shape(pa.array(STRINGS))
    expected = [encode_row((s,), types) for s in STRINGS]
    assert encode_rows([found], types, with_arity=True).to_pylist() == expected
    assert hash_rows([found], types).equals(hash_rows([pa.array(STRINGS)], types))


def test_sliced_numbers_and_booleans_keep_their_own_rows() -> None:
    for text, values in (("BOOLEAN", [True, None, False, True] * 9), ("DECIMAL(30, 0)", [Decimal(7), None] * 9)):
        types = [parse_type(text)]
        column = column_of(values, types[0])
        for start in (0, 1, 7, 8, 11):
            found = encode_rows([column.slice(start, 6)], types, with_arity=True).to_pylist()
            assert found == [encode_row((v,), types) for v in values[start : start + 6]]


def test_bytes_under_a_null_do_not_show() -> None:
    validity = pa.py_buffer(b"\x05")
    strings = pa.Array.from_buffers(
        pa.string(), 3, [validity, pa.py_buffer(np.array([0, 1, 12, 13], "<i4")), pa.py_buffer(b"a" + b"?" * 11 + b"b")]
    )
    numbers = pa.Array.from_buffers(pa.int64(), 3, [validity, pa.py_buffer(np.array([1, 99, 2], "<i8"))])
    stamps = numbers.view(pa.timestamp("us"))
    wide = pa.Array.from_buffers(
        pa.decimal128(38, 0), 3, [validity, pa.py_buffer(np.array([1, 0, 99, 99, 2, 0], "<i8"))]
    )
    types = _types(("STRING", "BIGINT", "TIMESTAMP(6)", "DECIMAL(38, 0)"))
    found = encode_rows([strings, numbers, stamps, wide], types, with_arity=True)
    assert found[1].as_py() == encode_row((None,) * 4, types)


def test_all_nans_are_one_key() -> None:
    for text, bits in (("FLOAT", [0x7FC00000, 0xFFC00000, 0x7F800001]), ("DOUBLE", [0x7FF8 << 48, 0xFFFF << 48])):
        types = [parse_type(text)]
        column = pa.array(np.array(bits, "<u4" if text == "FLOAT" else "<u8").view("<f4" if text == "FLOAT" else "<f8"))
        assert set(encode_rows([column], types, with_arity=True).to_pylist()) == {encode_row((float("nan"),), types)}
        infinite = pa.array([np.inf, -np.inf], column.type)
        assert encode_rows([infinite], types, with_arity=True).to_pylist() == [
            encode_row((v,), types) for v in (float("inf"), float("-inf"))
        ]


def test_no_rows_in_no_rows_out() -> None:
    types = _types(("STRING", "INT", "DECIMAL(38, 0)", "TIMESTAMP(6)"))
    columns = [column_of([], t) for t in types]
    assert len(encode_rows(columns, types, with_arity=True)) == 0
    assert hash_rows(columns, types).type == pa.int32() and len(hash_rows(columns[1:2], types[1:2])) == 0
    assert len(hash_rows([pa.chunked_array([], pa.string())], types[:1])) == 0


def test_a_timestamp_finer_than_its_type_is_cut_down_to_milliseconds() -> None:
    types = [parse_type("TIMESTAMP(3)")]
    column = pa.array([-1], pa.timestamp("us"))
    assert encode_rows([column], types, with_arity=True)[0].as_py() == encode_row((Timestamp(-1, 0),), types)


def test_a_column_of_another_type_is_refused_with_its_position() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        hash_rows([pa.array([1]), pa.array(["1"])], _types(("BIGINT", "INT")))
    assert caught.value.fields["position"] == 1


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([2**40]), "INT"),
        (pa.array([0.1]), "FLOAT"),
        (pa.array([Decimal(10**9)], pa.decimal128(38, 0)), "DECIMAL(9, 0)"),
        (pa.array([Decimal("0.1")]), "DECIMAL(9, 0)"),
        (pa.array([1], pa.time64("us")), "TIME(3)"),
        (pa.array(["2024-01-01"]), "DATE"),
    ],
)
def test_a_column_that_would_lose_something_is_refused(column, text) -> None:
    with pytest.raises(SchemaMismatchError):
        encode_rows([column], _types((text,)), with_arity=True)


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        (pa.array([7], pa.int64()), "INT", 7),
        (pa.array([1.5], pa.float32()), "DOUBLE", 1.5),
        (pa.array([Decimal("1.50")]), "DECIMAL(30, 2)", Decimal("1.50")),
        (pa.array([Decimal("1.5")], pa.decimal256(60, 1)), "DECIMAL(9, 2)", Decimal("1.50")),
        (pa.array([2], pa.timestamp("s")), "TIMESTAMP(6)", Timestamp(2000, 0)),
        (pa.array([b"abc"], pa.binary(3)), "BINARY(3)", b"abc"),
        (pa.array([None], pa.null()), "TIMESTAMP(6)", None),
        (pa.array([None], pa.null()), "STRING", None),
    ],
)
def test_a_column_that_loses_nothing_is_taken(column, text, value) -> None:
    types = _types((text,))
    assert encode_rows([column], types, with_arity=True).to_pylist() == [encode_row((value,), types)]


def test_nested_types_are_refused_unless_null() -> None:
    nested = DataType(TypeRoot.ARRAY, element=parse_type("INT"))
    with pytest.raises(UnsupportedTableError):
        hash_rows([pa.array([[1]])], [nested])
    with pytest.raises(UnsupportedTableError):
        encode_row(([1],), [nested])
    assert decode_row(encode_row((None,), [nested]), [nested]) == (None,)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**31, "INT"),
        ("x", "INT"),
        (1, "STRING"),
        (Decimal("1.234"), "DECIMAL(9, 2)"),
        (Decimal(10**9), "DECIMAL(9, 2)"),
        (Decimal("NaN"), "DECIMAL(9, 2)"),
        (5, "TIMESTAMP(6)"),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused(value, text) -> None:
    with pytest.raises(SchemaMismatchError):
        encode_row((value,), [parse_type(text)])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "INT"),
        ("00000002" + ZEROS8 * 3, "INT"),
        ("00000001" + ZEROS8, "INT"),
        ("00000001" + ZEROS8 + "ff00000010000000", "STRING"),
        ("00000001" + ZEROS8 + "ff00000000000081", "STRING"),
        ("00000001" + ZEROS8 + "0000000010000000", "TIMESTAMP(6)"),
    ],
)
def test_bytes_that_are_no_such_row_are_corrupt(data, text) -> None:
    with pytest.raises(CorruptFileError):
        decode_row(bytes.fromhex(data), [parse_type(text)])


def test_murmur_of_rows_of_mixed_lengths_is_that_of_each_row() -> None:
    rows = [np.frombuffer(bytes(range(8 * (i * 7 % 13))), "<u4") for i in range(200)]
    counts = np.array([len(words) for words in rows])
    together = murmur_ragged(np.concatenate(rows), np.cumsum(counts) - counts, counts)
    assert together.tolist() == [murmur_words(words.reshape(1, -1))[0] for words in rows]
