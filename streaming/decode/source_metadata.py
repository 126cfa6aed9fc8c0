"""Fills some columns of a table with what a message says about its source. These columns are recognised by their names.

Messages of each format are converted to the form of Debezium's events: `op`, and `source` with its fields. The position
in the source's log becomes a string that sorts like the log, whatever the database is, so the column can be the
`sequence.field`. Rows of a first snapshot have the position at which the snapshot was taken.
Source: Debezium 3.5 source blocks of its connectors, and the fields that ExtractNewRecordState adds; Canal 1.1
FlatMessage; Maxwell 1.41 RowMap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import RecordFormat
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.arrow import arrow_field, arrow_type
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import INTEGER_ROOTS, DataField, DataType, TypeRoot
from bucketline.streaming.decode.decoded_rows import Unjudged
from bucketline.streaming.decode.json_values.json_convert import scale_count

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
POSITION = "_source_position"
SOURCE_METADATA: Mapping[str, Mapping[str, DataType]] = {
    "_source_database": {"db": _TEXT},
    "_source_schema": {"schema": _TEXT},
    "_source_table": {"table": _TEXT},
    "_op": {},
    "_ts_ms": {"ts_ms": _NUMBER},
    POSITION: _POSITION_PARTS,
}
"""The columns about the source. Each has the fields of `source` from which the column is made."""

_FLAT_PREFIXES = ("__", "__source_")
_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_FILE_NUMBER = r"(?P<name>.*\.)(?P<number>[0-9]+)$"
_NUMBER_DIGITS, _POSITION_DIGITS = 10, 20


BINLOG_PARTS = {
    RecordFormat.CANAL_JSON: (DataField(0, "es", _NUMBER),),
    RecordFormat.MAXWELL_JSON: (
        DataField(0, "ts", _NUMBER),
        DataField(0, "position", _TEXT),
        DataField(0, "xoffset", _NUMBER),
        DataField(0, "commit", DataType(TypeRoot.BOOLEAN)),
    ),
}
"""The fields of messages from which the columns are made. The type and the table of a message are not listed here."""

_LACKING = {
    RecordFormat.CANAL_JSON: ("_source_schema", "_source_position"),
    RecordFormat.MAXWELL_JSON: ("_source_schema",),
}
_BINLOG_OPS = {
    **{"INSERT": "c", "ROW": "r", "UPDATE": "u", "DELETE": "d"},
    **{"insert": "c", "bootstrap-insert": "r", "update": "u", "delete": "d"},
}
_LAST_OF_TRANSACTION = 10**10 - 1
"""The position of a transaction's last row, which Maxwell does not count."""
_PLACE = r"(?P<file>.*):(?P<pos>[0-9]+)$"
_SOURCE_PARTS: Mapping[str, DataType] = {
    **{"db": _TEXT, "schema": _TEXT, "table": _TEXT, "ts_ms": _NUMBER},
    **_POSITION_PARTS,
}


def without_metadata(
    decode: RecordFormat, fields: Sequence[DataField]
) -> tuple[tuple[DataField, ...], tuple[DataField, ...]]:
    """Splits the columns. Returns the columns that are filled from the row of a message, and the columns that are
    filled with what the message says about its source.

    Raises SchemaMismatchError for a column about the source that messages of this format cannot fill.
    """
    lacking = _LACKING.get(decode, ())
    for f in fields:
        if f.name in lacking:
            raise SchemaMismatchError(
                f"the table has a column {f.name}, which messages of 'decode: {decode.value}' cannot fill; use a "
                "table without this column",
                column=f.name,
            )
    of_source = tuple(f for f in fields if f.name in SOURCE_METADATA)
    return tuple(f for f in fields if f.name not in SOURCE_METADATA), of_source


def flat_parts(columns: Iterable[str]) -> tuple[DataField, ...]:
    """Returns the fields of flattened rows from which these columns are filled. Each field is returned under two names,
    because the name depends on Debezium's option: for example, `add.fields` may contain `lsn` or `source.lsn`.
    """
    return tuple(
        DataField(0, f"{prefix}{part.name}", part.type)
        for part in source_parts(columns)
        for prefix in _FLAT_PREFIXES
        if not (part.name == "ts_ms" and prefix == _FLAT_PREFIXES[0])  # this is the time of Debezium, not of the source
    )


