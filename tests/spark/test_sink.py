"""TableSink under a running query: rows, snapshots, restarts, and what is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.state.store.index.hash_index_store import shared_hash_cache
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.tasks.start_workers import start_workers_beside
from bucketline.streaming.tasks.write_task import WriteTask
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int64())])
DDL = "id long, name string, n long"


def batch(number: int, *, keys: int = 50, rows: int = 200) -> pa.Table:
    ids = [(i * 7 + number * 3) % keys for i in range(rows)]
    return pa.table({"id": ids, "name": [f"{number}-{i}" for i in range(rows)], "n": [number] * rows}, schema=COLUMNS)


def keyed(path: Path, **options: str) -> Table:
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "4", **options})


def content(table: Table) -> dict[int, tuple[str, int]]:
    return {r["id"]: (r["name"], r["n"]) for r in open_table(table.path).to_arrow().to_pylist()}


def folded(*batches: pa.Table) -> dict[int, tuple[str, int]]:
    return {r["id"]: (r["name"], r["n"]) for b in batches for r in b.to_pylist()}


def error_of(run: Any) -> str:
    with pytest.raises(Exception) as caught:
        run()
    return str(caught.value)


def test_streams_upserts_with_periodic_full_compaction_counted_on_the_batch_id(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"full-compaction.delta-commits": "3"})
    stream, sink = FileStream(tmp_path, DDL), TableSink(table.path)
    batches = [batch(i) for i in range(7)]
    for data in batches[:4]:
        stream.add(data)
    stream.run(spark, sink)
    for data in batches[4:]:  # the restart in between must not shift the count
        stream.add(data)
    query = stream.run(spark, sink)
    assert content(table) == folded(*batches)
    found = [(s["commit_identifier"], s["commit_kind"]) for s in table.snapshots().to_pylist()]
    expected = [(i, kind) for i in range(7) for kind in (["APPEND", "COMPACT"] if i % 3 == 2 else ["APPEND"])]
    assert found == expected
    assert set(table.snapshots()["commit_user"].to_pylist()) == {str(query.id)}


def test_a_batch_is_one_spark_job(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = FileStream(tmp_path, DDL)
    stream.add(batch(0))
    stream.add(batch(1))
    jobs: list[int] = []
    sink = TableSink(table.path)

    def counted(frame: Any, batch_id: int) -> None:
        group = frame.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
        tracker = frame.sparkSession.sparkContext.statusTracker()
        before = len(tracker.getJobIdsForGroup(group))
        sink(frame, batch_id)
        jobs.append(len(tracker.getJobIdsForGroup(group)) - before)

    stream.run(spark, counted)
    assert jobs == [1, 1]


def test_python_workers_start_beside_the_program_that_makes_a_sink_once_in_an_application(spark: Any) -> None:
    def starts() -> int:
        jobs = spark._jsparkSession.sparkContext().statusStore().jobsList(None)
        descriptions = [str(jobs.apply(number).description()) for number in range(jobs.size())]
        return descriptions.count("Some(bucketline: Python workers start)")

    begun, before = set[str](), starts()
    thread = start_workers_beside(spark, (WriteTask,), begun)
    assert thread is not None
    thread.join(120)
    assert not thread.is_alive() and starts() == before + 1
    assert start_workers_beside(spark, (WriteTask,), begun) is None

    TableSink("/no/such/table")
    assert start_workers_beside(spark, (WriteTask,)) is None, "the sink has started them"


def test_a_batch_that_spark_replays_is_written_once(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    free = create_table(str(tmp_path / "shop.db" / "free"), COLUMNS)
    stream = FileStream(tmp_path, DDL)
    sink, other = TableSink(table.path), TableSink(free.path)

    def both(frame: Any, batch_id: int) -> None:
        sink(frame, batch_id)
        other(frame, batch_id)

    for i in range(2):
        stream.add(batch(i))
    stream.run(spark, both)
    stream.forget_commit(1)
    stream.run(spark, both)
    assert table.snapshots().num_rows == 2
    assert free.snapshots().num_rows == 2
    assert free.to_arrow().num_rows == 400


def test_a_replayed_batch_still_gets_the_compaction_it_owed(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"full-compaction.delta-commits": "2"})
    stream, sink = FileStream(tmp_path, DDL), TableSink(table.path)
    for i in range(2):
        stream.add(batch(i))
    stream.run(spark, sink)
    assert table.snapshots()["commit_kind"].to_pylist() == ["APPEND", "APPEND", "COMPACT"]
    store = handle_of(table).snapshot_store
    Path(store.path(3)).unlink()
    store.write_latest_hint(2)
    stream.forget_commit(1)
    stream.run(spark, sink)
    assert table.snapshots()["commit_kind"].to_pylist() == ["APPEND", "APPEND", "COMPACT"]
    assert table.snapshots()["commit_identifier"].to_pylist() == [0, 1, 1]
    assert {f["level"] for f in table.files().to_pylist()} == {5}
    assert content(table) == folded(batch(0), batch(1))


def test_a_checkpoint_that_was_rewound_is_refused_with_remedies(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream, sink = FileStream(tmp_path, DDL), TableSink(table.path)
    for i in range(3):
        stream.add(batch(i))
    stream.run(spark, sink)
    stream.rewind_to(1)
    (stream.folder / "000001.parquet").unlink()
    message = error_of(lambda: stream.run(spark, sink))
    assert "checkpoint was rewound" in message and "--allow-reprocess" in message
    assert table.snapshots().num_rows == 3
    stream.run(spark, TableSink(table.path, allow_reprocess=True))
    assert table.snapshots().num_rows == 4


def test_a_checkpoint_ahead_of_the_table_is_refused(spark: Any, tmp_path: Path) -> None:
    table, other = keyed(tmp_path / "a"), keyed(tmp_path / "b")
    stream = FileStream(tmp_path, DDL)
    stream.add(batch(0))
    stream.run(spark, TableSink(table.path))
    stream.add(batch(1))
    message = error_of(lambda: stream.run(spark, TableSink(other.path)))
    assert "newest batch of this query that the table still shows is none" in message
    assert other.snapshots().num_rows == 0


def test_a_second_call_in_one_batch_is_refused_and_sink_ids_allow_it(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream, sink = FileStream(tmp_path, DDL), TableSink(table.path)

    def twice(frame: Any, batch_id: int) -> None:
        sink(frame.where("id < 10"), batch_id)
        sink(frame.where("id >= 10"), batch_id)

    stream.add(batch(0))
    assert "called twice" in error_of(lambda: stream.run(spark, twice))
    named = [TableSink(table.path, sink_id=name) for name in ("low", "high")]

    def each(frame: Any, batch_id: int) -> None:
        named[0](frame.where("id < 10"), batch_id)
        named[1](frame.where("id >= 10"), batch_id)

    stream.run(spark, each)
    assert content(table) == folded(batch(0))


def test_columns_are_matched_by_name_and_a_wrong_one_is_named(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream, sink = FileStream(tmp_path, DDL), TableSink(table.path)
    stream.add(batch(0))
    cases = [
        (lambda f: f.withColumn("extra", f["n"]), "column 'extra' of the input is not in the table"),
        (lambda f: f.drop("name"), "column 'name' of the table is not in the input"),
        (lambda f: f.withColumn("id", f["name"]), "id"),
    ]
    for change, told in cases:
        assert told in error_of(lambda c=change: stream.run(spark, lambda f, i: sink(c(f), i)))
    assert table.snapshots().num_rows == 0
    stream.run(spark, lambda f, i: sink(f.select("n", "name", "id"), i))
    assert content(table) == folded(batch(0))


def test_columns_have_any_names(spark: Any, tmp_path: Path) -> None:
    """PySpark takes a dot for the way to a field: the batch failed with UNRESOLVED_COLUMN."""
    names = ["k.b", "a`b", "Größe %", "select", "p/q"]
    columns = pa.schema([pa.field(names[0], pa.int64(), nullable=False), *((name, pa.string()) for name in names[1:])])
    table = create_table(str(tmp_path / "w.db" / "t"), columns, ("k.b", "p/q"), ("p/q",), options={"bucket": "2"})
    ddl = ", ".join(f"`{f.name.replace('`', '``')}` {'long' if f.type == pa.int64() else 'string'}" for f in columns)
    rows = [dict(zip(names, (i, f"{i}.", "x", None, part), strict=True)) for i, part in enumerate(("a.b/c", "%2F:`"))]
    stream = FileStream(tmp_path, ddl)
    stream.add(pa.Table.from_pylist(rows, columns))
    stream.run(spark, lambda frame, batch_id: TableSink(table.path)(frame.repartition(2), batch_id))
    found = open_table(table.path).to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["k.b"]) == rows


def test_a_partitioned_table_with_row_kinds(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("day", pa.string(), nullable=False), *COLUMNS])
    table = create_table(str(tmp_path / "shop.db" / "p"), schema, ("day", "id"), ("day",), {"bucket": "2"})
    stream = FileStream(tmp_path, f"day string, {DDL}, _row_kind byte")
    expected: dict[tuple[str, int], int] = {}
    for number in range(3):
        data = batch(number)
        days = pa.array([f"d{i % 3}" for i in data["id"].to_pylist()])
        kinds = pa.array([3 if (i + number) % 5 == 0 else 0 for i in range(data.num_rows)], pa.int8())
        for i, (day, kind) in enumerate(zip(days.to_pylist(), kinds.to_pylist(), strict=True)):
            key = (day, data["id"][i].as_py())
            if kind:
                expected.pop(key, None)
            else:
                expected[key] = number
        stream.add(data.append_column("day", days).append_column("_row_kind", kinds))
    stream.run(spark, TableSink(table.path))
    found = {(r["day"], r["id"]): r["n"] for r in open_table(table.path).to_arrow().to_pylist()}
    assert found == expected


def test_offsets_are_in_the_snapshots_and_an_empty_batch_makes_one(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = FileStream(tmp_path, DDL)
    stream.add(batch(0))
    stream.add(batch(1))
    stream.run(spark, lambda f, i: TableSink(table.path)(f.where("false") if i == 1 else f, i))
    snapshots = [handle_of(table).snapshot_store.get(i) for i in handle_of(table).snapshot_store.ids()]
    assert [s.commit_identifier for s in snapshots if s is not None] == [0, 1]
    assert all("bucketline.batch-digest" in s.properties for s in snapshots if s is not None)


def test_poison_rows_stop_the_job_or_go_to_the_reject_folder(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream, folder = FileStream(tmp_path, f"{DDL}, _row_kind byte"), tmp_path / "rejects"
    good = batch(0, rows=40)
    poison = pa.table(
        {"id": [None, 77], "name": ["no key", "no kind"], "n": [1, 1]}, schema=pa.schema([*COLUMNS]).remove(0).insert(
            0, pa.field("id", pa.int64()))
    )  # fmt: skip
    rows = pa.concat_tables([good.cast(poison.schema), poison])
    stream.add(rows.append_column("_row_kind", pa.array([0] * 41 + [9], pa.int8())))
    options = {"bad-records.path": str(folder), "bad-records.max": "1"}
    message = error_of(lambda: stream.run(spark, TableSink(table.path)))
    assert "batch 0 has at least 2 bad records" in message
    assert "column 'id' is null" in message or "no valid row kind" in message
    message = error_of(lambda: stream.run(spark, TableSink(table.path, options)))
    assert "raise bad-records.max, which allows 1 bad record in a batch" in message
    assert table.snapshots().num_rows == 0 and not folder.exists()
    stream.run(spark, TableSink(table.path, {**options, "bad-records.max": "2"}))
    assert content(table) == folded(good)
    kept = pq.read_table(folder).to_pylist()
    told = sorted(r["reason"].split(",")[0] for r in kept)
    assert told == ["column 'id' is null", "column _row_kind has no valid row kind (0 to 3)"]
    assert any(b'"no key"' in r["value"] for r in kept)


@pytest.mark.parametrize(
    "options", [{"bucket": "-1"}, {"bucket": "1", "full-compaction.delta-commits": "1"}], ids=["index", "data"]
)
def test_a_batch_whose_snapshot_has_expired_in_a_task_is_planned_again(
    spark: Any, tmp_path: Path, options: dict[str, str]
) -> None:
    """Spark passes on the error of the task as text."""
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    table.write(batch(0))
    path, done, theirs = table.path, tmp_path / "done", batch(0, keys=60)

    def decode(records: pa.Table) -> DecodedRows:
        if not done.exists():
            done.touch()
            shared_hash_cache.cache_clear()
            other = open_table(path)
            other.write(theirs)
            other.compact()
            other.expire_snapshots(retain_min=1, retain_max=1)
        return DecodedRows(records)

    stream, ours = FileStream(tmp_path, DDL), batch(2)
    stream.add(ours)
    stream.run(spark, TableSink(table.path, decode=decode))
    assert done.exists() and content(table) == folded(batch(0), theirs, ours)
