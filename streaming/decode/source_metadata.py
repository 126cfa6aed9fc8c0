"""Columns of a table that are filled from what an event of Debezium says of its source, by their names.

The position in the source's log is one text for each database, whose order is that of the log: it can be the
`sequence.field`. Rows of a first snapshot have the position at which the snapshot was taken.

Source: Debezium 3.5 source blocks of its connectors.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.types.arrow import arrow_field
from bucketline.state.types.logical import INTEGER_ROOTS, DataField, DataType, TypeRoot
from bucketline.streaming.decode.json_convert import scale_count

_TEXT = DataType(TypeRoot.VARCHAR, length=2**31 - 1)
_NUMBER = DataType(TypeRoot.BIGINT)
_POSITION_PARTS = {
    "lsn": _NUMBER,
    "file": _TEXT,
    "pos": _NUMBER,
    "row": _NUMBER,
    "commit_lsn": _TEXT,
    "change_lsn": _TEXT,
    "event_serial_no": _NUMBER,
}
SOURCE_METADATA: Mapping[str, Mapping[str, DataType]] = {
    "_source_database": {"db": _TEXT},
    "_source_schema": {"schema": _TEXT},
    "_source_table": {"table": _TEXT},
    "_op": {},
    "_ts_ms": {"ts_ms": _NUMBER},
    "_source_position": _POSITION_PARTS,
}
"""The columns, and the fields of `source` that each is made of."""

_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_FILE_NUMBER = r"(?P<name>.*\.)(?P<number>[0-9]+)$"
_NUMBER_DIGITS, _POSITION_DIGITS = 10, 20


def source_parts(columns: Iterable[str]) -> tuple[DataField, ...]:
    """The fields of `source` that the columns are made of."""
    parts = {name: kind for column in columns for name, kind in SOURCE_METADATA[column].items()}
    return tuple(DataField(0, name, kind) for name, kind in parts.items())


def metadata_columns(events: pa.Array, at: npt.NDArray[np.int64], fields: Sequence[DataField]) -> list[pa.Array]:
    """The columns of the rows of events. Shapes: n events in, for each of m rows the number of its event; m out."""
    return [_column(events, f).take(pa.array(at)) for f in fields]


def _column(events: pa.Array, field: DataField) -> pa.Array:
    source = events.field("source")
    if field.name == "_op":
        return events.field("op")
    if field.name == "_source_position":
        return _positions(source)
    values = pc.struct_field(source, next(iter(SOURCE_METADATA[field.name])))
    if field.name != "_ts_ms" or field.type.root in INTEGER_ROOTS or field.type.root not in _STAMPS:
        return values
    target = arrow_field(field).type
    return scale_count(values, "ms", target.unit).view(target)


def _positions(source: pa.Array) -> pa.Array:
    """Positions as texts that sort as the log goes: of Postgres the LSN, of MySQL file, place and row, of SQL Server
    the LSNs of commit and change; null for other sources."""
    parts = {name: pc.struct_field(source, name) for name in _POSITION_PARTS}
    of_postgres = _padded(parts["lsn"], _POSITION_DIGITS)
    file = pc.extract_regex(parts["file"], _FILE_NUMBER)
    name = pc.binary_join_element_wise(
        pc.struct_field(file, "name"), _padded(pc.struct_field(file, "number"), _NUMBER_DIGITS), ""
    )
    of_mysql = pc.binary_join_element_wise(
        pc.coalesce(name, parts["file"]),
        _padded(parts["pos"], _POSITION_DIGITS),
        _padded(pc.coalesce(parts["row"], 0), _NUMBER_DIGITS),
        ":",
    )
    serial = _padded(pc.coalesce(parts["event_serial_no"], 0), _NUMBER_DIGITS)
    of_sql_server = pc.binary_join_element_wise(parts["commit_lsn"], parts["change_lsn"], serial, ":")
    return pc.coalesce(of_postgres, of_mysql, of_sql_server)


def _padded(numbers: pa.Array, digits: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), digits, "0")
