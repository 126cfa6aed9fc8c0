"""Settings of a session that threads hold at the same time: each job finds them, and afterwards all is as before."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from bucketline.streaming.tasks.session_settings import held_setting
from tests.support.spark.tasks import Cluster

KEY = "spark.sql.adaptive.enabled"


def session(before: str = "true") -> Cluster:
    return Cluster(random.Random(1), settings={KEY: before})


def test_the_last_to_leave_restores_what_the_session_said_before() -> None:
    spark = session()
    first, second = held_setting(spark, KEY, "false"), held_setting(spark, KEY, "false")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert spark.settings == {KEY: "false"}, "the second job still runs"
    second.__exit__(None, None, None)
    assert spark.settings == {KEY: "true"}


def test_threads_that_hold_it_find_it_and_leave_it_as_it_was() -> None:
    spark, together = session(), Barrier(8)

    def hold(_: int) -> set[str]:
        together.wait()
        said = set()
        for _ in range(200):
            with held_setting(spark, KEY, "false"):
                said.add(spark.settings[KEY])
        return said

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(hold, range(8))) == [{"false"}] * 8
    assert spark.settings == {KEY: "true"}


def test_sessions_do_not_know_of_each_other() -> None:
    one, other = session(), session("auto")
    with held_setting(one, KEY, "false"):
        with held_setting(other, KEY, "false"):
            pass
        assert (one.settings, other.settings) == ({KEY: "false"}, {KEY: "auto"})
    assert one.settings == {KEY: "true"}


def test_a_job_that_fails_holds_nothing_afterwards() -> None:
    spark = session()
    with pytest.raises(ValueError), held_setting(spark, KEY, "false"):
        raise ValueError
    assert spark.settings == {KEY: "true"}
    with held_setting(spark, KEY, "false"):
        pass
    assert spark.settings == {KEY: "true"}


def test_a_session_without_the_setting_says_its_default() -> None:
    spark = Cluster(random.Random(1))
    with held_setting(spark, KEY, "false", default="10"):
        assert spark.settings == {KEY: "false"}
    assert spark.settings == {KEY: "10"}
