"""The projection of a read: its columns and its filter. Also checks whether a table can be read at all."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.table.read_options import SCAN_MODE_KEY
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_places import places_among, read_fields
from bucketline.state.format.row_ranges import TRACKED_NAMES, kept_schema, tracks_rows
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.lsm.merge.overflow_risk import long_decimals
from bucketline.state.sql.compute.condition import Condition
from bucketline.state.store.read.predicate import filter_columns
from bucketline.state.types.arrow import arrow_schema, representable
from bucketline.state.types.char_text import chars_of, pad_columns
from bucketline.state.types.long_decimals import without_long


@dataclass(frozen=True, slots=True)
class Projection:
    """The requested columns, in order, and a filter on merged rows. `needed` are the columns to read: the requested
    columns and the columns that only the filter uses.
    """

    columns: tuple[str, ...]
    condition: Condition
    needed: tuple[str, ...]

    @property
    def expression(self) -> pc.Expression | None:
        """Returns the part of the filter by which files can be skipped; None if no part can be used for that."""
        return self.condition.expression


def plan_projection(schema: TableSchema, columns: Iterable[str] | None, condition: Condition) -> Projection:
    """Checks the requested columns, and returns the projection of a read. Raises SchemaMismatchError for an unknown
    column, for a column that is requested twice, and for a column whose type cannot be read.
    """
    own = [f.name for f in schema.fields]
    known = own if not tracks_rows(schema) else [*own, *TRACKED_NAMES]
    wanted = own if columns is None else list(columns)
    places = places_among(schema, wanted)
    there, seen = frozenset((*known, *places)), set[str]()
    for name in wanted:
        if name not in there:
            raise SchemaMismatchError(f"unknown column {name!r}; the table has {', '.join(known)}", column=name)
        if name in seen:
            raise SchemaMismatchError(f"column {name!r} is asked for twice; leave one of the two out", column=name)
        seen.add(name)
    readable = {f.name for f in representable(schema.fields)} | set(known[len(own) :])
    readable |= set(places)
    unread = next((name for name in wanted if name not in readable), None)
    if unread is not None:
        raise UnsupportedTableError(
            f"column {unread}: columns of type {schema.field(unread).type} cannot be read; ask for the other columns: "
            f"columns={[name for name in own if name in readable]}",
            column=unread,
        )
    fields = representable(kept_schema(schema).fields)
    expression = condition.expression
    looked_at = () if expression is None else filter_columns(arrow_schema(fields), expression)
    # At least one column is read, because rows without any column would have no count.
    needed = tuple(dict.fromkeys((*wanted, *looked_at, *condition.columns))) or tuple(
        f.name for f in representable(schema.fields)[:1]
    )
    return Projection(tuple(wanted), condition, needed)


def refuse_unreadable(schema: TableSchema, *, is_named: bool = False) -> None:
    """Checks that rows of a table with this schema can be read. Raises UnsupportedTableError that names the option that
    prevents the read.

    If the read itself names a snapshot (`is_named`), options of the table that choose a snapshot are ignored.
    """
    refused = schema.settings.reading.refused
    if refused is not None and not (is_named and refused[0] == SCAN_MODE_KEY):
        key, value = refused
        remedy = "; name the snapshot to read, or unset the option" if key == SCAN_MODE_KEY else ""
        raise UnsupportedTableError(f"tables with '{key}' = '{value}' cannot be read{remedy}", option=key, value=value)
    fold_for(schema)


def project(schema: TableSchema, batches: Iterable[pa.RecordBatch], projection: Projection) -> Iterator[pa.RecordBatch]:
    """Yields the rows that meet the filter, in the requested columns and the table's types. No batch is empty.

    Decimals that are too long for their type become null, and values of a CHAR column are padded with blanks, as in
    Paimon's Spark.
    """
    names = list(projection.columns)
    out = arrow_schema(read_fields(schema, projection.columns))
    for batch in as_shown(schema, batches):
        for kept in filtered(batch, projection.condition):
            columns = kept.select(names)
            yield pa.RecordBatch.from_arrays(columns.columns, schema=out) if names else columns


def as_shown(schema: TableSchema, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Yields stored rows with their values as readers see them: decimals that are too long become null, and CHAR values
    are padded with blanks.
    """
    long, chars = long_decimals(schema), chars_of(schema.fields)
    if not long and not chars:
        return batches
    return (pad_columns(without_long(batch, long), chars) for batch in batches)


def filtered(batch: pa.RecordBatch, condition: Condition) -> list[pa.RecordBatch]:
    """Returns the rows of the batch that meet the condition, as batches. No batch is empty."""
    batches: list[pa.RecordBatch] = [batch] if batch.num_rows else []
    if condition.expression is not None:
        rows = pa.Table.from_batches([batch]).filter(condition.expression)
        batches = rows.combine_chunks().to_batches()
    if condition.test is None:
        return batches
    passing = (kept.filter(condition.mask(kept)) for kept in batches)
    return [kept for kept in passing if kept.num_rows]
