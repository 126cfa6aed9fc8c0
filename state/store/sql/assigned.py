"""Finds the value that a SET clause gives to each column. Values for fields of a column are combined into one value for
the whole column, and DEFAULT becomes the column's default.

Source: Paimon 2.0 PaimonAssignmentUtils: fields that are not set keep their values, and a null struct becomes a struct
of nulls.
"""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from bucketline.conf.option import did_you_mean
from bucketline.state.sql.compute.parsing import parse_value
from bucketline.state.sql.dialect import quoted_column, refused
from bucketline.state.sql.statement import SetValues
from bucketline.state.store.sql.spelling import spellings
from bucketline.state.types.columns_text import default_in_sql
from bucketline.state.types.logical import DataField, DataType, TypeRoot


def values_by_column(
    assignments: SetValues, fields: Sequence[DataField], verb: str, table: str | None = None
) -> dict[str, exp.Expression]:
    """Returns for each column that a SET clause names an expression for the column's new value. If the clause sets only
    some fields of a struct, the expression reads the other fields from the column itself; `table` is the name of the
    table in front of this column. `verb` is the kind of the statement, for messages.

    Raises OptionError for an unknown column or field, and if a column or field is set twice.
    """
    values: dict[str, exp.Expression] = {}
    for field, inner in _by_field(assignments, fields, verb, ()).items():
        whole = inner.get(())
        if whole is None:
            whole = _rebuilt(field, inner, quoted_column(field.name, table), verb, (field.name,))
        values[field.name] = default_of(field) if is_default(whole) else whole
    return values


def is_default(node: exp.Expression) -> bool:
    """Returns True if a value is the word DEFAULT."""
    if isinstance(node, exp.Column):
        return not node.table and not node.this.quoted and node.name.upper() == "DEFAULT"
    return isinstance(node, exp.Var) and node.name.upper() == "DEFAULT"


def default_of(field: DataField) -> exp.Expression:
    """Returns a column's default as an SQL value; NULL if it has no default. Raises OptionError if SQL cannot express
    the default.
    """
    if field.default_value is None:
        return exp.null()
    return _named(parse_value(default_in_sql(field), "DEFAULT"), field.type)


def _named(node: exp.Expression, data_type: DataType) -> exp.Expression:
    """Returns a value for a column of type `data_type`. `STRUCT(1, 2)` becomes `named_struct('a', 1, 'b', 2)`, with the
    field names of the type; so does a STRUCT inside of an ARRAY or a MAP. Any other value is returned unchanged.
    """
    if not isinstance(node, exp.Anonymous):
        return node
    name, inner = str(node.this).lower(), node.expressions
    if name == "struct" and len(inner) == len(data_type.fields):
        pairs = zip(data_type.fields, inner, strict=True)
        parts = [part for f, value in pairs for part in (exp.Literal.string(f.name), _named(value, f.type))]
        return exp.Anonymous(this="named_struct", expressions=parts)
    if name == "array" and data_type.element is not None:
        return exp.Anonymous(this=name, expressions=[_named(value, data_type.element) for value in inner])
    if name == "map" and data_type.key is not None and data_type.value is not None:
        kinds = (data_type.key, data_type.value)
        return exp.Anonymous(this=name, expressions=[_named(value, kinds[at % 2]) for at, value in enumerate(inner)])
    return node


def with_defaults(values: exp.Values, fields: Sequence[DataField]) -> exp.Values | None:
    """Returns the rows of VALUES for these columns, with the columns' defaults in place of the word DEFAULT; None if
    the word does not occur.
    """
    rows = [row for row in values.expressions if isinstance(row, exp.Tuple)]
    if not any(is_default(node) for row in rows for node in row.expressions):
        return None
    copied = values.copy()
    for row in copied.expressions:
        if isinstance(row, exp.Tuple) and len(row.expressions) == len(fields):
            nodes = zip(row.expressions, fields, strict=True)
            row.set("expressions", [default_of(field) if is_default(node) else node for node, field in nodes])
    return copied


def _by_field(
    assignments: SetValues, fields: Sequence[DataField], verb: str, above: tuple[str, ...]
) -> dict[DataField, dict[tuple[str, ...], exp.Expression]]:
    """Divides assignments by the first name in their paths, and returns them by field. For example, `a.b = 1` is
    returned for the field `a` with the path `b`, and `a = 1` for the field `a` with an empty path. `above` is the path
    to `fields`, for messages.
    """
    found: dict[str, dict[tuple[str, ...], exp.Expression]] = {}
    for (name, *rest), node in assignments.items():
        meant = spellings(name, [f.name for f in fields])
        if len(meant) != 1:
            near = did_you_mean(name, [f.name for f in fields]) or f"; there are {', '.join(f.name for f in fields)}"
            raise refused(f"{verb}: unknown column '{'.'.join((*above, name))}'{near}", column=name)
        inner = found.setdefault(meant[0], {})
        if tuple(rest) in inner or ((() in inner) if rest else bool(inner)):
            raise refused(f"{verb}: {'.'.join((*above, meant[0]))} is set twice; set it once", statement=verb)
        inner[tuple(rest)] = node
    return {field: found[field.name] for field in fields if field.name in found}


def _rebuilt(
    field: DataField,
    inner: Mapping[tuple[str, ...], exp.Expression],
    whole: exp.Expression,
    verb: str,
    path: tuple[str, ...],
) -> exp.Expression:
    """Returns an expression for a new value of the struct column or field at `path`: the fields that `inner` sets have
    their new values, and all other fields keep their values from `whole`. `verb` is the statement, for error messages.
    """
    if field.type.root is not TypeRoot.ROW:
        raise refused(
            f"{verb}: {'.'.join(path)} is {field.type}, and has no fields to set; set the whole value", statement=verb
        )
    known = _by_field(inner, field.type.fields, verb, path)
    parts: list[exp.Expression] = []
    for own in field.type.fields:
        value: exp.Expression = exp.Dot(this=whole.copy(), expression=exp.to_identifier(own.name, quoted=True))
        if own in known:
            given = known[own]
            value = given[()] if () in given else _rebuilt(own, given, value, verb, (*path, own.name))
        parts += [exp.Literal.string(own.name), value]
    return exp.Anonymous(this="named_struct", expressions=parts)
