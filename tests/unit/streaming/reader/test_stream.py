"""Streams of changes without Spark: each change once, in order, whatever ends the query and whoever else works."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError, SnapshotExpiredError, UnsupportedTableError
from bucketline.state.store.catalog.consumers import next_of_consumers
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.reader.stream_position import Offset, StreamPosition, offset_of
from tests.support.spark.change_query import ChangeQuery, Crash

COLUMNS = "id BIGINT NOT NULL, n INT"


def keyed(path: Path, **options: str) -> Table:
    given = {"bucket": "2", "num-sorted-run.compaction-trigger": "3", **options}
    return create_table(str(path / "w/s.db/t"), COLUMNS, ["id"], options=given)


def appended(path: Path) -> Table:
    return create_table(str(path / "w/s.db/t"), COLUMNS, options={"bucket": "-1"})


def write(table: Table, ids: list[int], n: int, kinds: list[int] | None = None) -> None:
    rows = pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int32())})
    table.write(rows, None if kinds is None else pa.array(kinds, pa.int8()))


def query(table: Table, **options: str) -> ChangeQuery:
    named = {key.replace("__", "."): text for key, text in options.items()}
    return ChangeQuery({"path": table.path, "read.changelog": "true", **named})


def rebuilt(rows: list[dict[str, Any]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for row in rows:
        if row["_row_kind"] in (0, 2):
            found[row["id"]] = row["n"]
        elif row["_row_kind"] == 3:
            found.pop(row["id"], None)
    return found


def content(table: Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in open_table(table.path).to_arrow().to_pylist()}


def changes(table: Table) -> dict[int, list[tuple[int, int, int]]]:
    """The changes of each snapshot that is there."""
    found = {}
    for snapshot_id in table.snapshots()["snapshot_id"].to_pylist():
        rows = table.to_arrow(snapshot=snapshot_id, changes_since=snapshot_id - 1).to_pylist()
        found[snapshot_id] = sorted((r["id"], r["n"], r["_row_kind"]) for r in rows)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"changelog-producer": "input"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "full-compaction"},
        {"deletion-vectors.enabled": "true"},
        {"bucket": "-1"},
    ],
    ids=lambda o: "-".join(o.values()) or "none",
)
def test_changes_come_once_and_in_order_while_others_write_compact_and_expire(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """A query that is killed again and again: its changes are those of each commit, and rebuild the table."""
    chance = random.Random(5)
    table = keyed(tmp_path, **options)
    write(table, list(range(20)), 0)
    limit = chance.choice([{}, {"read.stream.maxFilesPerTrigger": "2"}, {"read.stream.maxRowsPerTrigger": "9"}])
    running = query(table, **{"consumer-id": "c", **limit})
    expected: dict[int, list[tuple[int, int, int]]] = {}
    running.run(most=1)
    started = running.batches[0][0]["_commit_version"] if running.batches[0] else 1

    def point(name: str) -> None:
        if chance.random() < 0.15:
            raise Crash(name)

    kills = 0
    for step in range(1, 13):
        act = chance.random()
        if act < 0.75:
            ids = sorted(chance.sample(range(40), 6))
            write(table, ids, step, [chance.choice([0, 0, 2, 3]) for _ in ids])
        elif act < 0.9:
            table.compact(chance.choice(["full", "minor"]))
        expected.update(changes(table))
        table.expire_snapshots(retain_max=1, retain_min=1)
        if chance.random() < 0.7:
            try:
                running.run(point, most=3)
            except Crash:
                kills += 1
    if "changelog-producer" in options:
        table.compact()
        expected.update(changes(table))
    running.run()
    rows = running.rows()
    assert rebuilt(rows) == content(table)
    for snapshot_id, of_commit in expected.items():
        if snapshot_id > started:
            found = [r for r in rows if r["_commit_version"] == snapshot_id]
            assert sorted((r["id"], r["n"], r["_row_kind"]) for r in found) == of_commit, snapshot_id
    for key in range(40):
        versions = [r["_commit_version"] for r in rows if r["id"] == key]
        assert versions == sorted(versions)
    assert kills >= 2
    progress = next_of_consumers(handle_of(table).io, table.path)["c"]
    assert progress <= table.snapshots()["snapshot_id"].to_pylist()[-1] + 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [("insert", 3, 1), ("insert", 3, 2), ("insert", 4, 3)]),
        ({"scan__mode": "latest"}, [("insert", 4, 3)]),
        ({"scan__mode": "from-snapshot", "snapshot": "2"}, [("insert", 2, 2), ("insert", 4, 3)]),
        ({"scan__mode": "from-snapshot", "tag": "first"}, [("insert", 1, 1), ("insert", 2, 2), ("insert", 4, 3)]),
        ({"scan__mode": "from-snapshot-full", "snapshot": "1"}, [("insert", 1, 1), ("insert", 2, 2), ("insert", 4, 3)]),
        ({"scan__mode": "compacted-full"}, [("insert", 3, 1), ("insert", 3, 2), ("insert", 4, 3)]),
        ({"scan__mode": "from-timestamp", "timestamp": "second"}, [("insert", 2, 2), ("insert", 4, 3)]),
    ],
)
def test_a_stream_starts_where_it_is_told(tmp_path: Path, options: dict[str, str], expected: list[Any]) -> None:
    table = keyed(tmp_path)
    write(table, [1], 1)
    table.create_tag("first")
    write(table, [2], 2)
    table.compact()
    if options.get("timestamp") == "second":
        options = {**options, "timestamp": str(handle_of(table).snapshot_store.get(2).time_ms)}  # type: ignore[union-attr]
    running = query(table, **options)
    running.run()
    write(table, [3], 3)
    running.run()
    found = [(r["_change_type"], r["_commit_version"], r["n"]) for r in running.rows()]
    assert sorted(found, key=lambda f: f[2]) == expected


@pytest.mark.parametrize(
    ("said", "named", "given"),
    [
        ({"scan.mode": "latest"}, "'scan.mode' = 'latest'", {"scan__mode": "latest-full"}),
        ({"scan.snapshot-id": "2"}, "'scan.snapshot-id' = '2'", {"scan__mode": "default"}),
        ({"scan.timestamp-millis": "5"}, "'scan.timestamp-millis' = '5'", {"scan__mode": "latest-full"}),
        ({"scan.mode": "compacted-full"}, "'scan.mode' = 'compacted-full'", {"scan__mode": "compacted-full"}),
        ({"scan.tag-name": "full"}, "'scan.tag-name' = 'full'", {"scan__mode": "latest-full"}),
        ({"consumer-id": "c"}, "'consumer-id' = 'c'", {"consumer-id": "d"}),
        ({"consumer-id": "default"}, "'consumer-id' = 'default'", {"consumer-id": "d"}),
        ({"streaming-read-overwrite": "true"}, "'streaming-read-overwrite' = 'true'", None),
        ({"scan.mode": "full", "streaming-read-append-overwrite": "true"}, None, {}),
    ],
)
def test_what_the_table_says_of_streams_is_not_passed_over(
    tmp_path: Path, said: dict[str, str], named: str | None, given: dict[str, str] | None
) -> None:
    table = keyed(tmp_path)
    write(table, [1], 1)
    table.set_options(said)
    if named is not None:
        with pytest.raises((OptionError, UnsupportedTableError), match=named):
            query(table).run()
    if given is not None:
        running = query(table, **given)
        running.run()
        assert [r["n"] for r in running.rows()] == [1]


def test_a_stream_of_an_append_table_that_shows_overwrites_is_refused(tmp_path: Path) -> None:
    table = appended(tmp_path)
    table.set_options({"streaming-read-append-overwrite": "true"})
    with pytest.raises(
        UnsupportedTableError, match="'streaming-read-append-overwrite' = 'true', but streams of bucketline leave out"
    ):
        ChangeQuery({"path": table.path}).run()


def test_a_stream_of_an_empty_table_begins_with_its_first_snapshot(tmp_path: Path) -> None:
    table = appended(tmp_path)
    running = ChangeQuery({"path": table.path})
    assert running.run() == 1
    write(table, [1, 2], 1)
    assert running.run() == 1
    assert running.rows() == [{"id": 1, "n": 1}, {"id": 2, "n": 1}]


def test_limits_bound_each_batch_and_lose_nothing(tmp_path: Path) -> None:
    table = appended(tmp_path)
    for number in range(6):
        write(table, [number] * 10, number)
    for limit, sizes in (
        ({"read.stream.maxFilesPerTrigger": "4"}, [40, 20]),
        ({"read.stream.maxRowsPerTrigger": "25"}, [30, 30]),
        ({"read.stream.maxBytesPerTrigger": "1 b"}, [10] * 6),
    ):
        running = ChangeQuery({"path": table.path, **limit})
        running.run()
        assert [len(rows) for _, rows in sorted(running.batches.items()) if rows] == sizes


def test_a_consumer_keeps_what_is_not_read_and_a_new_stream_goes_on_there(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    write(table, [1], 1)
    running = query(table, **{"consumer-id": "c"})
    running.run()
    for n in range(2, 6):
        write(table, [1], n)
    table.expire_snapshots(retain_max=1, retain_min=1)
    running.run()
    assert [r["n"] for r in running.rows()] == [1, 2, 3, 4, 5]
    assert next_of_consumers(handle_of(table).io, table.path) == {
        "c": 2
    }  # Spark commits a batch when it plans the next one
    write(table, [1], 6)
    running.run()
    assert next_of_consumers(handle_of(table).io, table.path)["c"] > 2
    other = query(table, **{"consumer-id": "c"})
    other.run()
    assert [r["n"] for r in other.rows()] == [6]
    again = query(table, **{"consumer-id": "c", "consumer.ignore-progress": "true"})
    again.run()
    assert [r["n"] for r in again.rows()] == [6]
    assert again.rows()[0]["_commit_version"] == table.snapshots()["snapshot_id"].to_pylist()[-1]


def test_what_expired_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    write(table, [1], 1)
    running = query(table)
    running.run()
    for n in range(2, 6):
        write(table, [1], n)
    table.expire_snapshots(retain_max=1, retain_min=1)
    with pytest.raises(SnapshotExpiredError, match=r"snapshot 2, which the stream has reached.*'consumer-id'"):
        running.run()


def test_a_table_that_was_rolled_back_is_an_error(tmp_path: Path) -> None:
    table = appended(tmp_path)
    for n in range(3):
        write(table, [1], n)
    running = ChangeQuery({"path": table.path})
    running.run()
    table.rollback_to(1)
    with pytest.raises(SnapshotExpiredError, match="rolled back to snapshot 1"):
        running.run()


def test_changed_columns_stop_the_query_and_a_restart_goes_on_with_them(tmp_path: Path) -> None:
    table = appended(tmp_path)
    write(table, [1], 1)
    running = ChangeQuery({"path": table.path})
    named = ChangeQuery({"path": table.path, "columns": "id"})
    running.run()
    named.run()
    reader, of_named = running.reader(), named.reader()
    changed = table.add_column("note", "STRING")
    changed.write(pa.table({"id": [2], "n": pa.array([2], pa.int32()), "note": ["new"]}))
    start = {"snapshot": 2, "index": 0}
    with pytest.raises(SchemaMismatchError, match=r"note were changed before snapshot 2; start the query again"):
        reader.partitions(start, {"snapshot": 3, "index": 0})
    assert len(of_named.partitions(start, {"snapshot": 3, "index": 0})) == 1
    running.run()
    assert running.rows() == [{"id": 1, "n": 1}, {"id": 2, "n": 2, "note": "new"}]


def test_streams_whose_rows_would_mislead_are_refused(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    with pytest.raises(OptionError, match=r"'read.changelog' = true"):
        ChangeQuery({"path": table.path}).reader()
    with pytest.raises(SchemaMismatchError, match="'_row_kind' is requested twice"):
        query(table, columns="id,_row_kind,_row_kind").reader()
    other = create_table(
        str(tmp_path / "w/s.db/u"), COLUMNS, ["id"], options={"bucket": "1", "merge-engine": "partial-update"}
    )
    with pytest.raises(UnsupportedTableError, match=r"'changelog-producer' = 'lookup'"):
        query(other).reader()


def test_without_change_columns_removed_rows_are_left_out(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"changelog-producer": "input"})
    running = ChangeQuery({"path": table.path, "read.changelog": "false", "filter": "n < 5"})
    running.run()
    write(table, [1, 2, 3, 4], 1, [0, 1, 2, 3])
    write(table, [5], 9)
    running.run()
    assert running.rows() == [{"id": 1, "n": 1}, {"id": 3, "n": 1}]


@pytest.mark.parametrize(
    ("options", "at_first"),
    [
        ({}, {1: 1, 2: 2, 3: 2}),
        ({"changelog-producer": "input"}, {1: 1, 2: 2, 3: 2}),
        ({"changelog-producer": "lookup"}, {1: 1, 2: 1}),
        ({"changelog-producer": "full-compaction"}, {1: 1, 2: 1}),
        ({"deletion-vectors.enabled": "true"}, {1: 1, 2: 2, 3: 2}),
        ({"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}, {1: 1, 2: 2, 3: 2}),
        ({"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "changelog-producer": "lookup"}, {1: 1, 2: 1}),
    ],
    ids=lambda o: "-".join(map(str, o.values())),
)
def test_rows_that_wait_for_a_compaction_come_once(
    tmp_path: Path, options: dict[str, str], at_first: dict[int, int]
) -> None:
    """Either with the first snapshot, or as changes of the compaction that logs them."""
    table = keyed(tmp_path, **options)
    write(table, [1, 2], 1)
    table.compact()
    lazy = open_table(table.path, options={"compaction": "none"})
    rows = pa.table({"id": pa.array([2, 3], pa.int64()), "n": pa.array([2, 2], pa.int32())})
    lazy.write(rows)
    running = query(table)
    running.run()
    assert rebuilt(running.rows()) == at_first
    table.compact()
    running.run()
    assert rebuilt(running.rows()) == {1: 1, 2: 2, 3: 2}
    found = [(r["id"], r["n"]) for r in running.rows() if r["_row_kind"] in (0, 2)]
    assert len(found) == len(set(found))


def test_changes_stay_in_order_across_a_rescale(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    write(table, [1], 0)
    running = query(table, scan__mode="latest")
    running.run()
    for n in range(1, 4):
        write(table, list(range(20)), n)
    open_table(table.path).rescale(5)
    write(open_table(table.path), list(range(20)), 4)
    running.run()
    rows = running.rows()
    assert len(rows) == 80
    for key in range(20):
        assert [r["n"] for r in rows if r["id"] == key] == [1, 2, 3, 4]


def test_a_branch_has_its_own_stream_and_consumers(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    write(table, [1], 1)
    table.create_tag("first")
    table.create_branch("b", "first")
    write(table, [2], 2)
    running = query(table, branch="b", **{"consumer-id": "c"})
    running.run()
    assert rebuilt(running.rows()) == {1: 1}
    branch = open_table(table.path, options={"branch": "b"})
    assert list(next_of_consumers(handle_of(branch).io, handle_of(branch).metadata_path)) == ["c"]
    assert next_of_consumers(handle_of(table).io, table.path) == {}


def test_an_offset_survives_the_checkpoint() -> None:
    for offset in (Offset(StreamPosition(3, 2)), Offset(StreamPosition(4, 1, True), StreamPosition(4, 0, True))):
        assert offset_of(offset.to_json()) == offset
    with pytest.raises(OptionError, match="does not belong to this source"):
        offset_of({"topic": {"0": 1}})
