"""Finds the column that a name in a MERGE statement means: a column of the table, or a column of the source."""

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from bucketline.state.sql.compute.expression import SOURCE, TARGET
from bucketline.state.sql.compute.zones import local_column
from bucketline.state.sql.dialect import DIALECT, refused
from bucketline.state.store.sql.relation import is_local, is_zoned
from bucketline.state.store.sql.spelling import spellings

_OWN, _LOCAL = "_source_", "_local_"
"""Prefixes of the source's own columns, because their names may equal the names of the columns by which rows are
joined. The second prefix is for timestamps that were converted to local times.
"""


class MergeNames:
    """The columns of the table and of the source. A name means the column with exactly this name. If there is no such
    column, the name means the column whose name differs only in case.
    """

    def __init__(self, target_alias: str, target: Sequence[str], source_alias: str, source: pa.Schema) -> None:
        self._sides = ((TARGET, target_alias, target), (SOURCE, source_alias, source.names))
        self._source = source

    def find(self, node: exp.Column) -> tuple[str, str]:
        """Returns which side a column belongs to (table or source), and the column's name there. Raises OptionError for
        a name that is unknown or ambiguous.
        """
        matches = [
            (side, alias, name)
            for side, alias, names in self._sides
            if not node.table or node.table.lower() == alias.lower()
            for name in spellings(node.name, names)
        ]
        if len(matches) == 1:
            return matches[0][0], matches[0][2]
        if matches:
            several = ", ".join(f"{alias}.{name}" for _, alias, name in matches)
            raise refused(
                f"MERGE: {node.sql(DIALECT)!r} can mean {several}; write which of them is meant", column=node.name
            )
        known = "; ".join(f"{alias} has {', '.join(names)}" for _, alias, names in self._sides)
        raise refused(f"MERGE: unknown column {node.sql(DIALECT)!r}; {known}", column=node.name)

    def sides(self, node: exp.Expression) -> set[str]:
        """Returns the sides (table, source) whose columns a value needs."""
        return {self.find(column)[0] for column in node.find_all(exp.Column)}

    def both(self, node: exp.Expression) -> exp.Expression:
        """Takes a node of a clause that is computed on pairs of rows: a row of the table and a row of the source. If
        the node is the name of a column, returns the column that it means, with the side of the pair. Any other node is
        returned unchanged.
        """
        return node if not isinstance(node, exp.Column) else _placed(*self.find(node))

    def source(self, node: exp.Expression) -> exp.Expression:
        """Returns the source's column that a name means in a clause that sees only source rows (WHEN NOT MATCHED).
        Raises OptionError for a column of the table.
        """
        return self._of_one(node, SOURCE, "a row without a match has only columns of the source")

    def target(self, node: exp.Expression) -> exp.Expression:
        """Returns the table's column that a name means in a clause that sees only rows of the table (WHEN NOT MATCHED
        BY SOURCE). Raises OptionError for a column of the source.
        """
        return self._of_one(node, TARGET, "a row that no source row matches has only columns of the table")

    def plain(self, node: exp.Expression) -> exp.Expression:
        """Returns the column that a name means, under its name in the table or the source, without alias and prefix.
        Nodes that are no columns are returned unchanged.
        """
        return node if not isinstance(node, exp.Column) else exp.column(exp.to_identifier(self.find(node)[1]))

    def of_source(self, name: str, clause: str) -> exp.Expression:
        """Returns the source's column with that name, for `*` in a clause. Raises OptionError if there is no such
        column.
        """
        matches = spellings(name, self._sides[1][2])
        if len(matches) != 1:
            raise refused(
                f"MERGE: {clause} needs column {name!r} in the source; instead of *, list columns and values",
                column=name,
            )
        return exp.column(exp.to_identifier(matches[0]), table=exp.to_identifier(self._sides[1][1]))

    def _of_one(self, node: exp.Expression, wanted: str, why: str) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        if not node.table:
            names = next(names for side, _, names in self._sides if side == wanted)
            matches = spellings(node.name, names)
            if len(matches) == 1:
                return _placed(wanted, matches[0])
        side, name = self.find(node)
        if side != wanted:
            raise refused(f"MERGE: {node.sql(DIALECT)!r} cannot be used here: {why}", column=node.name)
        return _placed(side, name)

    def local(self, node: exp.Expression, wanted: pa.DataType) -> exp.Expression:
        """Converts a value for a column of the type `wanted` as Spark does: if the column has no time zone, a timestamp
        with time zone becomes the local time in the timestamp's time zone.
        """
        if not isinstance(node, exp.Column) or node.table != SOURCE:
            return node
        name = node.name.removeprefix(_OWN)
        if not is_zoned(self._source.field(name).type) or not is_local(wanted):
            return node
        return exp.column(exp.to_identifier(f"{_LOCAL}{name}"), table=SOURCE)


def own_columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns of a source under new names, which begin with the prefix by which clauses find these columns.
    For a timestamp with time zone, a second column with the local time is added.
    """
    names, columns = [f"{_OWN}{name}" for name in rows.schema.names], list(rows.columns)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if is_zoned(field.type):
            names.append(f"{_LOCAL}{field.name}")
            columns.append(local_column(column))
    return pa.RecordBatch.from_arrays(columns, names=names)


def _placed(side: str, name: str) -> exp.Expression:
    own = f"{_OWN}{name}" if side == SOURCE else name
    return exp.column(exp.to_identifier(own), table=side)
