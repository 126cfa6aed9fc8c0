"""The job as processes of its own, told to end as supervisors, shells and people do.

BUCKETLINE_CRASH_KILLS, which `.ci/run crash-long` sets, adds the signals that take the same way as another one here.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import handle_of, open_table
from tests.support.processes.job_process import JobFolder, JobProcess, started

pytestmark = pytest.mark.spark

ALL_SIGNALS = "BUCKETLINE_CRASH_KILLS" in os.environ
FILES = 12
ROWS = 20
ENDS = "the job ends after the running batch"
GIVEN_UP = "the running batch was not finished; the next start of the job writes it"
Send = Callable[[JobProcess], None]


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    found = JobFolder(tmp_path)
    for i in range(FILES):
        found.add(i, *[json.dumps({"id": i * ROWS + k, "n": i}) for k in range(ROWS)])
    return found


def to_python(job: JobProcess) -> None:
    job.python().terminate()


def to_java(job: JobProcess) -> None:
    job.java().terminate()


def to_group(job: JobProcess) -> None:
    job.signal_group(signal.SIGTERM)


def interrupt_group(job: JobProcess) -> None:
    job.signal_group(signal.SIGINT)


def hang_up_python(job: JobProcess) -> None:
    job.python().send_signal(signal.SIGHUP)


def hang_up_java(job: JobProcess) -> None:
    job.java().send_signal(signal.SIGHUP)


def to_everybody(job: JobProcess) -> None:
    """As systemd does, unless its KillMode says otherwise: Spark's Python workers get the signal as well."""
    for process in job.processes():
        # Those that had the signal first end others.
        with suppress(psutil.NoSuchProcess):
            process.terminate()


def assert_quiet(job: JobProcess) -> None:
    for word in ("Traceback", "_EndAsked", "py4j.", "\tat ", "looks like a bug"):
        assert word not in job.output, job.output


@pytest.mark.parametrize(
    ("send", "submit"),
    [
        (to_python, False),
        (to_group, False),
        (interrupt_group, True),
        *(
            pytest.param(send, submit, marks=pytest.mark.skipif(not ALL_SIGNALS, reason="`.ci/run crash-long` runs it"))
            for send, submit in (
                (hang_up_java, False),
                (to_java, True),
                (to_java, False),
                (interrupt_group, False),
                (hang_up_python, False),
                (to_python, True),
                (to_group, True),
            )
        ),
    ],
)
def test_a_signal_ends_a_running_job_after_its_batch_whoever_gets_the_signal(
    folder: JobFolder, send: Send, submit: bool
) -> None:
    with started(folder, folder.command(submit=submit)) as job:
        job.read_until("batch 1:")
        java = job.java()
        send(job)
        left = [] if submit else job.left_by_end([java])
        code = job.end()
    assert not left, "the JVM has ended when the command returns"
    assert_quiet(job)
    # With spark-submit, programs that Hadoop starts (chmod) are in the group: a batch may fail under the signal.
    whole_group = submit and send in (to_group, interrupt_group)
    assert code == 0 and (ENDS in job.output or (whole_group and GIVEN_UP in job.output)), job.output

    table = folder.table()
    batches = [s["commit_identifier"] for s in table.snapshots().to_pylist() if s["commit_kind"] == "APPEND"]
    assert batches == list(range(len(batches))) and 2 <= len(batches) < FILES
    assert table.to_arrow().num_rows == ROWS * len(batches)
    finished = {int(p.name) for p in (folder.root / "checkpoint" / "commits").iterdir() if p.name.isdigit()}
    assert finished == set(batches) or (GIVEN_UP in job.output and finished == set(batches[:-1]))


