"""Storage that answers late: requests that do not depend on each other are sent at the same time."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from statistics import median
from threading import Barrier, Lock
from time import sleep

import pyarrow as pa
import pytest

from bucketline.state.errors import StorageError
from bucketline.state.store.engine.local_engine import LocalEngine
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.storage.open_ahead import open_ahead
from bucketline.state.store.storage.parallel import AT_ONCE, QueuedWrites, all_at_once
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.servers.slow_store import SlowStore, longest_chain
from tests.support.spark.tasks import Cluster
from tests.support.storage.fake_hdfs import FakeHdfs

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string()), ("n", pa.int32())])
URI = "s3://lake/w/shop.db/t"


def one_a_day(count: int, n: int) -> pa.Table:
    """A row for each of so many partitions."""
    return pa.table({"id": range(count), "day": [f"d{i:02d}" for i in range(count)], "n": [n] * count}).cast(COLUMNS)


def table_by_day(store: SlowStore, options: dict[str, str]) -> Table:
    """A table of one bucket a day, unless the options say otherwise."""
    options = {"bucket": "1"} | options
    create_table(URI, COLUMNS, ("id", "day"), partition_by=("day",), options=options, storage_options=store.storage)
    return open_table(URI, storage_options=store.storage)


def batches(store: SlowStore, root: Path) -> Callable[[int, pa.Table], None]:
    """A function that writes the batch of a number, with its rows, as a stream does."""
    folder, checkpoint = {"local-directory": str(root)}, str(root / "checkpoint")
    sink = TableSink(URI, folder, storage_options=store.storage, checkpoint=checkpoint, decode=DecodedRows)

    def write(number: int, rows: pa.Table) -> None:
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", "d", checkpoint=checkpoint)
        sink.write(Cluster(random.Random(number)).frame(rows, 1), identity)

    return write


def test_a_small_batch_waits_for_few_requests_one_after_another(tmp_path: Path) -> None:
    with SlowStore() as store:
        create_table(URI, COLUMNS, ("id", "day"), options={"bucket": "1"}, storage_options=store.storage)
        write, quiet = batches(store, tmp_path), list[int]()
        store.delay_s = 0.03
        for number in range(9):
            store.sent.clear()
            write(number, pa.table({"id": range(20), "day": ["a"] * 20, "n": [number] * 20}).cast(COLUMNS))
            if len([s for s in store.sent if s.method == "PUT"]) == 7:
                quiet.append(len(longest_chain(store.sent)))
    # 18 requests, of which some are sent beside others: 13 or 14 are left; 0.6 seconds are 20 times 30 ms.
    assert len(quiet) >= 5 and median(quiet) <= 16


def test_buckets_of_a_batch_are_written_and_removed_beside_each_other(tmp_path: Path) -> None:
    """40 partitions: one after another, each batch would wait for 40 uploads, and expiry for the removal of each."""
    count = 40
    with SlowStore() as store:
        table, write, chains = table_by_day(store, {"snapshot.num-retained.min": "1"}), batches(store, tmp_path), []
        store.delay_s = 0.03
        for number in range(2):
            store.sent.clear()
            write(number, one_a_day(count, number))
            chains.append(longest_chain([s for s in store.sent if s.method == "PUT" and "/data-" in s.path]))
        store.sent.clear()
        table.write(one_a_day(count, 9))
        chains.append(longest_chain([s for s in store.sent if s.method == "PUT" and "/data-" in s.path]))
        store.sent.clear()
        table.compact()
        table.expire_snapshots(retain_max=1)
        removed = [s for s in store.sent if s.method == "POST"]
        found = table.to_arrow()
    assert all(0 < len(chain) <= count // 2 for chain in chains)
    assert len(removed) > count and len(longest_chain(removed)) <= len(removed) // 2
    assert found["n"].to_pylist() == [9] * count


def test_buckets_are_compacted_beside_each_other_and_progress_is_counted() -> None:
    count, progress = 24, list[tuple[int, int]]()
    with SlowStore() as store:
        table = table_by_day(store, {"write-only": "true"})
        for number in range(2):
            table.write(one_a_day(count, number))
        store.delay_s = 0.02
        store.sent.clear()
        table.compact(engine=LocalEngine(lambda done, total: progress.append((done, total))))
        made = [s for s in store.sent if "/data-" in s.path]
        found = table.to_arrow()
    assert len(made) == 3 * count and len(longest_chain(made)) <= len(made) // 2
    assert progress == [(done, count) for done in range(count + 1)]
    assert found["n"].to_pylist() == [1] * count


def test_hash_files_of_a_dynamic_table_are_read_and_written_beside_each_other() -> None:
    count = 12
    days = [f"d{n:02d}" for n in range(count)] * 8
    with SlowStore() as store:
        table = table_by_day(store, {"bucket": "-1", "dynamic-bucket.target-row-num": "5"})
        for number in range(3):
            store.delay_s = 0.02 * (number == 2)
            store.sent.clear()
            ids = range(number * 70, number * 70 + len(days))
            table.write(pa.table({"id": ids, "day": days, "n": [number] * len(days)}).cast(COLUMNS))
        index = [s for s in store.sent if "/index-" in s.path]
        found = open_table(URI, storage_options=store.storage).to_arrow()
    assert len(index) > 3 * count and len(longest_chain(index)) <= len(index) // 2
    assert len(found) == 3 * len(days)


def test_files_that_an_update_looks_at_are_read_beside_each_other() -> None:
    count = 24
    with SlowStore() as store:
        table = table_by_day(store, {"write-only": "true"})
        table.write(one_a_day(count, 1))
        store.delay_s = 0.02
        store.sent.clear()
        table.update("n = 1", {"n": 2})
        read = [s for s in store.sent if s.method == "GET" and "/data-" in s.path]
        found = table.to_arrow()
    assert len(read) == count and len(longest_chain(read)) <= count // 2
    assert found["n"].to_pylist() == [2] * count


@pytest.mark.parametrize("keys", [(), ("id",)])
@pytest.mark.parametrize("text_bytes", [1, 60_000])
def test_files_of_a_read_are_opened_ahead_and_each_once(text_bytes: int, keys: tuple[str, ...]) -> None:
    """In all 5 MB of the longer texts, so that several threads read them."""
    count, text = 40, "x" * text_bytes
    with SlowStore() as store:
        options = {"write-only": "true", "file.compression": "none"} | ({"bucket": "1"} if keys else {})
        table = create_table(URI, COLUMNS, keys, options=options, storage_options=store.storage)
        for n in range(count):
            table.write(pa.table({"id": [2 * n, 2 * n + 1], "day": [f"{n}{text}", text], "n": [n] * 2}).cast(COLUMNS))
        store.delay_s = 0.02
        store.sent.clear()
        rows = open_table(URI, storage_options=store.storage).to_arrow()
        first = next(open_table(URI, storage_options=store.storage).to_batches())
    assert sorted(rows["id"].to_pylist()) == list(range(2 * count)) and first.num_rows > 0
    assert not keys or rows["id"].to_pylist() == list(range(2 * count))
    opened = [s for s in store.sent if "/bucket-0/" in s.path][:count]
    assert len({s.path for s in opened}) == count and len(longest_chain(opened)) <= count // 3


def test_works_run_at_the_same_time_where_answers_are_late_and_come_in_order() -> None:
    meet = Barrier(3, timeout=60)
    late = FakeHdfs().io()
    assert all_at_once(late, [lambda n=n: (meet.wait(), n)[1] for n in range(3)]) == [0, 1, 2]
    seen: list[int] = []
    assert all_at_once(LocalIO(), [lambda n=n: seen.append(n) for n in range(3)]) == [None] * 3
    assert seen == [0, 1, 2]


def test_of_works_that_fail_the_first_error_is_raised_when_all_have_ended() -> None:
    meet = Barrier(2, timeout=60)
    ended: list[int] = []

    def fail() -> None:
        meet.wait()
        raise StorageError("first", retryable=True, missing=False)

    def go_on() -> None:
        meet.wait()
        ended.append(1)

    with pytest.raises(StorageError, match="first"):
        all_at_once(FakeHdfs().io(), [fail, go_on])
    assert ended == [1]


def test_an_interrupt_ends_the_works_that_are_under_way_and_begins_no_other() -> None:
    """Ctrl-C during an expiry: the process removed hundreds of files more before it ended."""
    begun: list[int] = []
    count, beginning = 400, Lock()

    def work() -> None:
        with beginning:
            begun.append(1)
            is_due = len(begun) == 3 * AT_ONCE
        if is_due:
            os.kill(os.getpid(), signal.SIGINT)
        sleep(0.02)

    # A shell has its children in the background ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            all_at_once(FakeHdfs().io(), [work] * count)
    finally:
        signal.signal(signal.SIGINT, before)
    ended_with = len(begun)
    sleep(0.2)
    assert ended_with == len(begun) < count


def test_queued_files_are_there_after_the_flush_and_at_once_on_a_local_disk(tmp_path: Path) -> None:
    cluster = FakeHdfs()
    queue = QueuedWrites(cluster.io())
    queue.write_new("/t/a", b"1")
    queue.write_new("/t/b", b"2")
    assert cluster.files == {}
    queue.flush()
    assert cluster.files == {"/t/a": b"1", "/t/b": b"2"}
    queue.write_new("/t/large", bytes(9 << 20))
    assert "/t/large" in cluster.files
    queue.write_new("/t/a", b"another")
    with pytest.raises(StorageError, match="exists already"):
        queue.flush()
    QueuedWrites(LocalIO()).write_new(f"{tmp_path}/a", b"1")
    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_file_that_is_missing_is_an_error_when_it_is_asked_for() -> None:
    cluster = FakeHdfs()
    for n in range(3):
        cluster.io().write_new(f"/t/{n}", b"%d" % n)
    with open_ahead(cluster.io(), ["/t/0", "/t/none", "/t/1", "/t/2"]) as io:
        for n in (0, 2):
            with io.open_input(f"/t/{n}") as found:
                assert found.read() == b"%d" % n
        with pytest.raises(StorageError) as caught:
            io.open_input("/t/none")
        assert caught.value.fields["missing"] is True
