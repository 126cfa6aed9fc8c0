"""Merges a source into a table: joins the rows of the source to rows of the table, and changes the table as clauses
say, in one commit.

Source: SQL's MERGE; Paimon 2.0 MergeIntoPaimonTable, for the merge engines that are allowed, and for the error if
several source rows match one row.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.entries import Operation
from bucketline.state.format.row_ranges import changed_schema
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.engine.engine import Engine, Parts, Rows, SpreadEngine
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.joined import Joined
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.read.predicate import conjunction
from bucketline.state.store.table.append_changes import KeptAndTaken, write_append_changes
from bucketline.state.store.table.change_rules import check_delete, check_update
from bucketline.state.store.table.changed_write import open_change, planned_until_first, write_changes, write_plan
from bucketline.state.store.table.merge_clauses import (
    ClauseOutcome,
    DeleteClause,
    InsertClause,
    MergeClauses,
    PlannedMerge,
    UpdateClause,
    plan_merge,
)
from bucketline.state.store.table.merge_join import join
from bucketline.state.store.table.merge_source import JoinKey, MergeSource, SeenMatches, check_key, spooled
from bucketline.state.store.table.merge_spread import SourceKeys, joined_source, look_at_source
from bucketline.state.store.table.row_changes import check_engine
from bucketline.state.store.table.rows_to_change import buckets_to_change, current_rows
from bucketline.state.store.table.write import SpreadData
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.expired_base import expiry_as_conflict
from bucketline.state.store.write.table_at import TableAt

DELETE, INSERT = "delete", "insert"


def merge_rows(
    table: TableHandle,
    source: SpreadData,
    on: Sequence[str],
    when_matched: Mapping[str, object] | str | None,
    when_not_matched: str | None,
    *,
    engine: Engine = LOCAL_ENGINE,
) -> WriteResult:
    """Merges a source into a table, and returns the result; see `Table.merge`."""
    _check_actions(when_matched, when_not_matched)
    matched: Sequence[UpdateClause | DeleteClause] = ()
    if isinstance(when_matched, Mapping):
        matched = (UpdateClause(when_matched),)
    elif when_matched is not None:
        matched = (DeleteClause(),)
    not_matched = () if when_not_matched is None else (InsertClause(),)
    return merge_by_clauses(table, source, on, MergeClauses(matched, not_matched), engine=engine)


def merge_by_clauses(
    table: TableHandle, source: SpreadData, on: Sequence[str], clauses: MergeClauses, *, engine: Engine = LOCAL_ENGINE
) -> WriteResult:
    """Merges as `merge_rows` does, with any number of clauses. Raises SchemaMismatchError, OptionError and
    UnsupportedTableError for clauses that the table does not allow, before any row is read.
    """
    check_update(table, "merge into")
    if clauses.deletes:
        check_delete(table)
    schema = table.table_schema
    key = check_key(schema, on)
    if clauses.not_matched and schema.primary_keys and not set(key) <= set(schema.primary_keys):
        raise SchemaMismatchError(
            "a merge that inserts must be joined by columns of the primary key alone "
            f"({', '.join(schema.primary_keys)}), not by {', '.join(key)}: otherwise a new row could replace a row of "
            "the table with the same primary key",
            on=key,
        )
    if isinstance(engine, SpreadEngine):
        check_engine(table, engine)
        with engine.rows(source) as rows:
            keys = look_at_source(JoinKey(schema, key), rows)
            plan_merge(write_plan(table).schema, key, clauses, keys.schema)
            return planned_until_first(table, partial(_merge_spread, table, rows, keys, clauses, engine))
    plan = write_plan(table)
    memory, directory = plan.sink.merge_memory_bytes, plan.sink.local_directory
    with spooled(source, schema, on, memory_bytes=memory, directory=directory) as spool:
        # Clauses and columns that do not fit are refused before any row is read.
        plan_merge(plan.schema, key, clauses, spool.schema)
        return planned_until_first(table, partial(_merge_once, table, spool, clauses, engine))


def _check_actions(when_matched: Mapping[str, object] | str | None, when_not_matched: str | None) -> None:
    if isinstance(when_matched, str) and when_matched != DELETE:
        raise OptionError(
            f"when_matched is {when_matched!r}; pass a mapping from column to new value, '{DELETE}' or None",
            key="when_matched",
        )
    if when_not_matched not in (INSERT, None):
        raise OptionError(f"when_not_matched is {when_not_matched!r}; pass '{INSERT}' or None", key="when_not_matched")
    if when_matched is None and when_not_matched is None:
        raise OptionError(
            "a merge without when_matched and when_not_matched changes nothing; pass one of them", key="when_matched"
        )


def _merge_once(table: TableHandle, source: MergeSource, clauses: MergeClauses, engine: Engine) -> WriteResult:
    at = open_change(table)
    planned = plan_merge(at.plan.schema, source.key.columns, clauses, source.schema)
    if not table.primary_key:

        def appended(stored: KeptAndTaken, planned: PlannedMerge) -> Parts:
            return Parts([GivenRows(_append_changes(at, stored, source, planned))])

        return _write_appended(at, planned, appended, engine)
    rows = GivenRows(_changes(at, source, planned))
    return write_changes(at, Parts([rows]), Operation.MERGE, engine=engine)


def _merge_spread(
    table: TableHandle, rows: Rows, keys: SourceKeys, clauses: MergeClauses, engine: Engine
) -> WriteResult:
    at = open_change(table)
    planned = plan_merge(at.plan.schema, keys.key.columns, clauses, keys.schema)
    looked_at, partitions = _looked_at(keys.seen, planned), _partitions(keys.seen, planned)
    if not keys.size_bytes and not planned.by_source:
        return write_changes(at, Parts(), Operation.MERGE, engine=engine)
    if table.primary_key:
        with expiry_as_conflict(at):
            buckets = buckets_to_change(at, looked_at, partitions)
        source = joined_source(at, rows, keys, planned, buckets, engine)
        return write_changes(at, source, Operation.MERGE, engine=engine)

    def joined(stored: KeptAndTaken, planned: PlannedMerge) -> Joined:
        parts = stored.parts(looked_at, _columns(planned), partitions)
        return joined_source(at, rows, keys, planned, parts, engine)

    return _write_appended(at, planned, joined, engine)


def _write_appended(
    at: TableAt, planned: PlannedMerge, joined: Callable[[KeptAndTaken, PlannedMerge], Parts | Joined], engine: Engine
) -> WriteResult:
    """Merges into a table without a primary key. `joined` returns a source of the rows that the merge appends. While
    these rows are read, the `KeptAndTaken` that was given to `joined` is told which rows of the table are taken out.

    If the merge updates rows that have row ids, and inserts rows too, the table and the source of the merge are joined
    twice: once for the updated rows, which keep their row ids, and once for the new rows, to which the commit gives row
    ids.
    """
    stored, new = KeptAndTaken(at), None
    with expiry_as_conflict(at):
        if planned.keeps_ids and planned.clauses.not_matched:
            new = joined(KeptAndTaken(at), planned.inserts_alone())
            planned = planned.changes_alone()
        source = joined(stored, planned)
    return write_append_changes(
        at, stored, source, Operation.MERGE, engine=engine, keeps_ids=planned.keeps_ids, new=new
    )


def _columns(planned: PlannedMerge) -> Sequence[str] | None:
    """Returns the columns of the table that the merge needs; None for all columns of the table's schema."""
    if planned.clauses.looks_at_keys_alone:
        return planned.key
    return [f.name for f in changed_schema(planned.schema).fields] if planned.keeps_ids else None


