"""The first step of a map task: turns source records into rows with row kinds, and bad records. The step runs on
executors.

A record has the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType,
headers. Any other source with a column `value` works too; missing columns are null. A table column with a name in
`METADATA` is filled from the record itself, not from its value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.column_options import NO_COLUMN_OPTIONS, ColumnOptions
from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import NO_MESSAGE_OPTIONS, TRUNCATE, MessageOptions, Truncate
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.types.arrow import arrow_field, arrow_schema
from bucketline.state.types.buffers import one_array
from bucketline.state.types.fit import fit_array
from bucketline.state.types.if_else import if_else
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.schema_need import NOTHING_NEEDED, SchemaNeed
from bucketline.streaming.decode.avro.avro_frames import KEY_HEADER, VALUE_HEADER, with_frames
from bucketline.streaming.decode.avro.avro_reader import AvroReader
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.binlog_messages import CANAL, MAXWELL, decode_binlog, taking_truncates
from bucketline.streaming.decode.columns.computed_columns import ComputedColumns, JudgedImages
from bucketline.streaming.decode.columns.rescued import Mending, Rescued, rescued_texts
from bucketline.streaming.decode.columns.rows_of_table import rows_of_table
from bucketline.streaming.decode.decoded_rows import Decoded, misfits
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.flat_records import decode_flat
from bucketline.streaming.decode.json_values.json_convert import cut_digits, scale_count
from bucketline.streaming.decode.moves.follow_moves import Follower
from bucketline.streaming.decode.moves.key_moves import Asking, FoundValues
from bucketline.streaming.decode.records import decode_avro, decode_debezium, decode_json
from bucketline.streaming.decode.rejects import (
    HEADERS,
    RECORD_COLUMNS,
    UNEXPECTED,
    RejectedRows,
    joined_rejects,
    pack_rejects,
    reason_codes,
    rejects_of,
)
from bucketline.streaming.decode.row_changes import UpdateBefore, as_binary
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.seen import RecordPlace, Seen, last_places
from bucketline.streaming.decode.source_metadata import SOURCE_METADATA
from bucketline.streaming.decode.source_tables import tables_named, without_other_tables
from bucketline.streaming.decode.unavailable import KEEPS_NOTHING, MARKS, Keeping, Placeholder, marks_of_table

METADATA: Mapping[str, str] = {
    "_kafka_topic": "topic",
    "_kafka_partition": "partition",
    "_kafka_offset": "offset",
    "_kafka_timestamp": "timestamp",
    "_kafka_timestamp_type": "timestampType",
    "_kafka_key": "key",
    "_kafka_headers": "headers",
}
"""Table columns that are filled from Kafka's own columns, each with the column's name in Kafka's source."""

