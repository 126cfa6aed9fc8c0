"""A job on S3 whose keys end while it runs, in the driver and in tasks, some of them before the end that was told."""

import os
import uuid
from pathlib import Path

import pytest

from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.table.table import open_table
from tests.support.processes.job_process import JobFolder, started
from tests.support.servers.key_lender import SECRET, TOKEN, KeyLender
from tests.support.servers.s3_server import S3Server

pytestmark = pytest.mark.stores

BATCHES = 16


def test_a_job_goes_on_when_the_keys_of_its_container_end(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch adds 1 to a sum, so that a batch that is lost or written twice shows."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    folder = JobFolder(tmp_path)
    for number in range(BATCHES):
        folder.add(number, '{"id": 0, "n": 1}', f'{{"id": {number + 1}, "n": {number}}}', "bad")
    base = f"s3://lake/{uuid.uuid4().hex}"
    uri = f"{base}/shop.db/orders"
    with KeyLender(s3_server.endpoint, renewed_s=2, ends_s=6) as lender:
        for name, value in lender.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        parts = {
            "table": uri,
            "storage": {
                "s3.endpoint": lender.endpoint,
                "s3.path.style.access": "true",
                "s3.region": "us-east-1",
            },
            "trigger": "availableNow",
            "bad-records": {"path": f"{base}/rejects", "max": BATCHES},
            "create": {
                "schema": "id BIGINT NOT NULL, n BIGINT",
                "primary-key": "id",
                "options": {
                    "bucket": "2",
                    "merge-engine": "aggregation",
                    "fields.n.aggregate-function": "sum",
                },
            },
        }
        with started(folder, folder.command(parts=parts)) as job:
            for number in (4, 9):
                job.read_until(f"batch {number}:")
                # While the next batch is being written.
                lender.end_now()
            assert job.end() == 0, job.output[-4000:]
        writers, committers = lender.keys_for("PUT", "/bucket-"), lender.keys_for("PUT", "/snapshot/snapshot-")
        assert len(lender.refused) >= 2 and len(writers) >= 3 and len(committers) >= 3
        assert not writers & committers, "tasks have keys of their own"
    assert SECRET not in job.output and TOKEN not in job.output
    table = open_table(uri, storage_options=s3_server.storage)
    rows = table.to_arrow()
    found = dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert found == {0: BATCHES, **{number + 1: number for number in range(BATCHES)}}
    appends = [s for s in table.snapshots().to_pylist() if s["commit_kind"] == "APPEND"]
    assert [s["commit_identifier"] for s in appends] == list(range(BATCHES))
    assert examine(open_to_examine(uri, storage_options=s3_server.storage), rows=True) == []
