"""The command lines of examples/deployment outside of a container: the job, its port for probes, and the compactor."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from bucketline.state.store.table.table import open_table
from tests.support.pages.readme import ROOT
from tests.support.peers.jars import spark_kafka_jars
from tests.support.processes.job_process import JobFolder, started
from tests.support.servers.broker import KafkaBroker, KafkaRecord
from tests.support.servers.s3_server import KEY, KEY_ID, S3Server, free_port

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COMMANDS = yaml.safe_load((ROOT / "examples" / "deployment" / "compose.yaml").read_text())["services"]
ROWS = 30


def _here(text: str, places: dict[str, str]) -> str:
    for written, here in places.items():
        text = text.replace(written, here)
    return text


def _asked(port: int) -> str:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())
    return ""


def test_the_job_answers_probes_writes_and_ends_by_a_signal_and_the_compactor_compacts_its_table(
    kafka_broker: KafkaBroker, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_broker.create_topic("deployed", partitions=2)
    rows = [json.dumps({"id": n, "customer": "Ada", "amount": "1.50"}).encode() for n in range(ROWS)]
    kafka_broker.produce("deployed", [KafkaRecord(row, str(n).encode()) for n, row in enumerate(rows)])
    port = free_port()
    places = {
        "/etc/bucketline": str(tmp_path / "etc"),
        "/run/secrets": str(tmp_path / "secrets"),
        "/var/lib/bucketline": str(tmp_path / "state"),
        "http://store:7070": s3_server.endpoint,
        "kafka:9092": kafka_broker.bootstrap_servers,
        "subscribe: orders": "subscribe: deployed",
        "s3://lake/warehouse": "s3://lake/deployed",
        "s3://lake/rejects": "s3://lake/deployed-rejects",
        "9101": str(port),
        "=9102": f"={free_port()}",
        "10 seconds": "1 second",
    }
    (tmp_path / "etc").mkdir()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "store-password").write_text(f"{KEY}\n")
    for name in ("orders.yaml", "storage.yaml"):
        text = (ROOT / "examples" / "deployment" / name).read_text()
        (tmp_path / "etc" / name).write_text(_here(text, places))
    assert set(COMMANDS["job"]["environment"]) == {"STORE_USER"}
    monkeypatch.setenv("STORE_USER", KEY_ID)
    command = [_here(part, places) for part in COMMANDS["job"]["command"]]

    with started(
        JobFolder(tmp_path), [sys.executable, "-m", "bucketline.streaming", *command], jars=spark_kafka_jars("4.0")
    ) as job:
        job.read_until("starting Spark")
        assert 'bucketline_up{name="bucketline orders",' in _asked(port), "probes are answered before Spark is up"
        job.read_until("batch 0:")
        deadline, told = time.monotonic() + 120, ""
        while told.count('topic="deployed"} 0.0') < 2 and time.monotonic() < deadline:
            told = _asked(port)
            time.sleep(0.2)
        assert told.count('topic="deployed"} 0.0') == 2 and "bucketline_input_rows_total" in told, told
        os.killpg(job.python().pid, signal.SIGTERM)
        assert job.end() == 0, job.output
    table = open_table("s3://lake/deployed/shop.db/orders", storage_options=s3_server.storage)
    assert table.to_arrow().num_rows == ROWS and KEY not in job.output

    plan = [sys.executable, "-m", "bucketline.streaming", "plan", "--strategy", "full", "--storage-file"]
    storage = str(tmp_path / "etc" / "storage.yaml")
    done = subprocess.run([*plan, storage, table.uri], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compactor = [_here(part, places) for part in COMMANDS["compactor"]["command"]]
    run = [sys.executable, "-m", "bucketline.streaming", *compactor, "--once"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {f["level"] for f in table.refreshed().files().to_pylist()} == {5}
    assert KEY not in done.stdout + done.stderr
