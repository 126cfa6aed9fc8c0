"""Replaces each `sys.max_pt('t')` by the newest partition of the table, before a statement is carried out.

Source: Paimon 2.0 ReplacePaimonFunctions.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from bucketline.state.format.entries import ManifestFileMeta
from bucketline.state.format.entry_filter import EntryFilter
from bucketline.state.format.partition_stats import sorted_partitions
from bucketline.state.sql.compute.parsing import parse_value
from bucketline.state.sql.dialect import DIALECT, refused
from bucketline.state.sql.newest_partition import FUNCTION, NewestPartitionCall, newest_partition_calls
from bucketline.state.sql.queries import read_query
from bucketline.state.sql.statement import Query, TableReference
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.read.views import value_text
from bucketline.state.store.sql.partitions import stored_partitions
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.table import handle_of
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.columns_text import quoted_text
from bucketline.state.types.logical import INTEGER_ROOTS, DataType


@dataclass(slots=True)
class NewestPartitions:
    """The newest partitions of the tables that one statement names in calls of `sys.max_pt`. The newest partition of a
    table is read once, so all calls for this table have the same value.
    """

    session: SqlSession
    _known: dict[TableReference, tuple[str, DataType]] = field(default_factory=dict)

    def in_query(self, query: Query) -> Query:
        """Returns the query with the value of the newest partition in place of each call of `sys.max_pt`. Raises
        OptionError for a table without partitions.
        """
        text = self._with_literals(query.text)
        if text is query.text:
            return query
        again = read_query(text)
        relations = zip(again.relations, query.relations, strict=True)
        return replace(again, relations=tuple(replace(new, options=old.options) for new, old in relations))

    def in_value(self, node: exp.Expression) -> exp.Expression:
        """Returns the expression `node` with a literal in place of each call of `sys.max_pt`: the value of the newest
        partition. Raises OptionError for a table without partitions.
        """
        copied = exp.Paren(this=node.copy())
        calls = [dot for dot in copied.find_all(exp.Dot) if dot.expression.name.lower() == FUNCTION]
        for dot in calls:
            for call in newest_partition_calls(dot.sql(DIALECT)):
                literal = self._literal(replace(call, is_compared=_is_compared(dot)))
                dot.replace(parse_value(literal, FUNCTION).copy())
        # Nothing else in the tree may change, because queries in the tree name their tables by positions in the text.
        return copied.this if calls else node

    def _with_literals(self, text: str) -> str:
        for call in reversed(list(newest_partition_calls(text))):
            text = f"{text[: call.start]}{self._literal(call)}{text[call.end :]}"
        return text

    def _literal(self, call: NewestPartitionCall) -> str:
        """Returns the newest partition as an SQL literal: a number if the call is compared with a value and the column
        has an integer type, otherwise a string.
        """
        if call.table not in self._known:
            self._known[call.table] = _newest(handle_of(self.session.table(call.table)), call.table)
        text, data_type = self._known[call.table]
        return text if call.is_compared and data_type.root in INTEGER_ROOTS else quoted_text(text)


def _is_compared(node: exp.Expression) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        parent = parent.parent
    return isinstance(parent, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE)


def _newest(handle: TableHandle, name: TableReference) -> tuple[str, DataType]:
    """Returns the text and the type of the largest value of the first partition column, among the partitions with
    files. Raises OptionError if the table `name` has no partition columns, or no partition with files.
    """
    schema = handle.table_schema
    if not schema.partition_keys:
        raise refused(f"max_pt: {name} has no partition columns")
    types = [f.type for f in schema.select(schema.partition_keys)]
    value = newest_value(handle, types)
    if value is None:
        raise refused(f"max_pt: {name} has no partition with data")
    return value_text(value, types[0]), types[0]


def newest_value(handle: TableHandle, types: Sequence[DataType]) -> object:
    """Returns the largest value of the first partition column, among the partitions with files; None if no partition
    with files has a value. `types` are the types of the partition columns.

    The largest upper bound in the manifests is tried first, and only the entries of partitions with this value are
    decoded. In most tables such a partition has files. Otherwise all files of these partitions have been deleted, and
    the entries of all partitions are read.
    """
    newest = handle.snapshot_store.latest()
    if newest is None:
        return None
    metas = handle.manifests.base_and_delta(newest)
    bound = _largest_bound(metas, types)
    if bound is not None:
        wanted = EntryFilter(condition=_FirstValue(bound, types))
        if any(e.bucket >= 0 for e in handle.manifests.live_in(metas, wanted)):
            return bound
    ordered = sorted_partitions(stored_partitions(handle), types)
    return ordered[-1][0][0] if ordered else None


def _largest_bound(metas: Sequence[ManifestFileMeta], types: Sequence[DataType]) -> object:
    """Returns the largest upper bound of the first partition column in the bounds of manifests; None if a manifest has
    no such bound.
    """
    stats = [m.partition_stats for m in metas]
    if any(s.null_counts is None or len(s.null_counts) != len(types) for s in stats):
        return None
    ordered = sorted_partitions([s.max_values for s in stats], [t.as_nullable() for t in types])
    return ordered[-1][0][0] if ordered and ordered[0][0][0] is not None else None


@dataclass(frozen=True, slots=True)
class _FirstValue:
    """The condition that the first partition column has the value `value`."""

    value: object
    types: Sequence[DataType]

    def may_hold(self, manifests: Sequence[ManifestFileMeta]) -> list[bool]:
        types = [t.as_nullable() for t in self.types]
        return [decode_row(m.partition_stats.max_values, types)[0] == self.value for m in manifests]

    def passing(self, partitions: Collection[bytes]) -> list[bytes]:
        return [p for p in partitions if decode_row(p, self.types)[0] == self.value]
