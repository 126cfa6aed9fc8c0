"""The section of the README about S3 is pasted into a shell, whose environment alone says where the store is."""

import os
import re
import subprocess
import uuid
from pathlib import Path

import pytest

from bucketline.state.store.table.table import open_table
from tests.support.pages.readme import README as PAGE
from tests.support.pages.readme import blocks, section
from tests.support.servers.s3_server import BUCKET, KEY, KEY_ID, S3Server, make_bucket

pytestmark = pytest.mark.stores


def test_the_quickstart_runs_on_s3_as_it_stands(s3_server: S3Server, tmp_path: Path) -> None:
    text = section("On S3", PAGE)
    [block] = (block for block in blocks("bash") if block.code in text)
    lines = block.code.splitlines()
    prepare, commands = "\n".join(lines[:3]), "\n".join(lines[3:])
    settings = {
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_REGION": "us-east-1",
    }
    assert re.findall(r"\b(\w+)=", re.findall("^export (.*)$", prepare, re.MULTILINE)[0]) == list(settings)
    [bucket] = set(re.findall(r"curl -X PUT http://127\.0\.0\.1:7070/(\w+)", prepare))
    folder = re.findall(r"s3://(\w+)/(\w+)", commands)
    assert {b for b, _ in folder} == {bucket} == {BUCKET}
    own = f"b{uuid.uuid4().hex}"
    make_bucket(s3_server.endpoint, own)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")} | settings
    done = subprocess.run(
        ["bash", "-e", "-c", commands.replace(f"s3://{bucket}/", f"s3://{own}/")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    uri = f"s3://{own}/{folder[0][1]}/shop.db/orders"
    assert "exactly these" in done.stdout and f"the files of the table in {uri}" in done.stderr
    assert "$ bucketline scan shop.orders --warehouse s3://" in done.stdout
    assert KEY not in done.stdout + done.stderr
    table = open_table(uri, storage_options=s3_server.storage)
    assert table.snapshots()["commit_kind"].to_pylist().count("APPEND") == 8
    counted = sum(int(n) for n in re.findall(r"^(?:placed|paid|shipped|delivered) +(\d+)", done.stdout, re.MULTILINE))
    assert counted == table.to_arrow().num_rows
    left = [p for p in (tmp_path / "demo-s3").rglob("*") if "shop.db" in p.parts]
    assert left == []
