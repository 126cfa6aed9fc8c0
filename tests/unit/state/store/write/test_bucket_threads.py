"""Several threads write the buckets of a batch as one does, whatever their timing, and leave nothing behind."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier, active_count, current_thread, main_thread

import numpy as np
import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import NumberedIds, World
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS, Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.local_engine import LocalEngine, threads_of
from bucketline.state.store.storage.parallel import core_count
from bucketline.state.store.write.bucket_threads import THREAD_BYTES, buckets_of_threads
from bucketline.state.store.write.bucket_writer import CompactTrigger, unwatched
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import RunForm
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_plan import WriteScope

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string())])
IDS = "0d6a2e64-8d4b-4f3c-9a35-6f3a1c1f7a10"
ROWS = 45_000


def data() -> pa.Table:
    ids = np.random.default_rng(3).integers(0, ROWS, ROWS)
    return pa.table({"id": ids, "note": [f"{i:0100d}" for i in range(ROWS)]}, schema=COLUMNS)


def session_of(folder: Path, **options: str) -> TableAt:
    chosen = {"bucket": "5", **{k.replace("_", "-"): v for k, v in options.items()}}
    table = bl.create_table(str(folder / "shop.db" / "t"), COLUMNS, ("id",), options=chosen)
    session = table_at(open_handle(table.path), {}).refreshed()
    return session


def written(
    session: TableAt, threads: int, *, watch: Callable[[], None] = unwatched, memory_bytes: int = 256 << 20
) -> list[CommitMessage]:
    """What the buckets of one batch come to, sorted and written by so many threads."""
    plan = replace(session.plan, world=World(ids=NumberedIds(IDS)))
    scope = WriteScope(CompactTrigger.MINOR, "u")
    stages = plan.mode.stages(plan, session, scope, NO_ROWS)
    seal = replace(stages.seal, form=RunForm.ROWS, threads=threads, sorting_bytes=3 << 20)
    stage = replace(stages.write, write=replace(stages.write.write, watch=watch, merge_memory_bytes=memory_bytes))
    with RunBuffer(budget_bytes=2 << 20, packs_spills=True) as buffer:
        for run in GivenRows([data()]).runs(seal):
            buffer.add(run)
        assert buffer.size_bytes > buffer.spilled_bytes > 0
        return [m for m in write_buckets(stage, buffer, threads=threads) if isinstance(m, CommitMessage)]


def seen(messages: list[CommitMessage]) -> list[tuple[object, ...]]:
    return [
        (m.bucket, f.row_count, f.file_size, f.min_key, f.max_key, f.min_sequence_number, f.max_sequence_number)
        for m in messages
        for f in m.new_files
    ]


def test_several_threads_write_the_files_of_one_and_names_do_not_depend_on_timing(tmp_path: Path) -> None:
    one, several, again = (written(session_of(tmp_path / str(n)), n) for n in (1, 3, 4))
    assert seen(several) == seen(one) == seen(again) and len(one) == 5
    repeated = written(session_of(tmp_path / "repeated"), 3)
    assert [f.file_name for m in repeated for f in m.new_files] == [f.file_name for m in several for f in m.new_files]
    assert len({f.file_name for m in several for f in m.new_files}) == 5


def test_so_many_buckets_are_written_at_once_as_there_are_threads_and_memory(tmp_path: Path) -> None:
    together = Barrier(3)
    threads = set()

    def meet() -> None:
        if current_thread() not in threads:
            threads.add(current_thread())
            together.wait(20)

    assert len(written(session_of(tmp_path / "three"), 3, watch=meet)) == 5
    assert len(threads) == 3 and main_thread() not in threads
    names = set()
    written(session_of(tmp_path / "one"), 3, watch=lambda: names.add(current_thread()), memory_bytes=100 << 20)
    assert names == {main_thread()}


@pytest.mark.parametrize("key", [("id",), ()])
@pytest.mark.parametrize("threads", [1, 2])
def test_work_that_is_to_end_does_not_finish_its_bucket(key: tuple[str, ...], threads: int, tmp_path: Path) -> None:
    """Ctrl-C waits for what each thread asks before its next batch: also where runs are appended, and where those of a
    large bucket are merged to disk first."""
    options = {"bucket": "2"} | ({} if key else {"bucket-key": "id"})
    table = bl.create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, key, options=options)
    session, asked = table_at(open_handle(table.path), {}), list[int]()
    session = session.refreshed()
    stages = session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "u"), NO_ROWS)

    def fail() -> None:
        asked.append(1)
        if len(asked) >= 5:
            raise KeyboardInterrupt

    write = replace(stages.write.write, watch=fail, merge_memory_bytes=threads * THREAD_BYTES)
    with RunBuffer(budget_bytes=64 << 20) as buffer:
        many = [data().slice(first, 1000) for first in range(0, ROWS, 1000)]
        for run in GivenRows(many).runs(replace(stages.seal, form=RunForm.ROWS, budget_bytes=1)):
            buffer.add(run)
        with pytest.raises(KeyboardInterrupt):
            list(write_buckets(replace(stages.write, write=write), buffer, threads=threads))
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_error_of_one_bucket_is_raised_and_leaves_no_file_and_no_thread(threads: int, tmp_path: Path) -> None:
    session, calls, before = session_of(tmp_path), list[int](), active_count()

    def fail() -> None:
        calls.append(1)
        if len(calls) == 4:
            raise OSError("the disk is full")

    scope = WriteScope(CompactTrigger.NONE, "u")
    stages = session.plan.mode.stages(session.plan, session, scope, Parts([GivenRows([data()])]))
    write = replace(stages.write.write, watch=fail, parallelism=threads)
    with pytest.raises(OSError, match="disk is full"):
        LocalEngine().run(replace(stages, write=replace(stages.write, write=write)))
    assert list(tmp_path.rglob("*.parquet")) == []
    assert active_count() <= before


def test_whoever_takes_only_some_messages_leaves_only_their_files(tmp_path: Path) -> None:
    session = session_of(tmp_path)
    stages = session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "u"), NO_ROWS)
    with RunBuffer(budget_bytes=64 << 20) as buffer:
        for run in GivenRows([data()]).runs(replace(stages.seal, form=RunForm.ROWS)):
            buffer.add(run)
        messages = write_buckets(stages.write, buffer, threads=2)
        first = next(messages)
        messages.close()  # type: ignore[attr-defined]
    assert isinstance(first, CommitMessage)
    assert {p.name for p in tmp_path.rglob("*.parquet")} == {f.file_name for f in first.new_files}


def test_buckets_go_to_the_thread_with_the_fewest_rows() -> None:
    def bucket(number: int) -> tuple[bytes, int]:
        return b"", number

    counts = {bucket(0): 90, bucket(1): 10, bucket(2): 10, bucket(3): 60, bucket(4): 20}
    assert buckets_of_threads(counts, 2) == [[bucket(0)], [bucket(1), bucket(2), bucket(3), bucket(4)]]
    assert buckets_of_threads(counts, 1) == [list(counts)]


def test_a_process_takes_one_thread_on_each_core_or_as_many_as_the_options_say(tmp_path: Path) -> None:
    session = session_of(tmp_path)
    assert threads_of(session.plan.bucket_write(CompactTrigger.NONE)) == min(core_count(), 8)
    options = {"write-parallelism": "3"}
    chosen = table_at(open_handle(session.plan.uri), options).refreshed()
    assert threads_of(chosen.plan.bucket_write(CompactTrigger.NONE)) == 3
    table = bl.open_table(session.plan.uri, options=options)
    table.write(data())
    table.compact("full", engine=LocalEngine())
    expected = {row["id"]: row["note"] for row in data().to_pylist()}
    assert {row["id"]: row["note"] for row in bl.open_table(session.plan.uri).to_arrow().to_pylist()} == expected
