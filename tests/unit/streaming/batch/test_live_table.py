"""What a running stream holds of its table: one batch at a time by name, and a rollback is seen while it runs."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.bucket.accept_rows import accept_rows
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.replay import MARKER_TAG, commit_user, compactor_user, writer_of
from bucketline.state.errors import CommitConflictError, MissingSnapshotError, UnsupportedTableError
from bucketline.state.format.entries import CommitKind
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.engine.engine import NO_ROWS, Outcome
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.bucket_writer import CompactTrigger, write_bucket
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import RunSealer
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_plan import WriteScope
from bucketline.streaming.batch.commit import batch_properties, commit_owed_compaction, settle_skipped
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import live_table
from bucketline.streaming.batch.recover import CheckpointMismatchError, SkipBatch, WriteBatch, decide
from bucketline.streaming.decode.rejects import RejectedRecordsError, rejected_rows
from bucketline.streaming.job.kafka.table_offsets import kafka_topics, newest_offsets
from tests.support.spark.stream_run import StreamRun
from tests.support.spark.tasks import killed_at

QUERY = "3f2b1c9e-0d4a-4f6b-8c7d-1e2f3a4b5c6d"
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])

ROWS = pa.table({"id": [1], "n": pa.array([1], pa.int32())}, schema=COLUMNS)


def keyed(path: Path) -> Table:
    return create_table(str(path / "shop.db" / "t"), COLUMNS, primary_key=("id",), options={"bucket": "2"})


def batch(batch_id: int) -> BatchIdentity:
    return BatchIdentity("q", batch_id, None, f"[{batch_id}]", f"digest-{batch_id}", run_id="run")


def up_to(offset: int, batch_id: int) -> BatchIdentity:
    """A batch that ends at this offset of the topic `orders`."""
    return replace(batch(batch_id), end_offsets=json.dumps([{"orders": {"0": offset}}]))


def commit_empty(table: StreamRun, batch_id: int) -> None:
    commit_change(table.at, appended(table.at, []), Author(table.user, batch_id, batch_properties(batch(batch_id))))


@pytest.mark.parametrize("again", [{"compaction": "none"}, {}])
def test_a_second_call_in_a_batch_is_refused_whatever_its_options_and_spelling(
    tmp_path: Path, again: dict[str, str]
) -> None:
    path = keyed(tmp_path).path
    first, second = live_table(path, {}, "q1"), live_table(f"file://{path}/", again, "q1")
    with first.batch(batch(0)), pytest.raises(UnsupportedTableError, match="same time"), second.batch(batch(0)):
        pass
    with pytest.raises(UnsupportedTableError, match="called twice"), second.batch(batch(0)):
        pass
    with second.batch(batch(1)), live_table(path, {}, "q2").batch(batch(1)):
        pass
    with second.batch(replace(batch(1), run_id="next run")):
        pass


@pytest.mark.parametrize("others_go_on", [False, True])
def test_a_rollback_behind_the_streams_commits_is_noticed_while_it_runs(tmp_path: Path, others_go_on: bool) -> None:
    made = keyed(tmp_path)
    table = StreamRun(made.path, {}, "q")
    for batch_id in range(3):
        table.refresh()
        assert decide(batch(batch_id), table.history(), allow_reprocess=False) == WriteBatch()
        commit_empty(table, batch_id)
    table.refresh()
    table.history()
    made.rollback_to(1)
    if others_go_on:
        made.write(pa.table({"id": [1], "n": pa.array([1], pa.int32())}, schema=COLUMNS))
    table.refresh()
    with pytest.raises(CheckpointMismatchError) as caught:
        decide(batch(3), table.history(), allow_reprocess=False)
    assert isinstance(caught.value, BucketlineError) and caught.value.fields["table_batch"] == 0


def restart(path: str, batch_id: int) -> tuple[StreamRun, object]:
    """A new process of the same query, and what it does with a batch."""
    table = StreamRun(path, {}, QUERY)
    table.refresh()
    return table, decide(batch(batch_id), table.history(), allow_reprocess=False)


def late_compaction(path: str, publish: Callable[[StreamRun, CommitMessage], object]) -> Table:
    """A table of two batches, where the compaction that batch 0 owed is published after batch 1 by a slow run."""
    made = open_table(path)
    made.write(ROWS)
    slow, stream = StreamRun(path, {}, QUERY), StreamRun(path, {}, QUERY)
    for table in (slow, stream):
        table.refresh()
        table.history()
    stream.commit_batch(batch(0), Outcome((), (), ()))
    made.write(ROWS)
    slow.refresh()
    slow.history()
    states = slow.at.bucket_states(CompactTrigger.FULL)
    [due] = slow.at.due(CompactTrigger.FULL)
    message = write_bucket(slow.at.plan.bucket_write(CompactTrigger.FULL), due, states[due], [])
    stream.empty_batch(batch(1))
    publish(slow, message)
    newest = handle_of(made).snapshot_store.latest()
    assert newest is not None and newest.commit_kind is CommitKind.COMPACT
    return made


def owed(slow: StreamRun, message: CommitMessage) -> None:
    assert commit_owed_compaction(slow.target, 0, (message,)).committed.snapshots


def as_the_writer(slow: StreamRun, message: CommitMessage) -> None:
    """As the compaction half of a batch's own commit is published, and as older releases published owed ones."""
    properties = batch_properties(batch(0))
    commit_change(slow.at, Compact((message,)), Author(QUERY, 0, properties))


