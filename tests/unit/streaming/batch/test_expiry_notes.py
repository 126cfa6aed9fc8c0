"""A stopped stream restarts though later snapshots have expired: expiry noted that none of them was its own."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.commit.author import Author
from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.streaming.batch.commit import batch_properties
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.recover import CheckpointMismatchError, SkipBatch, WriteBatch, decide
from tests.support.spark.stream_run import StreamRun

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])
ROWS = pa.table({"id": [1], "n": pa.array([1], pa.int32())}, schema=COLUMNS)


def keyed(path: Path) -> Table:
    return create_table(str(path / "shop.db" / "t"), COLUMNS, primary_key=("id",), options={"bucket": "1"})


def batch(batch_id: int) -> BatchIdentity:
    return BatchIdentity("q", batch_id, None, f"[{batch_id}]", f"digest-{batch_id}", run_id="run")


def stream_batches(path: str, *numbers: int) -> None:
    table = StreamRun(path, {}, "q")
    for number in numbers:
        table.refresh()
        assert decide(batch(number), table.history(), allow_reprocess=False) == WriteBatch()
        table.commit_batch(batch(number), Outcome((), (), ()))


def restart(path: str, number: int, end_offsets: str | None = None) -> object:
    table = StreamRun(path, {}, "q")
    table.refresh()
    identity = batch(number) if end_offsets is None else replace(batch(number), end_offsets=end_offsets)
    return decide(identity, table.history(), allow_reprocess=False)


def test_expiry_of_what_others_wrote_lets_the_stream_restart(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    stream_batches(made.path, 0, 1)
    for _ in range(3):
        for _ in range(4):
            made.write(ROWS)
        made.expire_snapshots(retain_min=1, retain_max=1)
    assert made.snapshots()["snapshot_id"].to_pylist()[0] > 3
    assert restart(made.path, 2) == WriteBatch()
    stream_batches(made.path, 2)


def test_a_batch_of_the_stream_among_what_expired_is_not_overlooked(tmp_path: Path) -> None:
    """The stream died after its commit, before its marker moved."""
    made = keyed(tmp_path)
    stream_batches(made.path, 0, 1)
    died = StreamRun(made.path, {}, "q")
    died.refresh()
    commit_change(died.at, appended(died.at, [], ignore_empty=False), Author("q", 2, batch_properties(batch(2))))
    for _ in range(3):
        made.write(ROWS)
    made.expire_snapshots(retain_min=1, retain_max=1)
    with pytest.raises(CheckpointMismatchError):
        restart(made.path, 2)


def others_write_and_expire(made: Table) -> None:
    for _ in range(3):
        for _ in range(4):
            made.write(ROWS)
        made.expire_snapshots(retain_min=1, retain_max=1)


def test_a_running_stream_goes_on_when_its_newest_batch_expires_before_the_next_one(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    table = StreamRun(made.path, {}, "q")
    for number in (0, 1, 2):
        table.refresh()
        assert decide(batch(number), table.history(), allow_reprocess=False) == WriteBatch()
        table.commit_batch(batch(number), Outcome((), (), ()))
    others_write_and_expire(made)
    table.refresh()
    assert decide(batch(3), table.history(), allow_reprocess=False) == WriteBatch()


def test_a_restarted_stream_that_skipped_a_batch_by_its_tag_goes_on_beside_others(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    stream_batches(made.path, 0, 1)
    others_write_and_expire(made)
    restarted = StreamRun(made.path, {}, "q")
    restarted.refresh()
    assert isinstance(decide(batch(1), restarted.history(), allow_reprocess=False), SkipBatch)
    made.write(ROWS)
    restarted.refresh()
    assert decide(batch(2), restarted.history(), allow_reprocess=False) == WriteBatch()


def test_a_batch_that_another_run_wrote_and_others_expired_is_not_written_again(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    stream_batches(made.path, 0, 1)
    paused = StreamRun(made.path, {}, "q")
    paused.refresh()
    paused.history()
    stream_batches(made.path, 2)
    others_write_and_expire(made)
    paused.refresh()
    assert isinstance(decide(batch(2), paused.history(), allow_reprocess=False), SkipBatch)


def test_what_somebody_else_expired_without_a_note_is_not_taken_for_seen(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    stream_batches(made.path, 0, 1)
    for _ in range(3):
        made.write(ROWS)
    for snapshot_id in (1, 2, 3):
        (Path(made.path) / "snapshot" / f"snapshot-{snapshot_id}").unlink()
    open_table(made.path).expire_snapshots(retain_min=1, retain_max=1)
    with pytest.raises(CheckpointMismatchError):
        restart(made.path, 2)


@pytest.mark.parametrize("text", ["", "{", '{"version": 2, "marker": 2, "seenUpTo": 99}', '{"version": 1}', "[1]"])
def test_a_note_that_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    made = keyed(tmp_path)
    stream_batches(made.path, 0, 1)
    for _ in range(3):
        made.write(ROWS)
    made.expire_snapshots(retain_min=1, retain_max=1)
    note = Path(made.path) / "bucketline" / "expired-q"
    assert note.exists()
    note.write_text(text)
    with pytest.raises(CheckpointMismatchError):
        restart(made.path, 2)


def test_a_note_goes_with_its_marker_and_orphan_removal_leaves_it_alone(tmp_path: Path) -> None:
    made = keyed(tmp_path)
    stream_batches(made.path, 0, 1)
    for _ in range(3):
        made.write(ROWS)
    made.expire_snapshots(retain_min=1, retain_max=1)
    note = Path(made.path) / "bucketline" / "expired-q"
    assert made.doctor() == [] and note.exists()
    made.delete_tag(MARKER_TAG + "q")
    assert not note.exists()


def test_a_new_query_knows_of_another_by_its_tag_when_its_snapshots_have_expired(tmp_path: Path) -> None:
    made, ends = keyed(tmp_path), '[{"t": {"0": 5}}]'
    StreamRun(made.path, {}, "old").empty_batch(replace(batch(0), query_id="old", end_offsets=ends))
    made.write(ROWS)
    made.expire_snapshots(retain_min=1, retain_max=1)
    with pytest.raises(CheckpointMismatchError, match="query old has already written topic 't'"):
        restart(made.path, 0, ends)