def test_a_job_that_was_ended_goes_on_where_it_was_and_so_does_the_compaction_beside_its_batches(
    folder: JobFolder,
) -> None:
    beside = ("options.compaction=async", "create.options.num-sorted-run.compaction-trigger=2")
    with started(folder, folder.command(*beside)) as job:
        job.read_until("batch 1:")
        to_everybody(job)
        assert job.end() == 0, job.output
    assert_quiet(job)
    with started(folder, folder.command("trigger=availableNow", *beside)) as again:
        assert again.end() == 0, again.output
    assert_quiet(again)
    table = folder.table()
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(FILES * ROWS))
    kinds = table.snapshots().to_pylist()
    assert [s["commit_identifier"] for s in kinds if s["commit_kind"] == "APPEND"] == list(range(FILES))
    assert {s["commit_user"].split("-")[0] for s in kinds if s["commit_kind"] == "COMPACT"} == {"compactor"}
    assert {f["level"] for f in table.files().to_pylist()} != {0} and table.doctor() == []
    # What a stop gave back, or a bounded job finished: nothing is open, and no file was left.
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
    folder_of_plans = PlanFolder(handle_of(table).io, table.path)
    listing = folder_of_plans.list()
    assert all(listing.is_closed(plan) for plan in folder_of_plans.plans(listing).values())


@pytest.mark.parametrize(("send", "code"), [(to_python, 143), (interrupt_group, 130)])
def test_before_spark_is_up_a_signal_ends_the_start_with_128_and_its_number(
    folder: JobFolder, send: Send, code: int
) -> None:
    with started(folder, folder.command()) as job:
        job.read_until("starting Spark")
        job.await_java()
        below = job.processes()[1:]
        send(job)
        assert [p.name() for p in job.left_by_end(below)] == []
        assert job.end() == code, job.output
        assert "ended before Spark was up; no batch was begun" in job.lines[-1]
        assert below and not psutil.wait_procs(below, timeout=20)[1]
    assert_quiet(job)
    assert not (folder.root / "checkpoint").exists()


@pytest.mark.parametrize("send", [to_java, to_group])
def test_before_the_session_is_up_spark_submit_ends_without_a_traceback(folder: JobFolder, send: Send) -> None:
    with started(folder, folder.command(submit=True)) as job:
        job.read_until("starting Spark")
        send(job)
        assert job.end() == 143, job.output
    assert "Traceback" not in job.output


def test_the_jvm_ends_with_a_python_that_was_killed(folder: JobFolder) -> None:
    with started(folder, folder.command()) as job:
        job.read_until("batch 1:")
        below = job.processes()[1:]
        assert job.java() in below
        job.python().kill()
        assert job.end() == -signal.SIGKILL
        assert not psutil.wait_procs(below, timeout=60)[1]
    with started(folder, folder.command("trigger=availableNow")) as again:
        assert again.end() == 0, again.output
    assert sorted(folder.table().to_arrow()["id"].to_pylist()) == list(range(FILES * ROWS))


def test_a_jvm_that_was_killed_is_one_line(folder: JobFolder) -> None:
    with started(folder, folder.command()) as job:
        job.read_until("batch 1:")
        job.java().kill()
        assert job.end() == 1
    assert job.output.count("error [") == job.output.count("error [SPARK_LOST]: ") == 1, job.output
    assert_quiet(job)


def quickstart(folder: JobFolder) -> list[str]:
    made = [sys.executable, "-m", "bucketline.streaming", "quickstart", "--directory", str(folder.root / "q")]
    return [*made, "--batches", "60", "--events", "20"]


@pytest.mark.parametrize("send", [to_java, interrupt_group])
def test_a_signal_ends_the_quickstart_after_its_batch(folder: JobFolder, send: Send) -> None:
    with started(folder, quickstart(folder)) as job:
        job.read_until("batch 1:")
        send(job)
        assert job.end() == 0, job.output
    assert_quiet(job)
    assert ": quickstart ended after the running batch; the rows written so far are in " in job.lines[-1]
    table = open_table(str(folder.root / "q" / "shop.db" / "orders"))
    batches = [s["commit_identifier"] for s in table.snapshots().to_pylist() if s["commit_kind"] == "APPEND"]
    assert batches == list(range(len(batches))) and 2 <= len(batches) < 60


def test_a_quickstart_whose_jvm_was_killed_says_so_in_one_line(folder: JobFolder) -> None:
    with started(folder, quickstart(folder)) as job:
        job.read_until("batch 1:")
        job.java().kill()
        assert job.end() == 1
    assert job.output.count("error [") == job.output.count("error [SPARK_LOST]: ") == 1, job.output
    assert_quiet(job)
