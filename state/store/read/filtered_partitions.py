"""Finds the partitions that can have rows that meet the filter of a read, before files of the partitions are listed.

A filter that says `=` for every partition column names one partition. Any other filter is tested: first with the bounds
of a manifest or of some neighbouring partitions, and then with each partition that is left.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.format.entries import ManifestFileMeta
from bucketline.state.format.entry_filter import EVERYTHING, EntryFilter
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.partition_stats import PartitionRow, partition_bounds, sorted_partitions
from bucketline.state.store.read.predicate import (
    Bounds,
    conjunction,
    constant_guarantee,
    filter_binds,
    guarantee,
    pinned_values,
    possible,
)
from bucketline.state.types.arrow import arrow_schema, representable
from bucketline.state.types.binary_row import decode_row, encode_rows
from bucketline.state.types.logical import INTEGER_ROOTS, DataField, TypeRoot

_NEIGHBOURS = 64
"""How many neighbouring partitions are tested together, by their common bounds, before each of them is tested alone."""

_EXACT = frozenset((*INTEGER_ROOTS, TypeRoot.VARCHAR, TypeRoot.DATE, TypeRoot.BOOLEAN))
"""The types whose equal values always have the same bytes in a serialized partition, and whose values readers see as
they are stored. So a value in a filter names exactly one value of the partition column.
"""


@dataclass(frozen=True, slots=True)
class FilteredPartitions:
    """The partitions in which rows can meet the filter `expression` of a read. `fields` are the partition columns, and
    `arrow` is the schema with which the rows are read.
    """

    fields: Sequence[DataField]
    arrow: pa.Schema
    expression: pc.Expression

    def may_hold(self, manifests: Sequence[ManifestFileMeta]) -> list[bool]:
        """Returns for each manifest False if its bounds show that rows of its partitions cannot meet the filter,
        otherwise True.
        """
        return self._possible([self._manifest_guarantee(m) for m in manifests])

    def passing(self, partitions: Collection[bytes]) -> set[bytes]:
        """Returns those of the partitions in which rows can meet the filter. Raises CorruptFileError if a partition
        cannot be decoded.
        """
        found = sorted_partitions(partitions, [f.type for f in self.fields])
        groups = [found[at : at + _NEIGHBOURS] for at in range(0, len(found), _NEIGHBOURS)]
        if len(groups) > 1:
            kept = self._possible([self._group_guarantee([row for row, _ in group]) for group in groups])
            found = [pair for group, keep in zip(groups, kept, strict=True) if keep for pair in group]
        kept = self._possible([partition_guarantee(self.fields, row) for row, _ in found])
        return {partition for (_, partition), keep in zip(found, kept, strict=True) if keep}

    def _possible(self, guarantees: Sequence[pc.Expression]) -> list[bool]:
        kept: list[bool] = possible(self.arrow, self.expression, guarantees).tolist()
        return kept

    def _manifest_guarantee(self, manifest: ManifestFileMeta) -> pc.Expression:
        stats, types = manifest.partition_stats, [f.type.as_nullable() for f in self.fields]
        if stats.null_counts is None or len(stats.null_counts) != len(types):
            return conjunction(())
        lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
        count = manifest.num_added_files + manifest.num_deleted_files
        return self._bounds_guarantee(lows, highs, stats.null_counts, count)

    def _group_guarantee(self, rows: Sequence[PartitionRow]) -> pc.Expression:
        nulls = [sum(value is None for value in column) for column in zip(*rows, strict=True)]
        return self._bounds_guarantee(*partition_bounds(rows), nulls, len(rows))

    def _bounds_guarantee(
        self, lows: Sequence[object], highs: Sequence[object], nulls: Sequence[int | None], count: int
    ) -> pc.Expression:
        columns = zip(self.fields, lows, highs, nulls, strict=True)
        return conjunction([guarantee(field, Bounds(low, high, null, count)) for field, low, high, null in columns])


def partition_guarantee(fields: Sequence[DataField], row: PartitionRow) -> pc.Expression:
    """Returns an expression that is true for all rows of a partition. `fields` are the partition columns, and `row` has
    their values.
    """
    return conjunction([constant_guarantee(f, v) for f, v in zip(fields, row, strict=True)])


def wanted_entries(schema: TableSchema, expression: pc.Expression | None) -> EntryFilter:
    """Returns a filter for manifest entries. An entry passes if rows of its partition can meet `expression`, the filter
    of a read. All entries pass if `expression` is None, or reads no partition column.
    """
    fields = schema.select(schema.partition_keys)
    if expression is None or not fields:
        return EVERYTHING
    arrow = arrow_schema(representable(schema.fields))
    if filter_binds(pa.schema([f for f in arrow if f.name not in schema.partition_keys]), expression):
        return EVERYTHING
    if all(f.type.root in _EXACT for f in fields):
        pinned = pinned_values(arrow, expression)
        if all(f.name in pinned for f in fields):
            columns = [pa.array([pinned[f.name].as_py()], pinned[f.name].type) for f in fields]
            named = encode_rows(columns, [f.type for f in fields], with_arity=True)[0].as_py()
            return EntryFilter(partitions=frozenset((named,)))
    return EntryFilter(condition=FilteredPartitions(fields, arrow, expression))
