"""System tables that show what a snapshot holds: partitions, buckets, manifests, index files.

The options name the snapshot. If they name none, the newest snapshot is shown. Times are local.

Source: Paimon 2.0 PartitionsTable, BucketsTable, ManifestsTable, TableIndexesTable, PartitionEntry, BucketEntry.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.format.entries import FileKind, IndexManifestEntry, ManifestEntry, ManifestFileMeta, Snapshot
from bucketline.state.format.index.deletion_vector import DELETION_VECTORS
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import default_partition_name, is_blank
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Versions
from bucketline.state.store.read.views import partition_text, value_text
from bucketline.state.types.binary_row import decode_row

_TIME = pa.timestamp("ms")

PARTITIONS = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("record_count", pa.int64(), nullable=False),
        pa.field("file_size_in_bytes", pa.int64(), nullable=False),
        pa.field("file_count", pa.int64(), nullable=False),
        pa.field("last_update_time", _TIME),
        pa.field("created_at", _TIME),
        pa.field("created_by", pa.string()),
        pa.field("updated_by", pa.string()),
        pa.field("options", pa.string()),
        pa.field("total_buckets", pa.int32(), nullable=False),
        pa.field("done", pa.bool_(), nullable=False),
        pa.field("deleted_record_count", pa.int64()),
    ]
)
BUCKETS = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("record_count", pa.int64(), nullable=False),
        pa.field("file_size_in_bytes", pa.int64(), nullable=False),
        pa.field("file_count", pa.int64(), nullable=False),
        pa.field("last_update_time", _TIME),
    ]
)
MANIFESTS = pa.schema(
    [
        pa.field("file_name", pa.string(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("num_added_files", pa.int64(), nullable=False),
        pa.field("num_deleted_files", pa.int64(), nullable=False),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("min_partition_stats", pa.string()),
        pa.field("max_partition_stats", pa.string()),
        pa.field("min_row_id", pa.int64()),
        pa.field("max_row_id", pa.int64()),
    ]
)
_RANGE = pa.struct(
    [
        pa.field("f0", pa.string(), nullable=False),
        pa.field("f1", pa.int32(), nullable=False),
        pa.field("f2", pa.int32(), nullable=False),
        pa.field("_CARDINALITY", pa.int64()),
    ]
)
TABLE_INDEXES = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("index_type", pa.string(), nullable=False),
        pa.field("file_name", pa.string(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("dv_ranges", pa.list_(_RANGE)),
        pa.field("row_range_start", pa.int64()),
        pa.field("row_range_end", pa.int64()),
        pa.field("index_field_id", pa.int32()),
        pa.field("index_field_name", pa.string()),
    ]
)


def partitions(table: TableHandle) -> pa.Table:
    """Returns one row for each partition, ordered by the partition's string (`dt=2026-01-01/hr=7`). Rows in the
    postpone bucket are not counted.
    """
    schema, snapshot = table.table_schema, _snapshot(table)
    grouped: dict[bytes, list[ManifestEntry]] = defaultdict(list)
    for entry in _entries(table, snapshot):
        if entry.bucket >= 0:
            grouped[entry.partition].append(entry)
    deleted = _deleted_counts(table, snapshot)
    rows = [
        {
            "partition": _partition_path(schema, partition),
            **_sizes(entries),
            "total_buckets": next(e.total_buckets for e in reversed(entries) if e.kind is FileKind.ADD),
            "done": False,
            "deleted_record_count": deleted.get(partition, 0),
        }
        for partition, entries in grouped.items()
    ]
    return _shown(rows, PARTITIONS, "partition")


def buckets(table: TableHandle) -> pa.Table:
    """Returns one row for each bucket, ordered by partition and number. The postpone bucket has the number -2."""
    grouped: dict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
    for entry in _entries(table, _snapshot(table)):
        grouped[entry.partition, entry.bucket].append(entry)
    rows = [
        {"partition": partition_text(table.table_schema, partition), "bucket": bucket, **_sizes(entries)}
        for (partition, bucket), entries in grouped.items()
    ]
    return _shown(rows, BUCKETS, "partition", "bucket")


def _shown(rows: Sequence[Mapping[str, object]], schema: pa.Schema, *order: str) -> pa.Table:
    """Returns a table of the rows (of a system table) whose `file_count` is not 0, sorted by the columns `order`."""
    sized = pa.Table.from_pylist(rows, schema=schema)
    return sized.filter(pc.field("file_count") > 0).sort_by([(name, "ascending") for name in order])


def manifests(table: TableHandle) -> pa.Table:
    """Returns one row for each manifest of the snapshot, including the manifests of its changelog."""
    snapshot = _snapshot(table)
    metas: list[ManifestFileMeta] = []
    if snapshot is not None:
        metas = table.manifests.base_and_delta(snapshot)
        if snapshot.changelog_manifest_list is not None:
            metas += table.manifests.read_list(snapshot.changelog_manifest_list)
    rows = [
        {
            "file_name": m.file_name,
            "file_size": m.file_size,
            "num_added_files": m.num_added_files,
            "num_deleted_files": m.num_deleted_files,
            "schema_id": m.schema_id,
            "min_partition_stats": partition_text(table.table_schema, m.partition_stats.min_values),
            "max_partition_stats": partition_text(table.table_schema, m.partition_stats.max_values),
            "min_row_id": m.min_row_id,
            "max_row_id": m.max_row_id,
        }
        for m in metas
    ]
    return pa.Table.from_pylist(rows, schema=MANIFESTS)


def table_indexes(table: TableHandle) -> pa.Table:
    """Returns one row for each index file. The column `dv_ranges` says, for each data file with deleted rows, where its
    deletion vector is and how many rows are deleted.
    """
    snapshot = _snapshot(table)
    entries = [] if snapshot is None else table.manifests.read_index(snapshot.index_manifest)
    names = {f.id: f.name for f in table.table_schema.fields}
    rows = []
    for entry in entries:
        ranges = entry.deletion_vector_ranges
        span = entry.global_index or {}
        field_id = span.get("_INDEX_FIELD_ID")
        rows.append(
            {
                "partition": partition_text(table.table_schema, entry.partition),
                "bucket": entry.bucket,
                "index_type": entry.index_type,
                "file_name": entry.file_name,
                "file_size": entry.file_size,
                "row_count": entry.row_count,
                "dv_ranges": None
                if ranges is None
                else [
                    {"f0": r.data_file_name, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality}
                    for r in ranges
                ],
                "row_range_start": span.get("_ROW_RANGE_START"),
                "row_range_end": span.get("_ROW_RANGE_END"),
                "index_field_id": field_id,
                "index_field_name": names.get(field_id) if isinstance(field_id, int) else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=TABLE_INDEXES)


def _snapshot(table: TableHandle) -> Snapshot | None:
    return Versions(table.io, table.metadata_path).find(None, table.table_schema.settings.reading)


def _entries(table: TableHandle, snapshot: Snapshot | None) -> Iterator[ManifestEntry]:
    """Yields every entry of the snapshot's manifests, for added and deleted files, oldest first."""
    for manifest in [] if snapshot is None else table.manifests.base_and_delta(snapshot):
        yield from table.manifests.read(manifest)


