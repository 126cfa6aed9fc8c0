"""What a job starts its own Spark with."""

import sys
from typing import Any

import pytest

from bucketline.conf.errors import OptionError
from bucketline.streaming.batch.preflight import require_classic
from bucketline.streaming.batch.procedures import compact, rescale
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.job.session import awaited_packages, settings_of_own, start_session
from bucketline.streaming.worker import DAEMON

WORKERS_FROM = "spark.python.daemon.module"
BARS = "spark.ui.showConsoleProgress"


@pytest.mark.parametrize(
    ("arguments", "defaults", "set_by_us"),
    [
        (["--master", "local[2]", "pyspark-shell"], {}, True),
        (["--conf", f"{BARS}=true", "pyspark-shell"], {}, False),
        ([f"--conf={BARS}=true", "pyspark-shell"], {}, False),
        (["pyspark-shell"], {BARS: "true"}, False),
    ],
)
def test_sparks_progress_bars_are_off_unless_somebody_chose_them(
    arguments: list[str], defaults: dict[str, str], set_by_us: bool
) -> None:
    assert settings_of_own(arguments, defaults).get(BARS) == ("false" if set_by_us else None)


@pytest.mark.parametrize(
    ("arguments", "defaults", "set_by_us"),
    [
        ("pyspark-shell", {}, True),
        ("--master local[2] pyspark-shell", {"spark.master": "yarn"}, True),
        ("--master yarn pyspark-shell", {}, False),
        ("--master local-cluster[2,1,1024] pyspark-shell", {}, False),
        ("--master=k8s://x pyspark-shell", {}, False),
        ("--conf spark.master=spark://x:1 pyspark-shell", {}, False),
        ("pyspark-shell", {"spark.master": "yarn"}, False),
        ("--conf spark.pyspark.python=/opt/other/python pyspark-shell", {}, False),
        (f"--conf {WORKERS_FROM}=mine pyspark-shell", {}, False),
    ],
)
def test_workers_are_forked_from_our_module_where_it_is_certain_to_be_there(
    arguments: str, defaults: dict[str, str], set_by_us: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("MASTER", raising=False)
    found = settings_of_own(arguments.split(), defaults)
    assert found.get(WORKERS_FROM) == (DAEMON if set_by_us else None)


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("--packages a:b:1,c:d:2 pyspark-shell", "a:b:1,c:d:2"),
        ("--conf spark.jars.packages=a:b:1 x", "a:b:1"),
        ("", None),
    ],
)
def test_packages_that_spark_fetches_first_are_known(text: str, packages: str | None) -> None:
    assert awaited_packages(text.split()) == packages


@pytest.mark.parametrize("start", [start_session, lambda name: require_classic(_connect_session())])
def test_spark_connect_is_refused_with_the_remedy(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(OptionError, match=r"needs a classic session.*unset SPARK_REMOTE.*spark-submit"):
        start("x")


@pytest.mark.parametrize("run", [lambda s: compact(s, "/t"), lambda s: rescale(s, "/t", 2), lambda s: _call_sink(s)])
def test_whoever_works_with_a_session_refuses_spark_connect(run: Any) -> None:
    with pytest.raises(OptionError, match="needs a classic session"):
        run(_connect_session())


def _connect_session() -> Any:
    """As PySpark makes it, without the server that it talks to."""
    return type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()


def _call_sink(spark: Any) -> None:
    TableSink("/t")(type("Frame", (), {"sparkSession": spark})(), 0)
