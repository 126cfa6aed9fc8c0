"""What `ingest --dry-run` says of a sample of records, without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketline.conf.resolve import read_settings, resolve_jobs
from bucketline.state.store.table.table import create_table
from bucketline.streaming.decode.decode_step import RECORD_TYPES
from bucketline.streaming.job.many.dry_run import shown

HEAD = """
source: {{format: kafka, options: {{kafka.bootstrap.servers: "b:1", subscribePattern: ".*"}}, decode: debezium-json}}
checkpoint: {root}/checkpoint
"""


def event(table: str, row: dict[str, Any], op: str = "c") -> bytes:
    return json.dumps({"op": op, "before": None, "after": row, "source": {"db": "shop", "table": table}}).encode()


def records(*of: tuple[str, bytes]) -> pa.Table:
    keys = [json.dumps({"id": i}).encode() for i in range(len(of))]
    columns: dict[str, list[Any]] = {
        "key": keys,
        "value": [value for _, value in of],
        "topic": [topic for topic, _ in of],
        "partition": [0] * len(of),
        "offset": list(range(len(of))),
    }
    return pa.table({name: pa.array(values, RECORD_TYPES[name]) for name, values in columns.items()})


SAMPLE = records(
    ("shop", event("orders_1", {"id": 1, "v": "a"})),
    ("shop", event("orders_2", {"id": 2, "v": "b"})),
    ("shop", event("audit", {"id": 3, "v": "c"})),
    ("shop", event("items", {"id": 4, "v": "d"})),
    ("shop", event("items", {"id": "no number", "v": "d"})),
    ("shop", event("people", {"id": 6, "v": "d"})),
)


def test_each_table_of_the_source_is_shown_with_what_becomes_of_it(tmp_path: Path) -> None:
    create_table(str(tmp_path / "items"), "id BIGINT NOT NULL, v STRING", primary_key=["id"])
    text = HEAD.format(root=tmp_path) + (
        """
exclude: shop.audit
tables:
  - source-table: 'regex:shop\\.(orders)_\\d+'
    shards: distinct-keys
    table: ROOT/{1}
    create: {schema: id BIGINT NOT NULL, primary-key: [id]}
  - {source-table: shop.items, table: ROOT/items}
"""
    ).replace("ROOT", str(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    rows = {row["source"]: row for row in shown(resolve_jobs(read_settings(text, name="j.yaml")), SAMPLE).to_pylist()}
    assert sorted(tmp_path.rglob("*")) == before
    for name in ("shop.orders_1 (topic shop)", "shop.orders_2 (topic shop)"):
        assert rows[name] == {
            "source": name,
            "records": 1,
            "table": f"{tmp_path}/orders",
            "is": "to be made",
            "rows": 1,
            "bad": 0,
            "reason": None,
            "columns": "id BIGINT NOT NULL",
        }
    items = rows["shop.items (topic shop)"]
    assert (items["is"], items["records"], items["rows"], items["bad"]) == ("there", 2, 1, 1)
    assert "id" in items["reason"] and items["columns"] == "id BIGINT NOT NULL, v STRING"
    assert rows["shop.audit (topic shop)"]["is"] == "excluded" and rows["shop.audit (topic shop)"]["table"] is None
    assert rows["shop.people (topic shop)"]["is"] == "unmatched"


def test_what_would_refuse_a_table_is_said_in_its_row(tmp_path: Path) -> None:
    text = HEAD.format(root=tmp_path) + (
        "tables: [{source-table: shop.items, table: ROOT/gone}, "
        "{source-table: shop.people, table: ROOT/people, create: auto}]"
    ).replace("ROOT", str(tmp_path))
    rows = {row["source"]: row for row in shown(resolve_jobs(read_settings(text, name="j.yaml")), SAMPLE).to_pylist()}
    gone = rows["shop.items (topic shop)"]
    assert gone["is"] == "refused" and str(tmp_path / "gone") in gone["reason"]
    assert "declare" in rows["shop.people (topic shop)"]["reason"]


def test_a_job_of_one_table_is_shown_the_same_way(tmp_path: Path) -> None:
    create_table(str(tmp_path / "items"), "id BIGINT NOT NULL, v STRING", primary_key=["id"])
    text = HEAD.format(root=tmp_path) + f"table: {tmp_path}/items\nsource-table: shop.items\n"
    rows = {row["source"]: row for row in shown(resolve_jobs(read_settings(text, name="j.yaml")), SAMPLE).to_pylist()}
    assert rows["shop.items (topic shop)"]["bad"] == 1
    assert {row["is"] for name, row in rows.items() if "items" not in name} == {"excluded"}
