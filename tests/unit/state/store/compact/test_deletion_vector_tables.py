"""Primary-key tables whose compactions mark older rows by position."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.read.bucket_deletions import BucketDeletions
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.tables.commit_table import Commits

SCHEMA = pa.schema({"pk": pa.int32(), "v": pa.int64()})


def make(path: Path, **options: str) -> Table:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return create_table(
        str(path / "db.db" / "t"), SCHEMA, ["pk"], options={"bucket": "1", "deletion-vectors.enabled": "true", **named}
    )


def write(table: Table, rows: dict[int, int], kind: int = 0) -> None:
    data = pa.table([list(rows), list(rows.values())], schema=SCHEMA)
    table.write(data, pa.array([kind] * len(rows), pa.int8()))


def rows(table: Table) -> dict[int, int]:
    found = open_table(table.path).to_arrow()
    assert found.num_rows == len(set(found["pk"].to_pylist()))
    return dict(zip(found["pk"].to_pylist(), found["v"].to_pylist(), strict=True))


def snapshots(table: Table) -> list[tuple[str, int, int]]:
    found = open_table(table.path).snapshots().to_pylist()
    return [(s["commit_kind"], s["total_record_count"], s["delta_record_count"]) for s in found]


def files(table: Table) -> list[tuple[int, int, str]]:
    found = open_table(table.path).files().to_pylist()
    return sorted((f["level"], f["record_count"], f["file_source"]) for f in found)


def vectors(table: Table) -> list[IndexManifestEntry]:
    io, path = file_io_for(table.path, {})
    latest = Snapshots(io, path).latest()
    assert latest is not None
    return list(Manifests(io, path, []).read_index(latest.index_manifest))


def cardinalities(table: Table) -> list[int | None]:
    return [r.cardinality for e in vectors(table) for r in e.deletion_vector_ranges or ()]


FOUR = {1: 10, 2: 20, 3: 30, 4: 40}


def test_an_update_marks_the_row_it_replaces(tmp_path: Path) -> None:
    """The layout that Paimon 2.0 was seen to make, with files large enough for a level of their own."""
    table = make(tmp_path)
    write(table, {k: k * 10 for k in range(1, 2001)})
    assert files(table) == [(5, 2000, "APPEND")]
    write(table, {1: 11})
    assert snapshots(table) == [("APPEND", 2000, 2000), ("COMPACT", 2000, 0), ("APPEND", 2001, 1), ("COMPACT", 2001, 0)]
    assert files(table) == [(4, 1, "APPEND"), (5, 2000, "APPEND")]
    assert cardinalities(table) == [1]
    assert rows(table) == {k: k * 10 for k in range(1, 2001)} | {1: 11}


def test_deletes_vanish_and_leave_marks(tmp_path: Path) -> None:
    table = make(tmp_path)
    write(table, {k: k for k in range(2000)})
    write(table, {k: k for k in (3, 4, 9000)}, kind=3)
    assert snapshots(table)[2:] == [("APPEND", 2003, 3), ("COMPACT", 2000, -3)]
    assert files(table) == [(5, 2000, "APPEND")]
    assert cardinalities(table) == [2]
    assert rows(table) == {k: k for k in range(2000) if k not in (3, 4)}


def test_write_only_rows_stay_invisible_until_a_compaction(tmp_path: Path) -> None:
    table = make(tmp_path, write_only="true")
    write(table, FOUR)
    assert rows(table) == {}
    table.compact()
    assert (rows(table), files(table), snapshots(table)[-1]) == (FOUR, [(5, 4, "APPEND")], ("COMPACT", 4, 0))
    write(table, {1: 11})
    assert rows(table) == FOUR
    table.compact()
    assert (rows(table), files(table)) == (FOUR | {1: 11}, [(5, 4, "COMPACT")])
    assert vectors(table) == [] or cardinalities(table) == []
    assert snapshots(table)[-1] == ("COMPACT", 4, -1)


def test_a_full_compaction_rewrites_what_has_marks_and_writes_an_empty_vector_file(tmp_path: Path) -> None:
    table = make(tmp_path)
    write(table, {k: k for k in range(2000)})
    write(table, {5: 5}, kind=3)
    assert cardinalities(table) == [1]
    assert table.compact() is not None
    assert files(table) == [(5, 1999, "COMPACT")]
    (entry,) = vectors(table)
    assert (entry.row_count, entry.file_size, cardinalities(table)) == (0, 1, [])
    assert table.compact() is None


@pytest.mark.parametrize("bitmap64", ["false", "true"])
def test_any_order_of_writes_and_compactions_reads_as_a_dictionary(tmp_path: Path, bitmap64: str) -> None:
    """Drawn by seed."""
    draw = np.random.default_rng(7)
    table = make(tmp_path, deletion_vectors__bitmap64=bitmap64)
    expected: dict[int, int] = {}
    for step in range(25):
        keys = draw.choice(3000, size=int(draw.integers(1, 800)), replace=False).tolist()
        if draw.random() < 0.3:
            write(table, dict.fromkeys(keys, 0), kind=3)
            expected = {k: v for k, v in expected.items() if k not in set(keys)}
        else:
            write(table, dict.fromkeys(keys, step))
            expected |= dict.fromkeys(keys, step)
        if draw.random() < 0.15:
            table.compact()
        assert rows(table) == expected


def test_a_rescale_takes_the_rows_that_are_left(tmp_path: Path) -> None:
    table = make(tmp_path, changelog_producer="lookup")
    write(table, {k: k for k in range(2000)})
    write(table, {5: -5, 6: -6})
    write(table, {7: 0}, kind=3)
    assert cardinalities(table) == [3]
    logged = [s["changelog_record_count"] for s in open_table(table.path).snapshots().to_pylist()]
    open_table(table.path).rescale(3)
    found = open_table(table.path)
    assert rows(found) == {k: k for k in range(2000) if k != 7} | {5: -5, 6: -6}
    assert vectors(found) == []
    assert [s["changelog_record_count"] for s in found.snapshots().to_pylist()] == [*logged, None]
    write(found, {8: 88})
    assert rows(found)[8] == 88


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_postponed_rows_are_marked_when_they_are_compacted(tmp_path: Path, producer: str) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "changelog-producer": producer}
    path = str(tmp_path / "db.db" / "t")
    table = create_table(path, SCHEMA, ["pk"], options={"deletion-vectors.enabled": "true", **options})
    write(table, {k: k for k in range(2000)})
    table.compact("minor")
    write(table, {3: 33})
    write(table, {4: 4}, kind=3)
    before = open_table(path).snapshots().num_rows
    table.compact("minor")
    assert rows(table) == {k: k for k in range(2000) if k != 4} | {3: 33}
    assert cardinalities(table) == [2]
    if producer == "lookup":
        found = open_table(path).to_batches(changes_since=before).read_all().to_pylist()
        assert [(r["_row_kind"], r["pk"], r["v"]) for r in found] == [(1, 3, 3), (2, 3, 33), (3, 4, 4)]


def test_vectors_cannot_be_switched_unless_the_table_says_so(tmp_path: Path) -> None:
    table = make(tmp_path)
    write(table, FOUR)
    with pytest.raises(OptionError, match="Cannot change deletion vectors mode from true to false"):
        open_table(table.path).set_options({"deletion-vectors.enabled": "false"})
    modifiable = open_table(table.path).set_options({"deletion-vectors.modifiable": "true"})
    assert rows(modifiable.set_options({"deletion-vectors.enabled": "false"})) == FOUR


@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_joining_files_of_an_append_table_takes_marked_rows_away(tmp_path: Path, bucket: str) -> None:
    keyed = {"bucket": bucket} | ({"bucket-key": "pk"} if bucket == "1" else {})
    options = {"deletion-vectors.enabled": "true", "write-only": "true", **keyed}
    table = create_table(str(tmp_path / "db.db" / "t"), SCHEMA, options=options)
    for start in (0, 10, 20):
        table.write(pa.table([list(range(start, start + 10)), [0] * 10], schema=SCHEMA))
    _mark(table, {0: [1, 2], 1: [0]})
    assert sorted(rows(table)) == sorted({*range(30)} - {1, 2, 10})
    open_table(table.path).compact()
    assert sorted(rows(table)) == sorted({*range(30)} - {1, 2, 10})
    assert len(files(table)) == 1 and cardinalities(table) == []


def _mark(table: Table, positions: dict[int, list[int]]) -> None:
    """Deletes rows by position of the oldest files, as a delete statement of Paimon's does."""
    latest = handle_of(table).snapshot_store.latest()
    assert latest is not None
    entries = sorted(handle_of(table).manifests.live_entries(latest), key=lambda e: e.file.creation_time_ms or 0)
    marks = BucketDeletions()
    for number, found in positions.items():
        marks.delete(entries[number].file.file_name, np.array(found))
    first = entries[0]
    index = marks.write(
        handle_of(table).io,
        table.path,
        (first.partition, first.bucket),
        schema=handle_of(table).table_schema,
        world=SYSTEM_WORLD,
    )
    message = CommitMessage(first.partition, first.bucket, first.total_buckets, new_index_files=(index,))
    done = Commits(handle_of(table)).commit([message], user="deleter")
    assert isinstance(done, Committed)
