"""Chooses the row groups of a Parquet file that may hold rows that meet a filter, by the bounds in the file's
footer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.datafile.parquet_rows import RowGroup
from bucketline.state.store.read.predicate import Bounds, conjunction, filter_columns, guarantee, possible
from bucketline.state.types.arrow import arrow_schema, representable
from bucketline.state.types.logical import DataField, TypeRoot

_BOUNDED = frozenset(
    (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.DATE, TypeRoot.CHAR, TypeRoot.VARCHAR)
)
"""The types for which the bounds in a Parquet footer have the same order as the values."""

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """Chooses the row groups in which a row may meet the filter, judging by the bounds of the columns `fields`, which
    the filter uses.
    """

    schema: pa.Schema
    expression: pc.Expression
    fields: tuple[DataField, ...]

    def only(self, names: Sequence[str]) -> "GroupChoice":
        """Returns a choice that uses only the bounds of these columns. If another file may have a newer row of a key,
        `names` must be the key columns: if a newer row was skipped because of its other columns, its older row would
        come back.
        """
        return GroupChoice(self.schema, self.expression, tuple(f for f in self.fields if f.name in names))

    def choose(self, stored: TableSchema, groups_of: Callable[[str], list[RowGroup]]) -> list[RowGroup] | None:
        """Returns the row groups of a file that may hold rows that meet the filter; None if all row groups may hold
        such rows, or if the file has no useful bounds.

        `stored` is the schema with which the file was written. `groups_of` takes the name of a column in this schema,
        and returns the row groups with the column's bounds.
        """
        guarantees: dict[int, list[pc.Expression | None]] = {}
        groups: list[RowGroup] = []
        for field in self.fields:
            before = next((f for f in stored.fields if f.id == field.id), None)
            if before is None or before.type.as_nullable() != field.type.as_nullable():
                continue
            groups = groups_of(before.name)
            if len(groups) < 2:
                return None
            for group in groups:
                bounds = Bounds(_internal(group.low), _internal(group.high), None, group.row_count)
                guarantees.setdefault(group.number, []).append(guarantee(field, bounds))
        if not groups:
            return None
        kept = possible(self.schema, self.expression, [conjunction(guarantees[g.number]) for g in groups])
        return None if kept.all() else [g for g, keep in zip(groups, kept, strict=True) if keep]


@dataclass(frozen=True, slots=True)
class FileShare:
    """One of `count` parts of a Parquet file, numbered from 0. A row group belongs to the part that contains its middle
    row.
    """

    number: int
    count: int

    def of(self, groups: Sequence[RowGroup], row_count: int) -> list[RowGroup]:
        """Returns the row groups that belong to this part of a file with `row_count` rows. Each row group belongs to
        exactly one part.
        """
        return [g for g in groups if (2 * g.first_row + g.row_count) * self.count // (2 * row_count) == self.number]


def group_choice(schema: TableSchema, expression: pc.Expression | None) -> GroupChoice | None:
    """Returns an object that chooses the row groups to read for a filter, judging by the bounds of columns. Returns
    None if every row group must be read.
    """
    if expression is None:
        return None
    columns = arrow_schema(representable(schema.fields))
    looked_at = filter_columns(columns, expression)
    bounded = tuple(
        f
        for f in schema.fields
        if f.name in looked_at and f.type.root in _BOUNDED and f.name not in schema.partition_keys
    )
    return GroupChoice(columns, expression, bounded) if bounded else None


def _internal(value: object) -> object:
    return (value - _EPOCH).days if isinstance(value, date) else value
