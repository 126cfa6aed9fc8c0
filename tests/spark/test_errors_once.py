"""An error that ends a job is one line and its remedy, wherever it was raised and however the job was started."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes.job_process import JobFolder, started

pytestmark = pytest.mark.spark

LONG = pytest.mark.skipif("BUCKETLINE_CRASH_KILLS" not in os.environ, reason="`.ci/run crash-long` runs it")

TRACES = ("Traceback", "\tat ", "py4j.", "Py4J", "PythonException", "StreamingQueryException", "STREAM_FAILED")


def reject(folder: JobFolder) -> tuple[str, ...]:
    """A record that the driver refuses."""
    folder.add(1, json.dumps({"id": "x"}))
    return ()


def block_buckets(folder: JobFolder) -> tuple[str, ...]:
    """Tasks cannot write: where their folders belong there are files."""
    table = folder.root / "shop.db" / "orders"
    table.mkdir(parents=True)
    for bucket in range(2):
        (table / f"bucket-{bucket}").write_text("")
    return ()


def malform(folder: JobFolder) -> tuple[str, ...]:
    """Spark's own reader fails."""
    folder.add(1, '{"id":')
    return ("source.format=json", "source.decode=none", "source.options.mode=FAILFAST")


@pytest.mark.parametrize(
    ("break_it", "submit", "code"),
    [
        (reject, True, "REJECTED_RECORDS"),
        (block_buckets, False, "STORAGE"),
        (malform, False, "SPARK_FAILED"),
        pytest.param(reject, False, "REJECTED_RECORDS", marks=LONG),
        pytest.param(block_buckets, True, "STORAGE", marks=LONG),
    ],
)
def test_an_error_that_ends_a_job_is_one_line(
    tmp_path: Path, break_it: Callable[[JobFolder], tuple[str, ...]], submit: bool, code: str
) -> None:
    folder = JobFolder(tmp_path)
    folder.add(0, json.dumps({"id": 1}))
    settings = break_it(folder)
    with started(folder, folder.command("trigger=availableNow", *settings, submit=submit)) as job:
        assert job.end() == 1, job.output
    told = [line for line in job.lines if line.startswith("error [")]
    assert len(told) == 1 and told[0].startswith(f"error [{code}]: "), job.output
    assert not [word for word in TRACES if word in job.output], job.output


def test_debug_shows_the_tracebacks(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    reject(folder)
    with started(folder, folder.command("trigger=availableNow", flags=("--debug",))) as job:
        assert job.end() == 1, job.output
    assert "Traceback" in job.output and "\tat org.apache.spark" in job.output
