"""The streaming job is killed at steps of commits while its tables lie on S3, and started again until it is done."""

import os
import uuid
from pathlib import Path

import pytest

from bucketline.state.store.doctor.examine import examine, open_to_examine
from tests.support.processes.stream_job import KILL_POINTS, Kill
from tests.support.servers.s3_server import BUCKET, KEY, KEY_ID, S3Server
from tests.support.spark.crash_shop import Shop

pytestmark = [pytest.mark.stores, pytest.mark.timeout(1200)]

POINTS = ("after level 0", "after manifests", "after APPEND", "between APPEND and COMPACT", "before Spark's commit log")


def test_a_job_on_s3_that_is_killed_at_each_step_in_turn_ends_as_one_without_a_kill(
    versitygw: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", versitygw.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    shop = Shop(tmp_path, f"s3://{BUCKET}/{uuid.uuid4().hex}")
    shop.add(2 * len(POINTS))
    for turn, point in enumerate(POINTS):
        kill = Kill(point, 2 * turn + 1)  # batches that compact
        assert shop.run(kill) == -9, shop.job_log()
        appended = KILL_POINTS.index(point) >= KILL_POINTS.index("after APPEND")
        assert shop.check() == (kill.batch_id + appended, kill.batch_id), kill
    shop.finish()
    for table in (shop.keyed, shop.log):
        assert examine(open_to_examine(table.uri), rows=True) == []
