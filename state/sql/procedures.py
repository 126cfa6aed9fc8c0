"""The parameters of procedures, and how the arguments of a call are assigned to them.

Spark and Flink have the parameters in different orders. If the arguments of a call have no names, the values show which
order the call uses, because most values are not valid in the other order. As in Flink, '' stands for an argument that
is left out. `plan_compaction` and `run_compactor` are procedures of bucketline only.
Source: Paimon 2.0 org.apache.paimon.spark.procedure, org.apache.paimon.flink.procedure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.option import did_you_mean
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.statement import Call
from bucketline.state.types.curves import OrderStrategy

SORT_STRATEGIES = tuple(s.value for s in OrderStrategy)
STRATEGIES = ("full", "minor")


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure: its parameters in the order of Spark and in the order of Flink. The first `required` parameters must
    be given.

    `also` maps other names of parameters, for example Flink's, to the parameters.
    """

    spark: tuple[str, ...]
    flink: tuple[str, ...]
    required: int
    also: Mapping[str, str]


def _procedure(
    spark: str, flink: str | None = None, *, required: int = 1, also: Mapping[str, str] | None = None
) -> Procedure:
    order = tuple(spark.split())
    return Procedure(order, order if flink is None else tuple(flink.split()), required, also or {})


MERGE_INTO = "merge_into"
COMPACT_DATABASE = "compact_database"

PROCEDURES: Mapping[str, Procedure] = {
    "compact": _procedure(
        "table partitions compact_strategy order_strategy order_by where options partition_idle_time",
        "table partitions order_strategy order_by options where partition_idle_time compact_strategy",
    ),
    "rescale": _procedure(
        "table bucket_num partitions where",
        "table bucket_num partitions scan_parallelism sink_parallelism",
        also={"partition": "partitions"},
    ),
    "expire_snapshots": _procedure("table retain_max retain_min older_than max_deletes options"),
    "remove_orphan_files": _procedure("table older_than dry_run parallelism mode"),
    "create_tag": _procedure("table tag snapshot time_retained", required=2, also={"snapshot_id": "snapshot"}),
    "delete_tag": _procedure("table tag", required=2),
    "rollback": _procedure("table version snapshot tag"),
    "rollback_to": _procedure("table tag snapshot", also={"snapshot_id": "snapshot"}),
    "create_branch": _procedure("table branch tag ignoreifexists", required=2),
    "delete_branch": _procedure("table branch", required=2),
    "fast_forward": _procedure("table branch", required=2),
    "expire_partitions": _procedure(
        "table expiration_time timestamp_formatter timestamp_pattern expire_strategy max_expires options",
    ),
    "mark_partition_done": _procedure("table partitions", required=2),
    "replace_tag": _procedure("table tag snapshot time_retained", required=2, also={"snapshot_id": "snapshot"}),
    "rename_tag": _procedure("table tag target_tag", required=3),
    "expire_tags": _procedure("table older_than"),
    "create_tag_from_timestamp": _procedure("table tag timestamp time_retained", required=3),
    "trigger_tag_automatic_creation": _procedure("table"),
    "rename_branch": _procedure("table from_branch to_branch", required=3),
    "rollback_to_timestamp": _procedure("table timestamp", required=2),
    "rollback_to_watermark": _procedure("table watermark", required=2),
    "reset_consumer": _procedure(
        "table consumer_id next_snapshot_id",
        required=2,
        also={"consumerid": "consumer_id", "nextsnapshotid": "next_snapshot_id"},
    ),
    "clear_consumers": _procedure(
        "table including_consumers excluding_consumers",
        also={"includingconsumers": "including_consumers", "excludingconsumers": "excluding_consumers"},
    ),
    COMPACT_DATABASE: _procedure(
        "including_databases including_tables excluding_tables options",
        "including_databases mode including_tables excluding_tables table_options partition_idle_time compact_strategy",
        required=0,
    ),
    "compact_manifest": _procedure(
        "table options dry_run manifest_sort_enabled manifest_sort_partition_field manifest_sort_max_rewrite_size",
    ),
    "remove_unexisting_files": _procedure("table dry_run parallelism"),
    "purge_files": _procedure("table"),
    "rewrite_file_index": _procedure("table where", "table partitions where"),
    MERGE_INTO: _procedure(
        "target_table target_alias source_sqls source_table merge_condition matched_upsert_condition "
        "matched_upsert_setting not_matched_insert_condition not_matched_insert_values matched_delete_condition "
        "not_matched_by_source_upsert_condition not_matched_by_source_upsert_setting "
        "not_matched_by_source_delete_condition"
    ),
    "plan_compaction": _procedure("table compact_strategy partitions where options dry_run"),
    "run_compactor": _procedure("table wait options"),
}

