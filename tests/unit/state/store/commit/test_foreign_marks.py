"""Rows that another program deletes between the plan and the commit of a compaction or a rescale stay deleted."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import CommitConflictError
from bucketline.state.format.entries import CommitKind
from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io
from tests.support.tables.examined import examine
from tests.support.tables.foreign_marks import mark_rows, newest

SCHEMA = pa.schema({"pk": pa.int32(), "v": pa.int64()})
ROWS = {k: 0 for k in range(2000)}
KINDS = [CommitKind.COMPACT, CommitKind.APPEND, CommitKind.OVERWRITE]


@dataclass
class Before:
    """Lets another program act once, just before this one publishes its snapshot with this number, counted from 1."""

    number: int
    act: Callable[[], object]
    seen: int = 0

    def __call__(self, name: str, path: str) -> None:
        if name == "publish" and "/snapshot/" in path:
            self.seen += 1
            if self.seen == self.number:
                self.act()


def make(path: Path, *updates: int, **options: str) -> Table:
    """A table with a file of all rows on the last level, and one that has marked the updated rows of it."""
    named = {"bucket": "1", "deletion-vectors.enabled": "true", **{k.replace("_", "-"): v for k, v in options.items()}}
    table = create_table(str(path / "db.db" / "t"), SCHEMA, ["pk"], options=named)
    write(table, ROWS)
    if updates:
        write(table, dict.fromkeys(updates, 1))
    return table


def write(table: Table, rows: dict[int, int]) -> None:
    table.write(pa.table([list(rows), list(rows.values())], schema=SCHEMA))


def interrupted(table: Table, number: int, act: Callable[[], object]) -> Table:
    return on_io(open_table(table.path), FaultyIO(LocalIO(), before_call=Before(number, act)))


def file_on(table: Table, level: int) -> str:
    (name,) = (
        e.file.file_name for e in handle_of(table).manifests.live_entries(newest(table)) if e.file.level == level
    )
    return name


def rows(table: Table) -> dict[int, int]:
    found = open_table(table.path).to_arrow()
    assert found.num_rows == len(set(found["pk"].to_pylist()))
    return dict(zip(found["pk"].to_pylist(), found["v"].to_pylist(), strict=True))


def is_sound(table: Table) -> bool:
    return not [f for f in examine(handle_of(open_table(table.path)), rows=True) if f.severity is Severity.ERROR]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [5, 4])
def test_a_full_compaction_does_not_follow_newer_marks_of_its_files(
    tmp_path: Path, kind: CommitKind, level: int
) -> None:
    """Files with older marks, and without any, are both rewritten."""
    table = make(tmp_path, 3)
    name = file_on(table, level)
    mine = interrupted(table, 1, lambda: mark_rows(table, {name: [0]}, kind=kind))
    with pytest.raises(CommitConflictError) as caught:
        mine.compact()
    assert caught.value.fields["rule"] in ("index-changed", "rows-deleted")
    gone = {5: 0, 4: 3}[level]
    expected = {k: v for k, v in (ROWS | {3: 1}).items() if k != gone}
    assert rows(table) == expected
    open_table(table.path).compact()
    assert rows(table) == expected
    assert is_sound(table)


def test_a_compaction_that_changes_no_index_does_not_follow_the_first_marks_of_its_files(tmp_path: Path) -> None:
    """The files had no marks when they were read, so the compaction has no index file of its own to compare."""
    table = make(tmp_path, 5000)
    assert not any(
        e.deletion_vector_ranges for e in handle_of(table).manifests.read_index(newest(table).index_manifest)
    )
    name = file_on(table, 5)
    mine = interrupted(table, 1, lambda: mark_rows(table, {name: [0, 1]}))
    with pytest.raises(CommitConflictError) as caught:
        mine.compact()
    assert caught.value.fields["rule"] == "rows-deleted"
    open_table(table.path).compact()
    assert rows(table) == {k: v for k, v in (ROWS | {5000: 1}).items() if k > 1}
    assert is_sound(table)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_write_plans_its_compaction_again_when_rows_were_deleted_meanwhile(
    tmp_path: Path, number: int, kind: CommitKind
) -> None:
    """Rows are deleted before the snapshot of the write's rows, or before that of its compaction."""
    table = make(tmp_path, 3)
    name = file_on(table, 5)
    mine = interrupted(table, number, lambda: mark_rows(table, {name: [10, 11]}, kind=kind))
    done = mine.write(pa.table([[4, 12], [2, 2]], schema=SCHEMA))
    assert done.visible
    expected = {k: v for k, v in (ROWS | {3: 1, 4: 2, 12: 2}).items() if k not in (10, 11)}
    assert rows(table) == expected
    open_table(table.path).compact()
    assert rows(table) == expected
    assert is_sound(table)


def test_marks_of_other_files_and_buckets_are_no_conflict(tmp_path: Path) -> None:
    table = make(tmp_path, 3, bucket="2")
    entries = handle_of(table).manifests.live_entries(newest(table))
    by_bucket = {b: [e.file for e in entries if e.bucket == b] for b in (0, 1)}
    updated = next(b for b, files in by_bucket.items() if len(files) == 2)
    other = by_bucket[1 - updated][0].file_name
    before = rows(table)
    mine = interrupted(table, 1, lambda: mark_rows(table, {other: [0]}))
    assert mine.compact() is not None
    assert len(rows(table)) == len(before) - 1
    assert is_sound(table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rescale_does_not_bring_rows_back_that_were_deleted_meanwhile(tmp_path: Path, kind: CommitKind) -> None:
    table = make(tmp_path, 3)
    name = file_on(table, 5)
    mine = interrupted(table, 1, lambda: mark_rows(table, {name: [0, 1]}, kind=kind))
    with pytest.raises(CommitConflictError):
        mine.rescale(2)
    expected = {k: v for k, v in (ROWS | {3: 1}).items() if k > 1}
    assert rows(table) == expected
    open_table(table.path).rescale(2)
    assert rows(table) == expected
    assert is_sound(table)


@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_joining_files_of_an_append_table_does_not_follow_newer_marks(tmp_path: Path, bucket: str) -> None:
    keyed = {"bucket": bucket} | ({"bucket-key": "pk"} if bucket == "1" else {})
    options = {"deletion-vectors.enabled": "true", "write-only": "true", **keyed}
    table = create_table(str(tmp_path / "db.db" / "t"), SCHEMA, options=options)
    for start in (0, 10, 20):
        write(table, {k: 0 for k in range(start, start + 10)})
    name = handle_of(table).manifests.live_entries(newest(table))[0].file.file_name
    before = rows(table)
    mine = interrupted(table, 1, lambda: mark_rows(table, {name: [0, 1]}))
    with pytest.raises(CommitConflictError):
        mine.compact()
    assert len(rows(table)) == len(before) - 2
    open_table(table.path).compact()
    assert len(rows(table)) == len(before) - 2
