"""Checks incoming rows and converts them to rows of the table: columns in the table's types, and a row kind for each
row.

Source: Paimon 2.0 TableWriteImpl, RowKindGenerator, RowKindFilter. As in Paimon, row kinds are read first, and rows
whose kind the table ignores are dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.bucket.defaults import fill_defaults
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.arrow import UNAVAILABLE, conform
from bucketline.state.types.buffers import one_array
from bucketline.state.types.if_else import if_else
from bucketline.state.types.row_kind import SHORT_NAMES, RowKind

ROW_KIND_COLUMN = "_row_kind"


@dataclass(frozen=True, slots=True)
class AcceptedRows:
    """Rows that the table accepts: the table's columns in order, and a row kind (int8) for each row.

    `positions` are the row numbers in the input, ascending; None means all rows of the input.
    `feeds` has a number for each row that identifies the Kafka partition from which the row came; None if the order of
    rows does not depend on the Kafka partition.
    `left_out` are the values of the internal column UNAVAILABLE, which says for each row which values the source did
    not send; None if the source sent all values.
    """

    rows: pa.Table
    kinds: pa.Array
    positions: pa.Array | None = None
    feeds: NDArray[Any] | None = None
    left_out: pa.Array | None = None

    def filter(self, keep: pa.Array) -> "AcceptedRows":
        """Returns the rows where `keep` is true."""
        feeds = None if self.feeds is None else self.feeds[np.asarray(pc.indices_nonzero(keep))]
        left_out = None if self.left_out is None else self.left_out.filter(keep)
        return AcceptedRows(self.rows.filter(keep), self.kinds.filter(keep), self.input_rows(keep), feeds, left_out)

    def of_feeds(self, feeds: NDArray[Any] | None) -> "AcceptedRows":
        """Returns the same rows with `feeds` set. The argument `feeds` has a number for each row of the input, which
        identifies the Kafka partition from which the row came.
        """
        if feeds is not None and self.positions is not None:
            feeds = feeds[np.asarray(self.positions)]
        return replace(self, feeds=feeds)

    def input_rows(self, chosen: pa.Array) -> pa.Array:
        """Returns the positions in the input of the rows where `chosen` is true."""
        return pc.indices_nonzero(chosen) if self.positions is None else self.positions.filter(chosen)


def accept_rows(data: pa.Table, schema: TableSchema) -> AcceptedRows:
    """Returns the rows of `data` that the table accepts, in arrival order.

    Columns are found by name and may have any order. The columns `_row_kind` (int8) and UNAVAILABLE may be missing. The
    result has the table's columns. A null becomes the default of its column, if there is a default. Raises
    SchemaMismatchError for columns, row kinds or values that do not fit.
    """
    left_out = None
    if UNAVAILABLE in data.column_names and all(f.name != UNAVAILABLE for f in schema.fields):
        left_out, data = one_array(data[UNAVAILABLE]), data.drop_columns([UNAVAILABLE])
    explicit = ROW_KIND_COLUMN in data.column_names
    if explicit and any(f.name == ROW_KIND_COLUMN for f in schema.fields):
        explicit = False
    kinds = _explicit_kinds(data) if explicit else None
    rows = conform(data.drop_columns([ROW_KIND_COLUMN]) if explicit else data, schema)
    kind_field = schema.settings.merge.row_kind_field
    if kind_field is not None:
        if explicit:
            raise SchemaMismatchError(
                f"the input has a {ROW_KIND_COLUMN} column, but the table takes row kinds from its rowkind.field "
                f"{kind_field!r}; remove one of the two",
                column=ROW_KIND_COLUMN,
            )
        kinds = _kinds_of_names(rows[kind_field], kind_field)
    if kinds is None:
        kinds = pa.repeat(pa.scalar(int(RowKind.INSERT), pa.int8()), rows.num_rows)
    if not schema.primary_keys:
        _refuse_retracts(kinds)
    return _filter_kinds(AcceptedRows(fill_defaults(rows, schema), kinds, left_out=left_out), schema)


def poison_reasons(data: pa.Table, schema: TableSchema) -> pa.ChunkedArray | None:
    """Returns a string for each row: the reason why the row is bad, and null for a good row. Returns None if all rows
    are good.

    A row is bad if it has a null in a NOT NULL column, or no valid row kind.
    """
    reasons: pa.ChunkedArray | None = None
    for bad, why in _poison_masks(data, schema):
        if not pc.any(bad).as_py():
            continue
        texts = if_else(bad, pa.scalar(why), pa.scalar(None, pa.string()))
        reasons = texts if reasons is None else pc.coalesce(reasons, texts)
    return reasons


def _poison_masks(data: pa.Table, schema: TableSchema) -> Iterator[tuple[pa.ChunkedArray, str]]:
    for f in schema.fields:
        if not f.type.nullable and f.name in data.column_names and data[f.name].null_count:
            yield pc.is_null(data[f.name]), f"column '{f.name}' is null, and the table declares it NOT NULL"
    names = {f.name for f in schema.fields}
    if ROW_KIND_COLUMN in data.column_names and ROW_KIND_COLUMN not in names:
        kinds = data[ROW_KIND_COLUMN]
        if pa.types.is_integer(kinds.type):
            known = pc.and_(pc.greater_equal(kinds, 0), pc.less_equal(kinds, 3))
            yield pc.fill_null(pc.invert(known), True), f"column {ROW_KIND_COLUMN} has no valid row kind (0 to 3)"
    kind_field = schema.settings.merge.row_kind_field
    if kind_field is not None and kind_field in data.column_names and pa.types.is_string(data[kind_field].type):
        known = pc.is_in(data[kind_field], value_set=pa.array(list(SHORT_NAMES)))
        yield pc.invert(known), f"rowkind.field '{kind_field}' has no valid row kind ({', '.join(SHORT_NAMES)})"


def _explicit_kinds(data: pa.Table) -> pa.Array:
    column = data[ROW_KIND_COLUMN]
    if not pa.types.is_integer(column.type):
        raise SchemaMismatchError(
            f"column {ROW_KIND_COLUMN} must be int8 (+I 0, -U 1, +U 2, -D 3), found {column.type}",
            column=ROW_KIND_COLUMN,
        )
    known = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, 3))
    if pc.any(pc.fill_null(pc.invert(known), True)).as_py():
        raise SchemaMismatchError(
            f"column {ROW_KIND_COLUMN} holds values outside 0..3 (+I 0, -U 1, +U 2, -D 3)", column=ROW_KIND_COLUMN
        )
    return one_array(column.cast(pa.int8()))


def _kinds_of_names(column: pa.ChunkedArray, name: str) -> pa.Array:
    codes = pc.index_in(pc.utf8_rtrim(column.cast(pa.string()), characters=" "), value_set=pa.array(list(SHORT_NAMES)))
    if codes.null_count:
        bad = pc.filter(column, pc.is_null(codes))[0].as_py()
        raise SchemaMismatchError(
            f"rowkind.field {name!r} holds {bad!r}; a row kind is one of {', '.join(SHORT_NAMES)}", column=name
        )
    table = pa.array([int(k) for k in SHORT_NAMES.values()], pa.int8())
    return one_array(pc.take(table, codes))


def _refuse_retracts(kinds: pa.Array) -> None:
    if len(kinds) and pc.any(pc.not_equal(kinds, int(RowKind.INSERT))).as_py():
        raise SchemaMismatchError(
            "an append table takes inserts only, but the input has updates or deletes; "
            "give the table a primary key, or filter the input",
            column=ROW_KIND_COLUMN,
        )


def _dropped_kinds(schema: TableSchema) -> set[int]:
    dropped = set()
    if schema.settings.merge.ignore_delete:
        dropped |= {int(RowKind.UPDATE_BEFORE), int(RowKind.DELETE)}
    if schema.settings.merge.ignore_update_before:
        dropped.add(int(RowKind.UPDATE_BEFORE))
    return dropped


def _filter_kinds(accepted_rows: AcceptedRows, schema: TableSchema) -> AcceptedRows:
    dropped = _dropped_kinds(schema)
    if not dropped:
        return accepted_rows
    keep = pc.invert(pc.is_in(accepted_rows.kinds, value_set=pa.array(sorted(dropped), pa.int8())))
    return accepted_rows.filter(keep)
