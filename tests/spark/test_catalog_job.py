"""Streams into tables that catalogs know by name: a job file's, and one of a REST catalog that lends keys."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.store.table.table import handle_of
from tests.support.rest_server import RestServer, lost
from tests.support.streams import FileStream

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
