"""A job is checked before Spark starts: its registry, and settings that would have no effect or do harm."""

from pathlib import Path

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.streaming.decode.avro import registry_client
from bucketline.streaming.decode.avro.registry_errors import RegistryError
from bucketline.streaming.job.check import check_settings


def job(folder: Path, *more: str) -> JobConfig:
    settings = (
        f"table={folder / 'k.db' / 't'}",
        "source.format=kafka",
        "source.options.kafka.bootstrap.servers=localhost:9092",
        "source.options.subscribe=orders",
        "source.decode=avro",
        f"checkpoint={folder / 'checkpoint'}",
        "trigger=availableNow",
        "create.schema=id BIGINT NOT NULL",
        "create.primary-key=id",
    )
    return resolve_job({}, read_assignments((*settings, *more)))


def test_a_job_of_avro_with_a_registry_passes(tmp_path: Path) -> None:
    assert check_settings(job(tmp_path, "source.registry.url=http://localhost:8081")) is not None


def test_a_job_of_avro_without_a_registry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"set source\.registry\.url"):
        check_settings(job(tmp_path))


def test_a_job_of_avro_names_the_package_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_client, "_PACKAGE", "confluent_kafka.not_there")
    with pytest.raises(RegistryError, match=r"install bucketline\[registry\]"):
        check_settings(job(tmp_path, "source.registry.url=http://localhost:8081"))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("bad-records.topic=orders",), "'orders' is a topic that the job reads: it would read its bad records again"),
        (("options.compaction-plan.commits=2",), "needs 'compaction' = 'dedicated' or 'async', but it is 'inline'"),
    ],
)
def test_a_job_of_settings_that_do_nothing_or_never_end_is_refused(
    settings: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=says):
        check_settings(job(tmp_path, "source.decode=json", *settings))


@pytest.mark.parametrize("compaction", ["dedicated", "async"])
def test_a_job_whose_writer_makes_plans_takes_their_options(compaction: str, tmp_path: Path) -> None:
    plans = ("options.compaction-plan.commits=2", f"options.compaction={compaction}")
    config = job(tmp_path, "source.decode=json", "bad-records.topic=orders-bad", *plans)
    assert check_settings(config) is not None
    in_table = job(tmp_path, "source.decode=json", plans[0], f"create.options.compaction={compaction}")
    assert check_settings(in_table) is not None
