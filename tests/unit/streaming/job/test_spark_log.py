"""Which messages of Spark's log are left out while a job runs: those that repeat an error that the job reports."""

import re

import pytest

from bucketline.streaming.job import spark_log

PYTHON_TRACE = 'Traceback (most recent call last):\n  File "write_task.py", line 49, in __call__\nNotADirectoryError: b'


@pytest.mark.parametrize(
    "message",
    [
        "Job 3 failed\n\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)",
        f"Killing all running tasks in stage 2: [PYTHON_EXCEPTION] {PYTHON_TRACE}",
        "Task 1 in stage 2.0 failed 1 times; aborting job",
        "[queryId = b2eaf] [batchId = 0] Task 1 in stage 2.0 failed 1 times; aborting job",
    ],
)
def test_what_repeats_the_error_of_a_task_is_left_out(message: str) -> None:
    assert re.fullmatch(spark_log._REPORTED_BY_US, message)


@pytest.mark.parametrize(
    "message",
    [
        "Lost executor 3 on host-7: Command exited with code 137",
        "Lost task 1.0 in stage 2.0 (TID 5): the task will be run again",
        "Registered StateStoreCoordinator endpoint",
        "two lines\n  and none of them is a trace",
    ],
)
def test_other_messages_stay(message: str) -> None:
    assert not re.fullmatch(spark_log._REPORTED_BY_US, message)
