"""Delete, update and merge of append tables: by deletion vectors, and by writing files again."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.errors import CommitConflictError
from bucketline.state.format.entries import Operation
from bucketline.state.sql.compute.expression import expr
from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.append_changes import KeptAndTaken, write_append_changes
from bucketline.state.store.table.changed_write import open_change
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table

COLUMNS = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("name", pa.string())])
VECTORS = {"deletion-vectors.enabled": "true"}
BUCKETED = {"bucket": "2", "bucket-key": "id"}
KINDS: dict[str, dict[str, str]] = {
    "copied": {},
    "copied, bucketed": BUCKETED,
    "marked": VECTORS | {"deletion-vector.index-file.target-size": "1 b"},
    "marked, bucketed": VECTORS | BUCKETED | {"deletion-vectors.bitmap64": "true"},
}


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return make(tmp_path, **KINDS[request.param])


def make(path: Path, **options: str) -> Table:
    found = create_table(str(path / "w.db" / "t"), COLUMNS, partition_by=["dt"], options=options)
    for start in (0, 4, 8):
        found.write(rows(*[("ab"[i % 2], i, i * 10, f"n{i}") for i in range(start, start + 4)]))
    return found


def rows(*found: tuple[str, int, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in found], schema=COLUMNS)


def held(table: Table) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["dt"], r["v"], r["name"]) for r in open_table(table.path).to_arrow().to_pylist())


def ids(table: Table) -> list[int]:
    return [row[0] for row in held(table)]


def has_vectors(table: Table) -> bool:
    return table.options.get("deletion-vectors.enabled") == "true"


def test_rows_are_deleted_in_one_overwrite(table: Table) -> None:
    before = {f["file_path"] for f in table.files().to_pylist()}
    done = table.delete("id = 2 OR id >= 10")
    assert ids(table) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    newest = table.snapshots().to_pylist()[-1]
    assert (newest["snapshot_id"], newest["commit_kind"], newest["operation"]) == (done, "OVERWRITE", "DELETE")
    after = {f["file_path"] for f in table.files().to_pylist()}
    assert after <= before if has_vectors(table) else before - after and after - before
    table.delete("id = 3 AND v > id")
    table.delete("dt = 'b'")
    assert ids(table) == [0, 4, 6, 8]
    assert table.doctor(rows=True) == []
    table.compact()
    table.write(rows(("a", 20, 1, "x")))
    table.delete("true")
    assert (ids(table), table.files().num_rows) == ([], 0)
    assert table.doctor(rows=True) == []


def test_rows_are_updated_wherever_they_go(table: Table) -> None:
    table.update("id IN (1, 2, 9)", {"v": expr("v + id"), "name": "new"})
    assert held(table)[1:3] == [(1, "b", 11, "new"), (2, "a", 22, "new")]
    table.update("id < 2", {"dt": "c", "id": expr("id + 100")})
    assert ids(table) == [*range(2, 12), 100, 101]
    assert held(table)[-1] == (101, "c", 11, "new")
    assert table.doctor(rows=True) == []
    assert table.compact() is not None
    assert ids(table) == [*range(2, 12), 100, 101]
    assert table.doctor(rows=True) == []


def test_rows_are_merged(table: Table) -> None:
    table.write(rows(("a", 0, 1, "twice")))
    source = rows(("a", 0, 5, "s"), ("b", 77, 7, "new"), ("b", 77, 8, "new"), ("a", 3, 3, "other"))
    table.merge(source, ["dt", "id"], {"v": expr("v + source.v")})
    assert held(table)[:2] == [(0, "a", 5, "n0"), (0, "a", 6, "twice")]
    assert held(table)[4:6] == [(3, "a", 3, "other"), (3, "b", 30, "n3")]
    assert held(table)[-2:] == [(77, "b", 7, "new"), (77, "b", 8, "new")]
    table.merge(rows(("b", 0, 0, ""), ("b", 3, 0, "")), ["id"], "delete", None)
    assert ids(table) == [1, 2, *range(4, 12), 77, 77]
    assert table.doctor(rows=True) == []


def test_nothing_that_passes_is_no_commit(table: Table) -> None:
    before = table.snapshots().num_rows
    assert table.delete("id > 100") == table.update("v < 0", {"v": 1}) == before
    assert table.merge(rows(("a", 500, 1, "")), ["id"], "delete", None) == before
    assert table.snapshots().num_rows == before


def test_old_snapshots_expire_after_a_change(tmp_path: Path) -> None:
    table = make(tmp_path, **{"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2"})
    last = [table.delete(f"id = {number}") for number in range(3)][-1]
    assert table.snapshots()["snapshot_id"].to_pylist() == [last - 1, last]
    assert ids(table) == list(range(3, 12))


def test_whoever_has_changed_the_files_meanwhile_wins(table: Table) -> None:
    def planned(act: str) -> None:
        session = open_change(handle_of(table))
        stored = KeptAndTaken(session)

        def changed() -> Any:
            for batch in stored.read(None, None):
                stored.take_out(batch.filter(pa.compute.equal(batch["id"], 1)))
            done = {"compact": table.compact, "delete": lambda: table.delete("id = 1"), "append": append}[act]()
            assert done == table.snapshots().num_rows
            yield from ()

        write_append_changes(session, stored, Parts([GivenRows(changed())]), Operation.DELETE, engine=LOCAL_ENGINE)

    def append() -> int:
        return table.write(rows(("b", 1, 1, "later")))

    planned("append")
    assert ids(table).count(1) == 1
    for act in ("delete", "compact"):
        for _ in range(2):
            table.write(rows(("b", 1, 1, "again")))
        with pytest.raises(CommitConflictError):
            planned(act)
    assert table.doctor(rows=True) == []
    assert ids(table).count(1) == 2
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
