"""What an error of Spark says in one line."""

import socket
import traceback

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import IllegalArgumentException

from bucketline.streaming.batch.failure import (
    SparkFailedError,
    SparkLostError,
    cause_line,
    error_of_task,
    explain,
    explained,
    explained_in_one_line,
    is_jvm_lost,
)
from bucketline.streaming.decode.rejects import RejectedRecordsError
from bucketline.streaming.job.kafka.kafka_failure import kafka_failures
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaDataLostError

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


BROKEN_FILE = (
    FAILED
    + """Job aborted due to stage failure: Task 1 in stage 0.0 failed 1 times:
x.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/4.json.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:1)
Caused by: x.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected.
\tat org.apache.spark.sql.catalyst.util.FailureSafeParser.parse(FailureSafeParser.scala:1)
Caused by: com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input
\t... 34 more
"""
)
REFUSED_BY_A_BROKER = (
    FAILED
    + """org.apache.kafka.common.KafkaException: Failed to construct kafka consumer
\tat org.apache.kafka.clients.consumer.KafkaConsumer.<init>(KafkaConsumer.java:1)
Caused by: java.net.ConnectException: Connection refused
\tat sun.nio.ch.Net.pollConnect(Native Method)
"""
)


class StreamingQueryException(PySparkException):
    """As PySpark raises it."""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (IN_WORKER, RejectedRecordsError, "batch 3 holds a bad record"),
        (IN_SPARK, SparkFailedError, "Spark ended the query: [FAILED_READ_FILE.NO_HINT] Encountered"),
        (FAILED + "[PARSE] bad JSON\n=== Query ===", SparkFailedError, "Spark ended the query: [PARSE] bad JSON"),
        (REFUSED_BY_A_BROKER, SparkFailedError, "Spark ended the query: ConnectException: Connection refused"),
        ("Connection reset by peer", SparkFailedError, "Spark ended the query: Connection reset by peer"),
    ],
)
def test_an_error_of_spark_is_ours_or_its_innermost_cause(text: str, kind: type[Exception], message: str) -> None:
    found = explain(StreamingQueryException(text))
    assert type(found) is kind and found.message.startswith(message) and "\n" not in found.message
    assert not isinstance(found, SparkFailedError) or text in found.said


@pytest.mark.parametrize(
    ("text", "file", "malformed"), [(BROKEN_FILE, "file:///in/4.json", True), (IN_SPARK, "a.json", False)]
)
def test_an_error_names_the_file_that_spark_could_not_read(text: str, file: str, malformed: bool) -> None:
    found = explain(StreamingQueryException(text))
    assert found.message.count(file) == 1
    assert (found.fields["file"], found.fields["malformed"]) == (file, malformed)


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (Py4JError("An error occurred while calling o55.awaitTermination"), True),
        (Py4JError("An error occurred while calling o55.awaitTermination. Trace:\njava.lang.X"), False),
        (Py4JError("o55 does not exist in the JVM"), False),
        (StreamingQueryException("Error while sending or receiving: Connection refused"), False),
        (ConnectionRefusedError("Connection refused"), False),
        (OSError("Connection refused"), False),
    ],
)
def test_the_jvm_is_lost_where_nobody_answers_in_its_place(error: Exception, is_lost: bool) -> None:
    assert is_jvm_lost(error) is is_lost
    assert isinstance(explain(error), SparkLostError) is is_lost


def test_a_connection_that_py4j_is_refused_is_a_lost_jvm_and_any_other_one_is_not() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionRefusedError) as other, socket.socket() as broker:
        broker.connect(("127.0.0.1", port))
    assert not is_jvm_lost(other.value)
    client = GatewayClient(gateway_parameters=GatewayParameters(port=port))
    with pytest.raises((ConnectionRefusedError, Py4JNetworkError)) as lost:
        client.send_command("c\n", retry=False)
    assert is_jvm_lost(lost.value)


def test_what_the_sink_raised_before_says_more_than_what_spark_made_of_it() -> None:
    of_sink = SparkFailedError("Spark ended the query: no space")
    of_sink.said = "OffsetOutOfRangeException"
    assert explain(StreamingQueryException(FAILED), of_sink) is of_sink
    assert isinstance(explain(Py4JNetworkError("Answer from Java side is empty"), of_sink), SparkLostError)
    assert isinstance(explain(StreamingQueryException(FAILED), ValueError("x")), SparkFailedError)


def test_what_kafka_said_to_a_task_is_known_by_all_that_spark_said() -> None:
    with pytest.raises(KafkaDataLostError), kafka_failures({"subscribe": "orders"}):
        raise explain(StreamingQueryException(f"{FAILED}Job aborted\nCaused by: x.OffsetOutOfRangeException: gone\n"))


def test_an_error_within_a_sink_is_printed_without_the_tracebacks_of_spark() -> None:
    with pytest.raises(RejectedRecordsError) as caught, explained_in_one_line():
        raise StreamingQueryException(IN_WORKER)
    printed = "".join(traceback.format_exception(caught.value))
    assert "batch 3 holds a bad record" in printed and "worker.py" not in printed and "\tat " not in printed
    assert "worker.py" in str(caught.value.__context__)


@pytest.mark.parametrize("says", ["java.lang.InterruptedException", "Job 7 cancelled part of cancelled job group 1"])
def test_what_a_query_raises_that_is_being_stopped_is_left_to_spark(says: str) -> None:
    with pytest.raises(StreamingQueryException), explained_in_one_line():
        raise StreamingQueryException(says)


def test_an_error_of_spark_is_read_after_its_session_has_ended() -> None:
    """PySpark asks the JVM for the text, and what was wrong came out as an AssertionError without words."""
    error = IllegalArgumentException.__new__(IllegalArgumentException)
    error._desc = "java.net.URISyntaxException: Relative path in absolute URI: a:b"
    error._stackTrace = (
        "java.lang.IllegalArgumentException: java.net.URISyntaxException: Relative path in absolute URI: a:b"
    )
    with pytest.raises(SparkFailedError, match="Relative path in absolute URI: a:b"), explained():
        raise error
    with pytest.raises(SparkFailedError, match="Relative path in absolute URI: a:b"), explained_in_one_line():
        raise error
    assert error_of_task(error) is None


def test_errors_that_are_not_of_spark_pass_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), explained_in_one_line():
        raise ZeroDivisionError
    with pytest.raises(ConnectionError), explained():
        raise ConnectionResetError


def test_the_code_of_spark_and_the_innermost_cause_are_both_told() -> None:
    assert cause_line(IN_SPARK).endswith("while reading file a.json. / IOException: No space left on device")


def test_a_text_without_a_cause_is_its_first_line() -> None:
    assert cause_line("one\ntwo") == "one" and cause_line("") == "no message"
