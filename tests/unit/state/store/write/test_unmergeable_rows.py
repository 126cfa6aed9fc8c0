"""A row that could never be merged is refused when it arrives: stored, it would let no read and no compaction pass."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap, BitMap64

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.index.art_bitmap64 import encode_bitmap64
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.store.write.row_acceptance import RowAcceptance

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("g", pa.int32())])


def table(path: Path, **options: str) -> Table:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return create_table(
        str(path / "t"), COLUMNS, ("id",), options={"bucket": "1", "merge-engine": "partial-update", **named}
    )


def rows(*kinds: int) -> pa.Table:
    count = len(kinds)
    found = pa.table({"id": range(count), "v": range(count), "g": range(count)}, schema=pa.schema(list(COLUMNS)))
    return found.append_column("_row_kind", pa.array(kinds, pa.int8()))


@pytest.mark.parametrize("kind", [1, 3])
def test_a_lone_retract_is_refused_and_nothing_is_written(tmp_path: Path, kind: int) -> None:
    found = table(tmp_path)
    found.write(rows(0))
    with pytest.raises(SchemaMismatchError, match="partial-update takes no -D and -U rows"):
        found.write(rows(2, kind))
    assert found.snapshots().num_rows == 1 and found.to_arrow().num_rows == 1


def refused(found: Table, data: pa.Table) -> list[str | None]:
    """Why each row of the data is refused, None for those that are taken; the rows have ids 0 to n - 1."""
    accepted_rows, bad = RowAcceptance(handle_of(found).table_schema).accept_good(data)
    reasons: list[str | None] = [None] * data.num_rows
    for part, texts in bad:
        for row, text in zip(part["id"].to_pylist(), texts.to_pylist(), strict=True):
            reasons[row] = text
    taken = [i for i, text in enumerate(reasons) if text is None]
    assert set(accepted_rows.rows["id"].to_pylist()) <= set(taken)
    return reasons


def test_it_is_a_bad_record_of_a_stream(tmp_path: Path) -> None:
    assert [r is None for r in refused(table(tmp_path), rows(0, 3, 1, 2))] == [True, False, False, True]


@pytest.mark.parametrize(
    "options",
    [
        {"ignore_delete": "true"},
        {"partial_update__remove_record_on_delete": "true", "ignore_update_before": "true"},
        {"fields__g__sequence_group": "v"},
        {"merge_engine": "aggregation", "fields__v__aggregate_function": "sum"},
        {"merge_engine": "aggregation", "fields__v__aggregate_function": "max", "fields__v__ignore_retract": "true"},
        {"merge_engine": "first-row", "ignore_delete": "true"},
        {"merge_engine": "deduplicate"},
    ],
)
def test_a_table_with_a_rule_for_it_takes_it(tmp_path: Path, options: dict[str, str]) -> None:
    found = table(tmp_path, **options)
    assert refused(found, rows(0, 3, 1)) == [None] * 3
    found.write(rows(0, 3, 1))
    found.write(rows(0, 3, 1))
    found.compact()
    assert found.to_arrow().num_rows >= 1


def test_before_images_that_are_dropped_anyway_do_no_harm(tmp_path: Path) -> None:
    found = table(tmp_path, ignore_update_before="true")
    assert refused(found, rows(0, 1)) == [None, None]
    found.write(rows(0, 1))
    assert found.to_arrow()["id"].to_pylist() == [0]


def test_a_row_after_a_dropped_one_is_refused_under_its_own_value(tmp_path: Path) -> None:
    found = table(tmp_path, ignore_update_before="true")
    assert [r is None for r in refused(found, rows(1, 0, 1, 3, 0))] == [True, True, True, False, True]


@pytest.mark.parametrize(
    ("engine", "function", "named"),
    [
        ("aggregation", "max", "column v: aggregate function 'max' cannot retract"),
        ("aggregation", "bool_or", "column flag: aggregate function 'bool_or' cannot retract"),
        ("aggregation", "first_value", "column v: aggregate function 'first_value' cannot retract"),
        ("first-row", "", "first-row takes no -D and -U rows"),
    ],
)
@pytest.mark.parametrize("kind", [1, 3])
def test_a_retract_that_nothing_can_take_back_is_refused(
    tmp_path: Path, engine: str, function: str, named: str, kind: int
) -> None:
    columns = pa.schema([*COLUMNS, ("flag", pa.bool_())])
    column = "flag" if function.startswith("bool") else "v"
    choice = {f"fields.{column}.aggregate-function": function} if function else {}
    path, options = str(tmp_path / "t"), {"bucket": "1", "merge-engine": engine, **choice}
    found = create_table(path, columns, ("id",), options=options)
    data = rows(0, kind).append_column("flag", pa.array([True, False]))
    with pytest.raises(SchemaMismatchError, match=named):
        found.write(data)
    assert found.snapshots().num_rows == 0
    first, second = refused(found, data)
    assert first is None and second is not None and named in second


def test_a_delete_that_removes_the_row_asks_nothing_of_the_functions(tmp_path: Path) -> None:
    options = {"fields__v__aggregate_function": "max", "aggregation__remove_record_on_delete": "true"}
    found = table(tmp_path, merge_engine="aggregation", **options)
    assert [r is None for r in refused(found, rows(0, 3, 1))] == [True, True, False]


@pytest.mark.parametrize(
    ("function", "good"),
    [("rbm32", BitMap([1, 7]).serialize()), ("rbm64", encode_bitmap64(BitMap64([1, 1 << 40])))],
)
def test_bytes_that_are_no_bitmap_are_refused(tmp_path: Path, function: str, good: bytes) -> None:
    columns = pa.schema([COLUMNS.field("id"), ("seen", pa.binary())])
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.seen.aggregate-function": function}
    found = create_table(str(tmp_path / "t"), columns, ("id",), options=options)
    data = pa.table({"id": range(4), "seen": [good, b"no bitmap", None, good[:-1]]}, schema=columns)
    assert [r is None for r in refused(found, data)] == [True, False, True, False]
    with pytest.raises(SchemaMismatchError, match="column seen: a value cannot be united with others"):
        found.write(data)
    found.write(data.filter(pc.less(data["id"], 1)))
    found.write(data.filter(pc.less(data["id"], 1)))
    assert found.to_arrow()["seen"].to_pylist() == [good]


def test_values_that_cannot_be_taken_back_are_refused(tmp_path: Path) -> None:
    columns = pa.schema([COLUMNS.field("id"), ("total", pa.int8()), ("times", pa.int32()), ("f", pa.float64())])
    functions = {"total": "sum", "times": "product", "f": "product"}
    options = {f"fields.{c}.aggregate-function": f for c, f in functions.items()}
    options |= {"bucket": "1", "merge-engine": "aggregation"}
    found = create_table(str(tmp_path / "t"), columns, ("id",), options=options)
    data = pa.table(
        {"id": range(4), "total": [-128, -128, 1, 1], "times": [0, 1, 0, 1], "f": [0.0] * 4}, schema=columns
    ).append_column("_row_kind", pa.array([0, 3, 3, 3], pa.int8()))
    first, second, third, fourth = refused(found, data)
    assert first is None and fourth is None
    assert second is not None and "the sum of its values does not fit 8 bits" in second
    assert third is not None and "a product cannot retract a zero" in third


def test_nested_rows_are_checked_as_their_options_ask(tmp_path: Path) -> None:
    item = pa.struct([("k", pa.int32()), ("x", pa.int32())])
    columns = pa.schema([COLUMNS.field("id"), ("items", pa.list_(item)), ("few", pa.list_(item))])
    options = {
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.items.nested-key": "k",
        "fields.few.count-limit": "2",
    }
    options |= {"fields.items.nested-key-null-strategy": "error"}
    options |= {f"fields.{c}.aggregate-function": "nested_update" for c in ("items", "few")}
    found = create_table(str(tmp_path / "t"), columns, ("id",), options=options)
    whole, broken = [{"k": 1, "x": 1}], [{"k": 2, "x": 2}, {"k": None, "x": 3}]
    data = pa.table(
        {"id": range(5), "items": [whole, broken, None, [], whole], "few": [whole, None, None, whole, None]},
        schema=columns,
    ).append_column("_row_kind", pa.array([0, 0, 0, 3, 3], pa.int8()))
    reasons = refused(found, data)
    assert [r is None for r in reasons] == [True, False, True, False, True]
    assert reasons[1] is not None and "a nested row has null in its key" in reasons[1]
    assert reasons[3] is not None and "takes no -U and -D rows" in reasons[3]


def test_in_a_sequence_group_a_retract_counts_only_where_it_has_a_sequence(tmp_path: Path) -> None:
    columns = pa.schema([*COLUMNS, ("w", pa.int32())])
    options = {"fields.g.sequence-group": "v", "fields.v.aggregate-function": "max"}
    options |= {"bucket": "1", "merge-engine": "partial-update"}
    found = create_table(str(tmp_path / "t"), columns, ("id",), options=options)
    data = pa.table(
        {"id": range(3), "v": [1, 2, 3], "g": [1, 2, None], "w": [1, 1, 1], "_row_kind": pa.array([0, 3, 3], pa.int8())}
    )
    assert [r is None for r in refused(found, data)] == [True, False, True]
