"""Merging runs against a merge of one row at a time."""

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.merge.deduplicate import Deduplicate
from bucketline.state.lsm.merge.first_row import FirstRow
from bucketline.state.lsm.merge.fold import Fold, Selection, Starts, Visible
from bucketline.state.lsm.merge.merge_runs import merge_runs
from bucketline.state.lsm.tree.sort_keys import merge_order
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from tests.support.models.sweeps import draws

Row = dict[str, Any]

_TEXT = st.text(st.sampled_from("\0aé\U0001f600"), max_size=10)
_KEYS: dict[str, tuple[dict[str, pa.DataType], st.SearchStrategy[tuple[Any, ...]]]] = {
    "bigint": ({"_KEY_a": pa.int64()}, st.tuples(st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1]))),
    "double": ({"_KEY_a": pa.float64()}, st.tuples(st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("nan")]))),
    "text": ({"_KEY_a": pa.string()}, st.tuples(_TEXT)),
    "short bytes": ({"_KEY_a": pa.binary()}, st.tuples(st.binary(max_size=2))),
    "fixed bytes": ({"_KEY_a": pa.binary()}, st.tuples(st.sampled_from([b"0123456789\0", b"0123456789a"]))),
    "two columns": (
        {"_KEY_a": pa.string(), "_KEY_b": pa.int32()},
        st.tuples(st.sampled_from(["", "a", "a\0", "b"]), st.integers(-2, 2)),
    ),
}
_SEQUENCE_TYPES = {
    "u": (pa.int32(), st.none() | st.integers(-2, 2)),
    "t": (pa.string(), st.none() | st.sampled_from(["", "a", "a\0", "b"])),
}


class _Everything:
    """A fold that hides nothing: all rows, each with the number of rows of its key that it saw."""

    def fold(self, table: pa.Table, starts: Starts) -> pa.Table:
        return table.append_column("key_start", pa.array(starts))


