"""The engine of this process. Stages run one after the other in this process, and so do jobs. Within a stage, several
threads sort and write buckets.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock

from bucketline.state.commit.message import CommitMessage
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.engine.compaction import IdleBucket, idle_jobs
from bucketline.state.store.engine.engine import Jobs, Outcome, PartReport, Parts
from bucketline.state.store.storage.parallel import answers_late, core_count, read_at_once
from bucketline.state.store.write.bucket_threads import compacted_buckets, threads_that_wait
from bucketline.state.store.write.bucket_writer import BucketWrite
from bucketline.state.store.write.placing import SnapshotNote
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import SMALL_BYTES, RunForm, SealedRun, SealPlan
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_plan import ONE_WORKER, Workers

_MOST_THREADS = 8

_PARTS_AT_ONCE = 4
"""How many parts of a source are read at the same time if the storage is slow. Together they use the memory of one
part.
"""

_BUDGETS_OF_A_RUN = 2
"""The largest run that stays in this process, as a multiple of the memory budget for collecting rows. Rows are
collected until they reach this budget, so the last record batch can exceed the budget. Therefore rows are cut into
several runs only if a record batch of the source is larger than the budget.
"""


def _nobody(done: int, total: int) -> None:
    del done, total


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The engine that works in this process. `watch` is called to report progress. It gets two numbers: how many jobs
    and idle buckets (buckets that are compacted without new rows) are done, and how many there are in total. It is
    called once before the first of them, and again after each of them.
    """

    watch: Callable[[int, int], None] = _nobody

    @property
    def workers(self) -> Workers:
        return ONE_WORKER

    def run(self, work: Stages[Parts] | Jobs) -> Outcome:
        """Runs the work and returns the outcome, as described for `Engine.run`. After an error all new files are
        removed.
        """
        return Outcome(self._done(work)) if isinstance(work, Jobs) else self._written(work)

    def _written(self, stages: Stages[Parts]) -> Outcome:
        write, notes, reports, mixed = stages.write, list[str](), list[bytes](), list[MixedKey]()
        if stages.place is not None:
            write = replace(write, groups=stages.place)
        bucket_write = replace(write.write, mixed=mixed.append)
        write = replace(write, write=bucket_write)
        with discarded_on_error(bucket_write.access) as messages:
            with RunBuffer(
                budget_bytes=bucket_write.merge_memory_bytes, directory=bucket_write.local_directory, packs_spills=True
            ) as buffer:
                threads = threads_of(bucket_write)
                with closing(_sealed_runs(stages, threads)) as runs:
                    for run in runs:
                        if isinstance(run, PartReport):
                            reports.append(run.payload)
                        else:
                            buffer.add(run)
                writers = 1 if buffer.size_bytes < SMALL_BYTES else threads
                writers = max(writers, threads_that_wait(bucket_write))
                for made in write_buckets(write, buffer, threads=writers):
                    if isinstance(made, SnapshotNote):
                        notes.append(made.token)
                    elif isinstance(made, MixedKey):
                        mixed.append(made)
                    else:
                        messages.append(made)
            busy = frozenset((m.partition, m.bucket) for m in messages)
            messages += self._done(idle_jobs(stages, busy))
        return Outcome((*messages, *stages.retired), notes=tuple(notes), reports=tuple(reports), mixed=tuple(mixed))

    def _done(self, work: Jobs) -> tuple[CommitMessage, ...]:
        jobs = work.jobs
        self.watch(0, len(jobs))
        if not jobs:
            return ()
        idle = [job for job in jobs if isinstance(job, IdleBucket)]
        if len(idle) == len(jobs) and threads_that_wait(idle[0].write) > 1:
            return self._compacted(idle)
        with discarded_on_error(jobs[0].access) as messages:
            for done, job in enumerate(jobs, 1):
                messages.append(job.message())
                self.watch(done, len(jobs))
        return tuple(messages)

    def _compacted(self, idle: Sequence[IdleBucket]) -> tuple[CommitMessage, ...]:
        write, counting, finished = idle[0].write, Lock(), 0
        assert all(job.write is write for job in idle), "one write makes all idle buckets of a run"

        def count() -> None:
            nonlocal finished
            with counting:
                finished += 1
                self.watch(finished, len(idle))

        work = [(job.bucket_id, job.state) for job in idle]
        return tuple(compacted_buckets(write, work, threads_that_wait(write), count))


def _sealed_runs(stages: Stages[Parts], threads: int) -> Generator[SealedRun | PartReport, None, None]:
    """Yields the rows of all parts of the source as sealed runs (sorted rows, ready for the writers of the buckets).
    Some parts also yield reports, for example about rows that are taken out of the table. If the storage is far away,
    several parts are read at the same time.
    """
    write, parts = stages.write.write, stages.source.parts
    readers = min(_PARTS_AT_ONCE, len(parts)) if len(parts) > 1 and answers_late(write.access.files.io) else 1
    seal = seal_in_process(stages.seal, threads, readers, sorting_bytes=write.merge_memory_bytes)
    return read_at_once([partial(part.runs, seal) for part in parts], readers)


def seal_in_process(seal: SealPlan, threads: int, readers: int, *, sorting_bytes: int) -> SealPlan:
    """Returns the plan by which rows that stay in this process are sealed into runs (sorted rows). `seal` is the plan
    for rows that are sent to other tasks. `threads` groups of rows are sorted at the same time, if together they have
    at most `sorting_bytes`. `readers` parts of the source are read at the same time, and share the memory budget.

    A run stays an Arrow table, and becomes a stream of bytes only if the run is spilled to disk. The rows of a bucket
    that are sorted together become one run. Several runs would cost more: their rows would be copied, and merging takes
    more time and memory for more runs.
    """
    budget_bytes = seal.budget_bytes // readers
    return replace(
        seal,
        form=RunForm.ROWS,
        threads=threads,
        sorting_bytes=sorting_bytes,
        budget_bytes=budget_bytes,
        run_bytes=max(seal.run_bytes, _BUDGETS_OF_A_RUN * budget_bytes),
    )


def threads_of(write: BucketWrite) -> int:
    """Returns how many buckets are sorted or written at the same time: the value of the option, or one for
    each core.
    """
    return min(core_count(), _MOST_THREADS) if write.parallelism is None else max(1, write.parallelism)


LOCAL_ENGINE = LocalEngine()