RECORD_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""The columns of Spark's Kafka source, by name."""
_BINLOGS = {RecordFormat.CANAL_JSON: CANAL, RecordFormat.MAXWELL_JSON: MAXWELL}
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """How records become rows of one table. It holds only plain values, so that it can be sent to executors.

    What is decoded: `fields` are the decoded columns. `fixed` are columns whose types must not become wider. `loose`
    are NOT NULL columns that a delete may leave out. `messages` and `columns` are the job's options for messages, and
    for columns and rows. `computed` is the plan for computing columns of this table; `zone` is the time zone of the
    session. `registry` has the schemas of Avro records. `now_us` is the time of the batch, in microseconds since 1970;
    if it is None, no column can use the current time.

    Bad records: one call returns at most `reject_limit` of them; more would change nothing, because the job fails then
    anyway. `kept` are the columns of a record that are stored for bad records, if the source has them. `rescued` is the
    table's column for parts of a record that no other column takes; it is not in `fields`. `watch` says whether to look
    for fields and values that the table's columns cannot hold (`DecodedRows.need`).

    Special cases: `keeping` says what happens to values that the source left out; if something is computed from such a
    value, the record is bad. `emptied_at` is the position at which the source's table was truncated: rows of records up
    to this position are left out. `moves` is set if a record changes the key of a row and leaves out values: it has the
    driver's question for these values (Asking), or the values that tasks must put in (FoundValues).

    The attributes are together because a task gets everything about decoding as one value.
    """

    decode: RecordFormat
    fields: tuple[DataField, ...]
    primary_key: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    update_before: UpdateBefore = UpdateBefore.DROP
    reject_limit: int = 1
    watch: WatchFor = WatchFor.NOTHING
    fixed: tuple[str, ...] = ()
    messages: MessageOptions = NO_MESSAGE_OPTIONS
    registry: RegistrySchemas | None = None
    keeping: Keeping = KEEPS_NOTHING
    columns: ColumnOptions = NO_COLUMN_OPTIONS
    zone: str = "UTC"
    computed: ComputedColumns | None = None
    emptied_at: RecordPlace | None = None
    kept: tuple[str, ...] = ()
    now_us: int | None = None
    rescued: Rescued | None = None
    moves: Asking | FoundValues | None = None

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns of Spark's Kafka source that this step reads."""
        fields = self.decoding.fields
        needed = {"value", *_PLACE, *self.kept, *(METADATA[f.name] for f in fields if f.name in METADATA)}
        if self.decode.reads_keys or (not self.decode.has_row_kinds and self.primary_key):
            needed.add("key")
        if self.decode.is_avro:
            needed.add("headers")
        return tuple(name for name in RECORD_TYPES if name in needed)

    @property
    def decoding(self) -> "DecodeStep":
        """The step that decodes the fields from which columns are computed; this step itself if no columns are
        computed.
        """
        plan = self.computed
        if plan is None:
            return self
        return replace(
            self,
            fields=plan.inputs,
            primary_key=plan.key_inputs,
            loose=(),
            fixed=(*self.fixed, *(f.name for f in plan.inputs if f.name not in plan.plain)),
            watch=self.watch if plan.grows else WatchFor.NOTHING,
            keeping=self.keeping.of_inputs(
                [f.name for f in plan.inputs], [f for f in self.fields if f.name in plan.kept]
            ),
            computed=None,
        )

    @property
    def has_distinct_keys(self) -> bool:
        """True if the job states that no key is in two tables of the source."""
        return self.messages.shards is not None

    @property
    def leaves_out_values(self) -> bool:
        """True if the rows have a column UNAVAILABLE, which marks the values that the source left out."""
        return self.keeping.marks

    def key_of_table(self, table: str) -> tuple[str | None, ...]:
        """Takes the name of a source table, such as `shop.orders`. Returns the parts of the name that are in the key of
        the table's rows: for each key column such as `_source_table` its value, in the example `orders`.
        """
        if not self.decode.has_row_kinds:
            return ()
        *outer, name = table.split(".")
        parts = {
            "_source_table": name,
            "_source_schema": outer[-1] if len(outer) > 1 else None,
            "_source_database": outer[0] if outer else None,
        }
        return tuple(text for column, text in parts.items() if column in self.primary_key)

    def check(self) -> None:
        """Raises SchemaMismatchError or UnsupportedTableError if no record could become a row of this table."""
        self(pa.table({name: pa.nulls(0, kind) for name, kind in RECORD_TYPES.items()}))

    def __call__(self, records: pa.Table) -> DecodedRows:
        """Takes source records, and returns their rows, the bad records, and the columns and types that the records
        need.

        The rows have the table's columns in order, and `_row_kind` if the message format has row kinds.
        """
        decoded = self._decoded(records)
        return self._followed(records, decoded) if self.keeping.keeps else decoded

    def _followed(self, records: pa.Table, decoded: DecodedRows) -> DecodedRows:
        """Completes the rows whose record has changed the key and leaves out values: puts in the values that the
        driver has found. Rows for which no value was found become bad records. If the driver has only asked for rows
        (`Asking`), returns no table rows, but only what the task must send to the driver.
        """
        assert decoded.records is not None, "a decoder of records says from which record each row comes"
        followed = self.follower.follow(records, decoded.rows, decoded.records, decoded.moves)
        if isinstance(self.moves, Asking):
            seen = Seen(truncated=decoded.seen.truncated, moves=followed.said)
            return DecodedRows(followed.rows, seen=seen, records=decoded.records.slice(0, 0))
        seen = replace(decoded.seen, moves=followed.said)
        if not followed.bad:
            return decoded._replace(rows=followed.rows, seen=seen)
        stays = pc.invert(pc.is_in(decoded.records, value_set=pa.array(list(followed.bad), pa.int64())))
        return decoded._replace(
            rows=followed.rows.filter(stays),
            rejects=joined_rejects([decoded.rejects, self._rejects(records, followed.bad)]),
            seen=seen,
            records=decoded.records.filter(stays),
            bad={**decoded.bad, **followed.bad},
        )

    @property
    def follower(self) -> Follower:
        """The object that completes rows with a changed key: it finds the values that these rows lack."""
        key = tuple(f for f in self.fields if f.name in self.primary_key)
        judges_old = self.computed is not None and self.computed.images is JudgedImages.OWN
        return Follower(self.keeping, key, Placeholder(self.messages.unavailable_value), self.moves, judges_old)

    def _decoded(self, records: pa.Table) -> DecodedRows:
        if self.rescued is not None and "value" in records.column_names:
            return self._rescuing(records, self.rescued)
        if self.computed is not None:
            return self._computed(records, self.computed)
        if "value" not in records.column_names:
            raise SchemaMismatchError(
                f"'decode: {self.decode.value}' reads a column 'value', but the source only has "
                f"{', '.join(records.column_names)}; use 'decode: none'",
                column="value",
            )
        values = records["value"]
        keys = records["key"] if "key" in records.column_names else None
        others = 0
        if self.decode.is_avro:
            values, keys = _with_frames(records, "value", VALUE_HEADER), _with_frames(records, "key", KEY_HEADER)
        if self.messages.source_table is not None:
            values, are_others = without_other_tables(values, self.decode, self.messages, self._reader)
            others = int(are_others.sum())
            # A key without a value would delete a row.
            keys = keys if keys is None or not others else if_else(pa.array(are_others), None, one_array(keys))
        decoded = self._decode(values, keys)
        origin = decoded.origin
        bad = dict(zip(decoded.bad.to_pylist(), decoded.reasons.to_pylist(), strict=True))
        columns = []
        for f in self.fields:
            if f.name not in METADATA:
                columns.append(decoded.rows.column(f.name))
                continue
            column, wrong = _of_record(records, f, origin)
            bad.update({origin[row].as_py(): reason for row, reason in wrong.items()})
            columns.append(column)
        kinds = decoded.kinds
        marks = [decoded.rows.column(MARKS.name)] if self.leaves_out_values else []
        keep = self._kept(records, origin, bad if len(bad) > len(decoded.bad) else {})
        if keep is not None:
            columns, marks, kinds, origin = (
                [column.filter(keep) for column in columns],
                [column.filter(keep) for column in marks],
                kinds.filter(keep),
                origin.filter(keep),
            )
        fields = list(self.fields)
        fitted = [fit_array(c, f.type, arrow_field(f).type, f.name) for c, f in zip(columns, fields, strict=True)]
        schema = arrow_schema(fields)
        if self.decode.has_row_kinds:
            fitted, schema = [*fitted, kinds], schema.append(pa.field(ROW_KIND_COLUMN, pa.int8()))
        if marks:
            fitted, schema = [*fitted, *marks], schema.append(pa.field(MARKS.name, pa.binary()))
        rows = pa.Table.from_arrays(fitted, schema=schema)
        seen = decoded.seen.with_others(others)
        if self.messages.truncate is Truncate.APPLY and decoded.truncates:
            seen = replace(seen, truncated=_places(records, decoded.truncates))
        return DecodedRows(
            rows, self._rejects(records, bad), self._need(decoded.need), seen, origin, bad, decoded.moves
        )

    def _rescuing(self, records: pa.Table, rescued: Rescued) -> DecodedRows:
        """Decodes the records so that the rescued-data column holds the values that no other column takes."""
        plain = replace(self, rescued=None)
        decoded = plain._decoded(records)
        mending = Mending(as_binary(one_array(records["value"])), {}, {})
        value = records.column_names.index("value")
        while mending.mend(self.decode, rescued, decoded.bad):
            decoded = plain._decoded(records.set_column(value, "value", mending.values))
        assert decoded.records is not None, "a decoder of records says from which record each row comes"
        good = np.unique(np.asarray(decoded.records))
        texts = rescued_texts(self.decode, rescued, records, mending.taken, good)
        column = fit_array(texts.take(decoded.records), rescued.field.type, pa.string(), rescued.field.name)
        bad = {record: mending.reasons.get(record, why) for record, why in decoded.bad.items()}
        rows = decoded.rows.add_column(rescued.at, arrow_field(rescued.field), column)
        return decoded._replace(rows=rows, rejects=self._rejects(records, bad), bad=bad)

    def _kept(self, records: pa.Table, origin: pa.Array, bad: Mapping[int, str]) -> pa.Array | None:
        """Returns a mask that is true for the rows that stay, because their record is not bad and comes after the
        truncate, if there was one. Returns None if all rows stay.
        """
        keep = pc.invert(pc.is_in(origin, value_set=pa.array(list(bad), pa.int64()))) if bad else None
        if self.emptied_at is None:
            return keep
        is_newer = pc.greater(one_array(records["offset"]).take(origin), self.emptied_at.offset)
        return is_newer if keep is None else pc.and_(keep, is_newer)

    def _computed(self, records: pa.Table, plan: ComputedColumns) -> DecodedRows:
        """Decodes the records into rows, and computes the columns of the table from these rows. Returns the result."""
        decoded = self.decoding._decoded(records)
        rows, kinds = decoded.rows, pa.array(np.zeros(decoded.rows.num_rows, np.int8))
        if self.decode.has_row_kinds:
            kinds, rows = one_array(rows[ROW_KIND_COLUMN]), rows.drop_columns([ROW_KIND_COLUMN])
        assert decoded.records is not None, "a decoder of records says from which record each row comes"
        marks = None
        if self.leaves_out_values:
            marks, rows = one_array(rows[MARKS.name]), rows.drop_columns([MARKS.name])
            marks, rows = marks_of_table(rows, marks, self.fields, self.keeping.names)
        batch = pa.RecordBatch.from_arrays([one_array(c) for c in rows.columns], schema=rows.schema)
        keeps_old = self.update_before is UpdateBefore.EMIT
        chosen = rows_of_table(plan, batch, kinds, decoded.records, marks, keeps_old=keeps_old)
        made = pa.Table.from_batches([chosen.decoded.rows])
        if self.decode.has_row_kinds:
            # Marks stay the last column.
            made = made.add_column(len(self.fields), pa.field(ROW_KIND_COLUMN, pa.int8()), chosen.decoded.kinds)
        bad = dict(zip(chosen.decoded.bad.to_pylist(), chosen.decoded.reasons.to_pylist(), strict=True))
        return DecodedRows(
            made,
            joined_rejects([decoded.rejects, self._rejects(records, bad)]),
            plan.need_of(decoded.need),
            replace(decoded.seen, unexpected=chosen.unexpected),
            chosen.decoded.origin,
            {**decoded.bad, **bad},
            decoded.moves,
        )

    def _decode(self, values: pa.Array | pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray | None) -> Decoded:
        fields = tuple(f for f in self.fields if f.name not in METADATA)
        primary_key = tuple(name for name in self.primary_key if name not in METADATA)
        if self.decode in (RecordFormat.DEBEZIUM_JSON, RecordFormat.DEBEZIUM_AVRO):
            return decode_debezium(
                values,
                fields,
                primary_key=primary_key,
                loose=self.loose,
                keys=keys,
                update_before=self.update_before,
                watch=self.watch,
                messages=self.messages,
                reader=self._reader,
                keeping=self.keeping,
            )
        if self.decode is RecordFormat.DEBEZIUM_FLAT_JSON:
            return decode_flat(
                values,
                fields,
                primary_key=primary_key,
                loose=self.loose,
                keys=keys,
                update_before=self.update_before,
                watch=self.watch,
                messages=self.messages,
                keeping=self.keeping,
            )
        binlog = _BINLOGS.get(self.decode)
        if binlog is not None:
            if self.messages.truncate is not Truncate.REJECT:
                binlog = taking_truncates(binlog)
            return decode_binlog(
                values,
                fields,
                binlog,
                primary_key=primary_key,
                loose=self.loose,
                update_before=self.update_before,
                watch=self.watch,
                messages=self.messages,
            )
        own_keys = keys if self.primary_key else None
        if self._reader is not None:
            return decode_avro(values, fields, self._reader, watch=self.watch, messages=self.messages, keys=own_keys)
        return decode_json(values, fields, self.watch, self.messages, own_keys)

    @property
    def _reader(self) -> AvroReader | None:
        return None if self.registry is None else AvroReader(self.registry)

    def _need(self, need: pa.DataType) -> SchemaNeed:
        """Takes the columns and types that records need, and returns those that can be added to the table: all except
        columns with reserved names. Raises SchemaMismatchError for more than 1000 new fields.
        """
        if pa.types.is_string(need):
            raise SchemaMismatchError(
                "the records hold more than 1000 fields that the table does not have; set schema-evolution to 'ignore'"
            )
        kept_out = (*METADATA, *SOURCE_METADATA, ROW_KIND_COLUMN, *self.fixed)
        kept = [] if pa.types.is_null(need) else [f for f in need if f.name not in kept_out]
        return SchemaNeed(pa.struct(kept)) if kept else NOTHING_NEEDED

    def _rejects(self, records: pa.Table, bad: Mapping[int, str]) -> RejectedRows | None:
        if not bad:
            return None
        unexpected = [at for at in bad if bad[at].startswith(UNEXPECTED)]
        counted = sorted(bad.keys() - unexpected)[: self.reject_limit]
        kept = sorted([*counted, *unexpected])
        rejects = records.take(pa.array(kept, pa.int64()))
        reasons = pa.array([bad[at] for at in kept], pa.string())
        columns = {name: _column(rejects, name) for name in RECORD_COLUMNS}
        columns |= {"reason": reasons, "code": reason_codes(reasons)}
        if self.decode.names_tables:
            columns["source_table"] = tables_named(framed_records(rejects, self.decode)[0], self.decode, self._reader)
        return RejectedRows(len(counted), pack_rejects(rejects_of(columns, len(kept))), len(unexpected))


