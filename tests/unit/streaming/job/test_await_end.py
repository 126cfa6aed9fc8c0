"""How a job that is asked to end stops its query."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from bucketline.streaming.job.await_end import await_end
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.gate import BatchGate
from bucketline.streaming.job.start.silence import Silence

STOP_TIMEOUT = "spark.sql.streaming.stopTimeout"


class Query:
    """A query without a batch. `stop` raises an exception of Java with the given text, if there is one."""

    def __init__(self, of_java: str | None = None, settings: dict[str, str] | None = None) -> None:
        self._of_java, self.settings, self.stopped_with = of_java, dict(settings or {}), list[str]()
        self._jsq = SimpleNamespace(sparkSession=lambda: SimpleNamespace(conf=lambda: self))
        self.status = {"isTriggerActive": False}

    def get(self, key: str, default: str) -> str:
        return self.settings.get(key, default)

    def set(self, key: str, text: str) -> None:
        self.settings[key] = text

    def unset(self, key: str) -> None:
        del self.settings[key]

    def awaitTermination(self, seconds: float) -> bool:
        return bool(self.stopped_with)

    def stop(self) -> None:
        self.stopped_with.append(self.settings[STOP_TIMEOUT])
        if self._of_java is not None:
            text, gateway = self._of_java, SimpleNamespace(converters=None)
            raise Py4JJavaError(text, SimpleNamespace(_target_id="o1", _gateway_client=gateway, toString=lambda: text))


def asked_to_end() -> tuple[BatchGate, Any, Silence]:
    ending = Ending(lambda code, why: None, lambda code, why: None)
    ending.asked_by = "SIGTERM"
    return BatchGate(lambda batch, batch_id: None), ending, Silence(lambda line: None)


@pytest.mark.parametrize(("settings", "waited"), [({}, "5s"), ({STOP_TIMEOUT: "60s"}, "60s")])
def test_a_query_without_a_batch_is_stopped_within_a_time_and_settings_stay_as_they_were(
    settings: dict[str, str], waited: str
) -> None:
    query = Query(settings=settings)
    await_end(query, *asked_to_end())
    assert (query.stopped_with, query.settings) == ([waited], settings)


def test_a_job_ends_although_spark_cannot_end_the_query(caplog: pytest.LogCaptureFixture) -> None:
    query = Query("java.util.concurrent.TimeoutException: Stream Execution thread failed to stop within 5000 ms")
    with caplog.at_level(logging.WARNING, "bucketline.job"):
        await_end(query, *asked_to_end())
    assert len(query.stopped_with) == 1 and not query.settings
    assert [r.message.partition(",")[0] for r in caplog.records] == ["Spark could not end the query in time"]
