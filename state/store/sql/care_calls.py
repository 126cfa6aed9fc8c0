"""Carries out CALL of the procedures that maintain a table: its partitions, tags, branches, consumers, manifests and
files.

Source: Paimon 2.0 org.apache.paimon.spark.procedure, for the names, the arguments and the columns of results.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pyarrow as pa

from bucketline.conf.durations import timedelta_of
from bucketline.state.store.sql.arguments import (
    Arguments,
    chosen_partitions,
    duration_ms_of,
    flag_of,
    instant_ms,
    number_of,
    options_of,
    wrong_argument,
)
from bucketline.state.store.table.table import Table, handle_of

_EXPIRY_OPTIONS = {
    "expiration_time": "partition.expiration-time",
    "timestamp_formatter": "partition.timestamp-formatter",
    "timestamp_pattern": "partition.timestamp-pattern",
    "expire_strategy": "partition.expiration-strategy",
    "max_expires": "partition.expiration-max-num",
}
_SORTS = ("manifest_sort_enabled", "manifest_sort_partition_field", "manifest_sort_max_rewrite_size")


def done() -> pa.Table:
    """Returns the result of a procedure that only reports that it has ended."""
    return pa.table({"result": [True]})


def age_of(table: Table, arguments: Arguments) -> timedelta:
    """Returns how long ago the time in the argument `older_than` is; zero for a time in the future."""
    now_ms = handle_of(table).world.clock.now_ms()
    return timedelta_of(max(0, now_ms - instant_ms(arguments["older_than"], "older_than")))


def with_options(table: Table, options: Mapping[str, str]) -> Table:
    """Returns the table with these options added to its own options."""
    handle = handle_of(table)
    schema = replace(handle.table_schema, options={**handle.table_schema.options, **options})
    return Table(replace(handle, table_schema=schema))


def _expire_partitions(table: Table, arguments: Arguments) -> pa.Table:
    given = {key: arguments[name] for name, key in _EXPIRY_OPTIONS.items() if name in arguments}
    dropped = with_options(table, {**options_of(arguments), **given}).expire_partitions()
    names = [", ".join(map(unquote, name.split("/"))) for name in dropped]
    return pa.table({"expired_partitions": names or ["No expired partitions."]})


def _mark_partition_done(table: Table, arguments: Arguments) -> pa.Table:
    table.mark_done(chosen_partitions(table, arguments))
    return done()


def _retained(arguments: Arguments) -> timedelta | None:
    if "time_retained" not in arguments:
        return None
    return timedelta_of(duration_ms_of(arguments, "time_retained"))


def _replace_tag(table: Table, arguments: Arguments) -> pa.Table:
    snapshot = number_of(arguments, "snapshot") if "snapshot" in arguments else None
    table.replace_tag(arguments["tag"], snapshot, _retained(arguments))
    return done()


def _rename_tag(table: Table, arguments: Arguments) -> pa.Table:
    table.rename_tag(arguments["tag"], arguments["target_tag"])
    return done()


def _expire_tags(table: Table, arguments: Arguments) -> pa.Table:
    ended = table.expire_tags(age_of(table, arguments) if "older_than" in arguments else None)
    return pa.table({"expired_tags": list(ended) or ["No expired tags."]})


def _create_tag_from_timestamp(table: Table, arguments: Arguments) -> pa.Table:
    name = arguments["tag"]
    snapshot_id = table.create_tag_from_timestamp(name, _moment(arguments, "timestamp"), _retained(arguments))
    snapshot = handle_of(table).snapshot_store.get(snapshot_id)
    watermark = None if snapshot is None else snapshot.watermark
    return pa.table(
        {
            "tagName": [name],
            "snapshot": [snapshot_id],
            "commit_time": pa.array([None if snapshot is None else snapshot.time_ms], pa.int64()),
            "watermark": ["null" if watermark is None else str(watermark)],
        }
    )


def _trigger_tags(table: Table, arguments: Arguments) -> pa.Table:
    del arguments
    table.create_due_tags()
    return done()


def _rename_branch(table: Table, arguments: Arguments) -> pa.Table:
    table.rename_branch(arguments["from_branch"], arguments["to_branch"])
    return done()


def _rollback_to_timestamp(table: Table, arguments: Arguments) -> pa.Table:
    return _rolled_back(table, lambda: table.rollback_to_timestamp(_moment(arguments, "timestamp")))


def _rollback_to_watermark(table: Table, arguments: Arguments) -> pa.Table:
    return _rolled_back(table, lambda: table.rollback_to_watermark(number_of(arguments, "watermark")))


def _rolled_back(table: Table, act: Callable[[], int]) -> pa.Table:
    newest = handle_of(table).snapshot_store.latest_id()
    if newest is None:
        raise wrong_argument("Latest snapshot is null, can not rollback.", "table")
    return pa.table({"previous_snapshot_id": [newest], "current_snapshot_id": [act()]})


def _reset_consumer(table: Table, arguments: Arguments) -> pa.Table:
    following = number_of(arguments, "next_snapshot_id") if "next_snapshot_id" in arguments else None
    table.reset_consumer(arguments["consumer_id"], following)
    return done()


def _clear_consumers(table: Table, arguments: Arguments) -> pa.Table:
    table.clear_consumers(arguments.get("including_consumers", ".*"), arguments.get("excluding_consumers"))
    return done()


def _compact_manifest(table: Table, arguments: Arguments) -> pa.Table:
    for name in _SORTS:
        if name in arguments:
            raise wrong_argument(
                f"{name} is not supported, because manifests are merged in the order in which they were written; "
                "leave it out",
                name,
            )
    if not flag_of(arguments, "dry_run"):
        with_options(table, options_of(arguments)).compact_manifests()
    return done()


def _remove_unexisting_files(table: Table, arguments: Arguments) -> pa.Table:
    if "parallelism" in arguments:
        number_of(arguments, "parallelism")  # Files are listed in parallel if the storage is slow.
    paths = table.remove_unexisting_files(dry_run=flag_of(arguments, "dry_run"))
    return pa.table({"fileName": pa.array(paths, pa.string())})


def _purge_files(table: Table, arguments: Arguments) -> pa.Table:
    del arguments
    table.purge_files(no_writers=True)
    return pa.table({"result": ["Success"]})


def _rewrite_file_index(table: Table, arguments: Arguments) -> pa.Table:
    made = table.rewrite_file_index(chosen_partitions(table, arguments))
    return pa.table(
        {
            "written_partitions": pa.array([made.partitions], pa.int32()),
            "written_indexes": pa.array([made.files], pa.int32()),
        }
    )


def _moment(arguments: Arguments, name: str) -> datetime:
    """Returns the time in an argument, which is a number of milliseconds since 1970, as in Paimon, or a local time.
    Raises OptionError for any other value.
    """
    text = arguments[name].strip()
    ms = number_of(arguments, name) if text.lstrip("-").isdigit() else instant_ms(text, name)
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as e:
        raise wrong_argument(f"{name} = {text!r} is not a time in the years 1 to 9999", name) from e


CARE_CALLS: Mapping[str, Callable[[Table, Arguments], pa.Table]] = {
    "expire_partitions": _expire_partitions,
    "mark_partition_done": _mark_partition_done,
    "replace_tag": _replace_tag,
    "rename_tag": _rename_tag,
    "expire_tags": _expire_tags,
    "create_tag_from_timestamp": _create_tag_from_timestamp,
    "trigger_tag_automatic_creation": _trigger_tags,
    "rename_branch": _rename_branch,
    "rollback_to_timestamp": _rollback_to_timestamp,
    "rollback_to_watermark": _rollback_to_watermark,
    "reset_consumer": _reset_consumer,
    "clear_consumers": _clear_consumers,
    "compact_manifest": _compact_manifest,
    "remove_unexisting_files": _remove_unexisting_files,
    "purge_files": _purge_files,
    "rewrite_file_index": _rewrite_file_index,
}
