"""Converts the values of INSERT to the types of the columns that store the values, by the same casts as Paimon's Spark
connector.
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
    """Returns the value of a literal for a column. If the literal has another type than the column, the value is cast:
    5 becomes a string, '5' becomes a number. Raises OptionError if the column cannot store the value.
    """
    try:
        return literal_of(node, field)
    except OptionError:
        try:
            given = untyped_scalar(node)
            if given is not None and _is_cast(given.type, field.type):
                return cast_to(pa.array([given.as_py()], given.type), field.type.as_nullable(), LOCAL_CONTEXT)[0]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # A cast fails, or the literal has more digits than any decimal can have.
        raise


def stored_column(column: pa.Array, field: DataField, fields_rule: FieldRule) -> pa.Array:
    """Returns a column of a query in the type of the table's column, cast if the two types differ.

    The fields of structs are matched by `fields_rule`. If only the column of the query has a time zone, its instants
    become local times in the time zone of this process, as in Spark. Raises SchemaMismatchError for a value that the
    type of the table's column cannot represent.
    """
    target = arrow_type(field.type)
    if is_zoned(column.type) and is_local(target):
        return local_column(column)
    if field.type.is_atomic:
        return _cast(column, field.type, field.name)
    return fit_array(column, field.type.as_nullable(), target, field.name, fields_rule, _cast)


def _cast(values: pa.Array, wanted: DataType, path: str) -> pa.Array:
    """Returns the values cast to `wanted`; unchanged if `_is_cast` says that no cast is needed. The type of the values
    must not be nested. `path` is the name of the column, for errors.
    """
    if not _is_cast(values.type, wanted):
        return values
    try:
        return cast_to(values, wanted.as_nullable(), LOCAL_CONTEXT)
    except pa.ArrowNotImplementedError:
        # The check of the rows that follows raises an error that names the type of the column.
        return values
    except pa.ArrowInvalid as e:
        raise SchemaMismatchError(f"column {path}: {e}", column=path, expected=str(wanted)) from e


def _is_cast(given: pa.DataType, wanted: DataType) -> bool:
    """Returns True if values of the type `given` must be cast for a column of the type `wanted`. Strings for a string
    column and timestamps for a timestamp column are not cast, because a cast could truncate them.
    """
    target = arrow_type(wanted)
    if given == target or pa.types.is_null(given) or pa.types.is_nested(given) or not wanted.is_atomic:
        return False
    is_text = pa.types.is_string(given) or pa.types.is_large_string(given)
    both_times = pa.types.is_timestamp(given) and pa.types.is_timestamp(target)
    return not (both_times or (is_text and wanted.root in _TEXTS))
