"""The job as a process of its own, told to end as a supervisor does: SIGTERM, then wait."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bucketline.state.store.table import open_table

pytestmark = pytest.mark.spark

FILES = 12
ROWS = 20
SPARK = "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.memory=512m pyspark-shell"


def command(root: Path, trigger: str) -> list[str]:
    config = {
        "table": str(root / "shop.db" / "orders"),
        "source": {
            "format": "text",
            "decode": "json",
            "options": {"path": str(root / "input"), "maxFilesPerTrigger": "1"},
        },
        "checkpoint": str(root / "checkpoint"),
        "trigger": trigger,
        "create": {"schema": "id BIGINT NOT NULL, n BIGINT", "primary-key": "id", "options": {"bucket": "2"}},
    }
    (root / "job.json").write_text(json.dumps(config))
    return [sys.executable, "-m", "bucketline.streaming", "ingest", "--conf-file", str(root / "job.json")]


def start(root: Path, trigger: str) -> subprocess.Popen[str]:
    env = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": SPARK,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(root / "local"),
    }
    return subprocess.Popen(
        command(root, trigger), cwd=root, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def test_sigterm_ends_a_running_job_after_its_batch_and_a_new_start_goes_on(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    for i in range(FILES):
        lines = [json.dumps({"id": i * ROWS + k, "n": i}) for k in range(ROWS)]
        (tmp_path / "input" / f"{i:03}.json").write_text("\n".join(lines) + "\n")

    job = start(tmp_path, "0 s")
    too_long = threading.Timer(240, job.kill)
    too_long.start()
    try:
        assert job.stderr is not None
        told = []
        for line in job.stderr:
            told.append(line)
            if "batch 1:" in line:
                job.send_signal(signal.SIGTERM)
                break
        told += job.stderr
        assert job.wait() == 0, "".join(told)
    finally:
        too_long.cancel()
        job.kill()
        job.wait()
    assert any("SIGTERM: the job ends after the batch that is running" in line for line in told)

    table = open_table(str(tmp_path / "shop.db" / "orders"))
    batches = [s["commit_identifier"] for s in table.snapshots().to_pylist() if s["commit_kind"] == "APPEND"]
    assert batches == list(range(len(batches))) and 2 <= len(batches) < FILES
    assert table.to_arrow().num_rows == ROWS * len(batches)
    finished = {int(p.name) for p in (tmp_path / "checkpoint" / "commits").iterdir() if p.name.isdigit()}
    assert finished >= set(batches[:-1])

    again = start(tmp_path, "availableNow")
    _, told_again = again.communicate(timeout=240)
    assert again.returncode == 0, told_again
    assert sorted(open_table(table.path).to_arrow()["id"].to_pylist()) == list(range(FILES * ROWS))
