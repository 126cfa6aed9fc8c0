"""Merge: rows of a source are joined to the table's, and say what becomes of them; one commit.

Source: SQL's MERGE; Paimon 2.0 MergeIntoPaimonTable: the merge engines it takes, and the error for several matches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.entries import Operation
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.engine.engine import Engine, Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.append_changes import StoredRows, write_append_changes
from bucketline.state.store.table.assignments import Assignments, plan_assignments
from bucketline.state.store.table.change_rules import check_delete, check_update, fixed_columns
from bucketline.state.store.table.changed_write import open_change, planned_until_first, write_changes
from bucketline.state.store.table.found_rows import current_rows
from bucketline.state.store.table.merge_join import Matched, Unmatched, join
from bucketline.state.store.table.merge_source import MergeSource, check_key, spooled
from bucketline.state.store.table.row_changes import check_removed, updated, with_kind
from bucketline.state.store.table.write import Data
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.write_plan import WritePlan
from bucketline.state.store.write.write_session import WriteSession
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import encode_rows
from bucketline.state.types.row_kind import RowKind
from bucketline.state.types.sql_expression import SOURCE

DELETE, INSERT = "delete", "insert"


def merge_rows(
    table: TableHandle,
    source: Data,
    on: Sequence[str],
    when_matched: Mapping[str, object] | str | None,
    when_not_matched: str | None,
    *,
    engine: Engine = LOCAL_ENGINE,
) -> WriteResult:
    """Merges a source into a table; see `Table.merge`. `engine` is one of this process."""
    _check_actions(when_matched, when_not_matched)
    check_update(table, "merge into")
    if when_matched == DELETE:
        check_delete(table)
    inserts = when_not_matched is not None
    schema = table.table_schema
    key = check_key(schema, on)
    if inserts and schema.primary_keys and not set(key) <= set(schema.primary_keys):
        raise SchemaMismatchError(
            f"a merge that inserts is joined by columns of the primary key ({', '.join(schema.primary_keys)}); joined "
            f"by {', '.join(key)}, a row without a match could replace one with its key",
            on=key,
        )
    plan = open_change(table).plan
    memory, directory = plan.sink.merge_memory_bytes, plan.sink.local_directory
    with spooled(source, schema, on, memory_bytes=memory, directory=directory) as spool:
        # What does not fit is refused before anything is read.
        _planned(plan, spool, when_matched, inserts)
        return planned_until_first(partial(_merge_once, table, spool, when_matched, inserts, engine))


def _check_actions(when_matched: Mapping[str, object] | str | None, when_not_matched: str | None) -> None:
    if isinstance(when_matched, str) and when_matched != DELETE:
        raise OptionError(
            f"when_matched is {when_matched!r}; it takes new values by column, '{DELETE}' or None", key="when_matched"
        )
    if when_not_matched not in (INSERT, None):
        raise OptionError(
            f"when_not_matched is {when_not_matched!r}; it takes '{INSERT}' or None", key="when_not_matched"
        )
    if when_matched is None and when_not_matched is None:
        raise OptionError("a merge without when_matched and when_not_matched changes nothing", key="when_matched")


@dataclass(frozen=True, slots=True)
class MergeActions:
    """What becomes of matched rows, and whether source rows without a match are inserted."""

    schema: TableSchema
    assignments: Assignments | None
    deletes: bool
    inserts: bool

    @property
    def uses_matched(self) -> bool:
        """Whether matched rows are changed."""
        return self.deletes or self.assignments is not None

    def changed(self, matched: Matched) -> pa.Table | None:
        """The rows to write for rows of a table with a primary key; None for none."""
        own = matched.target.select([f.name for f in self.schema.fields])
        if self.deletes:
            check_removed(own, self.schema)
            return with_kind(own, RowKind.DELETE, self.schema)
        return None if self.assignments is None else updated(own, self.seen(matched), self.assignments)

    def seen(self, matched: Matched) -> pa.RecordBatch:
        """The columns of the table, and those of the source under `source.`."""
        names = [*matched.target.schema.names, *(f"{SOURCE}.{n}" for n in matched.source.column_names)]
        columns = [*matched.target.columns, *(c.combine_chunks() for c in matched.source.columns)]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def inserted(self, source: pa.Table) -> pa.Table:
        """The rows to write for source rows without a match."""
        schema = self.schema
        rows = source.select([f.name for f in schema.fields])
        _refuse_doubled(rows, schema)
        tables = [with_kind(batch, RowKind.INSERT, schema) for batch in rows.combine_chunks().to_batches()]
        return pa.concat_tables(tables) if tables else rows.slice(0, 0)


def _planned(
    plan: WritePlan, source: MergeSource, when_matched: Mapping[str, object] | str | None, inserts: bool
) -> MergeActions:
    schema, assignments = plan.schema, None
    if isinstance(when_matched, Mapping):
        fields = pa.schema([pa.field(f"{SOURCE}.{f.name}", f.type) for f in source.schema])
        assignments = plan_assignments(schema, when_matched, fixed_columns(schema), fields)
    actions = MergeActions(schema, assignments, when_matched == DELETE, inserts)
    if inserts:
        missing = next((f.name for f in schema.fields if f.name not in source.schema.names), None)
        if missing is not None:
            raise SchemaMismatchError(
                f"the source has no column {missing!r} to insert; add it, or set when_not_matched=None", column=missing
            )
        RowAcceptance(schema).accept(actions.inserted(source.schema.empty_table()))
    return actions


def _refuse_doubled(rows: pa.Table, schema: TableSchema) -> None:
    if not schema.primary_keys or rows.num_rows < 2:
        return
    fields = schema.select(schema.primary_keys)
    columns = [rows[f.name].combine_chunks().cast(arrow_type(f.type)) for f in fields]
    keys = encode_rows(columns, [f.type.as_nullable() for f in fields], with_arity=False)
    counts = pc.value_counts(keys)
    doubled = pc.filter(counts.field("values"), pc.greater(counts.field("counts"), 1))
    if len(doubled):
        at = pc.index(keys, doubled[0]).as_py()
        where = ", ".join(f"{f.name} = {rows[f.name][at].as_py()!r}" for f in fields)
        raise SchemaMismatchError(
            f"several source rows without a match have the key {where}: one would replace the others; leave one",
            columns=schema.primary_keys,
        )


def _merge_once(
    table: TableHandle,
    source: MergeSource,
    when_matched: Mapping[str, object] | str | None,
    inserts: bool,
    engine: Engine,
) -> WriteResult:
    session = open_change(table)
    actions = _planned(session.plan, source, when_matched, inserts)
    if not table.primary_key:
        stored = StoredRows(session)
        return write_append_changes(
            session, stored, _append_changes(session, stored, source, actions), Operation.MERGE, engine=engine
        )
    rows = GivenRows(_changes(session, source, actions))
    return write_changes(session, Parts([rows]), Operation.MERGE, engine=engine)


def _append_changes(
    session: WriteSession, stored: StoredRows, source: MergeSource, actions: MergeActions
) -> Iterator[pa.Table]:
    """The rows to append; matched rows are taken out of `stored` on the way."""
    columns = source.key.columns if actions.assignments is None else None
    target = stored.read(source.expression, columns, source.partitions)
    for found in _joined(session, source, target, actions):
        if not isinstance(found, Matched):
            if actions.inserts:
                yield actions.inserted(found.source)
            continue
        if actions.uses_matched:
            stored.take_out(found.target)
        if actions.assignments is not None:
            yield updated(found.target, actions.seen(found), actions.assignments)


def _changes(session: WriteSession, source: MergeSource, actions: MergeActions) -> Iterator[pa.Table]:
    target = current_rows(session, source.expression, source.partitions)
    for found in _joined(session, source, target, actions):
        changed = None
        if isinstance(found, Matched):
            changed = actions.changed(found)
        elif actions.inserts:
            changed = actions.inserted(found.source)
        if changed is not None:
            yield changed


def _joined(
    session: WriteSession, source: MergeSource, target: Iterator[pa.RecordBatch], actions: MergeActions
) -> Iterator[Matched | Unmatched]:
    sink = session.plan.sink
    return join(
        source,
        target,
        is_matched_used=actions.uses_matched,
        memory_bytes=sink.merge_memory_bytes,
        directory=sink.local_directory,
    )
