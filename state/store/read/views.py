"""The system tables $snapshots and $files: their columns, the order of their rows, and the strings that they show, as
in Paimon. These tables have one row for each snapshot or file, so this module handles metadata, and no rows of the
table.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta, SimpleStats
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.partition_text import cast_text, legacy_text
from bucketline.state.format.paths import bucket_path, extension_of
from bucketline.state.format.row_ranges import stats_fields, written_fields
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import decode_row, encode_rows
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.state.types.recast import recast
from bucketline.state.types.values import to_scalar

SNAPSHOTS_SCHEMA = pa.schema(
    [
        pa.field("snapshot_id", pa.int64(), nullable=False),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("commit_user", pa.string(), nullable=False),
        pa.field("commit_identifier", pa.int64(), nullable=False),
        pa.field("commit_kind", pa.string(), nullable=False),
        pa.field("commit_time", pa.timestamp("ms"), nullable=False),
        pa.field("base_manifest_list", pa.string(), nullable=False),
        pa.field("delta_manifest_list", pa.string(), nullable=False),
        pa.field("changelog_manifest_list", pa.string()),
        pa.field("total_record_count", pa.int64()),
        pa.field("delta_record_count", pa.int64()),
        pa.field("changelog_record_count", pa.int64()),
        pa.field("watermark", pa.int64()),
        pa.field("next_row_id", pa.int64()),
        pa.field("operation", pa.string()),
    ]
)

FILES_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("file_path", pa.string(), nullable=False),
        pa.field("file_format", pa.string(), nullable=False),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("record_count", pa.int64(), nullable=False),
        pa.field("file_size_in_bytes", pa.int64(), nullable=False),
        pa.field("min_key", pa.string()),
        pa.field("max_key", pa.string()),
        pa.field("null_value_counts", pa.string(), nullable=False),
        pa.field("min_value_stats", pa.string(), nullable=False),
        pa.field("max_value_stats", pa.string(), nullable=False),
        pa.field("min_sequence_number", pa.int64()),
        pa.field("max_sequence_number", pa.int64()),
        pa.field("creation_time", pa.timestamp("ms")),
        pa.field("deleteRowCount", pa.int64()),
        pa.field("file_source", pa.string()),
        pa.field("first_row_id", pa.int64()),
        pa.field("write_cols", pa.list_(pa.string())),
    ]
)


def snapshots_table(store: Snapshots) -> pa.Table:
    """Returns all existing snapshots, oldest first. `commit_time` is local time, as in Paimon."""
    rows = []
    for snapshot_id in store.ids():
        s = store.get(snapshot_id)
        if s is None:  # The snapshot has expired since the folder was listed.
            continue
        rows.append(
            {
                "snapshot_id": s.id,
                "schema_id": s.schema_id,
                "commit_user": s.commit_user,
                "commit_identifier": s.commit_identifier,
                "commit_kind": s.commit_kind.value,
                "commit_time": local_time(s.time_ms, f"snapshot {s.id}"),
                "base_manifest_list": s.base_manifest_list,
                "delta_manifest_list": s.delta_manifest_list,
                "changelog_manifest_list": s.changelog_manifest_list,
                "total_record_count": s.total_record_count,
                "delta_record_count": s.delta_record_count,
                "changelog_record_count": s.changelog_record_count,
                "watermark": s.watermark,
                "next_row_id": s.next_row_id,
                "operation": s.operation,
            }
        )
    return pa.Table.from_pylist(rows, schema=SNAPSHOTS_SCHEMA)


def local_time(time_ms: int, of: str) -> datetime:
    """Returns milliseconds since 1970 as a local time, as system tables show times. Raises CorruptFileError for a time
    outside the years 1 to 9999; `of` says in the message what the time belongs to.
    """
    try:
        return datetime.fromtimestamp(time_ms / 1000)
    except (ValueError, OverflowError, OSError) as e:
        raise CorruptFileError(
            f"{of}: timeMillis {time_ms} is not a time in the years 1 to 9999", time_ms=time_ms
        ) from e


def files_table(
    table_path: str, schema: TableSchema, buckets: Sequence[BucketFiles], schema_of: Callable[[int], TableSchema]
) -> pa.Table:
    """Returns the rows of Paimon's system table `$files`: one row for each file of the buckets, in the order of
    `buckets`. Files in the postpone bucket are left out.
    """
    rows = []
    for bucket in buckets:
        if bucket.bucket < 0:
            continue
        directory = f"{table_path}/{bucket_path(schema, bucket.partition, bucket.bucket)}"
        partition = partition_text(schema, bucket.partition)
        for file in bucket.files:
            stored = schema_of(file.schema_id)
            rows.append(
                {
                    "partition": partition,
                    "bucket": bucket.bucket,
                    "file_path": file.external_path or f"{directory}/{file.file_name}",
                    "file_format": extension_of(file.file_name),
                    "schema_id": file.schema_id,
                    "level": file.level,
                    "record_count": file.row_count,
                    "file_size_in_bytes": file.file_size,
                    "min_key": key_text(stored, file.min_key),
                    "max_key": key_text(stored, file.max_key),
                    **_stats_texts(schema, stored, file),
                    "min_sequence_number": file.min_sequence_number,
                    "max_sequence_number": file.max_sequence_number,
                    "creation_time": file.creation_time_ms,
                    "deleteRowCount": file.delete_row_count,
                    "file_source": None if file.file_source is None else file.file_source.name,
                    "first_row_id": file.first_row_id,
                    "write_cols": None if file.write_cols is None else list(file.write_cols),
                }
            )
    return pa.Table.from_pylist(rows, schema=FILES_SCHEMA)


def partition_text(schema: TableSchema, partition: bytes) -> str:
    """Returns a partition as Paimon's system tables show it: `{2024-01-01, 7}`, with values cast to STRING; `{}` for a
    table without partitions.
    """
    types = [f.type for f in schema.select(schema.partition_keys)]
    return "{" + ", ".join(map(_shown_text, decode_row(partition, types), types)) + "}"


def key_text(schema: TableSchema, key: bytes) -> str | None:
    """Returns a serialized key as Paimon's system tables show it: `[1, a]`, with values in internal form; None for a
    table without a primary key.
    """
    types = [f.type for f in schema.select(schema.trimmed_primary_key)]
    return "[" + ", ".join(map(_internal_text, decode_row(key, types), types)) + "]" if types else None


def _stats_texts(schema: TableSchema, stored: TableSchema, file: DataFileMeta) -> dict[str, str]:
    """Returns the null counts, the minima and the maxima of the current columns, as three strings by the name of the
    column of $files. Each string has the form in which Java prints a sorted map: `{amount=0, id=0}`.
    """
    fields = stats_fields(stored, file)
    stats = _values_by_id(fields, file.value_stats)
    known = {f.id for f in written_fields(stored, file)}
    nulls, lows, highs = {}, {}, {}
    for field in schema.fields:
        low, high, null_count = stats.get(field.id, (None, None, None))
        if field.id not in known:
            null_count = file.row_count
        nulls[field.name] = "null" if null_count is None else str(null_count)
        old = next((f for f in fields if f.id == field.id), field)
        lows[field.name] = _internal_text(*_in_current_type(low, old.type, field.type))
        highs[field.name] = _internal_text(*_in_current_type(high, old.type, field.type))
    return {
        "null_value_counts": _map_text(nulls),
        "min_value_stats": _map_text(lows),
        "max_value_stats": _map_text(highs),
    }


def _values_by_id(fields: Sequence[DataField], stats: SimpleStats) -> dict[int, tuple[object, object, int | None]]:
    if stats.null_counts is None or len(stats.null_counts) != len(fields):
        return {}
    types = [f.type.as_nullable() for f in fields]
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    values = zip(lows, highs, stats.null_counts, strict=True)
    return {f.id: bounds for f, bounds in zip(fields, values, strict=True)}


def _in_current_type(value: object, stored: DataType, wanted: DataType) -> tuple[object, DataType]:
    """Converts a bound to the column's current type, and returns the converted bound and the current type. If the bound
    cannot be converted, returns the bound as it was stored, and its stored type.
    """
    if value is None or not (stored.is_atomic and wanted.is_atomic) or stored.as_nullable() == wanted.as_nullable():
        return value, stored
    try:
        converted = recast(pa.array([to_scalar(value, stored)], arrow_type(stored)), stored, wanted)
    except (pa.ArrowException, CorruptFileError):
        return value, stored
    row = encode_rows([converted], [wanted.as_nullable()], with_arity=True)[0].as_py()
    return decode_row(row, [wanted.as_nullable()])[0], wanted


def _map_text(texts: dict[str, str]) -> str:
    return "{" + ", ".join(f"{name}={texts[name]}" for name in sorted(texts)) + "}"


def _internal_text(value: object, data_type: DataType) -> str:
    if value is None:
        return "null"
    # Java prints an address for binary values; hexadecimal digits are more useful.
    return value.hex() if isinstance(value, bytes) else legacy_text(value, data_type)


def _shown_text(value: object, data_type: DataType) -> str:
    return "null" if value is None else value_text(value, data_type)


def value_text(value: object, data_type: DataType) -> str:
    """Returns a value cast to STRING; bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if data_type.root is TypeRoot.TIMESTAMP_LTZ:
        data_type = replace(data_type, root=TypeRoot.TIMESTAMP)  # The time is shown in UTC.
    return cast_text(value, data_type)
