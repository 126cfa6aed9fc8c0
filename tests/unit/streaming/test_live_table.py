"""What a running stream holds of its table: one batch at a time by name, and a rollback is seen while it runs."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.table import Table, create_table
from bucketline.streaming.commit_step import batch_properties
from bucketline.streaming.identity import BatchIdentity
from bucketline.streaming.live_table import LiveTable, live_table
from bucketline.streaming.recover import CheckpointMismatchError, WriteBatch, decide

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])


def keyed(path: Path) -> Table:
    return create_table(str(path / "shop.db" / "t"), COLUMNS, primary_key=("id",), options={"bucket": "2"})


def batch(batch_id: int) -> BatchIdentity:
    return BatchIdentity("q", batch_id, None, f"[{batch_id}]", f"digest-{batch_id}", run_id="run")


def commit_empty(table: LiveTable, batch_id: int) -> None:
    table.session.commit([], user=table.user, identifier=batch_id, properties=batch_properties(batch(batch_id)))


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
    table = LiveTable(made.path, {}, "q")
    for batch_id in range(3):
        table.session.refresh()
        assert decide(batch(batch_id), table.history(), allow_reprocess=False) == WriteBatch()
        commit_empty(table, batch_id)
    table.session.refresh()
    table.history()
    made.rollback_to(1)
    if others_go_on:
        made.write(pa.table({"id": [1], "n": pa.array([1], pa.int32())}, schema=COLUMNS))
    table.session.refresh()
    with pytest.raises(CheckpointMismatchError) as caught:
        decide(batch(3), table.history(), allow_reprocess=False)
    assert isinstance(caught.value, BucketlineError) and caught.value.fields["table_batch"] == 0
