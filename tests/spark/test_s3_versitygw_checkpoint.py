"""A job whose table, rejects and checkpoint lie on S3: Spark reaches its checkpoint through hadoop-aws."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import open_table
from tests.support.peers.jars import jars
from tests.support.servers.s3_server import KEY, KEY_ID, S3Server

pytestmark = pytest.mark.stores


def test_a_job_goes_on_from_its_checkpoint_on_s3(versitygw: S3Server, tmp_path: Path) -> None:
    place = f"lake/{uuid.uuid4().hex}"
    source = tmp_path / "input"
    source.mkdir()
    job = {
        "table": f"s3://{place}/shop.db/orders",
        "storage": versitygw.storage,
        "source": {"format": "text", "decode": "json", "options": {"path": str(source), "maxFilesPerTrigger": "1"}},
        "checkpoint": f"s3a://{place}/checkpoint",
        "trigger": "availableNow",
        "create": {"schema": "id BIGINT NOT NULL, v STRING", "primary-key": ["id"], "options": {"bucket": "1"}},
        "bad-records": {"path": f"s3://{place}/rejects", "max": 10},
    }
    file = tmp_path / "orders.yaml"
    file.write_text(json.dumps(job))
    settings = {
        "spark.jars": ",".join(map(str, jars("hadoop-aws"))),
        "spark.hadoop.fs.s3a.endpoint": versitygw.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": KEY_ID,
        "spark.hadoop.fs.s3a.secret.key": KEY,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
    }
    given = " ".join(f"--conf {key}={value}" for key, value in settings.items())
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--master local[2] {given} pyspark-shell"}
    for run in range(2):
        for n in (2 * run, 2 * run + 1):
            (source / f"{n}.json").write_text(f'{{"id": {n}, "v": "run {run}"}}\n{{"id": 9, "v": "file {n}"}}\nbad\n')
        command = [sys.executable, "-m", "bucketline.streaming", "ingest", "--conf-file", str(file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        assert KEY not in done.stdout + done.stderr
    rows = open_table(job["table"], storage_options=versitygw.storage).to_arrow()
    found = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert {i: v for i, v in found.items() if i != 9} == {0: "run 0", 1: "run 0", 2: "run 1", 3: "run 1"}
    assert found[9] in ("file 2", "file 3")
    io, root = file_io_for(f"s3://{place}", versitygw.storage)
    written = [f.path for f in io.list_files(root)]
    assert len([p for p in written if "/checkpoint/commits/" in p]) == 4
    assert sum(io.read(p).count(b"bad") > 0 for p in written if "/rejects/" in p) == 4
    assert examine(open_to_examine(job["table"], storage_options=versitygw.storage), rows=True) == []
