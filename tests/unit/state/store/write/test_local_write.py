"""table.write and table.compact: rows in, rows out, and what the table looks like in between."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.state.store.table.write import with_kinds

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int32())])


def keyed(path: Path, **options: str) -> Table:
    return create_table(str(path / "shop.db" / "t"), COLUMNS, primary_key=("id",), options={"bucket": "2", **options})


def rows(*triples: tuple[int, str | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, t, strict=True)) for t in triples], schema=COLUMNS)


def content(table: Table) -> dict[int, tuple[str | None, int | None]]:
    return {r["id"]: (r["name"], r["n"]) for r in table.to_arrow().to_pylist()}


def test_upserts_and_deletes_like_a_dictionary_through_flushes_and_compactions(tmp_path: Path) -> None:
    table, expected = keyed(tmp_path), dict[int, tuple[str | None, int | None]]()
    random = np.random.default_rng(7)
    for batch in range(14):
        ids = random.integers(0, 400, 300)
        kinds = np.where(random.random(300) < 0.25, 3, 0).astype(np.int8)
        data = rows(*((int(i), f"b{batch}-{k}", batch) for k, i in enumerate(ids)))
        table.write(data.select(["n", "id", "name"]), pa.array(kinds))
        for k, (i, kind) in enumerate(zip(ids.tolist(), kinds.tolist(), strict=True)):
            if kind:
                expected.pop(i, None)
            else:
                expected[i] = (f"b{batch}-{k}", batch)
        assert content(table) == expected
    kinds_seen = table.snapshots()["commit_kind"].to_pylist()
    assert "COMPACT" in kinds_seen and kinds_seen.count("APPEND") == 14


def test_full_compaction_leaves_one_run_without_deletes_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows((1, "a", 1), (2, "b", 2), (3, "c", 3)))
    table.write(rows((2, None, None)), pa.array([3], pa.int8()))
    snapshot = table.compact()
    assert snapshot == 3
    files = table.files().to_pylist()
    assert {f["level"] for f in files} == {5}
    assert sum(f["record_count"] for f in files) == 2
    assert content(table) == {1: ("a", 1), 3: ("c", 3)}
    assert table.compact() is None
    assert table.compact("minor") is None


def test_compacts_the_partitions_asked_for(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("dt", pa.date32()), *COLUMNS])
    table = create_table(
        str(tmp_path / "shop.db" / "p"), schema, ("dt", "id"), ("dt",), {"bucket": "1", "write-only": "true"}
    )
    for _ in range(2):
        table.write(pa.table({"dt": pa.array([0, 1], pa.date32()), "id": [1, 1], "name": ["x", "y"], "n": [1, 2]},
                             schema=schema))  # fmt: skip
    assert table.compact(partitions=[{"dt": "1970-01-02"}]) == 3
    assert sorted((f["partition"], f["level"]) for f in table.files().to_pylist()) == [
        ("{1970-01-01}", 0),
        ("{1970-01-01}", 0),
        ("{1970-01-02}", 5),
    ]
    with pytest.raises(OptionError, match="id"):
        table.compact(partitions=[{"id": 1}])
    with pytest.raises(OptionError, match="neither"):
        table.compact("half")


def test_append_tables_keep_every_row_in_arrival_order(tmp_path: Path) -> None:
    for name, options in (("free", {}), ("keyed", {"bucket": "2", "bucket-key": "id"})):
        table = create_table(str(tmp_path / "shop.db" / name), COLUMNS, options=options)
        table.write(rows((1, "a", 1), (1, "a", 1), (2, None, None)))
        table.write(rows((1, "b", 2)).to_reader())
        found = sorted(table.to_arrow().to_pylist(), key=str)
        assert len(found) == 4 and [r["name"] for r in found if r["id"] == 1] == ["a", "a", "b"]


def test_empty_input_makes_no_snapshot(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    assert table.write(rows()) == 0
    assert table.write(rows((1, "a", 1))) == 1
    assert table.write(rows()) == 1


def test_bad_input_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    cases = [
        (rows((1, "a", 1)).append_column("extra", pa.array([1])), None, "extra"),
        (rows((1, "a", 1)).drop_columns(["name"]), None, "name"),
        (pa.table({"id": pa.array([None], pa.int64()), "name": ["x"], "n": pa.array([1], pa.int32())}), None, "id"),
        (pa.table({"id": [1], "name": ["x"], "n": ["word"]}), None, "n"),
        (rows((1, "a", 1)), pa.array([9], pa.int8()), "_row_kind"),
        (rows((1, "a", 1)), pa.array([0, 0], pa.int8()), "2 row kinds for 1 row: give one"),
        (rows((1, "a", 1)), "kind", "kind"),
    ]
    for data, kinds, told in cases:
        with pytest.raises(SchemaMismatchError, match=told):
            table.write(data, kinds)
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before
    with pytest.raises(UnsupportedTableError, match="not a Paimon table"):
        open_table(str(tmp_path))


def test_rowkind_field_and_ignore_delete(tmp_path: Path) -> None:
    schema = pa.schema([*COLUMNS, ("op", pa.string())])
    path = str(tmp_path / "shop.db" / "k")
    table = create_table(path, schema, ("id",), options={"bucket": "1", "rowkind.field": "op"})
    table.write(pa.table({"id": [1, 2], "name": ["a", "b"], "n": [1, 2], "op": ["+I", "+I"]}))
    table.write(pa.table({"id": [1], "name": ["a"], "n": [1], "op": ["-D"]}))
    assert set(content(table)) == {2}
    kept = keyed(tmp_path, **{"ignore-delete": "true"})
    kept.write(rows((1, "a", 1)))
    kept.write(rows((1, "a", 1)), pa.array([3], pa.int8()))
    assert set(content(kept)) == {1}


def test_small_record_batches_of_a_reader_are_written_together() -> None:
    schema = pa.schema([("id", pa.int64())])
    sizes = [*[10] * 500, 3000, 5000, 7, 2048]
    batches = [pa.record_batch([pa.array([number] * size)], schema=schema) for number, size in enumerate(sizes)]
    tables = list(with_kinds(pa.RecordBatchReader.from_batches(schema, batches), None))
    assert [t.num_rows for t in tables] == [0, 2050, 2050, 900, 3000, 5000, 7, 2048]
    assert all(t.column(0).num_chunks == 1 for t in tables[1:])
    assert pa.concat_tables(tables).equals(pa.Table.from_batches(batches))


def test_record_batches_with_many_bytes_are_not_put_together() -> None:
    schema = pa.schema([("body", pa.binary())])
    batches = [pa.record_batch([pa.array([b"x" * (9 << 20)])], schema=schema)] * 3
    assert [t.num_rows for t in with_kinds(pa.RecordBatchReader.from_batches(schema, batches), None)] == [0, 1, 1, 1]
