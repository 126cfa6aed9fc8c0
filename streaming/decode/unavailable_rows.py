"""Finds values that the source left out in columns of type ROW.

For an hstore that was left out, Debezium sends an object whose only field has the placeholder as its name. No column of
type ROW has a field of that name, so the object would become a row of nulls. So records that contain the placeholder as
a name are read a second time, and their values of type ROW are read as strings.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.decode.row_changes import chosen, true_of

_TEXT = DataType(TypeRoot.VARCHAR, length=2**31 - 1)

RowTexts = Callable[[pa.Array, tuple[DataField, ...]], tuple[pa.Array, npt.NDArray[np.int64]]]
"""A function that takes records as binary values, and the columns to read. It returns the rows in these records as
structs, and the position of each row's record.
"""


def left_out_of_rows(
    values: pa.Array, fields: Sequence[DataField], placeholder: str, read: RowTexts
) -> dict[str, npt.NDArray[np.int64]]:
    """Finds values of type ROW that the source has left out: the record has an object with the placeholder as a name,
    `{"<placeholder>": ...}`, in place of the value. Returns for each column with such values the positions of the
    records. `values` are the records as binary values without nulls, and `read` reads columns from records.
    """
    with_rows = tuple(replace(f, type=_TEXT) for f in fields if _has_rows(f.type))
    if not with_rows or not pc.any(pc.match_substring(values, f'"{placeholder}"')).as_py():
        return {}
    name = rf'"{re.escape(placeholder)}"\s*:'
    doubtful = true_of(pc.match_substring_regex(values, name))
    structs, positions = read(chosen(values, doubtful), with_rows)
    records = np.flatnonzero(doubtful)[positions]
    found = {}
    for f in with_rows:
        mask = true_of(pc.fill_null(pc.match_substring_regex(structs.field(f.name), name), False))
        if mask.any():
            found[f.name] = records[mask]
    return found


def without_placeholder(need: pa.DataType, columns: Mapping[str, object], placeholder: str) -> pa.DataType:
    """Returns a need (fields and wider types that records have and the table lacks) without the field whose name is the
    placeholder: the text that Debezium sends in place of a value that the source left out.

    `columns` are the fields of a record that contain rows. Only the parts of the need that belong to these fields are
    changed.
    """
    if not columns or not pa.types.is_struct(need):
        return need
    parts = [(f.name, _without(f.type, placeholder) if f.name in columns else f.type) for f in need]
    kept = [(name, kind) for name, kind in parts if not pa.types.is_null(kind)]
    return pa.struct(kept) if kept else pa.null()


def _without(kind: pa.DataType, name: str) -> pa.DataType:
    if pa.types.is_struct(kind):
        kept = [(f.name, _without(f.type, name)) for f in kind if f.name != name]
        return pa.struct(kept) if kept else pa.null()
    if pa.types.is_list(kind):
        element = _without(kind.value_type, name)
        return element if pa.types.is_null(element) else pa.list_(element)
    return kind


def _has_rows(kind: DataType | None) -> bool:
    return kind is not None and (kind.root is TypeRoot.ROW or _has_rows(kind.element) or _has_rows(kind.value))
