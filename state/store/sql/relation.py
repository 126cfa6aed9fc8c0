"""A table in a query: its columns, and its rows that meet a filter."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.state.format.row_places import PLACES, hidden_fields
from bucketline.state.sql.compute.expression import SqlExpression, condition, with_blanks
from bucketline.state.sql.compute.filters import literal_scalar, translate_filter
from bucketline.state.sql.dialect import DIALECT, refused, sql_text
from bucketline.state.sql.queries import path_of
from bucketline.state.sql.statement import Relation
from bucketline.state.store.read.fallback import own_view
from bucketline.state.store.sql.between import changed_rows
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.sql.spelling import spellings
from bucketline.state.store.system.tables import system_table
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.types.arrow import arrow_schema, logical_fields
from bucketline.state.types.logical import DataField, TypeRoot

_TIMES = ("date", "time", "timestamp", "timestamptz", "timestampltz", "timestampntz")
_TIME_TYPES = (TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a query: columns under an alias. The rows come from `table`. If `table` is None, the rows come from
    `log`: the rows of a system table, of VALUES or of another query, which can be read only once.
    """

    table: Table | None
    alias: str
    schema: pa.Schema
    fields: Sequence[DataField]
    hidden: Sequence[DataField] = ()
    """Columns that a query reads only if it names them; `*` does not include them."""

    log: Iterator[pa.RecordBatch] | None = None

    @property
    def known(self) -> Sequence[DataField]:
        """Returns all columns that a query may name, including hidden columns."""
        return (*self.fields, *self.hidden)

    def batches(
        self, columns: Sequence[str], where: exp.Expression | None, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows that meet `where`, with these columns. May stop after `limit` rows if this saves work.

        A condition on single columns skips files that cannot match; any other condition is computed for each row.
        Raises OptionError for a condition that only Spark can compute.
        """
        if where is None:
            yield from self._filtered(columns, None, limit)
            return
        if self.table is not None and _names_places(where, self.hidden):
            yield from self._filtered(columns, SqlExpression(sql_text(where)), limit)
            return
        try:
            expression = translate_filter(where, self.known)
        except OptionError as e:
            yield from self._computed(columns, where, e)
            return
        yield from self._filtered(columns, expression, limit)

    def _filtered(
        self, columns: Sequence[str], expression: pc.Expression | SqlExpression | None, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        if self.log is None:
            assert self.table is not None
            yield from self.table.to_batches(list(columns), expression, limit=limit)
            return
        for batch in self.log:
            rows = pa.Table.from_batches([batch], schema=self.schema)
            if expression is not None:
                assert isinstance(expression, pc.Expression)
                rows = rows.filter(expression)
            yield from rows.select(list(columns)).to_batches()

    def _computed(
        self, columns: Sequence[str], where: exp.Expression, refusal: OptionError
    ) -> Iterator[pa.RecordBatch]:
        uses = [c.name for c in where.find_all(exp.Column)]
        needed = list(dict.fromkeys([*columns, *uses]))
        for batch in self._filtered(needed, None, None):
            known = dict(zip(batch.schema.names, batch.columns, strict=True))
            try:
                passing = condition(with_blanks(SqlExpression(sql_text(where)), self.known), known, batch.num_rows)
            except OptionError as e:
                text = f"WHERE {where.sql(DIALECT)} needs Spark: pass a Spark session ({e.message})"
                raise refused(text) from refusal
            yield batch.filter(passing).select(list(columns))


def open_source(session: SqlSession, relation: Relation, alias: str, *, reads: bool = True) -> Source:
    """Returns the table of a relation as a source of rows, under the name `alias` and at the version that the relation
    names. If `reads` is False, because the query is only checked, the source has no rows.
    """
    table, between = session.queried(relation)
    if between is not None:
        schema, rows = changed_rows(handle_of(table), between, as_log=relation.name.system is not None)
        return rows_source(pa.RecordBatchReader.from_batches(schema, rows if reads else ()), alias)
    if relation.name.system is None:
        view = own_view(handle_of(table), None)
        none = None if reads else iter(())
        own = view.schema.fields
        hidden = hidden_fields(view.schema)
        return Source(table, alias, arrow_schema((*own, *hidden)), own, hidden, none)
    schema, rows = system_table(handle_of(table), relation.name.system)
    return rows_source(pa.RecordBatchReader.from_batches(schema, rows if reads else ()), alias)


def rows_source(rows: pa.RecordBatchReader, alias: str, names: Sequence[str] = ()) -> Source:
    """Returns a source of the rows `rows` under the name `alias`. If `names` is not empty, the columns get these names.
    Raises OptionError for a wrong number of names, SchemaMismatchError for a type that a table cannot have.
    """
    schema = named(rows.schema, names, alias)
    batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
    return Source(None, alias, schema, logical_fields(schema), (), batches)


def named(schema: pa.Schema, names: Sequence[str], place: str) -> pa.Schema:
    """Returns the schema with its columns renamed to `names`; unchanged if `names` is empty. Raises OptionError for a
    wrong number of names; `place` is the part of the statement that the error blames.
    """
    if not names:
        return schema
    if len(names) != len(schema):
        raise refused(f"{place}: there are {len(names)} names for {len(schema)} columns; give one name for each column")
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def bind_columns(
    node: exp.Expression, fields: Sequence[DataField], alias: str, *, also: Collection[str] = ()
) -> exp.Expression:
    """Returns a copy of the node in which columns are spelled as in the table, without the table's `alias`. Names in
    `also` stay unchanged.

    `TIMESTAMP '...'` and similar literals become plain strings, which get the type of the column that they are compared
    with. A literal that is a whole column of the result keeps its type. Raises OptionError for a column that is
    unknown, or belongs to another table.
    """
    names = [f.name for f in fields]

    def bound(part: exp.Expression) -> exp.Expression:
        if is_time_literal(part) and not _is_projected(part):
            return part.this
        if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
            return part
        if not part.table and part.name in also:
            return part
        path = path_of(part)
        if len(path) > 1 and path[0].lower() == alias.lower():
            path = path[1:]
        if len(path) > 1 and len(spellings(path[0], names)) == 1:
            return _inner_field(exp.column(exp.to_identifier(spellings(path[0], names)[0])), path[1:])
        if part.table and part.table.lower() != alias.lower():
            raise refused(
                f"{part.sql(DIALECT)!r}: this part of the statement has no table {part.table!r}", column=part.name
            )
        meant = spellings(part.name, names)
        if len(meant) != 1:
            near = did_you_mean(part.name, names) or f"; there are {', '.join(n for n in names if n not in PLACES)}"
            raise refused(f"unknown column '{part.name}'{near}", column=part.name)
        return exp.column(exp.to_identifier(meant[0]))

    return node.transform(bound)


def _is_projected(node: exp.Expression) -> bool:
    """Returns True if a node is a whole expression after SELECT, and not only a part of an expression."""
    column = node.parent if isinstance(node.parent, exp.Alias) else node
    return isinstance(column.parent, exp.Select) and column.arg_key == "expressions"


def _inner_field(column: exp.Expression, path: Sequence[str]) -> exp.Expression:
    for name in path:
        column = exp.Dot(this=column, expression=exp.to_identifier(name, quoted=True))
    return column


def _names_places(node: exp.Expression, hidden: Sequence[DataField]) -> bool:
    """Returns True if a condition names one of the hidden columns that tell where a row is stored. Files do not contain
    these columns.
    """
    places = {f.name for f in hidden if f.name in PLACES}
    return any(c.parts[0].name in places for c in node.find_all(exp.Column))


def is_time_literal(node: exp.Expression) -> bool:
    """Returns True if a node is `DATE '...'`, `TIMESTAMP '...'` or a CAST of a string to one of these types."""
    is_text = isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string
    return is_text and bool(node.to.is_type(*_TIMES))


def is_literal(node: exp.Expression, field: DataField) -> bool:
    """Returns True if a node is a literal from which `literal_of` can make a value for the column."""
    while isinstance(node, exp.Paren | exp.Neg):
        node = node.this
    if is_time_literal(node):
        return field.type.root in _TIME_TYPES
    if not field.type.is_atomic:
        return isinstance(node, exp.Null)
    return isinstance(node, exp.Literal | exp.Null | exp.Boolean | exp.HexString)


def literal_of(node: exp.Expression, field: DataField) -> pa.Scalar:
    """Returns the value of a literal for a column. Raises OptionError if the column cannot hold the value."""
    return literal_scalar(field, node.this if is_time_literal(node) else node)


def is_zoned(arrow: pa.DataType) -> bool:
    """Returns True if the type is a timestamp with a time zone."""
    return bool(pa.types.is_timestamp(arrow)) and arrow.tz is not None


def is_local(arrow: pa.DataType) -> bool:
    """Returns True if the type is a timestamp without a time zone."""
    return bool(pa.types.is_timestamp(arrow)) and arrow.tz is None


def refuse_subqueries(node: exp.Expression, verb: str) -> None:
    """Raises OptionError if a condition or value contains a query. The message says what to use instead. `verb` is the
    statement that the message names.
    """
    if node.find(exp.Select, exp.Subquery, exp.Exists):
        raise refused(
            f"{verb}: a query in {node.sql(DIALECT)!r} is not supported; use MERGE INTO ... USING (SELECT ...)",
            statement=verb,
        )


def null_first(array: pa.ChunkedArray, first: bool) -> pa.ChunkedArray:
    """Returns an integer sort key of 0 and 1 that puts nulls first if `first` is True, otherwise last."""
    return pc.cast(pc.is_valid(array) if first else pc.is_null(array), pa.int8())
