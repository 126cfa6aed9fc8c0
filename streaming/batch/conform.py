"""Changes the table if the columns of a batch differ from the table's columns and the job's policy allows a change.
This is done on the driver, once for each batch.

*Columns of a DataFrame* are known before a row is read. `evolve` changes the table and commits the new schema; `ignore`
leaves unknown columns out; `fail` raises an error that lists them. With `evolve` and `ignore`, columns that only the
table has (another query may have added them) are null in the batch.

Fields of *records that tasks decode* are known only when the records are read. With `evolve` the tasks report fields
for which the table has no column; the driver commits the new schema and runs the tasks again. With `ignore` and `fail`
the tasks read the table's columns and ignore all other fields. All policies refuse records of a second table of the
source.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import functions as F

from bucketline.conf.column_options import NO_COLUMN_OPTIONS, Otherwise
from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.conf.wording import counted
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.catalog.alter import evolve_table
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.types.arrow import logical_type
from bucketline.state.types.schema_need import SchemaNeed
from bucketline.streaming.batch.preflight import check_columns
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import Decoder
from bucketline.streaming.decode.rejects import UnexpectedRowsError
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.step_for_table import step_for
from bucketline.streaming.tasks.frame_schema import frame_schema

_LOG = logging.getLogger(__name__)
_SHOWN_TABLES = 3


def fit_frame(frame: Any, at: TableAt, origin: tuple[str, ...] = ()) -> tuple[TableAt, Any]:
    """Makes a batch and its table fit together, as the option `schema_evolution` says. Returns the table, which may
    have got new columns or wider types, and the batch with exactly the table's columns (and `_row_kind`).

    `origin` are columns of the batch that are not columns of the table; they are kept unchanged. Raises
    SchemaMismatchError for names that occur twice, and for columns that do not fit even after a change of the table.
    """
    policy = at.plan.sink.schema_evolution
    if policy is EvolutionPolicy.FAIL:
        check_columns([c for c in frame.columns if c not in origin], at.plan.schema)
        return at, frame
    known = {f.name for f in at.plan.schema.fields}
    data_columns = [c for c in frame.columns if (c != ROW_KIND_COLUMN or c in known) and c not in origin]
    if policy is EvolutionPolicy.EVOLVE:
        evolve_table(at.table, frame_schema(frame.select(*data_columns)), policy)
        at = at.refreshed()
        known = {f.name for f in at.plan.schema.fields}
    fitting = frame.select(*[c for c in frame.columns if c in known or c == ROW_KIND_COLUMN or c in origin])
    for f in at.plan.schema.fields:
        if f.name not in fitting.columns and f.type.nullable:
            fitting = fitting.withColumn(f.name, F.lit(None))
    check_columns([c for c in fitting.columns if c not in origin], at.plan.schema)
    return at, fitting


def fit_decoder(decode: Decoder | None, at: TableAt) -> Decoder | None:
    """Returns the decoder for the current schema of the table, which may have changed since the job started.

    Raises SchemaMismatchError if a new column takes its values from a part of the records that this job does not read.
    """
    if not isinstance(decode, DecodeStep):
        return decode
    evolves = at.plan.sink.schema_evolution is EvolutionPolicy.EVOLVE
    step = step_for(decode, at.plan.schema, WatchFor.ALL if evolves else WatchFor.NOTHING)
    unread = [name for name in step.input_columns if name not in decode.input_columns]
    if unread:
        raise SchemaMismatchError(
            f"the table has a new column that takes its values from {unread[0]!r} of each record, but this job does "
            f"not read {unread[0]!r}; start the job again",
            column=unread[0],
        )
    return step


def at_time(decode: Decoder | None, time_ms: int | None) -> Decoder | None:
    """Returns the decoder for a batch that Spark began at `time_ms`, in milliseconds since 1970. Functions like
    current_timestamp return this time in all rows of the batch.

    Raises UnsupportedTableError if a column needs the time, and the time is not known.
    """
    if not isinstance(decode, DecodeStep) or decode.computed is None or not decode.computed.tells_time:
        return decode
    if time_ms is None:
        raise UnsupportedTableError(
            "current_timestamp is the time of the batch in Spark's offsets log, but the log does not have that time; "
            "remove current_timestamp from select and expect"
        )
    return replace(decode, now_us=time_ms * 1000)


def of_one_source_table(target: Target, outcome: Outcome, decode: Decoder | None) -> Target:
    """Checks that the records come from one table of the source. `outcome` has the names of the source's tables whose
    records were read. Returns the target, which remembers these names.

    Raises SchemaMismatchError for records of a second source table, because they could overwrite rows with the same
    key; the files of the batch are removed first. Several source tables are allowed if `shards` says that their keys
    are distinct, or if columns of the key hold the name of the table.
    """
    if isinstance(decode, DecodeStep) and decode.has_distinct_keys:
        return target.with_state(replace(target.state, source_tables=()))
    tables = sorted({*outcome.source_tables, *target.state.source_tables})
    told_apart = decode.key_of_table if isinstance(decode, DecodeStep) else _no_key
    if len({told_apart(table) for table in tables}) < len(tables):
        target.at.discard(outcome.messages)
        raise SchemaMismatchError(
            f"the records come from {counted(len(tables), 'table')} of the source, {_named(tables)}: rows of one table "
            "would overwrite rows of another table with the same key. Set source-table to the table to read; or add "
            "the column _source_table to the primary key; or, if no key is in two tables, set shards to distinct-keys",
            tables=tuple(tables),
        )
    return target.with_state(replace(target.state, source_tables=tuple(tables)))


def refuse_unexpected(target: Target, outcome: Outcome, decode: Decoder | None) -> None:
    """Checks the expectations that end the job. If a row does not meet such an expectation, the files of the batch are
    removed and UnexpectedRowsError is raised.
    """
    columns = decode.columns if isinstance(decode, DecodeStep) else NO_COLUMN_OPTIONS
    ending = {e.name: e for e in columns.expect if e.otherwise is Otherwise.FAIL}
    for name, count in outcome.unexpected:
        if name in ending:
            target.at.discard(outcome.messages)
            raise UnexpectedRowsError(
                f"{counted(count, 'row')} of the batch do not meet the expectation {name} ({ending[name].check}). "
                f"Nothing of the batch is written. Correct the source, or set expect.{name}.otherwise to warn, drop "
                "or reject",
                expectation=name,
                rows=count,
            )


def _no_key(table: str) -> tuple[str | None, ...]:
    return ()


def _named(tables: Sequence[str]) -> str:
    shown = " and ".join(tables[:_SHOWN_TABLES])
    return shown if len(tables) <= _SHOWN_TABLES else f"{shown} and more"


def grow_table(at: TableAt, outcome: Outcome) -> TableAt:
    """Removes the files of the batch, and adds columns to the table for all fields that the records need. Returns the
    changed table.

    Raises SchemaMismatchError or OptionError if the columns cannot be added to the table.
    """
    at.discard(outcome.messages)
    evolve_table(at.table, outcome.need.columns, EvolutionPolicy.EVOLVE)
    at = at.refreshed()
    _LOG.info(
        "%s has schema %d now, with new columns %s; the tasks of the batch run again",
        at.table.path,
        at.plan.schema.id,
        _shown(outcome.need),
    )
    return at


def refuse_need(at: TableAt, outcome: Outcome) -> None:
    """The table has got the columns that the records of a batch needed. If the records need still more columns, removes
    the files of the batch and raises SchemaMismatchError.
    """
    if not outcome.need:
        return
    at.discard(outcome.messages)
    raise SchemaMismatchError(
        f"the table was changed for this batch, but its records still need columns for: {_shown(outcome.need)}; add "
        "these columns by hand (ALTER TABLE), or set schema-evolution to 'ignore'",
        column=outcome.need.columns.names[0],
        columns=outcome.need.columns.names,
    )


def _shown(need: SchemaNeed) -> str:
    return ", ".join(f"{f.name} {logical_type(f.type, True)}" for f in need.columns)