@pytest.mark.parametrize("publish", [owed, as_the_writer])
@pytest.mark.parametrize("expired", [False, True])
def test_a_compaction_that_comes_after_the_next_batch_does_not_hide_it(
    tmp_path: Path, publish: Callable[[StreamRun, CommitMessage], object], expired: bool
) -> None:
    """Batch 1 is in the table, and the process dies before Spark notes it: batch 1 comes again."""
    made = late_compaction(keyed(tmp_path).path, publish)
    if expired:
        made.expire_snapshots(retain_min=1, retain_max=1)
        assert made.snapshots().num_rows == 1
    table, decision = restart(made.path, 1)
    assert isinstance(decision, SkipBatch)
    settle_skipped(table.target)
    assert marked(made) == 1
    assert restart(made.path, 2)[1] == WriteBatch()


def marked(made: Table) -> int:
    """The batch that the writer's marker tag is at."""
    tag = Tags(handle_of(made).io, made.path).get(MARKER_TAG + QUERY)
    assert tag is not None
    return tag.snapshot.commit_identifier


def test_a_slow_run_does_not_move_the_marker_back(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    slow, stream = StreamRun(made.path, {}, QUERY), StreamRun(made.path, {}, QUERY)
    reports = []
    for batch_id in range(2):
        reports.append(stream.empty_batch(batch(batch_id)))
    assert marked(made) == 1
    slow.mark(reports[0].committed.snapshots[0])
    assert marked(made) == 1
    made.rollback_to(1)
    stream.refresh()
    stream.mark(reports[0].committed.snapshots[0])
    assert marked(made) == 0


def test_where_a_stream_has_got_to_is_told_by_rows_not_by_a_late_compaction(tmp_path: Path) -> None:
    def publish(slow: StreamRun, message: CommitMessage) -> None:
        properties = batch_properties(up_to(5, 0))
        commit_change(slow.at, Compact((message,)), Author(QUERY, 0, properties))
        tag = slow.at.table.snapshot_store.latest()
        assert tag is not None and kafka_topics(tag)

    made = keyed(tmp_path)
    stream = StreamRun(made.path, {}, QUERY)
    made.write(ROWS)
    slow = StreamRun(made.path, {}, QUERY)
    for batch_id, end in enumerate((5, 9)):
        stream.empty_batch(up_to(end, batch_id))
    slow.refresh()
    states = slow.at.bucket_states(CompactTrigger.FULL)
    [due] = slow.at.due(CompactTrigger.FULL)
    publish(slow, write_bucket(slow.at.plan.bucket_write(CompactTrigger.FULL), due, states[due], []))
    [found] = newest_offsets(open_table(made.path))
    assert found.topics == {"orders": {"0": 9}}


@pytest.mark.parametrize("prefix", ["", "nightly_"])
def test_a_rollback_leaves_word_of_where_each_stream_has_got_to(tmp_path: Path, prefix: str) -> None:
    """Its snapshot may expire before the stream, or another one in its place, goes on."""
    made = keyed(tmp_path)
    if prefix:
        made.set_options({"commit.user-prefix": prefix.rstrip("_")})
    streams = {user: StreamRun(made.path, {}, user) for user in (QUERY, f"{QUERY}-late")}
    for batch_id, user in enumerate((QUERY, QUERY, QUERY, f"{QUERY}-late")):
        streams[user].empty_batch(up_to(batch_id + 1, batch_id))
    made.rollback_to(2)
    assert made.tags()["tag_name"].to_pylist() == [MARKER_TAG + QUERY]
    made.write(ROWS)
    made.expire_snapshots(retain_min=1, retain_max=1)
    [found] = newest_offsets(open_table(made.path))
    assert (found.snapshot.commit_user, found.topics) == (prefix + QUERY, {"orders": {"0": 2}})


def test_a_new_query_reads_each_snapshot_once_to_learn_what_others_have_written(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    stream, late = StreamRun(made.path, {}, QUERY), StreamRun(made.path, {}, f"{QUERY}-late")
    for batch_id in range(20):
        stream.empty_batch(up_to(batch_id + 1, batch_id))
    late.refresh()
    with killed_at(None) as asked:
        found = late.history()
    assert [s.commit_identifier for s in found.others] == [19]
    assert 20 <= asked.calls < 30


@pytest.mark.parametrize(("damaged", "kept"), [(1, [2]), (2, []), (3, [])])
def test_a_rollback_does_not_need_older_snapshots(tmp_path: Path, damaged: int, kept: list[int]) -> None:
    """From snapshot 4 down it looks for the stream's newest batch, to move the stream's tag there. Behind a damaged
    snapshot lie only batches that may not be the newest: then the tag is removed. Tags that users made do not count."""
    made = keyed(tmp_path)
    stream = StreamRun(made.path, {}, QUERY)
    for batch_id in range(3):
        stream.empty_batch(batch(batch_id))
        if batch_id == 1:
            made.write(ROWS)
            made.write(ROWS)
    made.create_tag("first", 1)
    Path(made.path, "snapshot", f"snapshot-{damaged}").write_text("")
    made.rollback_to(4)
    tags = [(t.name, t.snapshot.id) for t in Tags(handle_of(made).io, made.path).list()]
    assert tags == [("first", 1), *((MARKER_TAG + QUERY, i) for i in kept)]
    assert open_table(made.path).to_arrow().num_rows == ROWS.num_rows


@pytest.mark.parametrize("prefix", [None, "nightly", "a_b", QUERY])
def test_no_compactors_name_is_taken_for_a_writers(prefix: str | None) -> None:
    for writer in (QUERY, f"{QUERY}-second", "q"):
        user = commit_user(prefix, compactor_user(writer))
        assert writer_of(user) != writer_of(commit_user(prefix, writer)) and writer_of(user) != writer


@pytest.mark.parametrize("left", [0, 2])
def test_a_checkpoint_proves_batches_whose_snapshots_are_gone(tmp_path: Path, left: int) -> None:
    made = keyed(tmp_path)
    rows = pa.table({"id": [1], "n": pa.array([1], pa.int32())}, schema=COLUMNS)
    made.write(rows)
    table = StreamRun(made.path, {}, "q")
    for batch_id in range(3):
        table.refresh()
        commit_empty(table, batch_id)
    for path in (Path(made.path) / "snapshot").iterdir():
        if path.name in ("LATEST", "EARLIEST") or int(path.name.rpartition("-")[2]) > left:
            path.unlink()

    def next_batch() -> None:
        again = StreamRun(made.path, {}, "q")
        again.refresh()
        try:
            decide(batch(3), again.history(), allow_reprocess=False)
        except CheckpointMismatchError as e:
            again.check_rolled_back(e)
            raise

    with pytest.raises(MissingSnapshotError, match="the checkpoint, at batch 3") as caught:
        next_batch()
    assert caught.value.fields["newest"] == (left or None)
    if left:
        made.rollback_to(left)
        with pytest.raises(CheckpointMismatchError, match="rolled back"):
            next_batch()
    else:
        shutil.rmtree(made.path)
        keyed(tmp_path)
        with pytest.raises(CheckpointMismatchError, match="replaced"):
            next_batch()


def test_a_batch_without_changes_leaves_its_mark_even_where_the_table_wants_no_empty_snapshots(tmp_path: Path) -> None:
    """Without it, the next batch would not find its predecessor and take the table for rolled back."""
    made = keyed(tmp_path).set_options({"snapshot.ignore-empty-commit": "true"})
    table = StreamRun(made.path, {}, "q")
    for batch_id in range(3):
        table.refresh()
        assert decide(batch(batch_id), table.history(), allow_reprocess=False) == WriteBatch()
        report = table.commit_batch(batch(batch_id), Outcome((), (), ()))
        assert report.committed.snapshot_ids == (batch_id + 1,)


def test_a_batch_that_is_refused_or_loses_leaves_no_files_behind(tmp_path: Path) -> None:
    made = create_table(str(tmp_path / "shop.db" / "d"), COLUMNS, primary_key=("id",), options={"bucket": "-1"})
    rows = pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int32())}, schema=COLUMNS)
    made.write(rows)
    table = StreamRun(made.path, {}, "q")
    table.refresh()
    before = files_below(made.path)
    rejects = rejected_rows(rows, pa.chunked_array([["bad", "bad"]]), 2).blob
    with pytest.raises(RejectedRecordsError):
        table.commit_batch(batch(0), Outcome(written(table), (rejects,), ()))
    assert files_below(made.path) == before
    messages = written(table)
    made.write(rows)  # a second writer, which dynamic buckets do not allow
    before = files_below(made.path) - {p for m in messages for p in promised(handle_of(made), m)}
    with pytest.raises(CommitConflictError):
        table.commit_batch(batch(0), Outcome(messages, (), ()))
    assert files_below(made.path) == before


