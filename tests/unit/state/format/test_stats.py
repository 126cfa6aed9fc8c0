"""Column statistics: bounds as Java has them, cut to the mode's length."""

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.conf.table.stats_mode import StatsKind, StatsMode, parse_stats_mode
from bucketline.conf.table.table_settings import TableSettings
from bucketline.state.format.data_file import EMPTY_STATS, SimpleStats
from bucketline.state.format.stats import (
    KEY_MODE,
    ColumnStats,
    collect_stats,
    stats_modes,
    truncate_max,
    truncate_min,
    unknown_stats,
)
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import Timestamp, decode_row
from bucketline.state.types.logical import DataField, DataType, TypeRoot, parse_type_text

TRUNCATE = parse_stats_mode("truncate(16)")
ARRAY = DataType(TypeRoot.ARRAY, element=DataType(TypeRoot.INT))


def _field(name: str, data_type: str | DataType, field_id: int = 0) -> DataField:
    return DataField(field_id, name, parse_type_text(data_type) if isinstance(data_type, str) else data_type)


def _stats(data_type: str | DataType, values: Sequence[Any], mode: StatsMode = TRUNCATE) -> ColumnStats:
    field = _field("c", data_type)
    return collect_stats(pa.table({"c": pa.array(values, arrow_type(field.type))}), [field], [mode])


def _bounds(stats: ColumnStats) -> tuple[object, object, int | None]:
    simple = stats.to_full_stats()
    types = [f.type for f in stats.fields]
    assert simple.null_counts is not None
    return (
        decode_row(simple.min_values, types)[0],
        decode_row(simple.max_values, types)[0],
        simple.null_counts[0],
    )


def test_two_columns_have_javas_bytes() -> None:
    fields = [_field("a", "INT NOT NULL"), _field("b", "STRING", 1)]
    table = pa.table({"a": pa.array(range(20), pa.int32()), "b": [f"v{i}" for i in range(10)] * 2})
    stats, columns = collect_stats(table, fields, [TRUNCATE, TRUNCATE]).to_simple_stats()
    assert columns is None
    assert stats == SimpleStats(
        bytes.fromhex("00000002 0000000000000000 0000000000000000 7630000000000082"),
        bytes.fromhex("00000002 0000000000000000 1300000000000000 7639000000000082"),
        (0, 0),
    )


def test_text_is_cut_by_code_points_and_the_maximum_rounds_up() -> None:
    assert _bounds(_stats("STRING", ["y" * 36])) == ("y" * 16, "y" * 15 + "z", 0)
    assert _bounds(_stats("STRING", ["y" * 16])) == ("y" * 16, "y" * 16, 0)
    assert _bounds(_stats("STRING", ["\U0001f600" * 17])) == ("\U0001f600" * 16, "\U0001f600" * 15 + "\U0001f601", 0)


def test_a_maximum_that_cannot_grow_leaves_both_bounds_unknown() -> None:
    assert _bounds(_stats("STRING", ["a", "\U0010ffff" * 17])) == (None, None, 0)
    assert _bounds(_stats("BYTES", [b"a", b"\xff" * 17, None])) == (None, None, 1)


def test_a_maximum_grows_where_it_can() -> None:
    assert truncate_max("ab\U0010ffffx", 3) == "ac"
    assert truncate_max("\ud7ffxx", 1) == "\ue000"
    assert truncate_max(b"ab\xffx", 3) == b"ac"
    assert truncate_max("abc", 3) == "abc"
    assert truncate_max(7, 1) == 7


def test_the_full_mode_cuts_nothing_and_counts_keeps_no_bounds() -> None:
    assert _bounds(_stats("STRING", ["y" * 36], parse_stats_mode("full"))) == ("y" * 36, "y" * 36, 0)
    assert _bounds(_stats("STRING", ["y", None], parse_stats_mode("counts"))) == (None, None, 1)


@given(st.text(min_size=1), st.integers(1, 4))
def test_cut_text_still_bounds_it(text: str, length: int) -> None:
    low, high = truncate_min(text, length), truncate_max(text, length)
    assert isinstance(low, str) and len(low) <= length and low.encode() <= text.encode()
    if high is None:
        assert set(text[:length]) == {"\U0010ffff"}
    else:
        assert isinstance(high, str) and len(high) <= length and high.encode() >= text.encode()