def _places(records: pa.Table, at: Sequence[int]) -> tuple[RecordPlace, ...]:
    """Takes the indices of records (`at`), and returns the last position of these records in each Kafka partition.

    Raises UnsupportedTableError if the records have no positions.
    """
    lacking = [name for name in _PLACE if name not in records.column_names]
    if lacking:
        raise UnsupportedTableError(
            f"'{TRUNCATE.key}: apply' needs records with a topic, partition and offset, as Kafka has them, but "
            "the source has no column "
            f"{lacking[0]!r}; set {TRUNCATE.key} to skip or reject",
            column=lacking[0],
        )
    places = records.select(list(_PLACE)).take(pa.array(at, pa.int64()))
    return last_places(
        RecordPlace(*place) for place in zip(*(places[name].to_pylist() for name in _PLACE), strict=True)
    )


def framed_records(records: pa.Table, decode: RecordFormat) -> tuple[pa.Array, pa.Array]:
    """Returns the values and the keys of the records as binary arrays. Each Avro value and key begins with its frame
    (magic byte and schema id), also if the record had the frame in a header.
    """
    headers = (VALUE_HEADER, KEY_HEADER) if decode.is_avro else ("", "")
    value, key = (_with_frames(records, name, of) for name, of in zip(("value", "key"), headers, strict=True))
    nulls = pa.nulls(records.num_rows, pa.binary())
    return nulls if value is None else value, nulls if key is None else key


