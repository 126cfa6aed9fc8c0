"""What a job does beside the start of its query is done before its session is stopped, and harms nobody."""

from concurrent.futures import Future
from threading import Event, Timer

import pytest

from bucketline.streaming.job.background import Patience, background_work


class Jobs:
    """What `background_work` asks of a SparkContext."""

    def __init__(self) -> None:
        self.tags = list[str]()
        self.cancelled = list[str]()

    def addJobTag(self, tag: str) -> None:
        self.tags.append(tag)

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.append(tag)


def test_the_end_waits_for_what_is_under_way_however_the_job_ends() -> None:
    jobs, done, may_end = Jobs(), list[str](), Event()

    def work() -> None:
        assert may_end.wait(60)
        done.append("work")

    with pytest.raises(KeyError), background_work(jobs, lambda: False) as in_thread:
        in_thread(work)
        assert done == []
        Timer(0.05, may_end.set).start()
        raise KeyError
    assert done == ["work"]
    assert jobs.cancelled == []


@pytest.mark.parametrize(
    ("is_asked", "patience"), [(False, Patience(longest=0.01)), (True, Patience(longest=600, after_signal=0.01))]
)
def test_work_that_never_ends_holds_a_job_for_some_time_only(
    is_asked: bool, patience: Patience, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, never = Jobs(), Event()
    with background_work(jobs, lambda: is_asked, patience) as in_thread:
        found: Future[bool] = in_thread(never.wait)
    assert not found.done()
    assert jobs.cancelled == jobs.tags != [], "a session that goes on is left without its jobs"
    assert "before the Python workers of Spark have started" in caplog.text
    never.set()
    assert found.result(60)


def test_a_job_says_what_its_end_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bucketline.job")
    may_end = Event()
    with background_work(Jobs(), lambda: False, Patience(silent=0)) as in_thread:
        in_thread(lambda: may_end.wait(60))
        Timer(0.5, may_end.set).start()
    assert caplog.messages == ["waiting until the Python workers of Spark have started"]


def test_an_error_is_for_who_asks_for_the_result() -> None:
    with background_work(Jobs(), lambda: False) as in_thread:
        found = in_thread(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        found.result(60)
