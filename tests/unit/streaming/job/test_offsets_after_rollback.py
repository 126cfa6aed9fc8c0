"""After a rollback that died, at whichever step, a table names the offsets of the snapshots that are left."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.job.kafka.table_offsets import newest_offsets
from tests.support.spark.stream_run import StreamRun
from tests.support.spark.tasks import killed_at

USERS = [f"{i:08d}-1111-4222-8333-444455556666" for i in range(2)]


@pytest.mark.parametrize("at", range(1, 25))  # the rollback makes 21 calls to the storage
def test_offsets_are_those_of_the_snapshots_that_are_left(tmp_path: Path, at: int) -> None:
    """A rollback moves the tags of streams back, then removes snapshots, then its own tag. Tags that it has left behind
    when it dies must not count."""
    path = str(tmp_path / "t")
    table = create_table(path, "id BIGINT NOT NULL, n BIGINT", primary_key=["id"], options={"bucket": "1"})
    streams = [StreamRun(path, {}, user) for user in USERS]
    for batch_id in range(4):
        for stream in streams:
            end = json.dumps([{stream.user: {"0": batch_id + 1}}])
            stream.empty_batch(BatchIdentity(stream.user, batch_id, None, end, f"{batch_id}"))
    with killed_at(at):
        table.rollback_to(4)
    table = open_table(path)
    table.write(pa.table({"id": [1], "n": [1]}))
    was_rolled_back = {4 + 1: True, 8 + 1: False}[table.snapshots()["snapshot_id"].to_pylist()[-1]]
    left = 2 if was_rolled_back else 4
    for user in (None, *USERS):
        found = {w.snapshot.commit_user: w.topics for w in newest_offsets(table, user)}
        assert found == {u: {u: {"0": left}} for u in USERS if user in (None, u)}