@given(st.binary(min_size=1), st.integers(1, 4))
def test_cut_bytes_still_bound_them(data: bytes, length: int) -> None:
    low, high = truncate_min(data, length), truncate_max(data, length)
    assert isinstance(low, bytes) and len(low) <= length and low <= data
    if high is None:
        assert set(data[:length]) == {0xFF}
    else:
        assert isinstance(high, bytes) and len(high) <= length and high >= data


@pytest.mark.parametrize(
    ("data_type", "values", "low", "high"),
    [
        ("BOOLEAN", [True, None, False], False, True),
        ("TINYINT", [-128, 127], -128, 127),
        ("BIGINT", [-(2**63), 2**63 - 1], -(2**63), 2**63 - 1),
        ("DECIMAL(9, 2)", [Decimal("-1.50"), Decimal("2.25")], Decimal("-1.50"), Decimal("2.25")),
        ("DECIMAL(38, 10)", [Decimal("-1.5"), Decimal("9e27")], Decimal("-1.5"), Decimal("9e27")),
        ("DATE", [datetime.date(1969, 12, 31), datetime.date(2024, 1, 1)], -1, 19723),
        ("TIME(3)", [datetime.time(1), datetime.time(2)], 3_600_000, 7_200_000),
        ("TIMESTAMP(3)", [datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)], Timestamp(-1, 0), Timestamp(-1, 0)),
        (
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            [datetime.datetime(2024, 1, 1, 0, 0, 0, 123456)],
            Timestamp(1704067200123, 456_000),
            Timestamp(1704067200123, 456_000),
        ),
        ("STRING", ["b", "a\0", "é", "\U00010000", "\uffff"], "a\0", "\U00010000"),
        ("BYTES", [b"", b"\xff", b"\x7f"], None, None),
        ("FLOAT", [1.5, -2.5], -2.5, 1.5),
    ],
)
def test_bounds_are_internal_values(data_type: str, values: list[Any], low: object, high: object) -> None:
    assert _bounds(_stats(data_type, values))[:2] == (low, high)


def test_any_nan_leaves_the_bounds_unknown_for_good() -> None:
    unknown = _stats("DOUBLE", [1.0, float("nan"), None])
    assert _bounds(unknown) == (None, None, 1)
    assert _bounds(unknown.merge(_stats("DOUBLE", [2.0]))) == (None, None, 1)
    assert _bounds(_stats("DOUBLE", [2.0]).merge(unknown)) == (None, None, 1)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([0.0, -0.0], "-0.0", "0.0"),
        ([-0.0, -1.0], "-1.0", "-0.0"),
        ([0.0, 1.0], "0.0", "1.0"),
        ([-0.0, 1.0, None], "-0.0", "1.0"),
    ],
)
def test_zeros_keep_their_order(values: list[float], low: str, high: str) -> None:
    assert [repr(b) for b in _bounds(_stats("DOUBLE", values))[:2]] == [low, high]
    parts = [_stats("DOUBLE", [v]) for v in values]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    assert [repr(b) for b in _bounds(merged)[:2]] == [low, high]


def test_nanosecond_timestamps_have_counts_only() -> None:
    assert _bounds(_stats("TIMESTAMP(9)", [datetime.datetime(2024, 1, 1), None])) == (None, None, 1)


def test_columns_without_values_have_counts_only_and_take_what_comes() -> None:
    nothing = _stats("INT", [None, None])
    assert _bounds(nothing) == (None, None, 2)
    assert _bounds(nothing.merge(_stats("INT", [5]))) == (5, 5, 2)
    assert _bounds(_stats("INT", []).merge(nothing)) == (None, None, 2)


@given(
    st.lists(st.text(max_size=3) | st.none(), max_size=8),
    st.lists(st.text(max_size=3) | st.none(), max_size=8),
    st.sampled_from(["truncate(1)", "truncate(2)", "full", "counts"]),
)
def test_merging_parts_is_collecting_the_whole(one: list[str | None], other: list[str | None], text: str) -> None:
    mode = parse_stats_mode(text)
    whole = _stats("STRING", one + other, mode)
    merged = _stats("STRING", one, mode).merge(_stats("STRING", other, mode))
    assert merged == whole
    assert merged.to_simple_stats() == whole.to_simple_stats()


