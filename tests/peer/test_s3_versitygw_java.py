"""Paimon Java, pypaimon and bucketline write one table on S3 in turns."""

import json
import subprocess
import uuid

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.table.table import handle_of
from tests.support.peers.jars import cache_dir
from tests.support.peers.peer import PaimonCatalogs, pypaimon_python
from tests.support.servers.s3_server import KEY, KEY_ID, S3Server

pytestmark = pytest.mark.stores

PYPAIMON = """if True:
    import json, sys
    import pyarrow as pa
    from pypaimon import CatalogFactory
    given = json.loads(sys.argv[1])
    table = CatalogFactory.create(given["options"]).get_table(given["table"])
    if given["rows"]:
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
        write.write_arrow(pa.Table.from_pylist([{"id": i, "v": v} for i, v in given["rows"]], schema))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()
    read = table.new_read_builder()
    found = read.new_read().to_arrow(read.new_scan().plan().splits()).to_pylist()
    print(json.dumps(sorted([r["id"], r["v"]] for r in found)))
"""


def test_three_writers_take_turns_on_one_table_on_s3(versitygw: S3Server) -> None:
    warehouse = f"s3://lake/{uuid.uuid4().hex}"
    ours = bl.catalog(warehouse, storage_options=versitygw.storage)
    ours.create_database("shop")
    ours.create_table("shop.t", "id BIGINT NOT NULL, v STRING", ["id"], options={"bucket": "1"})
    theirs = {
        "warehouse": warehouse,
        "s3.endpoint": versitygw.endpoint,
        "s3.access-key": KEY_ID,
        "s3.secret-key": KEY,
        "s3.path.style.access": "true",
        "s3.endpoint.region": "us-east-1",
    }
    by_python = {
        "warehouse": warehouse,
        "fs.s3.endpoint": versitygw.endpoint,
        "fs.s3.accessKeyId": KEY_ID,
        "fs.s3.accessKeySecret": KEY,
        "fs.s3.region": "us-east-1",
    }

    def python(rows: list[list[object]]) -> list[list[object]]:
        given = json.dumps({"options": by_python, "table": "shop.t", "rows": rows})
        command = [str(pypaimon_python()), "-c", PYPAIMON, given]
        done = subprocess.run(command, cwd=cache_dir(), capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found: list[list[object]] = json.loads(done.stdout.splitlines()[-1])
        return found

    expected: dict[int, str] = {}
    with PaimonCatalogs("paimon-s3") as java:
        java.do("open", options=theirs)
        for turn in range(6):
            rows: list[list[object]] = [[turn, f"turn {turn}"], [100, f"turn {turn}"]]
            if turn % 3 == 0:
                java.do("write", table="shop.t", rows=rows)
            elif turn % 3 == 1:
                python(rows)
            else:
                table = pa.table({"id": [r[0] for r in rows], "v": [r[1] for r in rows]})
                ours.table("shop.t").write(table)
            expected |= {turn: f"turn {turn}", 100: f"turn {turn}"}
            wanted = sorted([i, v] for i, v in expected.items())
            read = ours.table("shop.t").to_arrow()
            assert sorted(map(list, zip(*read.to_pydict().values(), strict=True))) == wanted
            assert sorted(java.do("read", table="shop.t")["rows"]) == wanted
        ours.table("shop.t").compact()
        assert sorted(java.do("read", table="shop.t")["rows"]) == python([]) == wanted
    found = ours.table("shop.t")
    assert examine(open_to_examine(found.uri, storage_options=handle_of(found).storage), rows=True) == []
