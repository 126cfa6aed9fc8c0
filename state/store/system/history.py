"""System tables that show a table's metadata: schemas, options, tags, branches, consumers, statistics, aggregate
functions.

Times are local, as in Paimon. Source: Paimon 2.0 SchemasTable, OptionsTable, TagsTable, BranchesTable, ConsumersTable,
StatisticTable, AggregationFieldsTable.
"""

import json
from collections.abc import Mapping

import pyarrow as pa

from bucketline.conf.table.table_options import listed
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.paths import STATISTICS_DIR
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.consumers import next_of_consumers
from bucketline.state.store.catalog.schemas import readable_schemas
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.catalog.versions import Versions
from bucketline.state.store.read.views import local_time
from bucketline.state.types.columns_text import in_backticks, type_text
from bucketline.state.types.logical import field_to_json

_TIME = pa.timestamp("ms")


def _text(name: str, nullable: bool = False) -> pa.Field:
    return pa.field(name, pa.string(), nullable=nullable)


def _long(name: str, nullable: bool = False) -> pa.Field:
    return pa.field(name, pa.int64(), nullable=nullable)


SCHEMAS = pa.schema(
    [
        _long("schema_id"),
        _text("fields"),
        _text("partition_keys"),
        _text("primary_keys"),
        _text("options"),
        _text("comment", nullable=True),
        pa.field("update_time", _TIME, nullable=False),
    ]
)
OPTIONS = pa.schema([_text("key"), _text("value")])
TAGS = pa.schema(
    [
        _text("tag_name"),
        _long("snapshot_id"),
        _long("schema_id"),
        pa.field("commit_time", _TIME, nullable=False),
        _long("record_count", nullable=True),
        pa.field("create_time", _TIME),
        _text("time_retained", nullable=True),
    ]
)
BRANCHES = pa.schema([_text("branch_name"), pa.field("create_time", _TIME, nullable=False)])
CONSUMERS = pa.schema([_text("consumer_id"), _long("next_snapshot_id")])
STATISTICS = pa.schema(
    [
        _long("snapshot_id"),
        _long("schema_id"),
        _long("mergedRecordCount", nullable=True),
        _long("mergedRecordSize", nullable=True),
        _text("colstat", nullable=True),
    ]
)
AGGREGATION_FIELDS = pa.schema(
    [
        _text("field_name"),
        _text("field_type"),
        _text("function", nullable=True),
        _text("function_options", nullable=True),
        _text("comment", nullable=True),
    ]
)


def schemas(table: TableHandle) -> pa.Table:
    """Returns one row for each version of the schema, oldest first. Lists and options are JSON."""
    rows = [
        {
            "schema_id": s.id,
            "fields": _json([field_to_json(f) for f in s.fields]),
            "partition_keys": _json(list(s.partition_keys)),
            "primary_keys": _json(list(s.primary_keys)),
            "options": _json(dict(s.options)),
            "comment": s.comment,
            "update_time": local_time(s.time_ms, f"schema {s.id}"),
        }
        for s in sorted(readable_schemas(table.io, table.metadata_path), key=lambda s: s.id)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMAS)


def options(table: TableHandle) -> pa.Table:
    """Returns one row for each option of the newest schema."""
    newest = table.schema_store.latest()
    newest_options = {} if newest is None else newest.options
    return pa.table([list(newest_options.keys()), list(newest_options.values())], schema=OPTIONS)


def tags(table: TableHandle) -> pa.Table:
    """Returns one row for each tag, ordered by name."""
    rows = [
        {
            "tag_name": t.name,
            "snapshot_id": t.snapshot.id,
            "schema_id": t.snapshot.schema_id,
            "commit_time": local_time(t.snapshot.time_ms, f"the snapshot of tag {t.name}"),
            "record_count": t.snapshot.total_record_count,
            "create_time": t.created_local_ms,
            "time_retained": None if t.retained_ms is None else duration_text(t.retained_ms),
        }
        for t in sorted(Tags(table.io, table.metadata_path).list(), key=lambda t: t.name)
    ]
    return pa.Table.from_pylist(rows, schema=TAGS)


def branches(table: TableHandle) -> pa.Table:
    """Returns one row for each branch, ordered by name. `create_time` is the time at which its folder last changed; on
    an object store, the time at which its first file was written.
    """
    stored = Branches(table.io, table.path)
    rows = [
        {"branch_name": name, "create_time": local_time(_changed_ms(table, stored.path(name)), f"branch {name}")}
        for name in stored.known()
    ]
    return pa.Table.from_pylist(rows, schema=BRANCHES)


def _changed_ms(table: TableHandle, folder: str) -> int:
    try:
        return table.io.modified_ms(folder)
    except StorageError:  # An object store has no folders.
        return min((f.modified_ms for f in table.io.list_files(folder)), default=0)


def consumers(table: TableHandle) -> pa.Table:
    """Returns one row for each consumer, ordered by name."""
    progress = sorted(next_of_consumers(table.io, table.metadata_path).items())
    rows = [{"consumer_id": name, "next_snapshot_id": next_id} for name, next_id in progress]
    return pa.Table.from_pylist(rows, schema=CONSUMERS)


def statistics(table: TableHandle) -> pa.Table:
    """Returns the statistics that ANALYZE has put into the snapshot: one row, or no row."""
    snapshot = Versions(table.io, table.metadata_path).find(None, table.table_schema.settings.reading)
    if snapshot is None or snapshot.statistics is None:
        return STATISTICS.empty_table()
    path = f"{table.path}/{STATISTICS_DIR}/{snapshot.statistics}"
    try:
        stored = json.loads(table.io.read(path))
        row = {
            "snapshot_id": stored["snapshotId"],
            "schema_id": stored["schemaId"],
            "mergedRecordCount": stored.get("mergedRecordCount"),
            "mergedRecordSize": stored.get("mergedRecordSize"),
            "colstat": json.dumps(stored.get("colStats") or {}, indent=2, separators=(",", " : "), ensure_ascii=False),
        }
        return pa.Table.from_pylist([row], schema=STATISTICS)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, pa.ArrowException) as e:
        raise CorruptFileError(f"{path} does not hold statistics: {e}", path=path) from e


def aggregation_fields(table: TableHandle) -> pa.Table:
    """Returns one row for each column, with the options `fields.<column>.…` of the column."""
    newest = table.schema_store.latest()
    assert newest is not None, "a table that is open has a schema"
    rows = [
        {
            "field_name": f.name,
            "field_type": type_text(f.type, in_backticks),
            "function": listed(_about(f.name, newest.options).values()),
            "function_options": listed(_about(f.name, newest.options)),
            "comment": f.description,
        }
        for f in newest.fields
    ]
    return pa.Table.from_pylist(rows, schema=AGGREGATION_FIELDS)


def _about(column: str, table_options: Mapping[str, str]) -> dict[str, str]:
    parts = {key: key.split(".") for key in table_options}
    return {key: table_options[key] for key, p in parts.items() if len(p) > 2 and p[:2] == ["fields", column]}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def duration_text(duration_ms: int) -> str:
    """Returns a duration as a string in the ISO 8601 form that Java prints: `PT1H30M`, `PT0.5S`."""
    seconds, millis = divmod(duration_ms, 1000)
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    text = f"{hours}H" if hours else ""
    text += f"{minutes}M" if minutes else ""
    if left or millis or not text:
        fraction = f".{millis:03}".rstrip("0") if millis else ""
        text += f"{left}{fraction}S"
    return f"PT{text}"
