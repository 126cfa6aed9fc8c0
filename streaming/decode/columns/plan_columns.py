"""Fits the column settings of a job to a table, and refuses all settings that cannot be computed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from bucketline.conf.column_options import NO_COLUMN_OPTIONS, SELECT, WHERE, ColumnOptions, Expectation, Otherwise
from bucketline.conf.errors import OptionError
from bucketline.conf.job import RecordFormat
from bucketline.conf.option import did_you_mean
from bucketline.conf.sources.message_options import SourceKind, SourceType
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.expression import SqlExpression
from bucketline.state.sql.compute.selection import (
    ALL_COLUMNS,
    SelectedColumns,
    check_functions,
    names_in,
    parse_selection,
    tells_time,
)
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.columns_text import in_backticks
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.decode.columns.compute_rows import condition_of, value_of
from bucketline.streaming.decode.columns.computed_columns import ComputedColumns, JudgedImages, Output

_TEXT = DataType(TypeRoot.VARCHAR, length=2**31 - 1)
_NUMBERS: Mapping[SourceKind, DataType] = {
    SourceKind.TEXT: _TEXT,
    SourceKind.SIGNED: DataType(TypeRoot.BIGINT),
    SourceKind.UNSIGNED: DataType(TypeRoot.DECIMAL, precision=20, scale=0),
    SourceKind.EPOCH_DAYS: DataType(TypeRoot.DATE),
    **dict.fromkeys(
        (SourceKind.EPOCH_MILLIS, SourceKind.EPOCH_MICROS, SourceKind.EPOCH_NANOS),
        DataType(TypeRoot.TIMESTAMP, precision=6),
    ),
}
_RECORD_TYPES: Mapping[str, DataType] = {
    "_kafka_topic": _TEXT,
    "_kafka_partition": DataType(TypeRoot.INT),
    "_kafka_offset": DataType(TypeRoot.BIGINT),
    "_kafka_timestamp": DataType(TypeRoot.TIMESTAMP_LTZ, precision=6),
    "_kafka_timestamp_type": DataType(TypeRoot.INT),
    "_kafka_key": _TEXT,
}
_EVENT_TYPES: Mapping[str, DataType] = {
    **dict.fromkeys(("_source_database", "_source_schema", "_source_table", "_op", "_source_position"), _TEXT),
    "_ts_ms": DataType(TypeRoot.BIGINT),
}
_OF_MESSAGES = ("_kafka_offset", "_kafka_timestamp", "_kafka_timestamp_type", "_op", "_ts_ms", "_source_position")
"""Metadata columns that differ between two messages about one row."""
_EVENTS = (RecordFormat.DEBEZIUM_JSON, RecordFormat.DEBEZIUM_AVRO)
_HEADERS = "_kafka_headers"
OP = "_op"


def plan_columns(
    options: ColumnOptions,
    schema: TableSchema,
    decode: RecordFormat,
    types: Sequence[tuple[str, SourceType]],
    *,
    takes_back: bool,
    grows: bool,
    context: Context,
) -> ComputedColumns | None:
    """Returns the plan; None if the job has no settings for columns. `takes_back` is true if the merge engine retracts
    old rows, and `grows` if new fields of messages are added to the table.

    Raises OptionError or SchemaMismatchError for an expression that cannot be computed, or has no column in the table.
    """
    if replace(options, rescued=None) == NO_COLUMN_OPTIONS:
        return None
    selection = ALL_COLUMNS if options.select is None else parse_selection(options.select)
    where = None if options.where is None else _timeless(SqlExpression(options.where), WHERE.key, WHERE.key)
    places = () if bucket_mode(schema).moves_keys else schema.partition_keys
    keys = tuple(dict.fromkeys((*schema.primary_keys, *places)))
    needed = {*keys, *schema.partition_keys, *schema.settings.merge.sequence_fields}
    outputs = _outputs(selection, schema, needed)
    if decode.has_row_kinds:
        _check_keys(outputs, keys)
    images = JudgedImages.INSERTS if not decode.has_row_kinds else JudgedImages.OWN if takes_back else JudgedImages.NEW
    _check_deletes(where, images, schema)
    plain = tuple(o.field.name for o in outputs if o.expression is not None and _is_plain(o))
    texts = [e for o in outputs if (e := o.expression) is not None]
    used = [*texts, *(() if where is None else (where,))]
    named = dict.fromkeys(name for e in used for name in names_in(e))
    if where is not None and images is JudgedImages.NEW and decode in _EVENTS:
        named[OP] = None
    inputs = _inputs(named, schema, decode, dict(types))
    known = {f.name.lower(): f.name for f in inputs}
    key_inputs = dict.fromkeys(
        known[name.lower()] for o in outputs if o.field.name in keys and o.expression for name in names_in(o.expression)
    )
    own = {f.name for f in schema.fields}
    jsons = frozenset(f.name for f in inputs if f.name not in own and f.name not in (*_RECORD_TYPES, *_EVENT_TYPES))
    planned = ComputedColumns(
        inputs=inputs,
        key_inputs=tuple(key_inputs),
        outputs=outputs,
        keys=keys,
        loose=tuple(f.name for f in schema.fields if not f.type.nullable and f.name not in needed),
        plain=plain,
        left_out=(*selection.left_out, *(f.name for f in inputs)),
        grows=grows and selection.has_star,
        where=where,
        expect=options.expect,
        images=images,
        context=replace(context, json_columns=jsons),
        kept=_kept(outputs, where, options.expect),
        tells_time=any(tells_time(e) for e in (*texts, *(SqlExpression(e.check) for e in options.expect))),
    )
    _check(planned, schema)
    return planned


def _checked(expression: SqlExpression, key: str) -> SqlExpression:
    check_functions(expression, key)
    return expression


def _timeless(expression: SqlExpression, key: str, what: str) -> SqlExpression:
    """Returns the checked expression. Raises OptionError if the expression uses the current time, because a later
    change of the row would compute another value. `what` names the expression in the error.
    """
    now = tells_time(expression)
    if now is not None:
        raise OptionError(
            f"{key}: {now} is the time of the batch, and a later change of the row comes at another time; remove {now} "
            f"from {what}",
            key=key,
            function=now,
        )
    return _checked(expression, key)


def _outputs(selection: SelectedColumns, schema: TableSchema, needed: set[str]) -> tuple[Output, ...]:
    own = [f.name for f in schema.fields]
    items = {name.lower(): (name, value) for name, value in selection.items}
    for name, _ in selection.items:
        if name.lower() not in {n.lower() for n in own}:
            near = did_you_mean(name, own) or f"; it has {', '.join(own)}"
            raise OptionError(
                f"{SELECT.key}: the table has no column {name!r}{near}. Add it to the table first",
                key=SELECT.key,
                column=name,
            )
    left_out = {name.lower() for name in selection.left_out}
    outputs = []
    for field in schema.fields:
        expression: SqlExpression | None = None
        if field.name.lower() in items:
            expression = _checked(items[field.name.lower()][1], SELECT.key)
            if field.name in (*schema.primary_keys, *schema.partition_keys):
                _timeless(expression, SELECT.key, f"column {field.name!r} of the primary key or the partition")
        elif selection.has_star and field.name.lower() not in left_out:
            expression = SqlExpression(in_backticks(field.name))
        elif not field.type.nullable:
            raise OptionError(
                f"no expression of {SELECT.key} gives a value to column {field.name!r}, which is NOT NULL; add one",
                key=SELECT.key,
                column=field.name,
            )
        outputs.append(Output(field, expression, field.name in needed))
    return tuple(outputs)


def _check_keys(outputs: Sequence[Output], keys: Sequence[str]) -> None:
    """Raises OptionError if a column that identifies rows is computed from a value that differs with each message."""
    for output in outputs:
        if output.field.name not in keys or output.expression is None or _is_plain(output):
            continue
        name = next((name for name in names_in(output.expression) if name in _OF_MESSAGES), None)
        if name is not None:
            raise OptionError(
                f"{SELECT.key}: {name} belongs to the message and differs in a later message about the row; column "
                f"{output.field.name!r} of the primary key or the partition would not find the old row. Compute it "
                "from columns of the row",
                key=SELECT.key,
                column=output.field.name,
            )


def _kept(outputs: Sequence[Output], where: SqlExpression | None, expect: Sequence[Expectation]) -> tuple[str, ...]:
    """Returns the names of columns that are copied unchanged from the record, and from which nothing else is computed:
    no column, no condition and no expectation.
    """
    plain = [o.field.name for o in outputs if _is_plain(o)]
    used = [o.expression for o in outputs if o.expression is not None and not _is_plain(o)]
    used += [SqlExpression(e.check) for e in expect]
    read = {name.lower() for e in (*used, *(() if where is None else (where,))) for name in names_in(e)}
    return tuple(name for name in plain if name.lower() not in read)


def _is_plain(output: Output) -> bool:
    return output.expression is not None and output.expression.text == in_backticks(output.field.name)


def _inputs(
    named: Iterable[str], schema: TableSchema, decode: RecordFormat, types: Mapping[str, SourceType]
) -> tuple[DataField, ...]:
    """Returns the fields to decode. If the table has a column with the field's name, the field has the type of that
    column; otherwise it has the type in `types`, or else it is a string.
    """
    own = {f.name.lower(): f for f in schema.fields}
    others = {**_RECORD_TYPES, **(_EVENT_TYPES if decode in _EVENTS else {})}
    found: dict[str, DataField] = {}
    for name in named:
        field = own.get(name.lower())
        if field is not None:
            found[field.name] = replace(field, type=field.type.as_nullable())
        elif name == _HEADERS:
            raise OptionError(
                f"{SELECT.key} and {WHERE.key} cannot use {name} unless the table has a column {name}; add this column",
                key=SELECT.key,
                column=name,
            )
        else:
            kind = others.get(name) or (_type_of(types[name]) if name in types else _TEXT)
            found[name] = DataField(-1 - len(found), name, kind)
    if not found:
        raise OptionError(f"{SELECT.key} uses no column of the messages; use at least one", key=SELECT.key)
    return tuple(found.values())


def _type_of(source: SourceType) -> DataType:
    if source.kind is SourceKind.DECIMAL:
        return DataType(TypeRoot.DECIMAL, precision=source.precision, scale=source.scale)
    return _NUMBERS.get(source.kind, _TEXT)


def _check_deletes(where: SqlExpression | None, images: JudgedImages, schema: TableSchema) -> None:
    """Raises OptionError if the condition may delete rows, but the table takes no deletes."""
    merge = schema.settings.merge
    if where is None or images is not JudgedImages.NEW:
        return
    if merge.ignore_delete or not merging_of(schema).takes_deletes():
        raise OptionError(
            f"{WHERE.key}: a row that no longer meets the condition is deleted, but the table ignores or refuses "
            f"deletes (merge-engine = {merge.engine.value}, ignore-delete = {str(merge.ignore_delete).lower()}); "
            f"remove {WHERE.key}, or let the table take deletes",
            key=WHERE.key,
        )


def _check(planned: ComputedColumns, schema: TableSchema) -> None:
    """Checks the plan by computing an empty batch, which raises an error if a type, column or function does not fit."""
    empty = arrow_schema(planned.inputs).empty_table()
    columns = {name: empty[name].combine_chunks() for name in empty.schema.names}
    for output in planned.outputs:
        _explained(SELECT.key, lambda o=output: value_of(o, columns, 0, planned.context))
    if planned.where is not None:
        where = planned.where
        _explained(WHERE.key, lambda: condition_of(where, columns, 0, planned.context))
    rows = arrow_schema(schema.fields).empty_table()
    made = {name: rows[name].combine_chunks() for name in rows.schema.names}
    for expectation in planned.expect:
        key = f"expect.{expectation.name}.check"
        check = _checked(SqlExpression(expectation.check), key)
        _explained(key, lambda c=check: condition_of(c, made, 0, planned.context))
        if expectation.otherwise in (Otherwise.DROP, Otherwise.REJECT) and planned.images is JudgedImages.OWN:
            raise OptionError(
                f"expect.{expectation.name}.otherwise: the table's merge engine retracts old rows, so a single row "
                "cannot be left out; only warn and fail are supported",
                key=f"expect.{expectation.name}.otherwise",
            )


def _explained(key: str, work: object) -> None:
    try:
        work()  # type: ignore[operator]
    except OptionError as e:
        raise e.reworded(f"{key}: {e.message}") from e
    except (SchemaMismatchError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as e:
        raise OptionError(f"{key}: {e}", key=key) from e
