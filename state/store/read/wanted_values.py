"""Finds the values that a filter allows for a column, if they are few, as in `id = 7` or `id IN (1, 2)`.

A filter is an opaque Arrow expression, which only Arrow can evaluate. So Arrow decides for each literal in the filter,
and for each interval between two literals, whether a row can meet the filter. If a literal is not found, fewer files
are skipped, but the result is never wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.read.predicate import filter_columns, possible
from bucketline.state.types.arrow import arrow_schema, representable
from bucketline.state.types.logical import TypeRoot

_MOST_VALUES = 256
"""The largest number of values that are searched for, because each value needs one evaluation by Arrow."""


class WantedValues:
    """For each column of a table, the values that a filter allows. These values are found once for all
    files of a read.
    """

    def __init__(self) -> None:
        self._found: tuple[TableSchema, pc.Expression, Mapping[int, pa.Array]] | None = None

    def of(self, schema: TableSchema, expression: pc.Expression) -> Mapping[int, pa.Array]:
        """Returns the allowed values, by the id of the column: every row that meets the filter has one of these values.
        CHAR columns are left out, because they are read with blanks that the files do not have.
        """
        found = self._found
        if found is None or found[0] is not schema or found[1] is not expression:
            columns = arrow_schema(representable(schema.fields))
            looked_at = filter_columns(columns, expression)
            fields = [f for f in schema.fields if f.name in looked_at and f.name not in schema.partition_keys]
            fields = [f for f in fields if f.type.is_atomic and f.type.root is not TypeRoot.CHAR]
            wanted = wanted_values(columns, expression, [f.name for f in fields])
            found = schema, expression, {f.id: wanted[f.name] for f in fields if f.name in wanted}
            self._found = found
        return found[2]


def wanted_values(schema: pa.Schema, expression: pc.Expression, names: Sequence[str]) -> dict[str, pa.Array]:
    """Returns the allowed values of the columns `names`, in the column's type: every row that meets the filter has one
    of these values.

    A column is left out if other values, or null, are allowed too. Float columns are left out, because Arrow does not
    distinguish 0.0 from -0.0.
    """
    literals = list(_literals(expression))
    found: dict[str, pa.Array] = {}
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            continue
        known = _of_type(literals, kind)
        if known:
            wanted = _wanted(schema, expression, name, pa.concat_arrays(known).unique().drop_null())
            if wanted is not None:
                found[name] = wanted
    return found


def _wanted(schema: pa.Schema, expression: pc.Expression, name: str, values: pa.Array) -> pa.Array | None:
    """Returns those of `values` that rows which meet the condition can have in the column `name`. Example: for `a = 1`
    and the values 1 and 2 of the column `a`, the result is 1. Returns None if a row with another value, or with null,
    may also meet the condition.
    """
    if not 0 < len(values) <= _MOST_VALUES:
        return None
    column = pc.field(name)
    ordered = values.take(pc.sort_indices(values))
    points = list(ordered)
    between = [column.is_null(), column < points[0], column > points[-1]]
    between += [(column > low) & (column < high) for low, high in pairwise(points)]
    if possible(schema, expression, between).any():
        return None
    return ordered.filter(pa.array(possible(schema, expression, [column == point for point in points])))


def _of_type(literals: Sequence[pa.Array], kind: pa.DataType) -> list[pa.Array]:
    """Returns the literals that can be converted exactly to the type."""
    found = []
    for values in literals:
        try:
            found.append(values.cast(kind))
        except (pa.ArrowException, OverflowError):
            continue
    return found


def _literals(expression: pc.Expression) -> Iterator[pa.Array]:
    """Yields the literals in an expression, and the list of values of each `IN` condition. All are read from the
    serialized form of the expression.
    """
    try:
        _, (serialized, *_) = expression.__reduce__()
        with pa.ipc.open_file(serialized) as reader:
            columns = reader.read_all().columns
    except (pa.ArrowException, TypeError, ValueError):
        return
    for column in columns:
        values = column.combine_chunks()
        if not pa.types.is_struct(values.type):
            yield values
        elif values.type.get_field_index("value_set") >= 0:
            value_set = values.field("value_set")
            yield value_set.flatten() if pa.types.is_list(value_set.type) else value_set