def test_columns_without_statistics_are_left_out_of_the_dense_form() -> None:
    fields = [_field("a", "INT"), _field("n", ARRAY, 1), _field("b", "STRING", 2), _field("x", "INT", 3)]
    modes = [TRUNCATE, TRUNCATE, parse_stats_mode("counts"), parse_stats_mode("none")]
    table = pa.table(
        {
            "x": pa.array([1, 2], pa.int32()),
            "b": ["p", None],
            "n": pa.array([[1], None], pa.list_(pa.int32())),
            "a": pa.array([4, 3], pa.int32()),
        }
    )
    collected = collect_stats(table, fields, modes)
    stats, columns = collected.to_simple_stats()
    assert columns == ("a", "b")
    assert decode_row(stats.min_values, [fields[0].type, fields[2].type]) == (3, None)
    assert decode_row(stats.max_values, [fields[0].type, fields[2].type]) == (4, None)
    assert stats.null_counts == (0, 1)
    full = collected.to_full_stats()
    assert full.null_counts == (0, None, 1, None)
    assert decode_row(full.min_values, [f.type for f in fields]) == (3, None, None, None)


def test_no_statistics_at_all_are_empty_with_no_columns() -> None:
    assert _stats("INT", [1], parse_stats_mode("none")).to_simple_stats() == (EMPTY_STATS, ())


def test_unknown_statistics_have_one_null_for_every_field() -> None:
    stats = unknown_stats([_field("a", "INT NOT NULL"), _field("b", "STRING")])
    assert stats.null_counts == (None, None)
    assert stats.min_values == stats.max_values == bytes.fromhex("00000002 0003000000000000" + 32 * "0")


@pytest.mark.parametrize(
    ("text", "kind", "length"),
    [
        ("none", StatsKind.NONE, None),
        ("COUNTS", StatsKind.COUNTS, None),
        ("truncate(16)", StatsKind.TRUNCATE, 16),
        ("TRUNCATE(128)", StatsKind.TRUNCATE, 128),
        ("Full", StatsKind.FULL, None),
    ],
)
def test_modes_are_parsed_in_any_case(text: str, kind: StatsKind, length: int | None) -> None:
    assert parse_stats_mode(text) == StatsMode(kind, length)


@pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "all"])
def test_other_modes_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="must be none, counts"):
        parse_stats_mode(text)


def test_options_choose_the_mode_of_each_column() -> None:
    fields = [_field(n, "INT", i) for i, n in enumerate("abcd")]
    options = {
        "metadata.stats-mode": "counts",
        "metadata.stats-mode.per.level": "0:none,5:full",
        "metadata.stats-keep-first-n-columns": "2",
        "fields.d.stats-mode": "truncate(4)",
    }
    kinds = {
        level: [m.kind.value for m in stats_modes(fields, TableSettings(options), level)] for level in (None, 0, 1, 5)
    }
    assert kinds == {
        None: ["counts", "counts", "none", "truncate"],
        0: ["none", "none", "none", "truncate"],
        1: ["counts", "counts", "none", "truncate"],
        5: ["full", "full", "none", "truncate"],
    }
    assert stats_modes(fields[:1], TableSettings({})) == (TRUNCATE,)
    with pytest.raises(OptionError, match="keep-first-n"):
        stats_modes(fields, TableSettings({"metadata.stats-keep-first-n-columns": "x"}))


def test_statistics_of_keys_are_taken_from_those_of_the_columns_where_these_are_whole() -> None:
    fields = [_field("k", "STRING NOT NULL"), _field("v", "INT", 1)]
    table = pa.table({"k": ["a" * 200, "z" * 200], "v": pa.array([1, None], pa.int32())})
    whole = collect_stats(table, fields, [TRUNCATE, TRUNCATE])
    assert whole.of_keys(fields[:1]) == collect_stats(table, fields[:1], [KEY_MODE])
    counted = collect_stats(table, fields, [StatsMode(StatsKind.COUNTS), TRUNCATE])
    assert counted.of_keys(fields[:1]) is None