def _key_rank(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        bits = 0x7FF8 << 48 if value != value else struct.unpack("<q", struct.pack("<d", value))[0]
        return bits ^ (2**63 - 1) if bits < 0 else bits
    return value


class _Backwards:
    """A value in the opposite order."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: "_Backwards") -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backwards) and bool(self.value == other.value)


def _sequence_rank(value: Any, descending: bool) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    rank = _key_rank(value)
    return (1, _Backwards(rank) if descending else rank)


@st.composite
def _cases(draw: st.DrawFn, *, unique: bool = True) -> dict[str, Any]:
    key_types, key = _KEYS[draw(st.sampled_from(sorted(_KEYS)))]
    fields = draw(st.sampled_from([(), ("u",), ("t",), ("u", "t")]))
    descending = draw(st.booleans())
    types = key_types | {SEQUENCE: pa.int64(), VALUE_KIND: pa.int8()} | {f: _SEQUENCE_TYPES[f][0] for f in fields}
    types |= {"run": pa.int32(), "row": pa.int32()}
    schema = pa.schema(list(types.items()))

    def age(row: Row) -> tuple[Any, ...]:
        return (*(_sequence_rank(row[f], descending) for f in fields), row[SEQUENCE])

    def rank(row: Row) -> tuple[Any, ...]:
        return tuple(_key_rank(row[k]) for k in key_types)

    runs: list[list[Row]] = []
    for number in range(draw(st.integers(1, 4))):
        rows = []
        for values in draw(st.lists(key, max_size=12)):
            row = dict(zip(key_types, values, strict=True))
            row |= {f: draw(_SEQUENCE_TYPES[f][1]) for f in fields}
            row |= {SEQUENCE: draw(st.integers(0, 4)), VALUE_KIND: draw(st.integers(0, 3)), "run": number}
            rows.append(row)
        rows.sort(key=lambda r: (rank(r), age(r)))
        if unique:
            rows = [next(group) for _, group in groupby(rows, rank)]
        runs.append([row | {"row": i} for i, row in enumerate(rows)])
    return {
        "schema": schema,
        "keys": list(key_types),
        "fields": fields,
        "descending": descending,
        "runs": runs,
        "cuts": draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)),
        "batch_rows": draw(st.integers(1, 9)),
        "sorted": sorted((r for run in runs for r in run), key=lambda r: (rank(r), age(r), r["run"], r["row"])),
        "rank": rank,
        "age": age,
    }


def _batches(rows: Sequence[Row], schema: pa.Schema, cuts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    start, turn = 0, 0
    while start < len(rows):
        size = cuts[turn % len(cuts)]
        yield pa.RecordBatch.from_pylist(rows[start : start + size], schema=schema)
        yield pa.RecordBatch.from_pylist([], schema=schema)
        start, turn = start + size, turn + 1


def _merged(case: dict[str, Any], fold: Fold) -> list[Row]:
    runs = [_batches(run, case["schema"], case["cuts"]) for run in case["runs"]]
    found = list(
        merge_runs(runs, case["keys"], case["fields"], case["descending"], fold, batch_rows=case["batch_rows"])
    )
    assert all(b.num_rows > 0 for b in found)
    if len(runs) > 1 or not isinstance(fold, Selection):
        assert all(b.num_rows <= case["batch_rows"] for b in found)
    return [row for b in found for row in b.to_pylist()]


def _places(rows: Sequence[Row]) -> list[tuple[int, int]]:
    return [(r["run"], r["row"]) for r in rows]


def _reference(case: dict[str, Any], *, first: bool, ignore_delete: bool) -> list[Row]:
    found = []
    for _, group in groupby(case["sorted"], case["rank"]):
        rows = list(group)
        if len(rows) > 1 and ignore_delete:
            rows = [r for r in rows if r[VALUE_KIND] in (0, 2)]
        elif len(rows) > 1 and first and any(r[VALUE_KIND] in (1, 3) for r in rows):
            raise SchemaMismatchError("a retract row in company")
        if rows:
            found.append(rows[0] if first else rows[-1])
    return found


@draws(300)
@given(_cases(), st.booleans())
def test_deduplicate_keeps_the_newest_row_of_each_key(case: dict[str, Any], ignore_delete: bool) -> None:
    expected = _reference(case, first=False, ignore_delete=ignore_delete)
    assert _places(_merged(case, Deduplicate(ignore_delete))) == _places(expected)


@draws(200)
@given(_cases(), st.booleans())
def test_first_row_keeps_the_oldest_row_of_each_key(case: dict[str, Any], ignore_delete: bool) -> None:
    fold = FirstRow(ignore_delete)
    try:
        expected = _reference(case, first=True, ignore_delete=ignore_delete)
    except SchemaMismatchError:
        with pytest.raises(SchemaMismatchError):
            _merged(case, fold)
        return
    assert _places(_merged(case, fold)) == _places(expected)


@draws(300)
@given(_cases(), st.booleans(), st.booleans())
def test_runs_that_come_oldest_first_need_no_sequence_numbers(
    case: dict[str, Any], first: bool, ignore_delete: bool
) -> None:
    """Of each key the row that readers see, if any, in the columns that they ask for."""
    numbered = [[r | {SEQUENCE: 5 * n + r[SEQUENCE]} for r in run] for n, run in enumerate(case["runs"])]
    rows = sorted((r for run in numbered for r in run), key=case["age"])
    case |= {"sorted": sorted(rows, key=case["rank"])}
    fold = Visible(FirstRow(ignore_delete) if first else Deduplicate(ignore_delete))
    schema = case["schema"].remove(case["schema"].get_field_index(SEQUENCE))
    runs = [_batches([{n: r[n] for n in schema.names} for r in run], schema, case["cuts"]) for run in case["runs"]]
    names = ["row", *case["keys"], "run"]
    merged = merge_runs(
        runs, case["keys"], case["fields"], case["descending"], fold, 9, columns=names, oldest_first=True
    )
    try:
        expected = _reference(case, first=first, ignore_delete=ignore_delete)
    except SchemaMismatchError:
        with pytest.raises(SchemaMismatchError):
            list(merged)
        return
    found = list(merged)
    assert all(b.schema.names == names and b.num_rows > 0 for b in found)
    assert _places([r for b in found for r in b.to_pylist()]) == _places(
        [r for r in expected if r[VALUE_KIND] in (0, 2)]
    )


@draws(300)
@given(_cases(unique=False))
def test_a_general_fold_sees_whole_keys_oldest_first(case: dict[str, Any]) -> None:
    """Runs may repeat keys here, over borders of record batches as well: what a fold that selects nothing leaves."""
    found = _merged(case, _Everything())
    assert _places(found) == _places(case["sorted"])
    ranks = [case["rank"](r) for r in case["sorted"]]
    assert [r["key_start"] for r in found] == [i == 0 or ranks[i - 1] != k for i, k in enumerate(ranks)]


@draws(200)
@given(
    st.lists(st.lists(st.binary(max_size=3) | st.text("\0ab", max_size=12).map(str.encode), min_size=1), min_size=1),
    st.sampled_from([0, 1 << 20]),
)
def test_byte_keys_are_ordered_alike_with_and_without_fixed_width_copies(pieces: list[list[bytes]], limit: int) -> None:
    pieces = [sorted(p) for p in pieces]
    order, starts = merge_order([pa.array(p, pa.large_binary()) for p in pieces], fixed_width_bytes=limit)
    keys = [k for p in pieces for k in p]
    expected = sorted(range(len(keys)), key=lambda i: (keys[i], i))
    assert (list(range(len(keys))) if order is None else order.tolist()) == expected
    ordered = [keys[i] for i in expected]
    assert starts.tolist() == [i == 0 or ordered[i - 1] != k for i, k in enumerate(ordered)]


def test_a_single_run_is_passed_through() -> None:
    schema = pa.schema({"_KEY_a": pa.int64(), SEQUENCE: pa.int64(), VALUE_KIND: pa.int8()})
    batch = pa.record_batch([[1, 2, 3], [0, 1, 2], [0, 0, 3]], schema=schema)
    assert next(merge_runs([iter([batch])], ["_KEY_a"], (), False, Deduplicate(), batch_rows=1)) is batch


def test_no_runs_merge_to_nothing() -> None:
    assert list(merge_runs([], ["_KEY_a"], (), False, Deduplicate(), batch_rows=1)) == []
    assert list(merge_runs([iter([]), iter([])], ["_KEY_a"], (), False, Deduplicate(), batch_rows=1)) == []


def test_only_one_batch_of_each_run_is_held() -> None:
    schema = pa.schema({"_KEY_a": pa.int64(), SEQUENCE: pa.int64(), VALUE_KIND: pa.int8()})
    asked = [0, 0]

    def run(number: int) -> Iterator[pa.RecordBatch]:
        for i in range(50):
            asked[number] += 1
            keys = [100 * i + 2 * j + number for j in range(50)]
            yield pa.record_batch([keys, [number] * 50, [0] * 50], schema=schema)

    merged = merge_runs([run(0), run(1)], ["_KEY_a"], (), False, Deduplicate(), batch_rows=100)
    next(merged)
    assert max(asked) <= 3
    assert sum(b.num_rows for b in merged) == 4900
    assert asked == [50, 50]