def flat_events(rows: pa.Array, deletes: pa.Array) -> pa.Array:
    """Takes rows that Debezium has written without an envelope, with added fields such as `__db`, `__table` and
    `__lsn`. Returns events in the form in which Debezium writes them with an envelope: with the operation `op`, and
    with a struct `source` that holds the database, the table and the position in the log. `deletes` is true for rows
    that are deletes.
    """

    def part(name: str) -> pa.Array:
        known = [rows.field(p + name) for p in _FLAT_PREFIXES if rows.type.get_field_index(p + name) >= 0]
        if not known:
            return pa.nulls(len(rows), arrow_type(_SOURCE_PARTS[name]))
        return pc.coalesce(*(column.cast(arrow_type(_SOURCE_PARTS[name])) for column in known))

    op = if_else(deletes, "d", rows.field("__op").cast(pa.string()))
    return _events(op, {name: part(name) for name in _SOURCE_PARTS})


def binlog_events(messages: pa.Array, decode: RecordFormat) -> pa.Array:
    """Returns what messages of Canal or Maxwell say about their source (database, table, position in the log), in the
    form of Debezium's events.
    """
    codes = pc.index_in(messages.field("type"), value_set=pa.array(list(_BINLOG_OPS)))
    op = pa.array(list(_BINLOG_OPS.values())).take(codes)
    parts = {"db": messages.field("database"), "table": messages.field("table")}
    if decode is RecordFormat.CANAL_JSON:
        return _events(op, {**parts, "ts_ms": messages.field("es")})
    place = pc.extract_regex(messages.field("position"), _PLACE)
    is_last = pc.fill_null(messages.field("commit"), False)
    row = if_else(is_last, pa.scalar(_LAST_OF_TRANSACTION, pa.int64()), messages.field("xoffset"))
    file, pos = pc.struct_field(place, "file"), pc.struct_field(place, "pos").cast(pa.int64())
    # Maxwell's time is in seconds.
    return _events(
        op, {**parts, "ts_ms": pc.multiply(messages.field("ts"), 1000), "file": file, "pos": pos, "row": row}
    )


def _events(op: pa.Array, parts: Mapping[str, pa.Array]) -> pa.Array:
    columns = [parts.get(name, pa.nulls(len(op), arrow_type(kind))) for name, kind in _SOURCE_PARTS.items()]
    source = pa.StructArray.from_arrays(columns, list(_SOURCE_PARTS))
    return pa.StructArray.from_arrays([op, source], ["op", "source"])


def with_metadata(
    unjudged: Unjudged, events: pa.Array, records: npt.NDArray[np.int64], fields: Sequence[DataField]
) -> Unjudged:
    """Returns the rows with the columns about their source added at the end.

    `records` are the records of the events, in ascending order; a row of another record gets nulls.
    """
    if not fields:
        return unjudged
    at = np.minimum(np.searchsorted(records, unjudged.origin), max(0, len(records) - 1))
    unknown = np.ones(len(at), bool) if not len(records) else records[at] != unjudged.origin
    indices = pa.array(at, pa.int64(), mask=unknown)
    rows = unjudged.structs.flatten()
    names = [f.name for f in unjudged.structs.type]
    more = [_column(events, f).take(indices) for f in fields]
    structs = pa.StructArray.from_arrays([*rows, *more], [*names, *(f.name for f in fields)])
    return replace(unjudged, structs=structs)


def source_parts(columns: Iterable[str]) -> tuple[DataField, ...]:
    """Returns the fields of a message's `source` from which these columns are filled."""
    parts = {name: kind for column in columns for name, kind in SOURCE_METADATA[column].items()}
    return tuple(DataField(0, name, kind) for name, kind in parts.items())


def _column(events: pa.Array, field: DataField) -> pa.Array:
    source = events.field("source")
    if field.name == "_op":
        return events.field("op")
    if field.name == POSITION:
        return source_positions(source)
    values = pc.struct_field(source, next(iter(SOURCE_METADATA[field.name])))
    if field.name != "_ts_ms" or field.type.root in INTEGER_ROOTS or field.type.root not in _STAMPS:
        return values
    target = arrow_field(field).type
    return scale_count(values, "ms", target.unit).view(target)


def source_positions(source: pa.Array) -> pa.Array:
    """Returns positions in the source's log as strings that sort like the log.

    For Postgres the string is made from the LSN; for MySQL from file, position and row; for SQL Server from the LSNs of
    commit and change. For other databases the result is null.
    """
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