_OBJECTS = "this release has no functions and views of a catalog"
_GLOBAL = "this release does not maintain global indexes"
_EVOLUTION = "this release does not write tables with data evolution"
_HIVE = "it reads a Hive metastore, which this release does not support; copy the rows by INSERT INTO ... SELECT"
NOT_HERE: Mapping[str, str] = {
    "create_function": _OBJECTS,
    "alter_function": _OBJECTS,
    "drop_function": _OBJECTS,
    "alter_view_dialect": _OBJECTS,
    "create_global_index": _GLOBAL,
    "drop_global_index": _GLOBAL,
    "reassign_row_id": _EVOLUTION,
    "data_evolution_merge_into": _EVOLUTION,
    "compact_chain_table": "this release does not write chain tables",
    "copy": "copy the rows by INSERT INTO ... SELECT, or the table's folder with all its files",
    "copy_files": "copy the rows by INSERT INTO ... SELECT, or the table's folder with all its files",
    "migrate_table": _HIVE,
    "migrate_database": _HIVE,
    "migrate_file": _HIVE,
    "repair": "it writes into a Hive metastore, which this release does not support",
    "repair_earliest_snapshot": "use CALL sys.expire_snapshots, which finishes an interrupted expiry",
    "merge_branch": "use CALL sys.fast_forward to continue with a branch, or INSERT INTO to add the rows of a branch",
    "materialize_deletion_vectors": "use CALL sys.compact, which rewrites files without their deleted rows",
    "drop_partition": "use ALTER TABLE ... DROP PARTITION",
    "query_service": "this release starts no service for lookups",
    "refresh_object_table": "this release does not read object tables",
    "alter_column_default_value": "use ALTER TABLE ... ALTER COLUMN ... SET DEFAULT",
}
"""Procedures of Paimon that are not supported, each with the reason or with what to use instead."""

_CHOICES = {"compact_strategy": STRATEGIES, "order_strategy": ("none", *SORT_STRATEGIES)}


def bind_call(call: Call) -> dict[str, str]:
    """Returns the arguments of a call by parameter. Arguments that are left out, NULL or empty are not included.

    Raises OptionError for an unknown procedure, and for an unknown or missing argument.
    """
    procedure = PROCEDURES.get(call.procedure)
    if procedure is None and call.procedure in NOT_HERE:
        text = f"CALL sys.{call.procedure} is not supported: {NOT_HERE[call.procedure]}"
        raise refused(text, procedure=call.procedure)
    if procedure is None:
        near = did_you_mean(call.procedure, PROCEDURES) or f"; there are {', '.join(PROCEDURES)}"
        raise refused(f"there is no procedure sys.{call.procedure}{near}", procedure=call.procedure)
    arguments = _positional(call, procedure) if call.positional else _named(call, procedure)
    values = {name: value for name, value in arguments.items() if value is not None and value.strip()}
    for name in procedure.spark[: procedure.required]:
        if name not in values:
            raise refused(f"CALL sys.{call.procedure}: argument '{name}' is missing", argument=name)
    return values


def _named(call: Call, procedure: Procedure) -> dict[str, str | None]:
    known = dict.fromkeys((*procedure.spark, *procedure.flink))
    values: dict[str, str | None] = {}
    for name, value in call.named.items():
        meant = procedure.also.get(name, name)
        if meant not in known:
            near = did_you_mean(name, known) or f"; it takes {', '.join(known)}"
            raise refused(
                f"CALL sys.{call.procedure}: argument {name} is unknown{near}",
                argument=name,
            )
        if meant in values:
            raise refused(f"CALL sys.{call.procedure}: argument {meant} is given twice", argument=meant)
        values[meant] = value
    return values


def _positional(call: Call, procedure: Procedure) -> dict[str, str | None]:
    orders: list[tuple[tuple[str, ...], dict[str, str | None]]] = []
    for order in (procedure.spark, procedure.flink):
        if len(call.positional) <= len(order):
            values = dict(zip(order, call.positional, strict=False))
            if order not in (o for o, _ in orders):
                orders.append((order, values))
    if not orders:
        most = max(len(procedure.spark), len(procedure.flink))
        raise refused(
            f"CALL sys.{call.procedure}: {len(call.positional)} arguments are given, but it takes at most {most}"
        )
    fitting = [values for _, values in orders if _makes_sense(values)]
    readings = [{k: v for k, v in values.items() if v} for values in fitting]
    if len(readings) == 2 and readings[0] != readings[1]:
        raise refused(
            f"CALL sys.{call.procedure}: Spark and Flink order these arguments differently; name them, as in "
            f"{procedure.spark[1]} => ...",
            procedure=call.procedure,
        )
    return fitting[0] if fitting else orders[0][1]


def _makes_sense(values: Mapping[str, str | None]) -> bool:
    """Returns True if the values can be valid for their parameters: an argument with a fixed set of words has one of
    them, and a duration begins with a digit.
    """
    for name, choices in _CHOICES.items():
        value = (values.get(name) or "").strip().lower()
        if value and value not in choices:
            return False
    if not (values.get("partition_idle_time") or "0").strip()[:1].isdigit():
        return False
    sorts = (values.get("order_strategy") or "").strip().lower() in SORT_STRATEGIES
    return sorts or not (values.get("order_by") or "").strip()
