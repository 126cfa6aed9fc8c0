"""Tables and changes of them, drawn at random, and Paimon Java as their judge.

Most of what is drawn is right but for one or two things, so that each rule of Paimon is met alone, and with others.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.peers.jars import class_path_on_spark
from tests.support.peers.peer import HERE, Peer

ROW_XY = {
    "type": "ROW",
    "fields": [{"id": 100, "name": "x", "type": "INT"}, {"id": 101, "name": "y", "type": "STRING"}],
}
NESTED: dict[str, Any] = {
    "ARRAY<INT>": {"type": "ARRAY", "element": "INT"},
    "ARRAY<ROW<x INT, y STRING>>": {"type": "ARRAY", "element": ROW_XY},
    "MAP<STRING, INT>": {"type": "MAP", "key": "STRING", "value": "INT"},
    "MAP<INT, INT>": {"type": "MAP", "key": "INT", "value": "INT"},
    "MULTISET<INT>": {"type": "MULTISET", "element": "INT"},
    "ROW<x INT, y STRING>": ROW_XY,
}
ATOMIC = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10,2)",
    "STRING",
    "VARCHAR(5)",
    "CHAR(3)",
    "BYTES",
    "BINARY(4)",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP_LTZ(3)",
    "TIMESTAMP_LTZ(9)",
)
TYPES = (*ATOMIC, *NESTED)
_COLUMNS = ("k", "p", "q", "s", "a", "b", "c")
_FLAG = ("true", "false")
_COLUMN = ("k", "p", "s", "a", "b", "c", "gone")
_COLUMN_LIST = ("s", "a", "b", "s,a", "a,b", "a,gone", "gone", "k", "p", "a,a")
_FUNCTIONS = (
    "sum",
    "max",
    "min",
    "last_value",
    "last_non_null_value",
    "first_value",
    "listagg",
    "bool_or",
    "collect",
    "merge_map",
    "nested_update",
    "product",
    "rbm64",
    "hll_sketch",
    "nothing",
    "primary-key",
)
_SCAN = {
    "scan.mode": (
        "default",
        "latest",
        "latest-full",
        "full",
        "latest-delta",
        "compacted-full",
        "from-timestamp",
        "from-snapshot",
        "from-snapshot-full",
        "incremental",
        "from-file-creation-time",
        "from-creation-timestamp",
        "nonsense",
    ),
    "scan.timestamp-millis": ("1700000000000",),
    "scan.timestamp": ("2024-01-01 00:00:00",),
    "scan.snapshot-id": ("1",),
    "scan.tag-name": ("t1",),
    "scan.version": ("1", "t1"),
    "scan.watermark": ("1",),
    "scan.file-creation-time-millis": ("1700000000000",),
    "scan.creation-time-millis": ("1700000000000",),
    "incremental-between": ("1,2",),
    "incremental-between-timestamp": ("1,2",),
    "incremental-to-auto-tag": ("t1",),
    "scan.bounded.watermark": ("1",),
    "scan.fallback-branch": ("b1", "nowhere"),
    "scan.primary-branch": ("b1", "nowhere"),
    "branch": ("main", "b1"),
}
_MERGE = {
    "merge-engine": ("deduplicate", "partial-update", "aggregation", "first-row"),
    "changelog-producer": ("none", "input", "lookup", "full-compaction"),
    "sequence.field": _COLUMN_LIST,
    "sequence.field.sort-order": ("ascending", "descending"),
    "rowkind.field": ("c", "a", "gone", "k"),
    "ignore-delete": _FLAG,
    "ignore-update-before": _FLAG,
    "partial-update.remove-record-on-delete": _FLAG,
    "partial-update.remove-record-on-sequence-group": ("s", "a", "gone"),
    "aggregation.remove-record-on-delete": _FLAG,
    "fields.s.sequence-group": ("a", "a,b", "gone", "k", "s"),
    "fields.s,a.sequence-group": ("b", "b,c"),
    "fields.gone.sequence-group": ("a",),
    "fields.a.aggregate-function": _FUNCTIONS,
    "fields.b.aggregate-function": _FUNCTIONS,
    "fields.s.aggregate-function": _FUNCTIONS,
    "fields.k.aggregate-function": ("sum", "last_value"),
    "fields.default-aggregate-function": ("last_non_null_value", "sum", "nothing"),
    "fields.gone.aggregate-function": ("sum",),
    "fields.a.ignore-retract": _FLAG,
    "fields.gone.ignore-retract": _FLAG,
    "fields.a.nested-key": ("x", "gone"),
    "fields.a.nested-sequence-field": ("x", "gone"),
    "fields.a.count-limit": ("5", "0"),
    "fields.a.list-agg-delimiter": (";",),
    "fields.a.distinct": _FLAG,
    "fields.r.x.aggregate-function": ("sum",),
    "fields.b.x.aggregate-function": ("sum",),
    "fields.a": ("sum",),
    "fields.a.stats-mode": ("none", "full", "wrong"),
    "fields.a.unknown": ("1",),
    "fields.gone.unknown": ("1",),
}
_FILES = {
    "file.format": ("parquet", "orc", "avro", "csv", "json", "nothing"),
    "file.format.per.level": ("0:avro", "0:avro,5:parquet", "0:orc"),
    "changelog-file.format": ("parquet", "avro", "orc"),
    "file.compression": ("zstd", "snappy", "lz4", "none"),
    "metadata.stats-mode": ("none", "full", "truncate(8)"),
    "data-file.thin-mode": _FLAG,
    "file-index.bloom-filter.columns": _COLUMN_LIST,
    "file-index.bitmap.columns": _COLUMN_LIST,
    "file-index.bsi.columns": _COLUMN_LIST,
    "file-index.range-bitmap.columns": _COLUMN_LIST,
    "file-index.nothing.columns": ("a",),
    "file-index.bloom-filter.a.items": ("100",),
    "file-index.bloom-filter.gone.items": ("100",),
    "file-index.bloom-filter.a.fpp": ("0.1",),
    "file-index.read.enabled": _FLAG,
    "file-index.in-manifest-threshold": ("1 kb",),
    "target-file-row-num": ("0", "5"),
}
_TABLE = {
    "bucket-key": ("k", "a", "s,a", "gone", "p", "b"),
    "bucket-function.type": ("default", "mod", "hive"),
    "dynamic-bucket.target-row-num": ("1", "0"),
    "deletion-vectors.enabled": _FLAG,
    "deletion-vectors.bitmap64": _FLAG,
    "deletion-vectors.merge-on-read": _FLAG,
    "full-compaction.delta-commits": ("1", "0"),
    "force-lookup": _FLAG,
    "num-levels": ("3", "1"),
    "num-sorted-run.compaction-trigger": ("5", "1", "0"),
    "snapshot.num-retained.min": ("0", "1", "20"),
    "snapshot.num-retained.max": ("1", "5", "30"),
    "changelog.num-retained.min": ("0", "1", "20"),
    "changelog.num-retained.max": ("1", "5", "30"),
    "streaming-read-overwrite": _FLAG,
    "streaming-read-append-overwrite": _FLAG,
    "table-read.sequence-number.enabled": _FLAG,
    "key-value.sequence_number.enabled": _FLAG,
    "partition.expiration-time": ("1 d",),
    "partition.expiration-strategy": ("values-time", "update-time"),
    "partition.timestamp-formatter": ("yyyyMMdd",),
    "record-level.expire-time": ("1 h",),
    "record-level.time-field": ("s", "a", "b", "gone", "k"),
    "row-tracking.enabled": _FLAG,
    "data-evolution.enabled": _FLAG,
    "clustering.columns": ("a", "s,a", "gone", "b"),
    "clustering.incremental": _FLAG,
    "clustering.strategy": ("zorder", "auto"),
    "bucket-append-ordered": _FLAG,
    "pk-clustering-override": _FLAG,
    "primary-key.nullable": _FLAG,
    "sequence.snapshot-ordering": _FLAG,
    "upsert-key": ("a", "gone"),
    "chain-table.enabled": _FLAG,
    "write-only": _FLAG,
    "primary-key": ("k", "a"),
    "partition": ("p", "a"),
    "type": ("table", "format-table", "materialized-table", "nonsense"),
    "vector-field": ("a",),
    "blob-field": ("a",),
    "changelog-producer.row-deduplicate": _FLAG,
    "changelog-producer.row-deduplicate-ignore-fields": ("a", "gone"),
    "consumer-id": ("c1",),
    "consumer.mode": ("exactly-once",),
    "tag.automatic-creation": ("process-time", "batch"),
    "tag.num-retained-max": ("0", "3"),
    "manifest-sort.enabled": _FLAG,
    "manifest-sort.partition-field": ("p", "gone"),
    "incremental-between-scan-mode": ("auto", "delta", "diff"),
    "metadata.stats-keep-first-n-columns": ("2",),
    "read.batch-size": ("1",),
    "sink.clustering.by-columns": ("a", "gone"),
}
TOPICS: tuple[Mapping[str, Sequence[str]], ...] = (_SCAN, _MERGE, _FILES, _TABLE)


@dataclass(frozen=True)
class Change:
    """One change of a table. `kind` is add, drop, rename, type, nullability, set, unset or branch."""

    kind: str
    name: str
    value: str = ""


@dataclass(frozen=True)
class Case:
    """A table to create, and changes to make one after the other."""

    columns: Mapping[str, str]
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]
    changes: tuple[Change, ...] = field(default=())

    @property
    def text(self) -> str:
        """The columns as SQL text."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The columns as Paimon's JSON has them."""
        return [{"name": name, "type": NESTED.get(kind, kind)} for name, kind in self.columns.items()]


