"""Every system table of tables in mid-life, against Paimon Java's."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.store.system.tables import SYSTEM_TABLES
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.logical import TypeRoot
from tests.support.peers.golden import golden_table, golden_tables
from tests.support.peers.our_tables import rows_of
from tests.support.peers.peer import PaimonJava, PeerError

pytestmark = pytest.mark.peer

COLUMNS = (
    "k INT NOT NULL, pt STRING, v BIGINT COMMENT 'added up', at TIMESTAMP(6), d DECIMAL(10, 2), "
    "r ROW<a INT, `b c` ARRAY<STRING>>"
)
NO_ORDER = ("options", "consumers", "branches", "files", "ro", "audit_log", "binlog", "table_indexes", "schemas")
NEWER = {
    "snapshots": ("operation",),
    "partitions": ("total_buckets", "done", "deleted_record_count"),
    "table_indexes": ("row_range_start", "row_range_end", "index_field_id", "index_field_name"),
}
"""Columns that Paimon 2.0 has and the peer, which is 1.4, has not."""
BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
BOUNDS = ("min_key", "max_key", "min_value_stats", "max_value_stats")
"""What Java prints of bytes is an address in its memory."""
JSON_TEXTS = ("fields", "partition_keys", "primary_keys", "options")


def aged(path: Path, options: Mapping[str, str]) -> Table:
    """A table with two partitions, updates, deletes, a tag, a branch, a consumer and a second schema."""
    table = create_table(str(path), COLUMNS, ("k", "pt"), ("pt",), options)
    table.write(rows(table, [1, 2, 3, 4], "a"))
    table.write(rows(table, [1, 5], "b"))
    table.compact()
    table.create_tag("first", 1, retained=timedelta(days=1, seconds=90))
    table.create_tag("kept")
    table.create_branch("side", "first")
    table = table.add_column("w", "STRING", comment="new", position="after k").set_options({"fields.w.nullify": "x"})
    table.write(rows(table, [2], "a"))
    table.write(rows(table, [3], "a"), pa.array([3], pa.int8()))
    consumer = path / "consumer" / "consumer-nightly"
    consumer.parent.mkdir()
    consumer.write_text('{"nextSnapshot" : 2}')
    return table


def rows(table: Table, keys: list[int], partition: str) -> pa.Table:
    columns: dict[str, list[Any]] = {f.name: [None] * len(keys) for f in table.schema}
    columns |= {"k": keys, "pt": [partition] * len(keys), "v": [k * 10 for k in keys]}
    return pa.table({f.name: pa.array(columns[f.name], f.type) for f in table.schema}, schema=table.schema)


def comparable(name: str, found: list[dict[str, Any]]) -> list[str]:
    for row in found:
        for key in JSON_TEXTS if name == "schemas" else ():
            row[key] = json.loads(row[key])
    texts = [json.dumps(row, sort_keys=True, default=str) for row in found]
    return sorted(texts) if name in NO_ORDER else texts


MODES = {
    "aggregation": {"bucket": "2", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "dynamic": {"bucket": "-1", "changelog-producer": "input"},
}


@pytest.mark.parametrize("mode", MODES)
def test_system_tables_have_the_rows_and_columns_of_paimon(tmp_path: Path, paimon_java: PaimonJava, mode: str) -> None:
    if mode == "aggregation":
        options = {**MODES[mode], "aggregation.remove-record-on-delete": "true"}
    else:
        options = MODES[mode]
    table = aged(tmp_path / "default.db" / mode, options)
    compare(table, paimon_java)


@pytest.mark.parametrize("name", golden_tables())
def test_system_tables_of_golden_tables_have_the_rows_of_paimon(paimon_java: PaimonJava, name: str) -> None:
    compare(open_table(str(golden_table(name))), paimon_java)


def test_system_tables_of_a_branch_are_those_of_its_own_history(tmp_path: Path, paimon_java: PaimonJava) -> None:
    table = aged(tmp_path / "default.db" / "t", MODES["vectors"])
    on_side = {"branch": "side"}
    side = open_table(table.path, options=on_side)
    side.write(rows(side, [7, 1], "c"))
    side.write(rows(side, [1], "c"), pa.array([3], pa.int8()))
    side.create_tag("late", retained=timedelta(days=2))
    side.add_column("x", "INT", comment="of the branch").write(rows(open_table(table.path, options=on_side), [8], "c"))
    compare(open_table(table.path, options=on_side), paimon_java, on_side)
    compare(table, paimon_java)
    shown = bl.sql(None, "SELECT snapshot_id FROM t$branch_side$snapshots", str(tmp_path))["snapshot_id"].to_pylist()
    assert shown == open_table(table.path, options=on_side).snapshots()["snapshot_id"].to_pylist()
    assert shown != table.snapshots()["snapshot_id"].to_pylist()


def compare(table: Table, peer: PaimonJava, options: Mapping[str, str] | None = None) -> None:
    different = {}
    for name in SYSTEM_TABLES:
        try:
            found = peer.read(table.path, system=name, options=options)
        except PeerError as e:
            different[name] = e.reason
            continue
        newer = NEWER.get(name, ())
        shared = [{k: v for k, v in row.items() if k not in newer} for row in rows_of(table.system(name))]
        if name == "files" and any(f.type.root in BYTES for f in handle_of(table).table_schema.fields):
            shared, found = (
                [{k: v for k, v in row.items() if k not in BOUNDS} for row in rows] for rows in (shared, found)
            )
        if comparable(name, shared) != comparable(name, found):
            different[name] = f"ours: {shared}, theirs: {found}"
        elif found:
            assert list(found[0]) == list(shared[0]), name
    assert not different
