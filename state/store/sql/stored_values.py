"""Gives the values of INSERT the types of the columns that store them: values of other types are cast, as Paimon's
Spark casts them.
"""

import pyarrow as pa
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.sql.compute.calls import LOCAL_CONTEXT
from bucketline.state.sql.compute.casts import cast_to
from bucketline.state.sql.compute.filters import untyped_scalar
from bucketline.state.sql.compute.zones import local_column
from bucketline.state.store.sql.relation import is_local, is_zoned, literal_of
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.fit import fit_array
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.struct_fields import FieldRule

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)


def stored_literal(node: exp.Expression, field: DataField) -> pa.Scalar:
    """Returns the value of a literal in a column, cast if it is not written in the type of the column: 5 becomes a
    text, '5' a number. Raises OptionError if the column cannot hold it.
    """
    try:
        return literal_of(node, field)
    except OptionError:
        given = untyped_scalar(node)
        if given is None or not _is_cast(given.type, field.type):
            raise
        try:
            return cast_to(pa.array([given.as_py()], given.type), field.type.as_nullable(), LOCAL_CONTEXT)[0]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
        raise


def stored_column(column: pa.Array, field: DataField, fields_rule: FieldRule) -> pa.Array:
    """Returns a column of a query as the column of the table stores it: cast if it has another type. The fields of
    structs are matched by the rule. Instants become local times of the zone of the process, for a column without a
    zone, as in Spark. Raises SchemaMismatchError for a value that the type of the column cannot hold.
    """
    target = arrow_type(field.type)
    if is_zoned(column.type) and is_local(target):
        return local_column(column)
    if field.type.is_atomic:
        return _cast(column, field.type, field.name)
    return fit_array(column, field.type.as_nullable(), target, field.name, fields_rule, _cast)


def _cast(values: pa.Array, wanted: DataType, path: str) -> pa.Array:
    """Returns values without parts in another type; `path` names the column in errors."""
    if not _is_cast(values.type, wanted):
        return values
    try:
        return cast_to(values, wanted.as_nullable(), LOCAL_CONTEXT)
    except pa.ArrowNotImplementedError:
        # Whoever accepts the rows says which type the column takes.
        return values
    except pa.ArrowInvalid as e:
        raise SchemaMismatchError(f"column {path}: {e}", column=path, expected=str(wanted)) from e


def _is_cast(given: pa.DataType, wanted: DataType) -> bool:
    """Whether values of a type are cast to a type of a column. Texts for texts and times for times are stored as they
    are, or refused: a cast could cut them.
    """
    target = arrow_type(wanted)
    if given == target or pa.types.is_null(given) or pa.types.is_nested(given) or not wanted.is_atomic:
        return False
    is_text = pa.types.is_string(given) or pa.types.is_large_string(given)
    both_times = pa.types.is_timestamp(given) and pa.types.is_timestamp(target)
    return not (both_times or (is_text and wanted.root in _TEXTS))
