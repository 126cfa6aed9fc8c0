"""Overwrites partitions: new rows replace all rows of the partitions, in one snapshot.

The replaced rows are not read: buckets start empty, and so does the index of dynamic buckets. Rows that other writers
commit to the partitions during the overwrite are replaced as well: the last overwrite wins.

Source: Paimon 2.0 FileStoreCommitImpl.overwritePartition, AbstractFileStoreWrite.withIgnorePreviousFiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.table.changelog_options import CHANGELOG_PRODUCER
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Replace
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.padded_keys import same_partitions
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.entries import Operation
from bucketline.state.format.paths import partition_path
from bucketline.state.lsm.merge.fold_choice import sealing_fold
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.engine.engine import Engine, Parts, Rows, SpreadEngine
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.given_streams import given
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.change_rules import check_changeable
from bucketline.state.store.table.changed_write import planned_until_first
from bucketline.state.store.table.cycle import Commit, carry_out
from bucketline.state.store.table.overwrite_moving import (
    PartitionCheck,
    PartitionsSeen,
    Replaced,
    ReplacedTable,
    SeenRows,
    overwrite_moving,
)
from bucketline.state.store.table.partition_choice import PartitionTest, choose_partitions
from bucketline.state.store.table.write import SpreadData, with_kinds
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.bucket_writer import BucketState, CompactTrigger
from bucketline.state.store.write.grouping import HashEntries
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.stages import BucketResult, Stages
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.store.write.write_plan import TableState, Workers, WritePlan, WriteScope


def overwrite_table(
    table: TableHandle,
    data: SpreadData,
    partition: Mapping[str, object] | None = None,
    row_kinds: pa.Array | pa.ChunkedArray | str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    engine: Engine = LOCAL_ENGINE,
) -> WriteResult:
    """Replaces partitions by the rows of `data`. Returns the result with the newest snapshot's id; if nothing had
    to be replaced, no snapshot is made.

    `partition` says which partitions are replaced, by values of partition columns; all rows must belong to these
    partitions. Without `partition`, the partitions that get rows are replaced; if the table has no partitions or
    `dynamic-partition-overwrite` is false, the whole table is replaced.

    Raises SchemaMismatchError for rows outside these partitions, OptionError and UnsupportedTableError before anything
    is committed, CommitConflictError and CommitOutcomeUnknownError from the commit. If files of the new rows were
    removed before the commit, the rows are written again, as by `write_table`. `engine` means the same as in
    `Table.overwrite`.
    """

    again = partial(planned_until_first, table) if bucket_mode(table.table_schema).moves_keys else repeat_if_gone
    if isinstance(engine, SpreadEngine):
        with engine.rows(data, row_kinds) as rows:
            RowAcceptance(table.table_schema).accept(rows.schema.empty_table())
            spread = _SpreadRows(rows)
            return again(partial(_overwrite_once, table, spread, partition, options or {}, engine))
    rows_here = given(data)
    local = _GivenRows(rows_here, row_kinds)
    write = partial(_overwrite_once, table, local, partition, options or {}, engine)
    return write() if isinstance(rows_here, pa.RecordBatchReader) else again(write)


class _Source(Protocol):
    """The rows that replace other rows. There is one implementation for rows of this process, and one for rows that
    tasks read.
    """

    def seen(self, plan: WritePlan, replaced: Replaced, check: PartitionCheck) -> Any:
        """Returns the rows as a source that an engine can read. For each partition in the rows, `check` is called,
        which raises an error if the partition must not be written, and the partition is added to `replaced`. This
        happens during this call, or later while the engine reads the source.
        """
        ...

    def checked(self, check: PartitionCheck) -> Any:
        """Returns the rows in the form that an engine reads. While the engine reads the rows, it may call `check` with
        the partitions of the rows; `check` raises an error for a partition that must not be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class _GivenRows:
    """New rows that are read in this process."""

    data: SpreadData
    row_kinds: pa.Array | pa.ChunkedArray | str | None

    def seen(self, plan: WritePlan, replaced: Replaced, check: PartitionCheck) -> Any:
        del plan
        return Parts([SeenRows(with_kinds(self.data, self.row_kinds), replaced, check)])

    def checked(self, check: PartitionCheck) -> Any:
        return Parts([GivenRows(with_kinds(self.data, self.row_kinds), check)])


@dataclass(frozen=True, slots=True)
class _SpreadRows:
    """New rows that tasks of an engine read."""

    rows: Rows

    def seen(self, plan: WritePlan, replaced: Replaced, check: PartitionCheck) -> Any:
        for payload in self.rows.each(PartitionsSeen(plan.schema)):
            check(payload)
            replaced.seen.add(payload)
        return self.rows.source

    def checked(self, check: PartitionCheck) -> Any:
        del check
        return self.rows.source


