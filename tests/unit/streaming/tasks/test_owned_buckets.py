"""What travels to tasks of the files of a table: each task unpacks what its own buckets need, and nothing else."""

import pickle
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from bucketline.state.bucket.allocation import Assigners
from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta
from bucketline.state.format.entries import DeletionVectorRange, FileKind, IndexManifestEntry
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.compaction import IdleBucket
from bucketline.state.store.table.table import create_table
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, CompactTrigger
from bucketline.state.store.write.placing import Placing
from bucketline.state.store.write.stages import WriteStage
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.tasks.bytes_job import job_task
from bucketline.streaming.tasks.owned_buckets import owned_buckets
from bucketline.streaming.tasks.placement import Destination
from tests.support.tables.commits import data_file

VECTORS = IndexManifestEntry(
    FileKind.ADD, EMPTY_ROW, 3, "DELETION_VECTORS", "index-1", 40, 1, (DeletionVectorRange("f", 1, 30, 2),)
)


def states_of(count: int) -> dict[BucketId, BucketState]:
    return {
        (EMPTY_ROW, b): BucketState(
            next_sequence_number=b,
            files=tuple(data_file(f"data-{b}-{n}", level=n % 3) for n in range(b % 4)),
            complete=b % 2 == 0,
            vector_files=(VECTORS,) if b == 3 else (),
        )
        for b in range(count)
    }


@pytest.mark.parametrize("among", [Destination(1), Destination(7), Destination(3, Assigners({EMPTY_ROW: 2}, 1))])
def test_the_shares_of_all_tasks_are_the_buckets_of_the_table(among: Destination, write: BucketWrite) -> None:
    states = states_of(40)
    idle = [b for b, state in states.items() if state.complete]
    owned = owned_buckets(WriteStage(write, states), idle, among)
    shares = [owned.of(task) for task in range(among.task_count)]
    assert sum(len(share.states) for share in shares) == len(states)
    assert {b: state for share in shares for b, state in share.states.items()} == states
    assert sorted(b for share in shares for b in share.idle) == sorted(idle)
    for task, share in enumerate(shares):
        assert all(owned.knows(task, b) for b in share.states)
        assert {among.task(*b) for b in share.states} <= {task}


def test_tasks_know_all_buckets_where_rows_get_theirs_in_the_task(write: BucketWrite) -> None:
    states, among = states_of(40), Destination(3)
    idle = [b for b, state in states.items() if state.complete]
    owned = owned_buckets(WriteStage(write, states, Placing()), idle, among)
    for task in range(3):
        share = owned.of(task)
        assert share.states == states
        assert list(share.idle) == [b for b in idle if among.task(*b) == task]
        assert all(owned.knows(task, b) for b in states)


def test_members_of_a_file_arrive_as_they_are(write: BucketWrite) -> None:
    whole = replace(
        data_file("a", level=5),
        extra_files=("b",),
        embedded_index=b"index",
        value_stats_cols=("k",),
        external_path="s3://elsewhere/a",
        first_row_id=7,
        write_cols=("k", "v"),
    )
    unknown = replace(whole, creation_time_ms=None, delete_row_count=None, file_source=None, value_stats_cols=None)
    states = {(EMPTY_ROW, 0): BucketState(1, (whole, unknown))}
    (found,) = owned_buckets(WriteStage(write, states), (), Destination(1)).of(0).states.values()
    assert found.files == (whole, unknown)
    assert type(found.files[0].file_source) is type(whole.file_source)
    assert found.files[0].extra_files == ("b",)


def test_what_is_sent_unpickles_without_any_file(write: BucketWrite) -> None:
    states = states_of(200)
    packed = cloudpickle.dumps(owned_buckets(WriteStage(write, states), (), Destination(4)))
    jobs = cloudpickle.dumps(job_task(IdleBucket(write, b, state) for b, state in states.items()))
    for sent in (packed, jobs):
        assert DataFileMeta.__name__ in _classes(cloudpickle.dumps(states))
        assert DataFileMeta.__name__ not in _classes(sent)


@pytest.fixture
def write(tmp_path: Path) -> BucketWrite:
    table = create_table(str(tmp_path / "t"), pa.schema([pa.field("k", pa.int32(), nullable=False)]), ("k",))
    session = table_at(open_handle(table.path), {}).refreshed()
    return session.plan.bucket_write(CompactTrigger.MINOR)


def _classes(data: bytes) -> set[str]:
    """The classes that unpickling looks up."""
    found: set[str] = set()

    class Watching(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> object:
            found.add(name)
            return super().find_class(module, name)

    Watching(BytesIO(data)).load()
    return found