def _append_changes(
    at: TableAt, stored: KeptAndTaken, source: MergeSource, planned: PlannedMerge
) -> Iterator[pa.Table]:
    """Yields the rows that a merge appends to a table without a primary key. While the caller takes these rows,
    `stored` is told which rows of the table the merge takes out.
    """
    looked_at, partitions = _looked_at(source.seen, planned), _partitions(source.seen, planned)
    target = stored.read(looked_at, _columns(planned), partitions)
    for changed in _changed(at, source, planned, target):
        if isinstance(changed, pa.Table):
            yield changed
            continue
        stored.take_out(changed.before)
        if changed.written is not None:
            yield changed.written


def _changes(at: TableAt, source: MergeSource, planned: PlannedMerge) -> Iterator[pa.Table]:
    target = current_rows(at, _looked_at(source.seen, planned), _partitions(source.seen, planned))
    for changed in _changed(at, source, planned, target):
        written = changed if isinstance(changed, pa.Table) else changed.written
        if written is not None:
            yield written


def _looked_at(seen: SeenMatches, planned: PlannedMerge) -> pc.Expression | None:
    """Returns a filter for the rows of the table that the merge must read; None if the merge must read all rows."""
    if planned.by_source:
        return None
    conditions = [e for e in (seen.expression, planned.clauses.target) if e is not None]
    return conjunction(conditions) if conditions else None


def _partitions(seen: SeenMatches, planned: PlannedMerge) -> Collection[bytes] | None:
    return None if planned.by_source else seen.partitions


def _changed(
    at: TableAt, source: MergeSource, planned: PlannedMerge, target: Iterator[pa.RecordBatch]
) -> Iterator[ClauseOutcome | pa.Table]:
    """Joins source and table, and yields the changes of rows of the table, and the new rows. `target` yields the rows
    of the table that the merge reads.
    """
    sink = at.plan.sink
    joined = join(
        source,
        target,
        passes=None if planned.clauses.on is None else planned.passing,
        is_matched_used=bool(planned.matched),
        keeps_alone=bool(planned.by_source),
        memory_bytes=sink.merge_memory_bytes,
        directory=sink.local_directory,
    )
    return planned.outcomes(joined)
