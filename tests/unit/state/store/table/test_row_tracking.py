"""Rows with ids: new rows get one when they are committed, and keep it when they are changed and compacted."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.table.table import Table, create_table

COLUMNS = ["id", "v", "_ROW_ID", "_SEQUENCE_NUMBER"]
TRACKED = {"row-tracking.enabled": "true"}


def made(path: Path, **options: str) -> Table:
    return create_table(
        str(path / "t"), "id INT, v STRING, p STRING", partition_by=("p",), options={**TRACKED, **options}
    )


def given(*ids: int, part: str = "x") -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int32()), "v": [f"v{n}" for n in ids], "p": pa.array([part] * len(ids), pa.string())}
    )


def rows(table: Table) -> list[tuple[object, ...]]:
    found = table.refreshed().to_arrow(columns=COLUMNS)
    return sorted(tuple(row.values()) for row in found.to_pylist())


def next_ids(table: Table) -> list[int]:
    found: list[int] = table.snapshots()["next_row_id"].to_pylist()
    return found


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_rows_keep_their_ids_when_they_are_changed_and_compacted(tmp_path: Path, vectors: str) -> None:
    table = made(tmp_path, **{"deletion-vectors.enabled": vectors})
    table.write(pa.concat_tables([given(1, 2), given(3, part="y")]))
    table.write(given(4))
    assert rows(table) == [(1, "v1", 0, 1), (2, "v2", 1, 1), (3, "v3", 2, 1), (4, "v4", 3, 2)]
    table.update("id = 2", {"v": "new"})
    after = [(1, "v1", 0, 1), (2, "new", 1, 3), (3, "v3", 2, 1), (4, "v4", 3, 2)]
    assert rows(table) == after
    assert table.compact() and rows(table) == after
    table.delete("id = 1")
    assert rows(table) == after[1:]
    table.compact()
    table.write(given(5))
    assert rows(table) == [*after[1:], (5, "v5", 4, table.snapshots().num_rows)]
    assert next_ids(table)[:2] == [3, 4] and next_ids(table)[-2:] == [4, 5]
    assert [f for f in table.doctor(rows=True) if f.severity == "error"] == []


def test_two_writers_at_the_same_time_give_no_id_twice(tmp_path: Path) -> None:
    one, other = made(tmp_path), bl.open_table(str(tmp_path / "t"))
    for at in range(3):
        one.write(given(at))
        other.write(given(at + 100))
    ids = [row[2] for row in rows(one)]
    assert sorted(ids) == list(range(6)) and next_ids(one) == [1, 2, 3, 4, 5, 6]


def test_any_changes_of_rows_keep_ids_as_a_dictionary_would(tmp_path: Path) -> None:
    draw = random.Random(7)
    table = made(tmp_path, **{"deletion-vectors.enabled": "true", "compaction.min.file-num": "2"})
    known: dict[int, tuple[int, str, int]] = {}
    numbers = iter(range(1000))
    for _ in range(12):
        verb = draw.choice(["write", "write", "update", "delete", "merge", "compact"])
        chosen = draw.sample(sorted(known), len(known) // 3)
        if verb == "write":
            new = [next(numbers) for _ in range(draw.randint(1, 4))]
            snapshot = table.write(given(*new))
            known |= {n: (n, f"v{n}", int(snapshot or 0)) for n in new}
        elif verb == "compact":
            table.compact()
        elif verb == "merge":
            new = [next(numbers) for _ in range(draw.randint(0, 3))]
            snapshot = table.merge(given(*chosen, *new), ["id"], {"v": "m"}, "insert")
            known |= {n: (n, "m", int(snapshot or 0)) for n in chosen}
            known |= {n: (n, f"v{n}", int(snapshot or 0)) for n in new}
        elif chosen:
            where = f"id IN ({', '.join(map(str, chosen))})"
            if verb == "delete":
                table.delete(where)
                for n in chosen:
                    del known[n]
            else:
                snapshot = table.update(where, {"v": "u"})
                known |= {n: (n, "u", int(snapshot or 0)) for n in chosen}
    # Rows are written in the order of their numbers, so that a row's id is its number.
    assert rows(table) == sorted((n, v, n, at) for n, v, at in known.values())


def test_overwritten_rows_are_new_rows(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(given(1, 2))
    table.overwrite(given(1))
    assert rows(table) == [(1, "v1", 2, 2)]
    table.rollback_to(1)
    table.write(given(3))
    assert rows(table) == [(1, "v1", 0, 1), (2, "v2", 1, 1), (3, "v3", 2, 2)]


def test_what_would_lose_ids_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(given(1))
    with pytest.raises(UnsupportedTableError, match="are not sorted"):
        table.compact(order_by=["id"], order_strategy="order")
    table.merge(given(1, 7), ["id"], "delete", "insert")
    assert [row[::2] for row in rows(table)] == [(7, 1)]
    for options, says in (
        ({"bucket": "1", "bucket-key": "id"}, "only support bucket = -1"),
        ({"primary-key": "id"}, "Cannot define primary-key for row tracking table"),
        ({"data-evolution.enabled": "true"}, r"data-evolution\.enabled"),
    ):
        with pytest.raises(OptionError, match=says):
            create_table(str(tmp_path / "u"), "id INT NOT NULL", options={**TRACKED, **options})


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_merge_updates_rows_that_keep_their_ids_beside_new_rows_and_deletes(tmp_path: Path, vectors: str) -> None:
    table = made(tmp_path, **{"deletion-vectors.enabled": vectors})
    table.write(pa.concat_tables([given(1, 2, 3, 4), given(5, 6, part="y")]))
    place = f"`{table.path}`"
    bl.sql(
        None,
        f"MERGE INTO {place} t USING (VALUES (2, 'b'), (3, 'c'), (6, 'f'), (8, 'h'), (9, 'i')) s (id, v) "
        "ON t.id = s.id AND t.v <> 'v6' WHEN MATCHED AND s.id = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED AND s.id <> 9 THEN INSERT (id, v, p) VALUES (s.id, s.v, 'y') "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN UPDATE SET v = 'old', p = 'y'",
    )
    kept = [(1, "v1", 0, 1), (2, "b", 1, 2), (4, "old", 3, 2), (5, "v5", 4, 1), (6, "v6", 5, 1)]
    found = rows(table)
    assert [row for row in found if int(str(row[2])) < 6] == kept
    assert sorted((row[0], row[1], row[3]) for row in found if row not in kept) == [(6, "f", 2), (8, "h", 2)]
    assert next_ids(table) == [6, 8] and table.snapshots()["commit_kind"].to_pylist()[-1] == "OVERWRITE"
    table.compact()
    assert rows(table) == found and [f for f in table.doctor(rows=True) if f.severity == "error"] == []
    with pytest.raises(SchemaMismatchError, match="2 source rows match the row of the table with id = 1"):
        table.merge(given(1, 1, 12), ["id"], {"v": "new"}, "insert")
    assert rows(table) == found


def test_sql_reads_ids_where_they_are_named(tmp_path: Path) -> None:
    made(tmp_path).write(given(1, 2))
    place = f"`{tmp_path / 't'}`"
    assert bl.sql(None, f"SELECT * FROM {place} WHERE _ROW_ID = 1").to_pylist() == [{"id": 2, "v": "v2", "p": "x"}]
    query = f"SELECT _row_id AS r, _SEQUENCE_NUMBER + id AS s FROM {place} ORDER BY _ROW_ID DESC"
    assert bl.sql(None, query).to_pylist() == [{"r": 1, "s": 3}, {"r": 0, "s": 2}]


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("stats", ["full", "none"])
def test_files_with_ids_are_read_and_skipped_in_every_format(tmp_path: Path, form: str, stats: str) -> None:
    table = made(tmp_path, **{"file.format": form, "metadata.stats-mode": stats, "fields.id.stats-mode": "full"})
    table.write(given(1, 2))
    table.write(given(3))
    table.update("id = 1", {"v": "new"})
    table.compact()
    assert rows(table) == [(1, "new", 0, 3), (2, "v2", 1, 1), (3, "v3", 2, 2)]
    assert table.to_arrow(["v"], filter="id > 2").to_pylist() == [{"v": "v3"}]
    assert table.to_arrow(["id"], filter="v = 'new'").to_pylist() == [{"id": 1}]
    assert [f for f in table.doctor(rows=True) if f.severity == "error"] == []
