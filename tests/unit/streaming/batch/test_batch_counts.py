"""The numbers of batches that a table keeps, and what `status` makes of them."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.streaming.batch.batch_counts import BatchCounts, counts_in, last_batches
from bucketline.streaming.batch.commit import commit_owed_compaction
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.cli.commands import program
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA, pack_rejects
from bucketline.streaming.tasks.wire import TaskStats
from tests.support.spark.stream_run import StreamRun

QUERY = "0237ee8e-7917-4b93-b750-7662c5f45632"

STATS = TaskStats(accepted_rows=50)


@pytest.fixture
def made(tmp_path: Path) -> Table:
    return create_table(
        str(tmp_path / "shop.db" / "t"), "id BIGINT NOT NULL", primary_key=["id"], options={"bucket": "2"}
    )


def stream(table: Table, rejected: Sequence[int], *, first: int = 0, query: str = QUERY) -> None:
    """Commits a batch for each number, with so many rejects, as a new run of the query does."""
    path = f"{table.path}/../rejects"
    live = StreamRun(table.path, {"bad-records.path": path, "bad-records.max": "100"}, query)
    for batch_id, count in enumerate(rejected, first):
        live.refresh()
        live.history()
        rows = [{"reason": "no number", "value": b"x"}] * count
        blobs = (pack_rejects(pa.Table.from_pylist(rows, schema=REJECTS_SCHEMA)),) if count else ()
        identity = BatchIdentity(query, batch_id, None, "[1]", f"d{batch_id}", behind=1200 - batch_id)
        live.commit_batch(identity, Outcome((), blobs, (STATS,)))


def test_counts_travel_as_properties_and_what_cannot_be_read_is_unknown() -> None:
    counts = BatchCounts(10, 2, 5, None)
    assert counts_in(counts.properties()) == counts and counts.rejected_in_all == 7
    assert counts_in({"bucketline.input-rows": "many"}) == BatchCounts()


def test_each_batch_says_what_it_took_and_rejects_add_up_over_restarts(made: Table) -> None:
    stream(made, [0, 3])
    stream(made, [2], first=2)
    newest = handle_of(made).snapshot_store.latest()
    assert newest is not None
    assert counts_in(newest.properties) == BatchCounts(50, 2, 3, 1198)


def test_an_owed_compaction_does_not_hide_the_sum_of_rejects(made: Table) -> None:
    stream(made, [4])
    live = StreamRun(made.path, {}, QUERY)
    live.refresh()
    live.history()
    commit_owed_compaction(live.target, 0, ())
    assert live.target.state.rejected_in_all == 4


def test_rejects_are_a_warning_of_their_own(made: Table, caplog: pytest.LogCaptureFixture) -> None:
    stream(made, [0, 3])
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == 1 and told[0].startswith("batch 1: 3 records rejected and written to ")
    assert "batch-1.parquet; first: no number" in told[0]


def test_a_batch_is_its_rows_and_its_compaction(made: Table) -> None:
    stream(made, [1])
    only = handle_of(made).snapshot_store.latest()
    assert only is not None
    compacted = replace(
        only, id=2, commit_kind=type(only.commit_kind).COMPACT, properties={"bucketline.batch-digest": "d"}
    )
    foreign = replace(only, id=3, commit_user="somebody", properties={})
    [batch] = last_batches([foreign, compacted, only], 5)
    assert (batch.writer, batch.batch_id, batch.snapshot_ids) == (QUERY, 0, (1, 2))
    assert batch.counts.rejected == 1


def test_status_shows_the_last_batches_their_rejects_and_the_lag(made: Table) -> None:
    assert "stream" not in CliRunner().invoke(program, ["status", made.path]).stdout
    stream(made, [0, 3, 0, 0, 0, 1, 0])
    lines = CliRunner().invoke(program, ["status", made.path]).stdout.splitlines()
    at = lines.index(f"stream {QUERY}: 1,194 records behind at its last batch, 4 records rejected since it began")
    assert [line.split(",")[0].strip() for line in lines[at + 1 : at + 6]] == [f"batch {i}" for i in (6, 5, 4, 3, 2)]
    assert "50 rows in, 0 stored, 1 rejected, 1,195 behind, snapshot 6" in lines[at + 2]


def test_status_prints_the_last_batches_for_programs_even_where_their_snapshots_are_gone(made: Table) -> None:
    stream(made, [2, 0])
    for _ in range(3):
        made.write(pa.table({"id": [1]}, schema=made.schema))
    made.expire_snapshots(retain_max=1, retain_min=1)
    found = CliRunner().invoke(program, ["status", made.path, "--batches", "3", "--format", "json"])
    [row] = [json.loads(line) for line in found.stdout.splitlines()]
    assert (row["writer"], row["batch"], row["input_rows"], row["rejected_records"]) == (QUERY, 1, 50, 0)
    assert (row["rejected_in_all"], row["behind_records"], row["snapshots"]) == (2, 1199, "2")
