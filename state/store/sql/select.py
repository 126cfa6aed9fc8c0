"""Carries out SELECT without Spark: Arrow filters, projects, counts, sorts and limits the rows of one table.

A query with any other clause is refused with a message that names the clause; such a query needs Spark. Sorting and
aggregates hold the columns that they need in memory; all other queries stream.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.option import whole_number
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.sql.compute.expression import SqlExpression, evaluate
from bucketline.state.sql.compute.filters import untyped_scalar
from bucketline.state.sql.compute.meeting import common_type, to_common
from bucketline.state.sql.dialect import DIALECT, refused, sql_text
from bucketline.state.sql.relations import start_of
from bucketline.state.sql.statement import Query, Relation
from bucketline.state.store.sql.aggregates import Aggregate, grouped, order_keys
from bucketline.state.store.sql.relation import Source, bind_columns, null_first, open_source, rows_source
from bucketline.state.store.sql.row_sources import series, united
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.types.buffers import repeated
from bucketline.state.types.timestamp_text import plain_value

_CLAUSES = frozenset(
    {
        "expressions",
        "from_",
        "where",
        "group",
        "order",
        "limit",
        "offset",
        "distinct",
        "kind",
        "hint",
        "operation_modifiers",
    }
)
_NAMES = {"joins": "JOIN", "with_": "WITH", "windows": "WINDOW", "laterals": "LATERAL VIEW", "sample": "TABLESAMPLE"}
_OF_A_TABLE = ("this", "db", "catalog", "alias")
_MOST_DIGITS = 20
_MOST_ROWS = 1 << 61
"""The largest LIMIT and OFFSET. No table has this many rows, and the sum of both still fits into 64 bits."""

_AGGREGATES: dict[type[exp.Expression], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "mean",
}


@dataclass(frozen=True, slots=True)
class _Output:
    """One column of the result: a column of the table, a constant, a computed value, or an aggregate. The aggregate
    `count` without a column counts rows.
    """

    name: str
    column: str | None = None
    constant: pa.Scalar | None = None
    computed: SqlExpression | None = None
    uses: tuple[str, ...] = ()
    aggregate: str | None = None
    distinct: bool = False


def run_select(session: SqlSession, query: Query, *, reads: bool = True) -> pa.RecordBatchReader:
    """Returns the rows of a query; no rows if `reads` is False, because the query is only checked. Raises OptionError
    for a query that is not supported here; the message says what needs Spark.
    """
    tree = _without_brackets(query.tree)
    if isinstance(tree, exp.Table):
        _refuse_others(tree, *_OF_A_TABLE)
        source = open_source(
            session, next(r for r in query.relations if r.start == start_of(tree)), tree.alias_or_name, reads=reads
        )
        names = [f.name for f in source.fields]
        return _Select(source, exp.select("*")).reader(names)
    if isinstance(tree, exp.Values):
        _refuse_others(tree, "expressions", "alias")
        return _constants([row.expressions for row in tree.expressions])
    if isinstance(tree, exp.Union):
        return _united(session, query, tree, reads)
    if not isinstance(tree, exp.Select):
        raise _needs_spark(type(tree).__name__.upper())
    for key, value in tree.args.items():
        if value and key not in _CLAUSES:
            raise _needs_spark(_NAMES.get(key, key.upper()))
    start = tree.args.get("from_")
    if start is None:
        clause = next((k for k, v in tree.args.items() if v and k not in ("expressions", "kind")), None)
        if clause is not None:
            raise _needs_spark(f"{clause.upper()} without FROM")
        return _constants([tree.expressions])
    others = [v for k, v in tree.args.items() if k != "from_" and isinstance(v, exp.Expression | list)]
    parts = [e for v in others for e in (v if isinstance(v, list) else [v]) if isinstance(e, exp.Expression)]
    if any(e.find(exp.Select, exp.Exists) for e in parts):
        raise _needs_spark("a query with another query inside")
    source = _source(session, query, start.this, reads)
    return _Select(source, _bound(tree, source)).run()


def _source(session: SqlSession, query: Query, node: exp.Expression, reads: bool) -> Source:
    """Returns the source after FROM: a table, VALUES, or another query."""
    alias = node.args.get("alias")
    names = [c.name for c in alias.columns] if alias is not None else []
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and query.relations:
        _refuse_others(node, *_OF_A_TABLE)
        if names:
            raise _needs_spark(f"{node.sql(DIALECT)} after FROM")
        relation = next(r for r in query.relations if r.start == start_of(node))
        return open_source(session, relation, node.alias_or_name, reads=reads)
    if (numbers := series(node)) is not None:
        return rows_source(numbers, node.alias_or_name, names)
    if not isinstance(node, exp.Values | exp.Subquery):
        raise _needs_spark(f"{node.sql(DIALECT)} after FROM")
    inner = node.copy()
    inner.set("alias", None)
    try:
        return rows_source(run_select(session, replace(query, tree=inner), reads=reads), node.alias_or_name, names)
    except SchemaMismatchError as e:
        raise _needs_spark(f"{node.sql(DIALECT)} after FROM ({e.message})") from e


def _united(session: SqlSession, query: Query, tree: exp.Union, reads: bool) -> pa.RecordBatchReader:
    """Returns the rows of the two queries of a UNION, first the rows of the first query, under the column names of the
    first query.
    """
    _refuse_others(tree, "this", "expression", "distinct")
    left, right = (
        run_select(session, replace(query, tree=side, relations=_named_in(side, query)), reads=reads)
        for side in (tree.this, tree.expression)
    )
    try:
        rows = united(left, right)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
        raise _needs_spark(f"UNION of these types ({e})") from e
    if not tree.args.get("distinct"):
        return rows
    names, whole = rows.schema.names, rows.read_all()
    numbered = whole.rename_columns([str(i) for i in range(len(names))])
    return pa.table(grouped(numbered, numbered.column_names, ())[0], names=names).to_reader()


def _named_in(node: exp.Expression, query: Query) -> tuple[Relation, ...]:
    """Returns the tables that a part of the query names."""
    starts = {start_of(t) for t in node.find_all(exp.Table) if isinstance(t.this, exp.Identifier)}
    return tuple(r for r in query.relations if r.start in starts)


def _without_brackets(tree: exp.Expression) -> exp.Expression:
    """Returns the query inside brackets. ORDER BY and LIMIT after brackets or VALUES move to a new outer query."""
    if not isinstance(tree, exp.Subquery | exp.Values | exp.Union):
        return tree
    behind = {key: tree.args[key] for key in ("order", "limit", "offset") if tree.args.get(key)}
    if behind:
        inner = tree.copy()
        for key in behind:
            inner.set(key, None)
        inner = inner if isinstance(inner, exp.Subquery) else exp.Subquery(this=inner)
        outer = exp.select("*").from_(inner, copy=False)
        for key, node in behind.items():
            outer.set(key, node.copy())
        return outer
    if isinstance(tree, exp.Values | exp.Union):
        return tree
    _refuse_others(tree, "this", "alias")
    return _without_brackets(tree.this)


def _refuse_others(node: exp.Expression, *allowed: str) -> None:
    """Raises OptionError if a part of a query has a clause that is not in `allowed`. The message names the first such
    clause.
    """
    other = next((key for key, value in node.args.items() if value and key not in allowed), None)
    if other is not None:
        raise _needs_spark(f"{_NAMES.get(other, other.upper())} in {node.sql(DIALECT)}")


def _bound(tree: exp.Select, source: Source) -> exp.Expression:
    """Returns the query with each column name spelled as in the table, where the query may use other upper and lower
    case. Names of result columns (`AS total`) stay unchanged in ORDER BY.
    """
    copied = tree.copy()
    copied.set("from_", None)
    order = copied.args.get("order")
    copied.set("order", None)
    bound = bind_columns(copied, source.known, source.alias)
    if order is not None:
        aliases = {e.alias for e in tree.expressions if isinstance(e, exp.Alias)}
        bound.set("order", bind_columns(order, source.known, source.alias, also=aliases))
    return bound


class _Select:
    def __init__(self, source: Source, tree: exp.Expression) -> None:
        self._source, self._fields, self._tree = source, source.fields, tree
        where = tree.args.get("where")
        self._condition = None if where is None else where.this
        self._limit = _count(tree, "limit")
        self._offset = _count(tree, "offset") or 0

    def reader(self, names: Sequence[str]) -> pa.RecordBatchReader:
        """Returns a stream of the columns `names` of the table. Nothing is computed."""
        limit = None if self._limit is None else self._limit + self._offset
        batches = self._source.batches(names, self._condition, limit)
        first = next(batches, None)
        schema = self._schema(names) if first is None else first.schema
        return pa.RecordBatchReader.from_batches(schema, self._window(first, batches))

    def run(self) -> pa.RecordBatchReader:
        """Returns the rows of the query. Raises OptionError for types that Arrow cannot sort or aggregate."""
        try:
            return self._run()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowKeyError) as e:
            raise _needs_spark(f"a query over columns of these types ({str(e).splitlines()[0]})") from e

    def _run(self) -> pa.RecordBatchReader:
        outputs = [o for e in self._tree.expressions for o in self._outputs(e)]
        group = self._group(outputs)
        order = self._tree.args.get("order")
        distinct = self._tree.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise _needs_spark("DISTINCT ON")
        is_plain = not (order or distinct or group is not None)
        columns = [o.column for o in outputs if o.column is not None]
        if is_plain and len(columns) == len(outputs) == len(set(columns)) and [o.name for o in outputs] == columns:
            return self.reader(columns)
        if group is not None:
            rows = self._aggregated(outputs, group)
        else:
            rows = self._projected(outputs, order)
        if distinct:
            rows = pa.table(grouped(rows, rows.column_names, ())[0], names=rows.column_names)
        if order:
            rows = _sorted(rows, self._order_keys(order, outputs))
        rows = rows.select(range(len(outputs))).slice(self._offset, self._limit)
        return pa.Table.from_arrays(rows.columns, [o.name for o in outputs]).to_reader()

    def _window(self, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        skip, left = self._offset, self._limit
        batch = first
        while batch is not None and left != 0:
            kept = batch.slice(min(skip, batch.num_rows), left)
            skip -= min(skip, batch.num_rows)
            left = None if left is None else left - kept.num_rows
            if kept.num_rows:
                yield kept
            batch = next(rest, None)

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._source.schema.field(n) for n in names])

    def _fetch(self, names: Sequence[str], limit: int | None = None) -> pa.Table:
        unique = list(dict.fromkeys(names)) or [self._fields[0].name]
        return pa.Table.from_batches(self._source.batches(unique, self._condition, limit), schema=self._schema(unique))

    def _outputs(self, node: exp.Expression) -> Iterator[_Output]:
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            if node.args.get("except_") or node.args.get("replace") or node.args.get("rename"):
                raise _needs_spark("* EXCEPT")
            yield from (_Output(f.name, column=f.name) for f in self._fields)
            return
        inner = node.unalias().unnest()
        name = node.alias if isinstance(node, exp.Alias) else _default_name(inner)
        if isinstance(inner, exp.Column):
            yield _Output(name, column=inner.name)
        elif type(inner) in _AGGREGATES:
            yield self._aggregate(name, inner)
        elif (constant := untyped_scalar(inner)) is not None:
            yield _Output(name, constant=constant)
        else:
            yield _computed(name, inner)

    def _aggregate(self, name: str, node: exp.Expression) -> _Output:
        function, of = _AGGREGATES[type(node)], node.this
        if isinstance(of, exp.Star) or (isinstance(of, exp.Literal) and function == "count"):
            return _Output(name, aggregate="count")
        distinct = isinstance(of, exp.Distinct)
        if distinct:
            if function != "count" or len(of.expressions) != 1:
                raise _needs_spark(node.sql(DIALECT))
            of = of.expressions[0]
        if not isinstance(of, exp.Column) or node.expressions:
            raise _needs_spark(node.sql(DIALECT))
        return _Output(name, column=of.name, aggregate=function, distinct=distinct)

    def _group(self, outputs: Sequence[_Output]) -> list[str] | None:
        """Returns the columns by which the query groups its rows: those of GROUP BY. Without GROUP BY the result is an
        empty list if the query has aggregates (all rows are then one group), and None if it has no aggregates.
        """
        group = self._tree.args.get("group")
        keys: list[str] = []
        if group is not None:
            _refuse_others(group, "expressions")
        for node in [] if group is None else group.expressions:
            if isinstance(node, exp.Literal) and not node.is_string:
                at = _position(node)
                if not 1 <= at <= len(outputs) or outputs[at - 1].aggregate or outputs[at - 1].column is None:
                    raise refused(f"GROUP BY {node.this}: the result has no such column; name a column of the table")
                node = exp.column(outputs[at - 1].column)
            if not isinstance(node, exp.Column):
                raise _needs_spark(f"GROUP BY {node.sql(DIALECT)}")
            keys.append(node.name)
        if group is None and not any(o.aggregate for o in outputs):
            return None
        for output in outputs:
            if output.computed is not None:
                raise _needs_spark(f"{output.name} beside GROUP BY or an aggregate")
            if output.aggregate is None and output.column not in keys and output.constant is None:
                raise refused(
                    f"column '{output.column}' is neither in GROUP BY nor in an aggregate; add it to one of them"
                )
        return keys

    def _aggregated(self, outputs: Sequence[_Output], keys: list[str]) -> pa.Table:
        if not keys and all(o.aggregate == "count" and o.column is None for o in outputs):
            # The rows of a table are counted from metadata if that is enough, so no columns are read.
            counted = [] if self._source.log is None else [self._fields[0].name]
            batches = self._source.batches(counted, self._condition, None)
            count = sum(batch.num_rows for batch in batches)
            return pa.table([[count]] * len(outputs), names=[str(i) for i in range(len(outputs))])
        needed = [*keys, *(o.column for o in outputs if o.column is not None)]
        rows = self._fetch(needed)
        for o in outputs:
            if o.aggregate == "mean" and o.column is not None and pa.types.is_decimal(rows.schema.field(o.column).type):
                raise _needs_spark("AVG of a decimal")
        wanted = [Aggregate(o.aggregate, o.column, o.distinct) for o in outputs if o.aggregate is not None]
        key_values, values = grouped(rows, keys, wanted)
        aggregates, count = iter(values), len((key_values or values)[0])
        columns: list[Any] = []
        for o in outputs:
            if o.aggregate is not None:
                columns.append(next(aggregates))
            elif o.constant is not None:
                columns.append(_repeated(o.constant, count))
            else:
                assert o.column is not None
                columns.append(key_values[keys.index(o.column)])
        return pa.table(columns, names=[str(i) for i in range(len(columns))])

    def _projected(self, outputs: Sequence[_Output], order: exp.Expression | None) -> pa.Table:
        """Returns the columns of the result (`outputs`), and after these the columns that only sorting
        (`order`) needs.
        """
        hidden = [] if order is None else self._hidden(order, outputs)
        needed = [n for o in outputs for n in (o.uses if o.column is None else (o.column,))] + hidden
        is_limited = self._limit is not None and order is None and not self._tree.args.get("distinct")
        rows = self._fetch(needed, (self._limit or 0) + self._offset if is_limited else None)
        columns = [_values(o, rows) for o in outputs]
        columns += [rows.column(name) for name in hidden]
        names = [str(i) for i in range(len(outputs))] + [f"by {name}" for name in hidden]
        return pa.table(columns, names=names)

    def _hidden(self, order: exp.Expression, outputs: Sequence[_Output]) -> list[str]:
        if self._tree.args.get("distinct"):
            return []
        names = [e.this.name for e in order.expressions if isinstance(e.this, exp.Column)]
        aliases = {o.name for o in outputs} | {o.column for o in outputs}
        return [name for name in dict.fromkeys(names) if name not in aliases]

    def _order_keys(self, order: exp.Expression, outputs: Sequence[_Output]) -> list[tuple[str, bool, bool]]:
        """Returns for each sort key its column in the projected rows, whether the order descends, and whether nulls are
        first.
        """
        keys = []
        for e in order.expressions:
            node = e.this
            if 1 <= _position(node) <= len(outputs):
                at = str(_position(node) - 1)
            elif isinstance(node, exp.Literal) and node.this.isdigit():
                raise refused(
                    f"ORDER BY {node.sql(DIALECT)}: the result has no such column; give a number from 1 to "
                    f"{len(outputs)}"
                )
            elif isinstance(node, exp.Column):
                places = [i for i, o in enumerate(outputs) if o.name == node.name]
                places += [i for i, o in enumerate(outputs) if o.column == node.name and o.aggregate is None]
                at = str(places[0]) if places else f"by {node.name}"
            else:
                raise _needs_spark(f"ORDER BY {node.sql(DIALECT)}")
            descends = bool(e.args.get("desc"))
            nulls_first = e.args.get("nulls_first")
            keys.append((at, descends, not descends if nulls_first is None else bool(nulls_first)))
        return keys


def _sorted(rows: pa.Table, keys: Sequence[tuple[str, bool, bool]]) -> pa.Table:
    columns: dict[str, Any] = {}
    by: list[tuple[str, str]] = []
    for i, (name, descends, nulls_first) in enumerate(keys):
        if name not in rows.column_names:
            raise refused("ORDER BY names a column that the result does not have; select the column too")
        column, direction = rows.column(name), "descending" if descends else "ascending"
        columns[f"{i} null"] = null_first(column, nulls_first)
        parts = {f"{i} {at}": part for at, part in enumerate(order_keys(column))}
        columns |= parts
        by += [(f"{i} null", "ascending"), *((part, direction) for part in parts)]
    return rows.take(pc.sort_indices(pa.table(columns), sort_keys=by))


def _position(node: exp.Expression) -> int:
    """Returns the number in `GROUP BY 2` or `ORDER BY 2`, which stands for the second column of the result. Returns 0
    if the node is no whole number.
    """
    is_whole = isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()
    return whole_number(node.this) if is_whole else 0


def _count(tree: exp.Expression, key: str) -> int | None:
    node = tree.args.get(key)
    if node is None:
        return None
    _refuse_others(node, "expression")
    value = node.expression
    if not isinstance(value, exp.Literal) or value.is_string or not value.this.isdigit():
        raise _needs_spark(f"{key.upper()} {'' if value is None else value.sql(DIALECT)}")
    digits = value.this.lstrip("0")[:_MOST_DIGITS]  # A number with more digits is above _MOST_ROWS anyway.
    return min(int(digits or "0"), _MOST_ROWS)


def _default_name(node: exp.Expression) -> str:
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    return node.name if isinstance(node, exp.Column) else str(node.sql(DIALECT)).lower()


def _constant(node: exp.Expression) -> pa.Scalar:
    try:
        scalar = untyped_scalar(node)
        return evaluate(SqlExpression(sql_text(node)), {}, 1)[0] if scalar is None else scalar
    except (OptionError, SchemaMismatchError, pa.ArrowInvalid) as e:
        raise _needs_spark(node.sql(DIALECT)) from e


def _constants(rows: Sequence[Sequence[exp.Expression]]) -> pa.RecordBatchReader:
    """Returns a reader of the rows that VALUES lists. Raises OptionError for rows of different lengths, and for values
    in one column whose types have no common type.
    """
    if any(len(row) != len(rows[0]) for row in rows):
        raise refused("VALUES: all rows must have the same number of values")
    names = [n.alias if isinstance(n, exp.Alias) else f"col{i}" for i, n in enumerate(rows[0], 1)]
    columns = []
    for nodes in zip(*rows, strict=True):
        values = [_constant(n.unalias()) for n in nodes]
        try:
            kind = common_type([v.type for v in values])
            columns.append(pa.array([plain_value(to_common(v, kind)) for v in values], kind))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
            raise _needs_spark(f"VALUES of these types ({e})") from e
    return pa.table(columns, names=names).to_reader()


def _computed(name: str, node: exp.Expression) -> _Output:
    """Returns a column of the result that is computed from columns of the table. Raises OptionError if the computation
    needs Spark.
    """
    uses = tuple(dict.fromkeys(c.name for c in node.find_all(exp.Column)))
    try:
        computed = SqlExpression(sql_text(node))
        evaluate(computed, {n: pa.array([], pa.null()) for n in uses}, 0)
    except OptionError as e:
        raise _needs_spark(node.sql(DIALECT)) from e
    except SchemaMismatchError:
        pass  # The types are known only when there are rows.
    return _Output(name, computed=computed, uses=uses)


def _values(output: _Output, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
    if output.computed is not None:
        whole = rows.combine_chunks()
        columns = {n: whole.column(n).combine_chunks() for n in output.uses}
        return evaluate(output.computed, columns, rows.num_rows)
    return _repeated(output.constant, rows.num_rows) if output.column is None else rows.column(output.column)


def _repeated(value: pa.Scalar | None, count: int) -> pa.Array:
    assert value is not None
    return repeated(value, count)


def _needs_spark(construct: str) -> OptionError:
    return refused(
        f"{construct} needs Spark: pass a Spark session, as in bl.sql(spark, ...) or `bucketline sql --spark`"
    )
