"""The doctor finds keys that readers would show twice, where readers do not merge, and nothing in sound tables."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.format.entries import FileKind
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.doctor.problem import State
from bucketline.state.store.doctor.repeats import repeat_problems
from bucketline.state.store.index.deletion_vectors import find_deletions
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import group_by_bucket
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.tables.examined import examine
from tests.support.tables.foreign_marks import forget_marks, newest

SCHEMA = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("id", pa.string(), nullable=False), ("v", pa.int64())]
)
VECTORS = {"deletion-vectors.enabled": "true"}


def make(path: Path, **options: str) -> Table:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return create_table(str(path / "db.db" / "t"), SCHEMA, ["p", "id"], ["p"], {"bucket": "1", **VECTORS, **named})


def write(table: Table, ids: list[int], v: int, kind: int = 0) -> None:
    data = pa.table([[1] * len(ids), [f"{i:05}" for i in ids], [v] * len(ids)], schema=SCHEMA)
    table.write(data, pa.array([kind] * len(ids), pa.int8()))


def errors(table: Table) -> list[Finding]:
    return [f for f in examine(handle_of(open_table(table.path)), rows=True) if f.severity is Severity.ERROR]


def ids(table: Table) -> list[str]:
    return open_table(table.path).to_arrow()["id"].to_pylist()


def test_a_lost_deletion_vector_is_found_and_a_compaction_keeps_the_newest_row(tmp_path: Path) -> None:
    table = make(tmp_path)
    write(table, list(range(2000)), 0)
    write(table, [7, 8, 3000], 1)
    assert errors(table) == []
    files = {e.file.level: e.file.file_name for e in handle_of(table).manifests.live_entries(newest(table))}
    forget_marks(table)
    assert len(ids(table)) == 2003
    (found,) = errors(table)
    assert (found.rule, found.subject) == ("key-twice", "p=1/bucket-0")
    assert "id = '00007' and 1 more key have several rows above level 0" in found.message
    assert f"{files[5]} (level 5) and {files[4]} (level 4)" in found.message
    assert "`bucketline compact PATH` keeps the newest row of each key" in found.message
    open_table(table.path).compact()
    assert errors(table) == []
    rows = {r["id"]: r["v"] for r in open_table(table.path).to_arrow().to_pylist()}
    assert (len(ids(table)), rows["00007"], rows["00008"], rows["00009"]) == (2001, 1, 1, 0)


def test_a_lost_mark_of_a_deleted_row_is_found_where_the_delete_is_kept(tmp_path: Path) -> None:
    table = make(tmp_path, num_levels="6")
    write(table, list(range(2000)), 0)
    write(table, [7], 0, kind=3)
    levels = [e.file.level for e in handle_of(table).manifests.live_entries(newest(table))]
    forget_marks(table)
    # A compaction that ends at the last file takes the -D away: nothing says that the row was deleted.
    assert levels == [5] and errors(table) == []


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_a_compaction_is_no_remedy_where_it_would_count_a_row_twice(tmp_path: Path, engine: str) -> None:
    table = make(tmp_path, merge_engine=engine)
    write(table, list(range(2000)), 1)
    write(table, [7], 1)
    forget_marks(table)
    (found,) = errors(table)
    assert found.rule == "key-twice" and "roll the table back" in found.message


def test_first_row_tables_are_read_without_vectors(tmp_path: Path) -> None:
    options = {"bucket": "1", "merge-engine": "first-row", "write-only": "true"}
    table = create_table(str(tmp_path / "db.db" / "t"), SCHEMA, ["p", "id"], ["p"], options)
    write(table, [1, 2], 1)
    open_table(table.path).compact()
    write(table, [2, 3], 2)
    assert errors(table) == []
    last = newest(table)
    up = [
        replace(e, file=replace(e.file, level=4))
        for e in handle_of(table).manifests.delta_entries(last)
        if e.kind is FileKind.ADD
    ]
    name, size = handle_of(table).manifests.write_list(handle_of(table).manifests.write(up, 0))
    moved = replace(last, delta_manifest_list=name, delta_manifest_list_size=size)
    handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(last.id), encode_snapshot(moved))
    (found,) = errors(table)
    assert found.rule == "key-twice" and "keeps the first row of each key" in found.message
    open_table(table.path).compact()
    assert errors(table) == []
    assert sorted((r["id"], r["v"]) for r in open_table(table.path).to_arrow().to_pylist()) == [
        ("00001", 1),
        ("00002", 1),
        ("00003", 2),
    ]


def test_tables_whose_readers_merge_may_have_several_rows_of_a_key(tmp_path: Path) -> None:
    table = make(tmp_path, deletion_vectors__enabled="false")
    write(table, list(range(2000)), 0)
    write(table, [7], 1)
    assert len({e.file.file_name for e in handle_of(table).manifests.live_entries(newest(table))}) == 2
    assert errors(table) == []


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("batch_rows", [3, 65536])
def test_all_repeated_keys_are_counted_whatever_the_batches(tmp_path: Path, seed: int, batch_rows: int) -> None:
    """The judge reads all rows that are left of all files, and counts."""
    draw = np.random.default_rng(seed)
    table = make(tmp_path, num_sorted_run__compaction_trigger="9")
    for step in range(8):
        keys = draw.choice(300, size=int(draw.integers(1, 120)), replace=False).tolist()
        write(table, sorted(keys), step, kind=3 if draw.random() < 0.2 else 0)
        assert errors(table) == []
    forget_marks(table)
    counts = Counter(ids(table))
    repeated = sorted(i for i, n in counts.items() if n > 1)
    snapshot = newest(table)
    access = FileAccess(
        handle_of(table).io, table.path, handle_of(table).table_schema, handle_of(table).schema_store.get
    )
    access = replace(
        access, deletions=find_deletions(handle_of(table).io, table.path, handle_of(table).table_schema, ())
    )
    found = [
        p.message
        for bucket in group_by_bucket(handle_of(table).manifests.live_entries(snapshot))
        for p in repeat_problems(access, bucket, State("now", snapshot.id), batch_rows=batch_rows)
    ]
    total = sum(1 + int((re.search(r"and (\d+) more", m) or ["0", "0"])[1]) for m in found)
    assert total == len(repeated) > 0
    assert all(f"'{first}'" in m for m, first in zip(found[:1], repeated[:1], strict=True))


def test_a_damaged_deletion_vector_is_found(tmp_path: Path) -> None:
    table = make(tmp_path)
    write(table, list(range(2000)), 0)
    write(table, [7], 1)
    (entry,) = handle_of(table).manifests.read_index(newest(table).index_manifest)
    path = Path(table.path, "index", entry.file_name)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (found,) = errors(table)
    assert found.rule == "deletion-vector"
    assert str(path) in found.message
