"""Python workers that start beside the program that makes a sink, without Spark."""

import random
from dataclasses import dataclass, field
from typing import Any

from bucketline.streaming.tasks.start_workers import start_workers_beside
from bucketline.streaming.tasks.write_task import WriteTask
from tests.support.spark.tasks import Cluster


@dataclass
class Session(Cluster):
    described: list[str | None] = field(default_factory=list)

    def setJobDescription(self, text: str | None) -> None:
        self.described.append(text)

    def getConf(self) -> "Session":
        return self


class EndedSession:
    @property
    def sparkContext(self) -> Any:
        raise RuntimeError("the session has ended")


def test_each_worker_of_an_application_is_started_once() -> None:
    begun, session = set[str](), Session(random.Random(1), defaultParallelism=3)
    thread = start_workers_beside(session, (WriteTask,), begun)
    assert thread is not None
    thread.join(60)
    assert session.tasks_run == 3 and session.described == ["bucketline: Python workers start", None]
    assert start_workers_beside(session, (WriteTask,), begun) is None
    assert session.tasks_run == 3 and begun == {session.applicationId}


def test_nothing_starts_without_a_session_of_spark() -> None:
    begun = set[str]()
    assert start_workers_beside(None, (WriteTask,), begun) is None
    assert start_workers_beside(EndedSession(), (WriteTask,), begun) is None
    assert not begun
