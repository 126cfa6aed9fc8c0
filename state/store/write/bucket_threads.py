"""Writes or compacts buckets with one thread or several. The resulting commit messages do not depend on the timing of
the threads.

Each thread writes its buckets one after the other. Which thread writes a bucket depends only on the row counts of the
buckets. The file names of all threads are derived from a single random name, which is drawn before the work starts.
Encoding and compression run outside of Python, so the threads run in parallel.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Event, Lock

from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import NumberedIds, World
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.compact.watch import Watch
from bucketline.state.store.storage.parallel import AT_ONCE, all_items, answers_late
from bucketline.state.store.write.bucket_writer import SORTS_PART, BucketState, BucketWork, BucketWrite, write_bucket
from bucketline.state.store.write.owned.sorted_windows import Runs, SortedRows, SortedWindows
from bucketline.state.store.write.run_buffer import RunBuffer

THREAD_BYTES = 64 << 20
"""The least memory for merging that a thread needs, in bytes: for a row group, its encoding, and batches of the sealed
runs.
"""

_UNKNOWN = BucketState()

Finish = Callable[[CommitMessage, World], CommitMessage]
"""A function that turns the commit message of a bucket into the message to return. It draws names for new files from
the `World` that it gets; each thread has a `World` of its own.
"""


def written_buckets(
    write: BucketWrite,
    states: Mapping[BucketId, BucketState],
    buffer: RunBuffer,
    threads: int,
    finish: Finish = lambda message, world: message,
) -> Generator[CommitMessage, None, None]:
    """Writes the buckets, and yields the commit message of each bucket in the order of the buffer. The buffer is empty
    afterwards.

    `states` describes the buckets of the table before the write. `finish` turns each message into the message to yield,
    in the thread that has written the bucket; if `finish` fails, the files of the message are removed. After an error,
    or when the generator is closed, the files of all buckets whose messages were not yielded are removed. The threads
    share the memory of one task, which limits their number.
    """
    bucket_ids = buffer.buckets()
    windows = SortedWindows(
        buffer,
        write.access.schema,
        lambda bucket_id: states.get(bucket_id, _UNKNOWN).next_sequence_number,
        write.merge_memory_bytes // SORTS_PART,
    )
    count = min(threads, len(bucket_ids), write.merge_memory_bytes // THREAD_BYTES)
    if count < 2:
        for bucket_id in bucket_ids:
            written = write_bucket(write, bucket_id, states.get(bucket_id, _UNKNOWN), windows.take(bucket_id))
            yield _finished(write, written, finish)
        return
    taking = Lock()

    def runs(bucket_id: BucketId) -> Runs | SortedRows:
        with taking:
            return windows.take(bucket_id)

    with discarded_on_error(write.access) as left:
        of_threads = buckets_of_threads({b: buffer.row_count(b) for b in bucket_ids}, count)
        by_bucket = _in_threads(write, states, runs, of_threads, finish)
        left += [by_bucket[bucket_id] for bucket_id in bucket_ids]
        while left:
            yield left.pop(0)


def _finished(write: BucketWrite, message: CommitMessage, finish: Finish) -> CommitMessage:
    with discarded_on_error(write.access) as made:
        made.append(message)
        return finish(message, write.access.world)


def compacted_buckets(
    write: BucketWrite, work: BucketWork, threads: int, done: Callable[[], None]
) -> list[CommitMessage]:
    """Compacts buckets that get no new rows, as `write` says, and returns their commit messages in order. `done` is
    called after each bucket, by the thread that has compacted it. After an error all new files are removed.
    """

    def finish(message: CommitMessage, world: World) -> CommitMessage:
        del world
        done()
        return message

    states = dict(work)
    rows = {bucket_id: sum(f.row_count for f in state.files) for bucket_id, state in work}
    count = min(threads, len(rows), max(1, write.compact_memory_bytes // THREAD_BYTES))
    by_bucket = _in_threads(write, states, _no_runs, buckets_of_threads(rows, count), finish)
    return [by_bucket[bucket_id] for bucket_id, _ in work]


def _no_runs(bucket_id: BucketId) -> Runs:
    del bucket_id
    return ()


def threads_that_wait(write: BucketWrite) -> int:
    """Returns how many buckets a task with one core writes at the same time by default: several if the storage is slow,
    because threads then mostly wait, otherwise one.
    """
    return AT_ONCE if write.parallelism is None and answers_late(write.access.files.io) else 1


def buckets_of_threads(row_counts: Mapping[BucketId, int], count: int) -> list[list[BucketId]]:
    """Returns the buckets of each of `count` threads. Each bucket goes to the thread that has the fewest rows
    so far.
    """
    of_threads: list[list[BucketId]] = [[] for _ in range(count)]
    rows = [0] * count
    for bucket_id, row_count in row_counts.items():
        thread = rows.index(min(rows))
        of_threads[thread].append(bucket_id)
        rows[thread] += row_count
    return of_threads


class _OverError(Exception):
    """Raised in a thread to end it, because another thread has failed, or because the thread that waits for all threads
    was interrupted.
    """


def _in_threads(
    write: BucketWrite,
    states: Mapping[BucketId, BucketState],
    runs: Callable[[BucketId], Runs | SortedRows],
    of_threads: Sequence[Sequence[BucketId]],
    finish: Finish,
) -> dict[BucketId, CommitMessage]:
    over = Event()

    def watch() -> None:
        if over.is_set():
            raise _OverError
        write.watch()

    with discarded_on_error(write.access) as made:

        def messages(own_write: BucketWrite, own_ids: Sequence[BucketId]) -> Iterator[CommitMessage]:
            try:
                for bucket_id in own_ids:
                    watch()
                    written = write_bucket(own_write, bucket_id, states.get(bucket_id, _UNKNOWN), runs(bucket_id))
                    message = _finished(own_write, written, finish)
                    made.append(message)
                    yield message
            except _OverError:
                return
            except BaseException:
                over.set()
                raise

        works = [partial(messages, _write_of_thread(write, len(of_threads), watch), own) for own in of_threads]
        return {(m.partition, m.bucket): m for m in all_items(works, len(of_threads), over)}


def _write_of_thread(write: BucketWrite, count: int, watch: Watch) -> BucketWrite:
    """Returns the settings for one of `count` threads. The thread gets an equal part of the memory, and a separate
    source of names for new files, so that no two threads choose the same name.
    """
    world = write.access.world
    # Each thread gets its own copy of the access object, which also decides from the thread's own rows which columns
    # get dictionaries.
    return replace(
        write,
        access=replace(write.access, world=replace(world, ids=NumberedIds(world.ids.new_uuid()))),
        merge_memory_bytes=write.merge_memory_bytes // count,
        compact_memory_bytes=write.compact_memory_bytes // count,
        watch=watch,
    )
