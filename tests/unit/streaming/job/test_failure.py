"""What an error of Spark says in one line."""

import pytest

from bucketline.streaming.decode.rejects import RejectedRecordsError
from bucketline.streaming.job.failure import SparkFailedError, SparkLostError, cause_line, explain

FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
IN_WORKER = (
    FAILED
    + """Job aborted due to stage failure: Task 0 failed: org.apache.spark.api.python.PythonException: Traceback:
  File "worker.py", line 1, in main
bucketline.streaming.decode.rejects.RejectedRecordsError: batch 3 holds a bad record
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
"""
)
IN_SPARK = (
    FAILED
    + """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
py4j.protocol.Py4JJavaError: An error occurred while calling o55.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file a.json.
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.io.FileOutputStream.write(FileOutputStream.java:1)
\t... 34 more
"""
)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (IN_WORKER, RejectedRecordsError, "batch 3 holds a bad record"),
        (IN_SPARK, SparkFailedError, "Spark ended the query: [FAILED_READ_FILE.NO_HINT] Encountered"),
        (FAILED + "[PARSE] bad JSON\n=== Query ===", SparkFailedError, "Spark ended the query: [PARSE] bad JSON"),
        ("An error occurred while calling o1: Answer from Java side is empty", SparkLostError, "Spark's JVM ended"),
        ("[Errno 111] Connection refused", SparkLostError, "Spark's JVM ended"),
    ],
)
def test_an_error_of_spark_is_ours_or_its_innermost_cause(text: str, kind: type[Exception], message: str) -> None:
    found = explain(text)
    assert type(found) is kind and found.message.startswith(message) and "\n" not in found.message


def test_the_code_of_spark_and_the_innermost_cause_are_both_told() -> None:
    assert cause_line(IN_SPARK).endswith("while reading file a.json. / IOException: No space left on device")


def test_a_text_without_a_cause_is_its_first_line() -> None:
    assert cause_line("one\ntwo") == "one" and cause_line("") == "no message"
