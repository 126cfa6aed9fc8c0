"""What a job needs on this machine is looked for before Spark starts."""

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.metrics_options import MetricsOptions, metrics_options
from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.conf.sources.source_options import source_options
from bucketline.streaming.job.run import run_job
from bucketline.streaming.job.start import needs
from bucketline.streaming.job.start.needs import require_kafka_jar, require_packages, shown_as_up
from bucketline.streaming.metrics.outlets import close_ports
from bucketline.streaming.metrics.registry import Registry
from tests.support.servers.s3_server import free_port


@pytest.fixture
def ports() -> Iterator[None]:
    """Ports that are closed in the end."""
    yield
    close_ports()


def _job(tmp_path: Path, *more: str) -> JobConfig:
    return resolve_job(
        read_assignments(
            [
                f"table={tmp_path}/shop.db/t",
                f"checkpoint={tmp_path}/checkpoint",
                "source.format=kafka",
                "source.decode=json",
                "source.options.kafka.bootstrap.servers=127.0.0.1:1",
                "source.options.subscribe=orders",
                "create.schema=id BIGINT",
                *more,
            ]
        )
    )


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    auto = _job(tmp_path)
    require_packages(auto, auto.source.options)
    with pytest.raises(OptionError, match=r"PySpark needs pandas.*the extra 'spark'"):
        require_packages(auto, auto.source.options, lambda name: name != "pandas")
    native = _job(tmp_path, "source.reader=native")
    options = source_options(native.source).options
    require_packages(native, options)
    monkeypatch.setattr(needs, "client_error", lambda settings: "confluent-kafka is not installed")
    require_packages(auto, auto.source.options)
    with pytest.raises(OptionError, match=r"source\.reader = native: confluent-kafka is not installed"):
        require_packages(native, options)


@pytest.mark.parametrize(
    ("arguments", "settings", "variables", "is_there"),
    [
        (["pyspark-shell"], {}, {}, False),
        (["--packages", "a:b:1", "pyspark-shell"], {}, {}, True),
        (["--jars=/a.jar"], {}, {}, True),
        ([], {"spark.jars": "/a.jar"}, {}, True),
        ([], {"spark.jars.packages": ""}, {}, False),
        ([], {"spark.driver.extraClassPath": "/a/*"}, {}, True),
        ([], {}, {"SPARK_DIST_CLASSPATH": "/a/*"}, True),
    ],
)
def test_the_kafka_jar_is_missed_only_where_nothing_names_a_jar(
    arguments: list[str], settings: dict[str, str], variables: dict[str, str], is_there: bool, tmp_path: Path
) -> None:
    require_kafka_jar("json", arguments, settings, str(tmp_path), "4.0.5", variables)
    if is_there:
        require_kafka_jar("kafka", arguments, settings, str(tmp_path), "4.0.5", variables)
        return
    with pytest.raises(OptionError, match=r"--packages org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.0\.0") as e:
        require_kafka_jar("kafka", arguments, settings, str(tmp_path), "4.0.5", variables)
    assert e.value.key == "source.format"
    with pytest.raises(OptionError, match=r"spark-sql-kafka-0-10_2\.12:3\.5\.7"):
        require_kafka_jar("kafka", arguments, settings, str(tmp_path), "3.5.9", variables)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-env.sh").touch()
    require_kafka_jar("kafka", arguments, settings, str(tmp_path), "4.0.5", variables)
    (tmp_path / "conf" / "spark-env.sh").unlink()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-sql-kafka-0-10_2.13-4.0.0.jar").touch()
    require_kafka_jar("kafka", arguments, settings, str(tmp_path), "4.0.5", variables)


def _asked(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def test_metrics_answer_from_the_start_with_the_name_of_the_job(tmp_path: Path, ports: None) -> None:
    port, file, registry = free_port(), tmp_path / "m.prom", Registry()
    settings = metrics_options({"metrics.prometheus.port": str(port), "metrics.prometheus.file": str(file)})
    up = 'bucketline_up{name="bucketline t",table="/w/shop.db/t"}'
    with shown_as_up(settings, "bucketline t", "/w/shop.db/t", registry) as labels:
        assert labels == {"name": "bucketline t", "table": "/w/shop.db/t"}
        assert f"{up} 1.0" in _asked(port) and f"{up} 1.0" in file.read_text()
    assert f"{up} 0.0" in file.read_text(), "a file outlives the process"
    with pytest.raises(RuntimeError), shown_as_up(MetricsOptions(), "x", "y", registry):
        raise RuntimeError


def _no_spark(*arguments: object) -> None:
    raise AssertionError("Spark is started")


def test_a_taken_port_ends_a_bounded_job_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no record, so that no batch would ever open the port."""
    monkeypatch.setattr("bucketline.streaming.job.session.launch_gateway", _no_spark)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job = _job(tmp_path, "trigger=availableNow", f"options.metrics.prometheus.port={port}")
        with pytest.raises(OptionError, match=f"127.0.0.1:{port} cannot be opened"):
            run_job(job)
    assert not (tmp_path / "shop.db").exists()


def test_without_the_kafka_jar_a_job_ends_before_spark_starts_and_makes_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketline.streaming.job.session.launch_gateway", _no_spark)
    monkeypatch.setattr("bucketline.streaming.job.run.starts_java", lambda: True)
    monkeypatch.setattr(
        "bucketline.streaming.job.run.settings_to_start_with", lambda: (["pyspark-shell"], {}, str(tmp_path))
    )
    with pytest.raises(OptionError, match="has no Kafka source on this machine"):
        run_job(_job(tmp_path))
    assert not (tmp_path / "shop.db").exists()
