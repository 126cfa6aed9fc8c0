"""Names on disk against those in Paimon's specification."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.state.format import paths
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.partition_text import double_text, float_text
from bucketline.state.types.binary_row import Timestamp, encode_row
from bucketline.state.types.logical import DataField, parse_type_text

EXAMPLE_TYPES = ("STRING", "DATE", "TIMESTAMP(6)", "DECIMAL(20, 3)", "BOOLEAN", "DOUBLE")
EXAMPLE_NAMES = ("p_s", "p_d", "p_ts", "p_dec", "p_b", "p_dbl")
EXAMPLE_PARTITION = bytes.fromhex(
    "00000006 0000000000000000 0f00000038000000 0b4d000000000000 40f5060048000000 0200000050000000 0100000000000000"
    "000000205fa00242 6120622f633a643d 6525662367c3a900 7bf451c28c010000 05dc" + 14 * "00"
)


def _schema(types: tuple[str, ...], names: tuple[str, ...] | None = None, **options: str) -> TableSchema:
    names = names or tuple(f"p{i}" for i in range(len(types)))
    fields = tuple(DataField(i, n, parse_type_text(t)) for i, (n, t) in enumerate(zip(names, types, strict=True)))
    options = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return TableSchema(0, fields, len(fields), partition_keys=names, options=options)


def _text(data_type: str, value: object, **options: str) -> str:
    schema = _schema((data_type,), **options)
    partition = encode_row([value], [f.type for f in schema.fields])
    return paths.partition_path(schema, partition).removeprefix("p0=").removesuffix("/")


def test_the_example_of_the_specification_has_javas_folder() -> None:
    found = paths.bucket_path(_schema(EXAMPLE_TYPES, EXAMPLE_NAMES), EXAMPLE_PARTITION, 0)
    expected_value = "a b%2Fc%3Ad%3De%25f%23gé"
    assert found == (
        f"p_s={expected_value}/p_d=19723/p_ts=2024-01-01T00%3A00%3A00.123456/p_dec=1.500/p_b=true/p_dbl=1.0E10/bucket-0"
    )


def test_exactly_the_listed_characters_are_escaped() -> None:
    escaped = [chr(c) for c in range(256) if paths.escape(chr(c)) != chr(c)]
    assert escaped == [*map(chr, range(0x20)), *"\"#%'*/:=?[\\]^{}", "\x7f"]
    assert paths.escape("\x00\x1f\x7f/[") == "%00%1F%7F%2F%5B"
    assert paths.escape("é <>|&+,;!~\u0085") == "é <>|&+,;!~\u0085"


@given(st.text())
def test_unescaping_undoes_escaping(text: str) -> None:
    assert paths.unescape(paths.escape(text)) == text
    assert "/" not in paths.escape(text)


def test_unescaping_keeps_a_percent_that_begins_no_escape() -> None:
    assert paths.unescape("100%/%zz%2f") == "100%/%zz/"


@pytest.mark.parametrize("value", [None, "", "  ", "\t\n", "\u2003"])
def test_null_empty_and_blank_values_share_the_default_folder(value: str | None) -> None:
    assert _text("STRING", value) == "__DEFAULT_PARTITION__"
    assert _text("STRING", value, partition__default_name="none:") == "none%3A"


def test_a_no_break_space_is_not_blank_to_java() -> None:
    assert _text("STRING", "\u00a0") == "\u00a0"


DAY_MS = 86_400_000
LEGACY_TEXTS = [
    ("BOOLEAN", True, "true"),
    ("BOOLEAN", False, "false"),
    ("TINYINT", -3, "-3"),
    ("BIGINT", 2**63 - 1, "9223372036854775807"),
    ("DATE", 19723, "19723"),
    ("DATE", -1, "-1"),
    ("TIME(3)", 3_600_000, "3600000"),
    ("DOUBLE", 1e10, "1.0E10"),
    ("DOUBLE", 0.1, "0.1"),
    ("DOUBLE", float("nan"), "NaN"),
    ("FLOAT", 1.0, "1.0"),
    ("TIMESTAMP(3)", Timestamp(1704067200000, 0), "2024-01-01T00%3A00"),
    ("TIMESTAMP(3)", Timestamp(60_000, 0), "1970-01-01T00%3A01"),
    ("TIMESTAMP(3)", Timestamp(1_000, 0), "1970-01-01T00%3A00%3A01"),
    ("TIMESTAMP(3)", Timestamp(5, 0), "1970-01-01T00%3A00%3A00.005"),
    ("TIMESTAMP(6)", Timestamp(1704067200123, 456_000), "2024-01-01T00%3A00%3A00.123456"),
    ("TIMESTAMP(9)", Timestamp(1704067200123, 456_789), "2024-01-01T00%3A00%3A00.123456789"),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", Timestamp(-1, 0), "1969-12-31T23%3A59%3A59.999"),
    ("TIMESTAMP(3)", Timestamp(2932897 * DAY_MS, 0), "+10000-01-01T00%3A00"),
    ("TIMESTAMP(3)", Timestamp(-719529 * DAY_MS, 0), "-0001-12-31T00%3A00"),
]
CAST_TEXTS = [
    ("DATE", 19723, "2024-01-01"),
    ("DATE", -1, "1969-12-31"),
    ("TIME(3)", 3_600_000, "01%3A00%3A00.0"),
    ("TIME(3)", 3_600_120, "01%3A00%3A00.12"),
    ("TIME(0)", 3_600_000, "01%3A00%3A00"),
    ("TIMESTAMP(6)", Timestamp(1704067200123, 456_000), "2024-01-01 00%3A00%3A00.123456"),
    ("TIMESTAMP(6)", Timestamp(0, 0), "1970-01-01 00%3A00%3A00.000000"),
    ("TIMESTAMP(0)", Timestamp(1_000, 0), "1970-01-01 00%3A00%3A01"),
    ("BYTES", b"ab/", "ab%2F"),
    ("DOUBLE", 1e10, "1.0E10"),
    ("BOOLEAN", True, "true"),
]


@pytest.mark.parametrize(("data_type", "value", "expected"), LEGACY_TEXTS)
def test_legacy_names_hold_javas_text_of_the_internal_value(data_type: str, value: object, expected: str) -> None:
    assert _text(data_type, value) == expected


@pytest.mark.parametrize(("data_type", "value", "expected"), CAST_TEXTS)
def test_other_names_hold_the_value_cast_to_string(data_type: str, value: object, expected: str) -> None:
    assert _text(data_type, value, partition__legacy_name="false") == expected


@pytest.mark.parametrize(("text", "expected"), [("1.500", "1.500"), ("-0.001", "-0.001"), ("0", "0.000")])
def test_decimals_show_their_full_scale(text: str, expected: str) -> None:
    assert _text("DECIMAL(9, 3)", Decimal(text)) == expected
    assert _text("DECIMAL(38, 3)", Decimal(text)) == expected


@pytest.mark.parametrize(
    ("data_type", "value", "legacy"),
    [
        ("BYTES", b"x", "true"),
        ("BYTES", b"\xff", "false"),
    ],
)
def test_values_whose_text_depends_on_the_jvm_are_refused(data_type: str, value: object, legacy: str) -> None:
    with pytest.raises(UnsupportedTableError, match="partition column of type"):
        _text(data_type, value, partition__legacy_name=legacy)


def test_files_under_a_time_in_the_writers_zone_are_looked_for_under_utc_and_never_added() -> None:
    kind = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
    schema = _schema((kind,), partition__legacy_name="false")
    moment = encode_row((Timestamp(-1, 0),), [parse_type_text(kind)])
    # As Paimon Java names it in UTC.
    assert paths.bucket_path(schema, moment, 0) == "p0=1969-12-31 23%3A59%3A59.999/bucket-0"
    with pytest.raises(UnsupportedTableError, match="partition column of type"):
        paths.new_file_folder(schema, moment, 0)
    nothing = encode_row((None,), [parse_type_text(kind)])
    assert paths.new_file_folder(schema, nothing, 0) == "p0=__DEFAULT_PARTITION__/bucket-0"
    assert paths.new_file_folder(_schema((kind,)), moment, 0) == "p0=1969-12-31T23%3A59%3A59.999/bucket-0"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.25e-5, "-1.25E-5"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("-inf"), "-Infinity"),
        (5e-324, "4.9E-324"),
        (-5e-323, "-4.9E-323"),
        (2e-323, "2.0E-323"),
        (1e22, "1.0E22"),
        (3e-5, "3.0E-5"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, expected: str) -> None:
    assert double_text(value) == expected


def test_floats_have_the_digits_that_tell_them_from_other_floats() -> None:
    assert float_text(float(np.float32(0.1))) == "0.1"
    assert float_text(float(np.float32(3.4028235e38))) == "3.4028235E38"
    assert float_text(16777216.0) == "1.6777216E7"
    assert float_text(2.0**-149) == "1.4E-45"


def test_bucket_folders_are_named_and_partitions_read_from_them() -> None:
    schema = _schema(("STRING",), **{"data-file__path-directory": "data"})
    partition = encode_row(["a"], [schema.fields[0].type])
    assert paths.bucket_path(schema, partition, 3) == "data/p0=a/bucket-3"
    assert paths.bucket_path(_schema(()), bytes(12), paths.POSTPONE_BUCKET) == "bucket-postpone"
    assert paths.partition_path(_schema(()), bytes(12)) == ""
    assert paths.parse_partition_path("k=a%2Fb/k%3D2=v=w/bucket-0") == (("k", "a/b"), ("k=2", "v=w"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data-u-0.parquet", "parquet"),
        ("data-u-0.zstd.parquet", "parquet"),
        ("changelog-u-0.orc", "orc"),
        ("data-u-0.csv.gz", "csv"),
        ("data--u-user-s-1-w-u-0.avro", "avro"),
    ],
)
def test_the_file_format_is_the_extension(name: str, expected: str) -> None:
    assert paths.extension_of(name) == expected


@pytest.mark.parametrize("name", ["data-u-0", "data-u-0.", ""])
def test_a_name_without_extension_is_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match="file format"):
        paths.extension_of(name)


def test_file_names_follow_the_patterns() -> None:
    assert paths.data_file_name("data-", "uuid", 2, "parquet") == "data-uuid-2.parquet"
    assert paths.manifest_name("uuid", 1) == "manifest-uuid-1"
    assert paths.manifest_list_name("uuid", 0) == "manifest-list-uuid-0"
    assert paths.index_manifest_name("uuid", 0) == "index-manifest-uuid-0"
    assert paths.index_file_name("uuid", 0) == "index-uuid-0"
    assert paths.temporary_name("snapshot-3", "uuid") == ".snapshot-3.uuid.tmp"


def test_postponed_files_name_their_writer() -> None:
    prefix = paths.postpone_prefix("data-", "d45ad49f", 516751748)
    assert prefix == "data--u-d45ad49f-s-516751748-w-"


def test_ids_are_read_back_and_strays_are_not() -> None:
    assert paths.parse_snapshot_id(paths.snapshot_name(12)) == 12
    assert paths.parse_schema_id(paths.schema_name(0)) == 0
    assert paths.parse_changelog_id(paths.changelog_name(7)) == 7
    strays = [paths.LATEST, "snapshot-1.bak", ".snapshot-2.u.tmp", "snapshot-", "snapshot--1", "snapshot-١", "2"]
    assert [paths.parse_snapshot_id(n) for n in strays] == [None] * len(strays)
    assert paths.parse_tag(paths.tag_name("tag-a")) == "tag-a"
    assert paths.parse_tag("LATEST") is None