def _overwrite_once(
    table: TableHandle,
    source: _Source,
    partition: Mapping[str, object] | None,
    options: Mapping[str, str],
    engine: Engine,
) -> WriteResult:
    table.io.require_publish()
    at = table_at(table, options).refreshed()
    plan = at.plan
    target = _target(plan, partition)
    check = partial(_check_inside, plan, target)

    def work(made: list[CommitMessage]) -> Commit | None:
        if bucket_mode(plan.schema).moves_keys:
            replaced = Replaced(target)
            seen = source.seen(plan, replaced, check)
            stages = _stages(plan, ReplacedTable(at.view, replaced), seen, engine.workers)
            return overwrite_moving(at, replaced, stages, made, engine=engine, user=table.world.ids.new_uuid())
        made += engine.run(emptying_stages(at, source.checked(check), engine.workers)).messages
        got_rows = frozenset(m.partition for m in made if m.new_files)
        for written in got_rows:
            check(written)
        if target is None and not got_rows:
            return None
        gone = same_partitions(plan.schema, got_rows) if target is None else target
        author = Author(table.world.ids.new_uuid(), operation=Operation.OVERWRITE)
        return Commit(Replace(tuple(made), gone), author, brought=made)

    return carry_out(at, engine, work).result


def truncate_table(table: TableHandle) -> WriteResult:
    """Removes all rows, including the rows in the postpone bucket, and returns the result; see `Table.truncate`."""
    check_changeable(table, "truncate")
    return _empty(table, None, Operation.TRUNCATE)


def drop_partitions(table: TableHandle, partitions: Sequence[Mapping[str, object]]) -> WriteResult:
    """Removes all rows of partitions, and returns the result; see `Table.drop_partitions`."""
    check_changeable(table, "drop partitions of")
    if isinstance(partitions, Mapping | str) or not all(isinstance(p, Mapping) and p for p in partitions):
        raise OptionError(
            "give a list of mappings from partition column to value, as [{'dt': '2026-01-01'}]; truncate() removes all "
            "partitions",
            key="partitions",
        )
    return _empty(table, partitions, None)


def _empty(
    table: TableHandle, partitions: Sequence[Mapping[str, object]] | None, operation: Operation | None
) -> WriteResult:
    """Removes all rows that the partitions hold at the time of the commit, and returns the result. If `partitions` is
    None, all partitions are emptied.
    """
    table.io.require_publish()
    at = table_at(table, {}).refreshed()
    target = choose_partitions(at.plan.schema, partitions)

    def work(made: list[CommitMessage]) -> Commit | None:
        del made
        if not any(target(partition) for partition, _ in at.view.buckets()):
            return None
        return Commit(Replace((), target), Author(table.world.ids.new_uuid(), operation=operation))

    return carry_out(at, LOCAL_ENGINE, work).result


def _target(plan: WritePlan, partition: Mapping[str, object] | None) -> PartitionTest | None:
    """Returns a test that is true for the partitions to replace; None if the partitions that get rows are to be
    replaced.
    """
    schema = plan.schema
    if partition is not None:
        return choose_partitions(schema, [partition])
    if schema.partition_keys and schema.settings.commit.overwrites_dynamic_partitions:
        return None
    return lambda partition_bytes: True


@dataclass(frozen=True, slots=True)
class _Emptied:
    """A view of a table whose buckets all count as empty, because they are replaced."""

    view: LiveFiles

    def bucket_states(self, trigger: CompactTrigger) -> dict[BucketId, BucketState]:
        del trigger
        return {}

    def hash_entries(self) -> HashEntries:
        return {}


def emptying_stages(at: TableAt, source: Any, workers: Workers) -> Stages[Any]:
    """Returns the stages (the steps of a write) that remove all rows of the table and write the rows of `source`
    instead.
    """
    return _stages(at.plan, _Emptied(at.view), source, workers)


def _stages(plan: WritePlan, table: TableState, source: Any, workers: Workers) -> Stages[Any]:
    """Returns the stages that write into empty buckets. If the table has a primary key, the rows are written directly
    to the highest level.
    """
    trigger = CompactTrigger.FULL if plan.schema.primary_keys else CompactTrigger.NONE
    scope = WriteScope(trigger, "", workers)
    stages = plan.mode.replacing(plan).stages(plan, table, scope, source)
    write = stages.write.write
    # Source: Paimon 2.0 writes no changelog for an overwrite, because readers of changes could not follow it.
    schema = replace(plan.schema, options={**plan.schema.options, CHANGELOG_PRODUCER.key: "none"})
    write = replace(write, access=replace(write.access, schema=schema))
    return replace(
        stages,
        # Rows of one key may be folded before they are sent to the writer, because no changelog needs each of them.
        seal=replace(stages.seal, other_totals={}, fold=sealing_fold(schema)),
        write=replace(stages.write, write=write, result=BucketResult.NEW_FILES),
    )


def _check_inside(plan: WritePlan, target: PartitionTest | None, partition: bytes) -> None:
    if target is not None and not target(partition):
        where = partition_path(plan.schema, partition)
        raise SchemaMismatchError(
            f"there are rows of partition {where.rstrip('/')}, which is not being overwritten; leave these rows out, "
            "or overwrite their partition too",
            partition=where,
        )
