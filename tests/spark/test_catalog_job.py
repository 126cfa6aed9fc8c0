"""Streams into tables that catalogs know by name: a job file's, and one of a REST catalog that lends keys."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.store.table.table import handle_of
from tests.support.servers.rest_server import RestServer, lost
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark


def test_batches_go_through_a_rest_catalog_and_tasks_ask_for_keys_themselves(spark: Any, tmp_path: Path) -> None:
    def lend(name: str) -> dict[str, object]:
        return {"token": {"s3.region": "r"}, "expiresAtMillis": 10**13}

    with RestServer(tmp_path / "lake", defaults={"data-token.enabled": "true"}, token=lend) as server:
        catalog = bl.catalog(server.options)
        table = catalog.create_table("orders", "id BIGINT NOT NULL, v STRING", ["id"], options={"bucket": "2"})
        sink = bl.TableSink(table.uri, storage_options=handle_of(table).storage)
        stream = FileStream(tmp_path, "id long, v string")
        for number in range(2):
            stream.add(pa.table({"id": range(20), "v": [f"{number}"] * 20}))
        server.faults.extend([None, lost])
        stream.run(spark, sink)
        assert table.to_arrow()["v"].to_pylist() == ["1"] * 20
        ids = [s["commit_identifier"] for s in table.snapshots().to_pylist() if s["commit_kind"] == "APPEND"]
        assert ids == [0, 1]
        assert server.count("/token") >= 2  # this process, and at least one worker
        before = server.count("/commit")
        assert bl.compact(spark, table.uri, storage_options=handle_of(table).storage) is not None
        assert server.count("/commit") == before + 1
        assert catalog.table("orders").doctor(rows=True) == []
        _query(spark, server, tmp_path)


def _query(spark: Any, server: RestServer, folder: Path) -> None:
    """SQL and the reader over tables of a REST catalog and of a JDBC catalog, by name."""

    def run(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in bl.sql(spark, text, server.options).collect()]

    names = f"'metastore'='jdbc', 'uri'='jdbc:sqlite:{folder}/names.db', 'warehouse'='{folder}/j'"
    run(f"CREATE CATALOG j WITH ('type'='paimon', {names}); CREATE DATABASE j.shop")
    run("CREATE TABLE j.shop.names (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING)")
    run("INSERT INTO j.shop.names SELECT id, concat('n', v) FROM orders WHERE id < 5")
    joined = "SELECT n.name, count(*) FROM orders o JOIN j.shop.names n ON o.id = n.id WHERE n.id > 1 GROUP BY n.name"
    assert run(joined) == [("n1", 3)]
    run(
        "MERGE INTO orders USING j.shop.names AS s ON orders.id = s.id WHEN MATCHED AND s.id = 1 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET v = s.name"
    )
    assert run("SELECT v, count(*) FROM orders GROUP BY v ORDER BY v") == [("1", 15), ("n1", 4)]
    assert run("CALL sys.compact('orders'); SELECT DISTINCT level FROM orders$files") == [(5,)]
    place = bl.catalog(server.options).place("orders")
    read = spark.read.format("bucketline").options(**place.storage).option("filter", "id > 17").load(place.uri)
    assert sorted(row.id for row in read.collect()) == [18, 19]
    run("DROP DATABASE j.shop CASCADE; DROP CATALOG j")