def drawn_case(random: Random) -> Case:
    """A table and up to three changes."""
    columns = {
        "k": _mostly(random, 0.9, ("INT", "BIGINT", "STRING"), TYPES),
        "p": _mostly(random, 0.9, ("STRING", "INT", "DATE"), TYPES),
        "q": "INT",
        "s": random.choice(("INT", "BIGINT", "TIMESTAMP(3)", random.choice(TYPES))),
        "a": random.choice(("INT", "BIGINT", "STRING", random.choice(TYPES))),
        "b": random.choice(TYPES),
        "c": "STRING",
    }
    partition = random.choice(((), (), ("p",), ("p",), ("p", "q")))
    keys = _mostly(random, 0.95, ((), ("k",), ("k", *partition), ("k", *partition)), (partition, ("k", "gone")))
    if random.random() < 0.03:
        columns[random.choice(("_VALUE_KIND", "_KEY_k", "rowkind", "_ROW_ID", "_LEVEL"))] = "INT"
    options = {}
    bucket = _mostly(random, 0.95, (None, "-1", "1", "2", "-2" if keys else "-1"), ("-2", "0"))
    if bucket is not None:
        options["bucket"] = bucket
    if bucket in ("1", "2") and not keys and random.random() < 0.8:
        options["bucket-key"] = "k"
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4))):
        _draw_option(random, options)
    changes = tuple(_drawn_change(random, columns) for _ in range(random.choice((0, 0, 1, 2, 3))))
    return Case(columns, keys, partition, options, changes)


