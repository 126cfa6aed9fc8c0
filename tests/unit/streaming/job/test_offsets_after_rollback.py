"""What a table says streams have read, wherever a rollback dies: what is in the snapshots that are left."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.job.table_offsets import newest_offsets
from tests.support.stream_run import StreamRun
from tests.support.tasks import killed_at

USERS = [f"{i:08d}-1111-4222-8333-444455556666" for i in range(2)]


@pytest.mark.parametrize("at", range(11, 24))
def test_offsets_are_those_of_the_snapshots_that_are_left(tmp_path: Path, at: int) -> None:
    """Tags have been moved back before the first snapshot is removed, and the rollback's own tag goes last."""
    path = str(tmp_path / "t")
    table = create_table(path, "id BIGINT NOT NULL, n BIGINT", primary_key=["id"], options={"bucket": "1"})
    streams = [StreamRun(path, {}, user) for user in USERS]
    for batch_id in range(4):
        for stream in streams:
            stream.session.refresh()
            stream.history()
            batch = BatchIdentity(stream.user, batch_id, None, None, f"{batch_id}")
            end = json.dumps([{stream.user: {"0": batch_id + 1}}])
            stream.commit_batch(replace(batch, end_offsets=end), Outcome((), (), ()))
    with killed_at(at):
        table.rollback_to(4)
    table = open_table(path)
    table.write(pa.table({"id": [1], "n": [1]}))
    left = {4 + 1: 2, 8 + 1: 4}[table.snapshots()["snapshot_id"].to_pylist()[-1]]
    for user in (None, *USERS):
        found = {w.snapshot.commit_user: w.topics for w in newest_offsets(table, user)}
        assert found == {u: {u: {"0": left}} for u in USERS if user in (None, u)}
