"""CHAR(n) has blanks up to its length wherever it is written, compared or read, as in Paimon's Spark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketline as bl
from bucketline.state.bucket.defaults import default_scalar
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.state.types.char_text import is_padded, pad, padded, upper_bound
from bucketline.state.types.logical import DataField, parse_type_text

CHAR4 = parse_type_text("CHAR(4)")
FORMS = ["ab", "ab ", "ab  ", "ab    "]


def table(path: Path, columns: str, *key: str, partitions: tuple[str, ...] = (), **options: str) -> Table:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return create_table(
        str(path / "w/d.db/t"),
        columns,
        key,
        partition_by=partitions,
        options={"bucket": "2", **named} if key else named,
    )


def rows(**columns: list[Any]) -> pa.Table:
    return pa.table({name: pa.array(v, pa.string() if name != "v" else pa.int32()) for name, v in columns.items()})


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("bucket", ["3", "-1", "-2"])
def test_one_value_is_one_key_however_many_blanks_it_came_with(tmp_path: Path, bucket: str, file_format: str) -> None:
    found = table(tmp_path, "c CHAR(4) NOT NULL, v INT", "c", bucket=bucket, file__format=file_format)
    for v, form in enumerate(FORMS):
        found.write(rows(c=[form], v=[v]))
        found.compact()
    assert found.to_arrow().to_pylist() == [{"c": "ab  ", "v": 3}] and found.doctor(rows=True) == []


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_one_value_is_one_partition(tmp_path: Path, bucket: str) -> None:
    found = table(tmp_path, "c CHAR(4) NOT NULL, k STRING NOT NULL, v INT", "c", "k", partitions=("c",), bucket=bucket)
    for v, form in enumerate(FORMS):
        found.write(rows(c=[form], k=["x"], v=[v]))
    assert [p.name for p in Path(found.path.removeprefix("file:")).glob("c=*")] == ["c=ab  "]
    assert found.to_arrow(filter="c = 'ab'").to_pylist() == [{"c": "ab  ", "k": "x", "v": 3}]
    found.overwrite(rows(c=["ab"], k=["y"], v=[5]), partition={"c": "ab "})
    assert found.to_arrow().to_pylist() == [{"c": "ab  ", "k": "y", "v": 5}]
    found.drop_partitions([{"c": "ab"}])
    assert found.to_arrow().num_rows == 0


def test_a_key_in_any_partition_is_found_with_its_blanks(tmp_path: Path) -> None:
    found = table(tmp_path, "p STRING NOT NULL, c CHAR(4) NOT NULL, v INT", "c", partitions=("p",), bucket="-1")
    found.write(rows(p=["1"], c=["ab"], v=[1]))
    found.write(rows(p=["2"], c=["ab   "], v=[2]))
    assert found.to_arrow().to_pylist() == [{"p": "2", "c": "ab  ", "v": 2}]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("c = 'ab'", [1]),
        ("c = 'ab      '", [1]),
        ("'ab ' = c", [1]),
        ("c <> 'ab'", [2]),
        ("c IN ('ab', 'x')", [1]),
        ("c NOT IN ('ab')", [2]),
        ("c > 'ab'", [2]),
        ("c <= 'ab'", [1]),
        ("c BETWEEN 'ab' AND 'ab'", [1]),
        ("c = 'abcde'", []),
        ("c LIKE 'ab'", []),
        ("c LIKE 'ab%'", [1]),
    ],
)
@pytest.mark.parametrize("key", [(), ("c",)])
def test_literals_are_compared_with_blanks_and_patterns_are_not(
    tmp_path: Path, key: tuple[str, ...], condition: str, expected: list[int]
) -> None:
    found = table(tmp_path, "c CHAR(4) NOT NULL, v INT", *key)
    found.write(rows(c=["ab", "cd"], v=[1, 2]))
    assert sorted(found.to_arrow(filter=condition)["v"].to_pylist()) == expected
    sql = f"SELECT v FROM d.t WHERE {condition} ORDER BY v"
    assert bl.sql(None, sql, warehouse=str(tmp_path / "w")).to_pydict() == {"v": expected}


def test_an_arrow_filter_compares_what_a_read_gives(tmp_path: Path) -> None:
    found = table(tmp_path, "c CHAR(4), v INT")
    found.write(rows(c=["ab", None, "abcd"], v=[1, 2, 3]))
    assert found.to_arrow()["c"].to_pylist() == ["ab  ", None, "abcd"]
    assert found.to_arrow(filter=pc.field("c") == "ab  ")["v"].to_pylist() == [1]


def test_changes_of_rows_have_blanks_as_well(tmp_path: Path) -> None:
    found = table(tmp_path, "k STRING NOT NULL, c CHAR(4), v INT", "k")
    found.write(rows(k=["1", "2", "3"], c=["ab", "cd", "ef"], v=[1, 2, 3]))
    found.update("c = 'ab'", {"c": "x"})
    found.delete("c = 'cd'")
    found.merge(rows(k=["3", "4"], c=["g", "h"], v=[3, 4]), on=["k"], when_matched={"c": bl.expr("source.c")})
    assert sorted(found.to_arrow()["c"].to_pylist()) == ["g   ", "h   ", "x   "]
    bl.sql(None, "INSERT INTO d.t VALUES ('5', 'i', 5)", warehouse=str(tmp_path / "w"))
    bl.sql(None, "UPDATE d.t SET c = 'j' WHERE c = 'i '", warehouse=str(tmp_path / "w"))
    bl.sql(None, "UPDATE d.t SET c = lower('J'), v = 6 WHERE c = 'j' AND v + 1 = 6", warehouse=str(tmp_path / "w"))
    assert open_table(found.path).to_arrow(filter="v = 6")["c"].to_pylist() == ["j   "]


def test_a_merge_finds_rows_by_a_key_without_blanks(tmp_path: Path) -> None:
    found = table(tmp_path, "c CHAR(4) NOT NULL, v INT", "c")
    found.write(rows(c=["ab"], v=[1]))
    found.merge(rows(c=["ab", "x "], v=[7, 8]), on=["c"], when_matched={"v": bl.expr("source.v")})
    found.merge(rows(c=["x"], v=[0]), on=["c"], when_matched="delete")
    assert found.to_arrow().to_pylist() == [{"c": "ab  ", "v": 7}]


def test_conditions_that_are_computed_compare_with_blanks_as_well(tmp_path: Path) -> None:
    found = table(tmp_path, "k STRING NOT NULL, c CHAR(4), v INT", "k")
    found.write(rows(k=["1", "2"], c=["ab", "cd"], v=[1, 2]))
    either = "CASE WHEN c = 'ab' OR 'cd' IN (c) THEN v + 10 ELSE 0 END"
    found.update("c IN ('ab', 'x') AND v + 1 = 2 OR c BETWEEN 'cd' AND 'cd' AND v + 1 > 0", {"v": bl.expr(either)})
    assert sorted(found.to_arrow()["v"].to_pylist()) == [11, 12]
    sql = "SELECT v FROM d.t WHERE c = 'ab' AND v + 1 > 0"
    assert bl.sql(None, sql, warehouse=str(tmp_path / "w")).to_pydict() == {"v": [11]}
    found.merge(
        rows(k=["1"], c=["ab"], v=[5]), on=["k"], when_matched={"v": bl.expr("CASE c WHEN 'zz' THEN 1 ELSE 7 END")}
    )
    merge = "MERGE INTO d.t USING d.t s ON d.t.k = s.k WHEN MATCHED AND d.t.c = 'cd' AND s.v + 1 > 0 THEN DELETE"
    bl.sql(None, merge, warehouse=str(tmp_path / "w"))
    assert open_table(found.path).to_arrow()["v"].to_pylist() == [7]


def test_a_default_has_blanks() -> None:
    field = DataField(0, "c", CHAR4, default_value="'d'")
    assert default_scalar(field).as_py() == "d   "


def test_a_text_that_is_too_long_without_its_blanks_is_refused(tmp_path: Path) -> None:
    found = table(tmp_path, "c CHAR(4), v INT")
    found.write(rows(c=["ab      ", "      "], v=[1, 2]))
    assert found.to_arrow()["c"].to_pylist() == ["ab  ", "    "]
    with pytest.raises(SchemaMismatchError, match=r"column c: .*CHAR\(4\)"):
        found.write(rows(c=["abcd e"], v=[1]))


def unpadded(path: Path, columns: str, *key: str, **more: Any) -> Table:
    """A table with values that lack their blanks, as Flink writes them: CHAR says so only afterwards."""
    found = table(path, columns.replace("CHAR(4)", "STRING"), *key, **more)
    yield_rows = {n: ["ab"] for n in found.schema.names if n != "v"}
    found.write(rows(**yield_rows, v=[1]))
    place = Path(found.path.removeprefix("file:")) / "schema/schema-0"
    said = json.loads(place.read_text())
    for field in said["fields"]:
        field["type"] = field["type"].replace("STRING", "CHAR(4)") if field["name"] == "c" else field["type"]
    place.write_text(json.dumps(said))
    return open_table(found.path)


@pytest.mark.parametrize("condition", ["c = 'ab'", "c >= 'ab'", "c < 'abc'"])
@pytest.mark.parametrize("place", ["value", "key", "partition"])
def test_rows_without_blanks_are_read_with_them_and_found(tmp_path: Path, place: str, condition: str) -> None:
    columns = "c CHAR(4) NOT NULL, k STRING NOT NULL, v INT"
    key = {"value": ("k",), "key": ("c",), "partition": ("c", "k")}[place]
    found = unpadded(tmp_path, columns, *key, partitions=("c",) if place == "partition" else ())
    assert found.to_arrow(filter=condition).to_pylist() == [{"c": "ab  ", "k": "ab", "v": 1}]
    found.compact()
    assert found.to_arrow(filter=condition).to_pylist() == [{"c": "ab  ", "k": "ab", "v": 1}]


@pytest.mark.parametrize("bucket", ["3", "-1", "-2"])
@pytest.mark.parametrize("partitions", [(), ("c",)])
def test_no_row_is_added_beside_keys_without_blanks(tmp_path: Path, partitions: tuple[str, ...], bucket: str) -> None:
    """It would not replace the row of its key. Written anew the table takes rows again."""
    found = unpadded(
        tmp_path, "c CHAR(4) NOT NULL, k STRING NOT NULL, v INT", "c", "k", partitions=partitions, bucket=bucket
    )
    found.compact()
    again = rows(c=["ab"], k=["ab"], v=[2])
    for change in (
        lambda: found.write(again),
        lambda: found.delete("k = 'ab'"),
        lambda: found.update("k = 'ab'", {"v": 3}),
    ):
        _refused(change)
    assert found.to_arrow()["v"].to_pylist() == [1]
    kept = found.to_arrow()
    found.truncate()
    found.write(kept)
    found.write(again)
    found.compact()
    assert found.to_arrow().to_pylist() == [{"c": "ab  ", "k": "ab", "v": 2}]


def _refused(change: Callable[[], object]) -> None:
    with pytest.raises(SchemaMismatchError, match="column c of the primary key is CHAR"):
        change()


def test_an_overwrite_replaces_a_partition_without_blanks(tmp_path: Path) -> None:
    found = unpadded(tmp_path, "c CHAR(4) NOT NULL, k STRING NOT NULL, v INT", partitions=("c",))
    found.overwrite(rows(c=["ab"], k=["y"], v=[2]))
    assert found.to_arrow()["v"].to_pylist() == [2]


def test_rows_of_an_append_table_are_added_beside_those_without_blanks(tmp_path: Path) -> None:
    found = unpadded(tmp_path, "c CHAR(4) NOT NULL, k STRING NOT NULL, v INT", bucket="2", bucket_key="c")
    found.write(rows(c=["ab"], k=["x"], v=[2]))
    assert sorted(found.to_arrow(filter="c = 'ab'")["v"].to_pylist()) == [1, 2]


TEXTS = st.text(st.sampled_from(" ab\té\U0001f600"), max_size=4)


@given(st.lists(st.none() | TEXTS.map(lambda t: t + "  "), max_size=5))
def test_a_column_is_padded_as_each_text_is(texts: list[str | None]) -> None:
    found = pad(pa.array(texts, pa.string()), CHAR4).to_pylist()
    assert found == [None if t is None else padded(t, CHAR4) for t in texts]
    assert all(t is None or (is_padded(t, CHAR4) and (len(t) == 4 or len(t.rstrip(" ")) > 4)) for t in found)


@given(TEXTS, TEXTS)
def test_bounds_of_stored_values_bound_those_with_blanks(stored: str, bound: str) -> None:
    low, high = sorted([stored, bound], key=str.encode)
    assert low.encode() <= padded(high, CHAR4).encode() or len(high) > 4
    limit = upper_bound(high, CHAR4)
    assert limit is None or padded(low, CHAR4).encode() <= str(limit).encode()