def _mostly(random: Random, share: float, usual: Sequence[Any], other: Sequence[Any]) -> Any:
    return random.choice(usual if random.random() < share else other)


def _draw_option(random: Random, options: dict[str, str]) -> None:
    topic = random.choice(TOPICS)
    key = random.choice(list(topic))
    options[key] = random.choice(topic[key])


def _drawn_change(random: Random, columns: Mapping[str, str]) -> Change:
    kind = random.choice(
        ("add", "drop", "drop", "rename", "type", "nullability", "set", "set", "set", "unset", "branch")
    )
    name = random.choice(_COLUMN)
    if kind == "add":
        return Change(kind, random.choice(("d", "a", "gone", "_KEY_d", "_VALUE_KIND")), random.choice(TYPES))
    if kind == "rename":
        return Change(kind, name, random.choice(("e", "a", "_VALUE_KIND", "_KEY_e")))
    if kind == "type":
        return Change(kind, name, random.choice(("BIGINT", "STRING", "DOUBLE", "TIMESTAMP(9)", "DECIMAL(20,2)")))
    if kind == "nullability":
        return Change(kind, name, random.choice(_FLAG))
    if kind == "branch":
        return Change(kind, "b1")
    options: dict[str, str] = {}
    _draw_option(random, options)
    (key, value) = next(iter(options.items()))
    if random.random() < 0.1:
        key, value = "bucket", random.choice(("1", "2", "-1", "-2"))
    return Change(kind, key, value)


class SchemaJudge(Peer):
    """Paimon Java as a judge of tables (`java/SchemaTool.java`). An answer is None for what it takes, else why not."""

    name = "paimon-schemas"

    def __init__(self, warehouse: str) -> None:
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
        tool = str(HERE / "java" / "SchemaTool.java")
        super().__init__(["java", *options, "-cp", class_path_on_spark("paimon"), tool], os.environ)
        self._warehouse = warehouse

    def create(self, name: str, case: Case) -> str | None:
        """Makes the table in the judge's own warehouse, and uses it."""
        problem = self._do(
            "create",
            warehouse=self._warehouse,
            table=name,
            fields=case.fields,
            primary_keys=list(case.primary_keys),
            partition_keys=list(case.partition_keys),
            options=dict(case.options),
        )
        return problem or self.use(f"{self._warehouse}/db.db/{name}")

    def alter(self, name: str, change: Change) -> str | None:
        """Changes the table, and uses it."""
        if change.kind == "branch":
            return self._do("branch", warehouse=self._warehouse, table=name, branch=change.name)
        problem = self._do("alter", warehouse=self._warehouse, table=name, changes=[_as_json(change)])
        return problem or self.use(f"{self._warehouse}/db.db/{name}")

    def use(self, path: str) -> str | None:
        """Opens a table at a path, writes a row and commits it, and reads. That a snapshot or tag is not there is no
        fault of a schema."""
        problem = self._do("use", path=path)
        return None if problem is not None and problem.startswith("read: ") else problem

    def _do(self, command: str, **arguments: Any) -> str | None:
        done = self.request(command, **arguments)[1]
        return f"{done['stage']}: {done['message']}" if done else None


def _as_json(change: Change) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": change.kind, "name": change.name}
    match change.kind:
        case "add" | "type":
            made["type"] = NESTED.get(change.value, change.value)
        case "rename":
            made["to"] = change.value
        case "nullability":
            made["nullable"] = change.value == "true"
        case "set":
            made["value"] = change.value
    return made


def shown(case: Case) -> str:
    """A case as one line."""
    return json.dumps([case.text, case.primary_keys, case.partition_keys, dict(case.options)])
