"""A stream on a cluster of two workers loses driver, executors and Python workers in its batches 20 to 60.

`.ci/run kills-long` runs it: in client and in cluster mode, with each reader of Kafka. The tables have all bucket
modes; some are compacted by their batches, some beside these; tasks are tried again, and slow ones run twice. A plain
dictionary judges.
"""

import json
import os
import random
import sys
from datetime import timedelta
from pathlib import Path

import pyspark
import pytest

from tests.support.models.drawn_deaths import LAST_BATCH, drawn_deaths
from tests.support.peers.jars import spark_kafka_jars
from tests.support.processes.job_process import JobFolder, started
from tests.support.servers.broker import KafkaBroker
from tests.support.spark.killed_stream import KilledStream
from tests.support.spark.shop_day import ShopDay
from tests.support.spark.standalone import Standalone

KILLS = int(os.environ.get("BUCKETLINE_KILLS", "0"))
"""The deaths of each of the four streams; in `kills-long` some."""
SEED = int(os.environ.get("BUCKETLINE_KILLS_SEED", "1"))
RECORDS_A_BATCH = 200
FILES_A_DEATH = 60
"""The most files that nothing names after a death: those of one batch of all tables, and of a compaction of each."""

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(not KILLS, reason="part of .ci/run kills-long"),
    pytest.mark.timeout(3600 + 600 * KILLS),
]


def write_job(day: ShopDay, reader: str, trigger: str, draw: random.Random) -> Path:
    """The job file of the day, with ways of compaction drawn for its tables."""
    path = day.job_file(reader, records_a_batch=RECORDS_A_BATCH, poison_allowed=False)
    job = json.loads(path.read_text())
    job["trigger"] = trigger
    for route in job["tables"]:
        route["create"].setdefault("options", {})["num-sorted-run.compaction-trigger"] = "3"
        compaction = draw.choice(["async", "inline"])
        more = {"postpone-compaction.batches": "2"} if compaction == "inline" and "options" in route else {}
        route["options"] = {"compaction": compaction, **more}
    path.write_text(json.dumps(job))
    return path


@pytest.mark.parametrize("reader", ["native", "spark"])
@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_each_table_is_equal_to_a_dictionary_whoever_dies_in_a_running_stream(
    kafka_broker: KafkaBroker, tmp_path: Path, deploy_mode: str, reader: str
) -> None:
    seed = f"{SEED}-{deploy_mode}-{reader}"
    print(f"BUCKETLINE_KILLS_SEED={SEED} BUCKETLINE_KILLS={KILLS} -k {deploy_mode}-{reader}")
    draw, day = random.Random(seed), ShopDay(kafka_broker, tmp_path, f"kills-{deploy_mode}-{reader}", seed=SEED)
    ways = draw.random()
    for part in range(3):
        day.produce((LAST_BATCH + 10) * RECORDS_A_BATCH // 3, grows=part == 1)
    deaths = drawn_deaths(draw, KILLS)
    with Standalone(tmp_path / "cluster") as cluster:
        file = write_job(day, reader, "0 s", random.Random(ways))
        stream = KilledStream(cluster, file, deploy_mode, draw)
        try:
            stream.start()
            for death in deaths:
                print(death, flush=True)
                stream.die(death)
                day.check_commits()
            stream.wait_for(LAST_BATCH + 2, "commits")
            stream.end()
        finally:
            stream.close()
    print(f"{len(stream.batches('commits'))} batches, the newest {stream.batches('commits')[-1]}", flush=True)
    file = write_job(day, reader, "availableNow", random.Random(ways))
    folder = JobFolder(tmp_path)
    command = [sys.executable, "-m", "bucketline.streaming", "ingest", "--conf-file", str(file)]
    with started(folder, command, spark_kafka_jars(pyspark.__version__)) as job:
        assert job.end() == 0, job.output
    day.check_commits()
    day.check()
    left = {}
    for table in day.rows:
        left[table] = len(day.open(table).remove_orphan_files(older_than=timedelta(0)).files)
        assert day.open(table).doctor(rows=True) == [], table
        day.open(table).remove_orphan_files(False, timedelta(0), no_writers=True)
    print(f"files that nothing names: {sum(left.values())} after {KILLS} deaths: {left}", flush=True)
    assert sum(left.values()) <= FILES_A_DEATH * KILLS, left
    day.check()
