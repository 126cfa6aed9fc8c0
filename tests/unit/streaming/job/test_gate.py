"""The gate that a job closes when it is told to end."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from bucketline.streaming.job.gate import BatchGate, QueryStopped

NAMES = "(java.lang.InterruptedException|java.io.InterruptedIOException)"
PATTERNS_OF_A_STOP = {
    "3.5": rf"py4j.protocol.Py4JJavaError: An error occurred while calling.+(\r\n|\r|\n): {NAMES}",
    "4.0": rf"py4j.protocol.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*){NAMES}",
}
"""By what each release of Spark knows that the error of a sink is that of a query which was stopped."""


class Interrupted(Exception):
    """What ends a sleep."""


class Stream:
    """What a gate needs of a DataFrame: a JVM whose sleep ends as `sleep` says."""

    def __init__(self, sleep: Any) -> None:
        self.sparkSession = self.sparkContext = self._jvm = self.java = self.lang = self.Thread = self
        self.sleep = sleep


def test_a_gate_lets_batches_in_until_it_is_closed_and_holds_the_next_one() -> None:
    written: list[int] = []
    gate = BatchGate(lambda batch, batch_id: written.append(batch_id))
    slept: list[bool] = []

    def sleep(ms: int) -> None:
        slept.append(gate.is_holding and not gate.is_busy)
        if len(slept) == 2:
            raise Interrupted

    gate(Stream(sleep), 0)
    assert gate.has_begun and gate.is_written
    gate.close()
    with pytest.raises(Interrupted):
        gate(Stream(sleep), 1)
    assert (written, slept, gate.error) == ([0], [True, True], None)


def test_a_gate_keeps_what_its_sink_raised() -> None:
    error = Interrupted("why")

    def fail(batch: object, batch_id: int) -> None:
        raise error

    gate = BatchGate(fail)
    with pytest.raises(Interrupted):
        gate(object(), 0)
    assert gate.error is error and gate.has_begun and not gate.is_written


@pytest.mark.parametrize("release", PATTERNS_OF_A_STOP)
def test_spark_knows_from_the_text_of_a_held_batch_that_the_query_was_stopped(release: str) -> None:
    gate = BatchGate(lambda batch, batch_id: None)
    gate.close()

    def sleep(ms: int) -> None:
        raise Py4JJavaError("interrupted", SimpleNamespace(_target_id="o1", _gateway_client=None))

    with pytest.raises(QueryStopped) as raised:
        gate(Stream(sleep), 0)
    assert re.search(PATTERNS_OF_A_STOP[release], f"bucketline.QueryStopped: {raised.value}\n")
