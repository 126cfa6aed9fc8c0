"""What a job does beside the start of its query is done before its session is stopped, and harms nobody."""

from concurrent.futures import Future
from threading import Event, Timer

import pytest

from bucketline.streaming.job.beside import beside_start


def test_the_end_waits_for_what_is_under_way_however_the_job_ends() -> None:
    done, may_end = list[str](), Event()

    def work() -> None:
        assert may_end.wait(60)
        done.append("work")

    with pytest.raises(KeyError), beside_start() as beside:
        beside(work)
        assert done == []
        Timer(0.05, may_end.set).start()
        raise KeyError
    assert done == ["work"]


def test_work_that_never_ends_holds_a_job_for_some_time_only() -> None:
    never = Event()
    with beside_start(0.01) as beside:
        found: Future[bool] = beside(never.wait)
    assert not found.done()
    never.set()
    assert found.result(60)


def test_an_error_is_for_who_asks_for_the_result() -> None:
    with beside_start() as beside:
        found = beside(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        found.result(60)
