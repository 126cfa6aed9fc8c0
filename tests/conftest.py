"""Fixtures for what is slow to start: one of each for a whole test session, and only if a test asks for it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tests.support.peers.jars import spark_kafka_jars
from tests.support.peers.peer import PaimonCatalogs, PaimonJava, PyPaimon
from tests.support.servers.azurite import Azurite
from tests.support.servers.broker import KafkaBroker
from tests.support.servers.fake_gcs import FakeGcs
from tests.support.servers.hdfs_cluster import HdfsCluster
from tests.support.servers.postgres import Postgres
from tests.support.servers.s3_server import S3Server
from tests.support.servers.versitygw import VersityGateway
from tests.support.spark.jvm import start_quickly

HERE = Path(__file__).parent
FOLDERS_OF_THEIR_OWN = {"peer", "spark", "kafka"}

# Beside other work an example takes longer than the 200 ms that Hypothesis gives it.
settings.register_profile("patient", settings(deadline=None))
settings.load_profile("patient")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The parts of `.ci/run` collect folders, so that a test lies in the folder of its mark; `stores` goes by mark."""
    folder, marks = item.path.relative_to(HERE).parts[0], {mark.name for mark in item.iter_markers()}
    asked = FOLDERS_OF_THEIR_OWN & {folder, *marks}
    if asked and "stores" not in marks and folder not in FOLDERS_OF_THEIR_OWN & marks:
        pytest.fail(f"{item.nodeid} has marks {sorted(marks)}: it belongs in the folder of its mark", pytrace=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.get_closest_marker("spark") or item.get_closest_marker("kafka") for item in session.items):
        start_quickly()


@pytest.fixture(scope="session")
def paimon_java() -> Iterator[PaimonJava]:
    """Paimon Java; needs `java`, and `mvn` the first time."""
    with PaimonJava() as peer:
        yield peer


@pytest.fixture(scope="session")
def paimon_catalogs() -> Iterator[PaimonCatalogs]:
    """Paimon Java's catalogs; needs `java`, and `mvn` the first time."""
    with PaimonCatalogs() as peer:
        yield peer


@pytest.fixture(scope="session")
def pypaimon() -> Iterator[PyPaimon]:
    """pypaimon in its own virtual environment (`$BUCKETLINE_PYPAIMON_VENV`)."""
    with PyPaimon() as peer:
        yield peer


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """A Kafka broker of this session; tests use topics of their own."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def guarded_broker() -> Iterator[KafkaBroker]:
    """A broker that lets one user log in, who may read no topic."""
    with KafkaBroker(users={"reader": "the-password"}) as broker:
        yield broker


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 store of this session, with one bucket; tests use folders of their own."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """Azure's blob store, emulated, with one container; needs Node, and npm the first time."""
    with Azurite() as server:
        yield server


@pytest.fixture(scope="session")
def versitygw() -> Iterator[VersityGateway]:
    """An S3 gateway over files, with one bucket; needs Go the first time."""
    with VersityGateway() as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcs]:
    """Google's storage, emulated, with one bucket; needs Go the first time."""
    with FakeGcs() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """An HDFS cluster of one JVM; needs `java`, and `mvn` the first time."""
    with HdfsCluster() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The system's PostgreSQL, with one empty database."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session of two local threads in UTC; it can read Kafka if a test of this run is marked `kafka`."""
    scratch = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("bucketline-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC -XX:+UseSerialGC")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
    )
    if any(item.get_closest_marker("kafka") for item in request.session.items):
        builder = builder.config("spark.jars", ",".join(map(str, spark_kafka_jars(pyspark.__version__))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "PYSPARK_PYTHON", sys.executable)
        patch.setitem(os.environ, "PYSPARK_DRIVER_PYTHON", sys.executable)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
