"""Executor, map side: record batches → accepted rows → sealed sorted runs, each with the key of its shard.

Runs under `mapInArrow` over the input partitions. Rows of one key come from one input partition in offset order when
the record key is the primary key; across input partitions the lower partition id counts as earlier.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.new_keys import DynamicWrite
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan
from bucketline.streaming.decode.rejects import rejected_rows
from bucketline.streaming.decode.schema_needs import NEEDS, read_need
from bucketline.streaming.tasks.placement import shard_keys, shard_of_bucket
from bucketline.streaming.tasks.wire import REJECTS, routed_note, routed_run


class Rejected(Protocol):
    """Records that became no rows: how many, and what `rejects` keeps of them, as an Arrow IPC stream."""

    @property
    def row_count(self) -> int: ...

    @property
    def blob(self) -> bytes: ...


class Decode(Protocol):
    """Turns a source's records into table columns, with `_row_kind` where the records tell one."""

    def __call__(self, records: pa.Table) -> tuple[pa.Table, Rejected | None]: ...


@dataclass(frozen=True, slots=True)
class RouteTask:
    """What a map task does; plain values only, so that it travels. `shard_count` is the number of reduce tasks.

    A task tells of about `reject_limit` rejects: when that is more than the job allows, more would change nothing.
    Once its records need what the table does not have, a task goes on only to tell what else they need: the batch will
    be run again.
    """

    plan: SealPlan
    shard_count: int
    decode: Decode | None = None
    dynamic: DynamicWrite | None = None
    reject_limit: int = 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        origin = 0 if context is None else context.partitionId()
        sealer, acceptance = RunSealer(self.plan, origin=origin), RowAcceptance(self.plan.schema)
        keys = shard_keys(self.shard_count)
        told = 0
        needs: set[bytes] = set()
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if self.decode is not None:
                rows, rejects = self.decode(rows)
                need = read_need(rows)
                if need is not None and need not in needs:
                    needs.add(need)
                    yield routed_note(NEEDS, shard_key=keys[0], origin=origin, row_count=0, blob=need)
                if needs:
                    continue
                if rejects is not None and told < self.reject_limit:
                    told += rejects.row_count
                    yield _note(rejects, keys[0], origin)
            accepted, refused = acceptance.accept_good(rows)
            for bad, reasons in refused:
                if told < self.reject_limit:
                    kept = rejected_rows(bad, reasons, self.reject_limit - told)
                    told += kept.row_count
                    yield _note(kept, keys[0], origin)
            for run in sealer.add(accepted):
                yield routed_run(run, keys[self._shard_of(run)])
        for run in sealer.finish() if not needs else ():
            yield routed_run(run, keys[self._shard_of(run)])

    def _shard_of(self, run: SealedRun) -> int:
        share = share_of_group(run.bucket)
        if share is None:
            share = run.bucket if self.dynamic is None else self.dynamic.owner(run.partition, run.bucket)
        return shard_of_bucket(run.partition, share, self.shard_count)


def _note(rejects: Rejected, shard_key: int, origin: int) -> pa.RecordBatch:
    return routed_note(REJECTS, shard_key=shard_key, origin=origin, row_count=rejects.row_count, blob=rejects.blob)