def _sizes(entries: Sequence[ManifestEntry]) -> dict[str, object]:
    """Returns the number of rows, the bytes and the number of the files that were added and not deleted again, and the
    time at which the newest file was written. As in Paimon, deleted files count for this time too.
    """
    signed = [(1 if e.kind is FileKind.ADD else -1, e.file) for e in entries]
    times = (f.creation_time_ms for _, f in signed if f.creation_time_ms is not None)  # These are local times already.
    return {
        "record_count": sum(sign * f.row_count for sign, f in signed),
        "file_size_in_bytes": sum(sign * f.file_size for sign, f in signed),
        "file_count": sum(sign for sign, _ in signed),
        "last_update_time": max(times, default=None),
    }


def _deleted_counts(table: TableHandle, snapshot: Snapshot | None) -> dict[bytes, int | None]:
    """Returns, for each partition, how many rows deletion vectors delete; None if an old index file does not record the
    number.
    """
    if snapshot is None or not table.table_schema.settings.changelog.deletion_vectors:
        return {}
    deleted: dict[bytes, int | None] = {}
    for entry in table.manifests.read_index(snapshot.index_manifest):
        counted, before = _cardinality(entry), deleted.get(entry.partition, 0)
        deleted[entry.partition] = None if counted is None or before is None else before + counted
    return deleted


def _cardinality(entry: IndexManifestEntry) -> int | None:
    total = 0
    for part in entry.deletion_vector_ranges or () if entry.index_type == DELETION_VECTORS else ():
        if part.cardinality is None:
            return None
        total += part.cardinality
    return total


def _partition_path(schema: TableSchema, partition: bytes) -> str:
    """Returns a partition as `dt=2026-01-01/hr=7`, with the name of the default partition for null and blank strings;
    an empty string for a table without partitions.
    """
    fields = schema.select(schema.partition_keys)
    values = decode_row(partition, [f.type for f in fields])
    default = default_partition_name(schema)
    texts = ["" if v is None else value_text(v, f.type) for v, f in zip(values, fields, strict=True)]
    return "/".join(f"{f.name}={default if is_blank(text) else text}" for f, text in zip(fields, texts, strict=True))
