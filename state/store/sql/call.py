"""Carries out CALL: runs Paimon's procedures by operations of `Table`. Messages that Paimon's users know are kept word
for word.

Source: Paimon 2.0 CompactProcedure, RescaleProcedure, ExpireSnapshotsProcedure, RemoveOrphanFilesProcedure,
RollbackProcedure, CreateTagProcedure, CreateBranchProcedure, FastForwardProcedure, SparkProcedureUtils.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa

from bucketline.conf.durations import timedelta_of
from bucketline.conf.errors import BucketlineError
from bucketline.conf.option import whole_number
from bucketline.conf.table.table_options import listed
from bucketline.conf.table.table_settings import BucketSettings
from bucketline.state.commit.not_there import no_branch
from bucketline.state.sql.procedures import COMPACT_DATABASE, SORT_STRATEGIES, STRATEGIES, bind_call
from bucketline.state.sql.statement import Call, TableReference
from bucketline.state.sql.words import Words
from bucketline.state.store.catalog.branches import MAIN
from bucketline.state.store.sql.arguments import (
    Arguments,
    chosen_partitions,
    duration_ms_of,
    flag_of,
    number_of,
    options_of,
    wrong_argument,
)
from bucketline.state.store.sql.care_calls import CARE_CALLS, age_of
from bucketline.state.store.sql.partitions import partitions_where
from bucketline.state.store.sql.plan_calls import plan_compaction, run_compactor
from bucketline.state.store.sql.queries import Queries
from bucketline.state.store.sql.session import SqlSession, is_path
from bucketline.state.store.table.table import Table, handle_of

_LOG = logging.getLogger(__name__)


def call(session: SqlSession, statement: Call, queries: Queries) -> pa.Table:
    """Runs a procedure, and returns its result in the columns that Paimon's procedure has. Raises OptionError for wrong
    arguments.
    """
    arguments = bind_call(statement)
    if statement.procedure == COMPACT_DATABASE:
        return _compact_database(session, statement.catalog, arguments, queries)
    name = read_table_name(arguments["table"])
    if statement.catalog is not None and name.catalog is None and not is_path(name):
        name = replace(name, catalog=statement.catalog)
    if statement.procedure == "compact":
        return _compact(session, name, arguments, queries)
    if statement.procedure == "remove_orphan_files" and name.table == "*":
        return _remove_orphans_of(session, name, arguments)
    table = session.table(name, writes=True)
    if statement.procedure == "plan_compaction":
        return plan_compaction(table, arguments)
    if statement.procedure == "run_compactor":
        return run_compactor(table, arguments, queries.engine)
    if statement.procedure == "rescale":
        full = name.table if is_path(name) else session.place(name)[1]
        return _rescale(table, full, arguments, queries)
    return _PROCEDURES[statement.procedure](table, arguments)


def read_table_name(text: str) -> TableReference:
    """Returns the table that an argument names in the form `db.t`. Parts of the name may be in backticks. `db.*` means
    all tables of the database.
    """
    if text.endswith(".*"):
        return TableReference("*", text[:-2])
    words = Words(text)
    words.verb = f"table '{text}'"
    if "/" in text and "`" not in text:
        return TableReference(text)
    name = words.table()
    words.end()
    return name


def _compact(session: SqlSession, name: TableReference, arguments: Arguments, queries: Queries) -> pa.Table:
    strategy, sort = arguments.get("compact_strategy"), arguments.get("order_strategy", "none").strip().lower()
    columns = [c.strip() for c in arguments["order_by"].split(",")] if "order_by" in arguments else []
    if sort == "none" and columns:
        raise wrong_argument('order_strategy "none" cannot work with order_by columns.', "order_by")
    if "partition_idle_time" in arguments and sort != "none":
        raise wrong_argument("sort compact do not support 'partition_idle_time'.", "partition_idle_time")
    if strategy is not None and strategy.strip().lower() not in STRATEGIES:
        text = f"The compact strategy only supports 'full' or 'minor', but '{strategy}' is configured."
        raise wrong_argument(text, "compact_strategy")
    table = session.table(name, writes=True)
    partition_columns = [c for c in columns if c in table.partition_by]
    if partition_columns:
        raise wrong_argument(
            "order_by should not contain partition cols, because it is meaningless, your order_by cols are "
            f"{listed(columns)}, and partition cols are {listed(table.partition_by)}",
            "order_by",
        )
    if sort != "none":
        known = ", ".join(("none", *SORT_STRATEGIES))
        if sort not in SORT_STRATEGIES:
            raise wrong_argument(f"Unknown order_strategy {sort!r}; there are {known}", "order_strategy")
        if table.primary_key:
            raise wrong_argument(
                f"Spark compact with sort_type {sort} only support unaware-bucket append-only table yet.",
                "order_strategy",
            )
    handle = handle_of(table)
    table = Table(replace(handle, write_options={**handle.write_options, **options_of(arguments)}))
    partitions = chosen_partitions(table, arguments)
    if "partition_idle_time" in arguments:
        idle_ms = duration_ms_of(arguments, "partition_idle_time")
        partitions = _idle(table, partitions, handle.world.clock.local_ms() - idle_ms)
        if not partitions:
            return _result(True)
    wanted = (strategy or "full").strip().lower()
    if sort == "none":
        table.compact(wanted, partitions, engine=queries.engine)
    else:
        table.compact(wanted, partitions, order_by=columns, order_strategy=sort, engine=queries.engine)
    return _result(True)


def _compact_database(session: SqlSession, catalog: str | None, arguments: Arguments, queries: Queries) -> pa.Table:
    """Compacts all tables whose `database.table` matches the arguments, and returns a row with the numbers of tables
    that succeeded and failed. If a table fails, the remaining tables are still compacted.
    """
    for name in ("mode", "table_options", "partition_idle_time", "compact_strategy"):
        if name in arguments:
            raise wrong_argument(
                f"{name} is not supported for a whole database; use options, or CALL sys.compact for each table", name
            )
    databases = _pattern(arguments.get("including_databases", ".*"), "including_databases")
    including = _pattern(arguments.get("including_tables", ".*"), "including_tables")
    excluding = arguments.get("excluding_tables")
    spared = None if excluding is None else _pattern(excluding, "excluding_tables")
    given = {"options": arguments["options"]} if "options" in arguments else {}
    found, compacted, failed = session.catalog_of(catalog), 0, 0
    for database in filter(databases.fullmatch, found.list_databases()):
        for table in found.list_tables(database):
            full = f"{database}.{table}"
            if not including.fullmatch(full) or (spared is not None and spared.fullmatch(full)):
                continue
            try:
                _compact(session, TableReference(table, database, catalog), given, queries)
                compacted += 1
            except BucketlineError as e:
                _LOG.warning("%s was not compacted: %s", full, e)
                failed += 1
    return pa.table({"result": [f"Compact database finished. Success: {compacted}, Failed: {failed}"]})


def _pattern(text: str, name: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as e:
        raise wrong_argument(f"{name} = {text!r} is not a regular expression: {e}", name) from e


def _idle(
    table: Table, partitions: Sequence[Mapping[str, object]] | None, before_local_ms: int
) -> list[Mapping[str, object]]:
    """Returns the chosen partitions that got no new file since `before_local_ms`. If `partitions` is None, all
    partitions are chosen.
    """
    idle = partitions_where(table, None, before_local_ms)
    if partitions is None:
        return idle
    return [p for p in idle if any(all(p.get(k) == v for k, v in chosen.items()) for chosen in partitions)]


def _rescale(table: Table, name: str, arguments: Arguments, queries: Queries) -> pa.Table:
    for argument in ("scan_parallelism", "sink_parallelism"):
        if argument in arguments:
            text = (
                f"{argument} is not supported, because the work uses all cores of the process or of Spark; leave it out"
            )
            raise wrong_argument(text, argument)
    if handle_of(table).snapshot_store.latest_id() is None:
        raise wrong_argument(f"Table {name} has no snapshot, no need to rescale.", "table")
    if "bucket_num" in arguments:
        number = number_of(arguments, "bucket_num")
    else:
        number = BucketSettings(table.options).count
        if number == -2:
            raise wrong_argument(
                "When rescaling postpone bucket tables, you must provide the resulting bucket number.", "bucket_num"
            )
    partitions = chosen_partitions(table, arguments)
    table.rescale(number, partitions, engine=queries.engine)
    return _result(True)


def _expire_snapshots(table: Table, arguments: Arguments) -> pa.Table:
    handle = handle_of(table)
    schema = replace(handle.table_schema, options={**handle.table_schema.options, **options_of(arguments)})
    table = Table(replace(handle, table_schema=schema))
    kept = schema.settings.retention
    most = number_of(arguments, "retain_max") if "retain_max" in arguments else kept.snapshots_max
    least = number_of(arguments, "retain_min") if "retain_min" in arguments else kept.snapshots_min
    if most < least:
        raise wrong_argument(f"retainMax ({most}) must not be less than retainMin ({least}).", "retain_max")
    older_than = None
    if "older_than" in arguments:
        older_than = age_of(table, arguments)
    result = table.expire_snapshots(
        retain_min=least,
        retain_max=most,
        older_than=older_than,
        limit=number_of(arguments, "max_deletes") if "max_deletes" in arguments else None,
    )
    return pa.table({"deleted_snapshots_count": pa.array([result.snapshots], pa.int32())})


def _remove_orphans_of(session: SqlSession, name: TableReference, arguments: Arguments) -> pa.Table:
    catalog = session.catalog_of(name.catalog)
    results = []
    for table in catalog.list_tables(name.database or session.database):
        results.append(_remove_orphans(catalog.table(f"{name.database or session.database}.{table}"), arguments))
    parts = pa.concat_tables(results) if results else _orphans(0, 0)
    return _orphans(*(sum(parts[n].to_pylist()) for n in parts.column_names))


def _remove_orphans(table: Table, arguments: Arguments) -> pa.Table:
    if "parallelism" in arguments:
        raise wrong_argument("parallelism is not supported; leave it out", "parallelism")
    mode = arguments.get("mode", "local").upper()
    if mode not in ("LOCAL", "DISTRIBUTED"):
        raise wrong_argument(
            f"Unknown mode: {arguments['mode']}. Only 'DISTRIBUTED' and 'LOCAL' are supported.", "mode"
        )
    if mode == "DISTRIBUTED":
        raise wrong_argument(
            "mode 'distributed' is not supported, because the work is done in this process; leave it out", "mode"
        )
    age = timedelta(days=1)
    if "older_than" in arguments:
        age = age_of(table, arguments)
    result = table.remove_orphan_files(flag_of(arguments, "dry_run"), age)
    return _orphans(len(result.files), result.size_bytes)


def _orphans(count: int, size_bytes: int) -> pa.Table:
    return pa.table({"deletedFileCount": [count], "deletedFileTotalLenInBytes": [size_bytes]})


def _create_tag(table: Table, arguments: Arguments) -> pa.Table:
    retained = None
    if "time_retained" in arguments:
        retained = timedelta_of(duration_ms_of(arguments, "time_retained"))
    table.create_tag(arguments["tag"], number_of(arguments, "snapshot") if "snapshot" in arguments else None, retained)
    return _result(True)


def _delete_tag(table: Table, arguments: Arguments) -> pa.Table:
    for tag in arguments["tag"].split(","):
        table.delete_tag(tag.strip())
    return _result(True)


def _rollback(table: Table, arguments: Arguments) -> pa.Table:
    if len([name for name in ("version", "snapshot", "tag") if name in arguments]) != 1:
        raise wrong_argument("only can set one of version/snapshot/tag in RollbackProcedure.", "version")
    newest = handle_of(table).snapshot_store.latest_id()
    if newest is None:
        raise wrong_argument("Latest snapshot is null, can not rollback.", "table")
    text = arguments.get("version")
    target: int | str
    if text is not None:
        target = whole_number(text) if text.isdigit() else text
    else:
        target = number_of(arguments, "snapshot") if "snapshot" in arguments else arguments["tag"]
        if isinstance(target, str) and target.isdigit() and target not in table.tags()["tag_name"].to_pylist():
            target = whole_number(target)
    current = table.rollback_to(target)
    return pa.table({"previous_snapshot_id": [newest], "current_snapshot_id": [current]})


def _create_branch(table: Table, arguments: Arguments) -> pa.Table:
    if flag_of(arguments, "ignoreifexists") and arguments["branch"] in table.branches():
        return _result(True)
    table.create_branch(arguments["branch"], arguments.get("tag"))
    return _result(True)


def _delete_branch(table: Table, arguments: Arguments) -> pa.Table:
    names = [name.strip() for name in arguments["branch"].split(",")]
    for name in names:
        if name not in table.branches():
            raise no_branch(name, table.branches())
    for name in names:
        table.delete_branch(name)
    return _result(True)


def _fast_forward(table: Table, arguments: Arguments) -> pa.Table:
    if arguments["branch"] == MAIN:
        raise wrong_argument(f"Branch name '{MAIN}' do not use in fast-forward.", "branch")
    table.fast_forward(arguments["branch"])
    return _result(True)


_PROCEDURES: Mapping[str, Callable[[Table, Arguments], pa.Table]] = {
    "expire_snapshots": _expire_snapshots,
    "remove_orphan_files": _remove_orphans,
    "create_tag": _create_tag,
    "delete_tag": _delete_tag,
    "rollback": _rollback,
    "rollback_to": _rollback,
    "create_branch": _create_branch,
    "delete_branch": _delete_branch,
    "fast_forward": _fast_forward,
    **CARE_CALLS,
}


def _result(value: bool) -> pa.Table:
    return pa.table({"result": [value]})