def _with_frames(records: pa.Table, name: str, header: str) -> pa.Array | None:
    """Returns the Avro records in the column `name`. Each record begins with a frame, which names its schema. If the
    frame was sent as the header `header`, it is put before the record. Returns None if there is no such column.
    """
    if name not in records.column_names:
        return None
    headers = one_array(records["headers"]) if "headers" in records.column_names else None
    return with_frames(one_array(records[name]).cast(pa.binary()), headers, header)


def _of_record(records: pa.Table, field: DataField, origin: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Returns a table column that is filled from a column of the records, such as the offset. The second result maps
    the index of each row whose value does not fit the column to the reason; the caller makes these records bad.
    """
    name = METADATA[field.name]
    column = _column(records, name).take(origin)
    if name == "key" and field.type.root in _TEXTS:
        column, broken = _as_texts(column)
    else:
        broken = {}
    if name == "timestamp":
        column = _as_timestamps(column, field)
    return column, broken | misfits(column, field)


def _column(records: pa.Table, name: str) -> pa.Array:
    if name not in records.column_names:
        return pa.nulls(records.num_rows, RECORD_TYPES[name])
    return one_array(records[name])


def _as_texts(keys: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Returns the keys as strings. A key that is not UTF-8 is null; for such rows, also returns why they are bad."""
    try:
        return keys.cast(pa.string()), {}
    except pa.ArrowInvalid:
        texts, broken = [], {}
        for row, key in enumerate(keys.to_pylist()):
            try:
                texts.append(None if key is None else key.decode())
            except UnicodeDecodeError:
                texts.append(None)
                broken[row] = "field _kafka_key: the record's key is not UTF-8 text; declare the column as BYTES"
        return pa.array(texts, pa.string()), broken


def _as_timestamps(moments: pa.Array, field: DataField) -> pa.Array:
    """Returns the timestamps of Kafka records in the unit of the column `field`, which may be coarser; finer digits
    are cut off. For a column without a time zone the result is in UTC.
    """
    if field.type.root not in _STAMPS:
        return moments
    target = arrow_field(field).type
    counts = scale_count(moments.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), "us", target.unit)
    return cut_digits(counts, field.type, target.unit).view(target)
