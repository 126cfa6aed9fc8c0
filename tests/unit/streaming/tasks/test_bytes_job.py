"""What tasks send each other as bytes arrives as it was, at the task that it was sent to, in whatever order."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from bucketline.state.store.write.owned.owner_runs import OwnerRun, opened, pieces_of, sealed_batches
from bucketline.state.store.write.placing import BucketNews
from bucketline.state.store.write.sealed_runs import RunForm, SealedRun, seal, seal_here, unseal
from bucketline.streaming.batch.failure import is_jvm_lost
from bucketline.streaming.tasks.bytes_job import bytes_job
from bucketline.streaming.tasks.read_task import task_number
from bucketline.streaming.tasks.wire import (
    NOTE,
    RUN,
    RUNS,
    Routed,
    Sent,
    TaskResult,
    pack,
    pack_result,
    read_routed,
    routed_news,
    routed_note,
    routed_row,
    unpack,
    unpack_result,
)
from tests.support.spark.tasks import Cluster

ROWS = pa.table({"k": range(5), "v": ["a", None, "c", "", "e"]})


def run_of(blob: bytes | pa.Buffer, partition: bytes = b"\0" * 12, bucket: int = 0) -> SealedRun:
    return SealedRun(
        partition=partition,
        bucket=bucket,
        origin=7,
        flush=1 << 30,
        consumed_rows=1 << 40,
        rank_end=(1 << 62) + 1,
        row_count=5,
        blob=blob,
    )


@pytest.mark.parametrize(("size", "bucket"), list(product((0, 1, 4, 5, 300), (-3, 0, 1 << 30))))
def test_a_run_is_read_from_its_bytes_as_from_a_row(size: int, bucket: int) -> None:
    for blob in (seal(ROWS), seal_here(ROWS)):
        routed = Routed(3, RUN, run_of(blob, bytes(range(256))[:size].ljust(size, b"x"), bucket))
        (of_row,) = read_routed(routed_row(routed, 5))
        kind, run = unpack(pack(routed))
        assert (kind, *members(run)) == (of_row[0], *members(of_row[1])) == (RUN, *members(routed.run))
        assert unseal(pa.py_buffer(run.blob)).read_all() == ROWS


@pytest.mark.parametrize("names", [[b""], [b"p", b"", b"p" * 300]])
@pytest.mark.parametrize("form", [RunForm.PACKED, RunForm.PLAIN])
def test_a_run_of_an_owner_is_read_from_its_bytes_as_from_a_row(form: RunForm, names: list[bytes]) -> None:
    rows = [(name, -n, 1 << 40, (1 << 62) + n, 1, 9, n, 0, n > 0, name) for n, name in enumerate(names)]
    blob = sealed_batches(ROWS, [1] * ROWS.num_rows, form)
    routed = Routed(4, RUNS, OwnerRun(4, 1 << 30, 3, pieces_of(rows), blob, table=199))
    ((of_row_kind, of_row),) = read_routed(routed_row(routed, 5))
    kind, run = unpack(pack(routed))
    for found in (run, of_row):
        assert isinstance(found, OwnerRun) and isinstance(run, OwnerRun)
        assert (kind, of_row_kind) == (RUNS, RUNS)
        assert (found.owner, found.origin, found.flush, found.table) == (4, 1 << 30, 3, 199)
        assert found.pieces.to_pylist() == pieces_of(rows).to_pylist()
        assert opened(pa.py_buffer(found.blob)).read_all() == ROWS
    assert (run.consumed_rows, run.row_count) == (len(names) << 40, len(names))


def test_the_rows_of_a_run_are_not_copied_out_of_its_bytes() -> None:
    packed = pack(Routed(0, RUN, run_of(seal(ROWS))))
    blob = unpack(packed)[1].blob
    start = pa.py_buffer(packed).address
    assert isinstance(blob, pa.Buffer) and start < blob.address and blob.address + blob.size == start + len(packed)
    assert (blob.address - start) % 16 == 0


def test_notes_are_read_from_their_bytes() -> None:
    note = routed_note(NOTE, origin=4, row_count=9, blob=b"said")
    assert unpack(pack(note)) == (NOTE, note.run)
    news = routed_news(BucketNews(b"p", 3, b"payload"), 1)
    assert unpack(pack(news)) == ("news", news.run)
    for payload in (b"", b"\0a\0"):
        assert unpack_result(pack_result(TaskResult("given back", payload))) == TaskResult("given back", payload)


@dataclass(frozen=True)
class SendToAll:
    """Sends each task of the next stage a note that says from where it is."""

    count: int

    def __call__(self) -> Iterator[Routed]:
        for task in range(self.count):
            yield replace(routed_note(NOTE, origin=task_number(), row_count=0, blob=b"%d" % task_number()), task=task)


@dataclass(frozen=True)
class PassOn:
    """Passes on what it gets, and adds its own number."""

    to: int

    def __call__(self, sent: Iterator[Sent]) -> Iterator[Routed]:
        for kind, run in sent:
            note = routed_note(kind, origin=0, row_count=0, blob=bytes(run.blob) + b"%d" % task_number())
            yield replace(note, task=self.to)


@dataclass(frozen=True)
class Say:
    """Says what it has got."""

    def __call__(self, sent: Iterator[Sent]) -> Iterator[TaskResult]:
        found = sorted(bytes(run.blob) for _, run in sent)
        yield TaskResult(str(task_number()), b" ".join(found))


def test_each_task_gets_what_is_sent_to_it_whatever_attempts_are_repeated() -> None:
    for seed in range(8):
        said = bytes_job(Cluster(random.Random(seed), unrest=0.4), 2, SendToAll(3), [(3, PassOn(1)), (2, Say())])
        assert said == [TaskResult("0", b""), TaskResult("1", b"00 01 02 10 11 12")]


@dataclass(frozen=True)
class Number:
    def __call__(self) -> Iterator[TaskResult]:
        yield TaskResult("number", b"%d" % task_number())


def test_a_job_of_one_stage_says_in_the_order_of_its_tasks() -> None:
    found = bytes_job(Cluster(random.Random(1), unrest=0.3), 12, Number())
    assert [int(result.payload) for result in found] == list(range(12))


@pytest.mark.parametrize("most", [0, 1, 22, 23])
def test_results_that_are_cut_short_are_an_error_of_a_lost_jvm(most: int) -> None:
    with pytest.raises(Py4JNetworkError, match=r"of 12 tasks have sent all") as caught:
        bytes_job(Cluster(random.Random(1), serves_at_most=most), 12, Number())
    assert is_jvm_lost(caught.value)


@dataclass(frozen=True)
class Carry:
    """Carries bytes to each task, and may fail."""

    data: bytes
    fails: bool = False

    def __call__(self, sent: Iterator[Sent]) -> Iterator[TaskResult]:
        assert not self.fails, "as it is told"
        yield TaskResult(str(sum(1 for _ in sent)), self.data[:1])


def test_what_is_broadcast_for_a_job_is_destroyed_when_the_job_ends() -> None:
    cluster, large = Cluster(random.Random(3)), b"x" * (2 << 20)
    assert bytes_job(cluster, 2, SendToAll(3), [(3, Carry(large))]) == [TaskResult("2", b"x")] * 3
    with pytest.raises(AssertionError, match="as it is told"):
        bytes_job(cluster, 2, SendToAll(3), [(3, Carry(large, fails=True))])
    assert [b.is_destroyed for b in cluster.broadcasts] == [True, True]
    assert len(bytes_job(cluster, 2, SendToAll(3), [(3, Carry(b"x"))])) == 3
    assert len(cluster.broadcasts) == 2, "what is small is sent with each task"


def members(run: SealedRun) -> tuple[object, ...]:
    others = (run.partition, run.bucket, run.origin, run.flush, run.consumed_rows, run.rank_end, run.row_count)
    return (*others, bytes(run.blob))