def files_below(path: str) -> set[str]:
    return {str(p) for folder in ("bucket-*", "index") for p in Path(path).glob(f"{folder}/*")}


def promised(table: TableHandle, message: CommitMessage) -> set[str]:
    data = {f"{table.path}/bucket-{message.bucket}/{f.file_name}" for f in message.made_files}
    return data | {f"{table.path}/index/{e.file_name}" for e in message.new_index_files}


def written(table: StreamRun) -> tuple[CommitMessage, ...]:
    """Messages of a batch that opens a bucket's HASH file anew, their files on disk."""
    session = table.at
    scope = WriteScope(CompactTrigger.NONE, table.user)
    stages = session.plan.mode.stages(session.plan, session, scope, NO_ROWS)
    sealer = RunSealer(stages.seal, origin=0)
    rows = pa.table({"id": [2, 3], "n": pa.array([7, 8], pa.int32())}, schema=COLUMNS)
    with RunBuffer(budget_bytes=1 << 20) as buffer:
        for run in (*sealer.add(accept_rows(rows, session.plan.schema)), *sealer.finish()):
            buffer.add(run)
        found = tuple(m for m in write_buckets(stages.write, buffer) if isinstance(m, CommitMessage))
    assert all(Path(p).exists() for m in found for p in promised(session.table, m))
    assert any(m.new_index_files for m in found)
    return found
