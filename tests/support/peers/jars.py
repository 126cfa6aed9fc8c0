"""Jars that tests run against, resolved by Maven coordinates into a cache folder.

The cache is `$BUCKETLINE_TEST_CACHE` (default `.venv/.cache` of this checkout). A set is downloaded once, into a folder
named after what was asked for, so that a changed version never meets an old jar. Run as a program it fills the cache:
`python -m tests.support.peers.jars [SET...]`.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
RESOLVE_TIMEOUT_S = 900
CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One artifact. `without` lists `group:artifact` patterns left out of what it drags in (`*` matches all)."""

    group: str
    artifact: str
    version: str
    without: tuple[str, ...] = ()
    classifier: str = ""


# What a Spark installation carries itself: a second copy on its class path is the classic cause of LinkageError.
_IN_SPARK = (
    "org.scala-lang:*",
    "org.scala-lang.modules:*",
    "org.apache.hadoop:*",
    "org.apache.spark:spark-core_2.13",
    "org.apache.spark:spark-sql_2.13",
    "org.apache.spark:spark-tags_2.13",
    "org.slf4j:*",
    "com.github.luben:*",
    "org.lz4:*",
    "at.yawk.lz4:*",
    "org.xerial.snappy:*",
    "com.google.code.findbugs:*",
)


def _spark_kafka(
    version: str, *, kafka: str, pool: str, scala: str = "2.13", tokens: str = "4.0.0"
) -> tuple[Coordinate, ...]:
    """Spark's Kafka source as plain jars: of 4.x its token provider is published for 4.0.0 only, which fits later ones
    too."""
    return (
        Coordinate("org.apache.spark", f"spark-sql-kafka-0-10_{scala}", version, without=("*:*",)),
        Coordinate("org.apache.spark", f"spark-token-provider-kafka-0-10_{scala}", tokens, without=("*:*",)),
        Coordinate("org.apache.kafka", "kafka-clients", kafka, without=("*:*",)),
        Coordinate("org.apache.commons", "commons-pool2", pool, without=("*:*",)),
    )


JAR_SETS: dict[str, tuple[Coordinate, ...]] = {
    "paimon": (Coordinate("org.apache.paimon", "paimon-bundle", "1.4.2", without=("*:*",)),),
    # Paimon's own REST server for tests, and what its JDBC catalog needs for SQLite.
    "paimon-catalogs": (
        Coordinate("org.apache.paimon", "paimon-core", "1.4.2", without=("*:*",), classifier="tests"),
        Coordinate("com.squareup.okhttp3", "mockwebserver", "4.12.0"),
        Coordinate("org.xerial", "sqlite-jdbc", "3.44.1.0", without=("*:*",)),
    ),
    "kafka": (
        Coordinate("org.apache.kafka", "kafka_2.13", "4.1.1"),
        # Without a logging back end a broker that fails says nothing.
        Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ),
    "spark-kafka-3.5": _spark_kafka("3.5.7", kafka="3.4.1", pool="2.11.1", scala="2.12", tokens="3.5.7"),
    "spark-kafka-4.0": (Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0", without=_IN_SPARK),),
    "spark-avro-4.0": (Coordinate("org.apache.spark", "spark-avro_2.13", "4.0.0", without=_IN_SPARK),),
    "spark-kafka-4.1": _spark_kafka("4.1.3", kafka="3.9.1", pool="2.12.1"),
    "spark-kafka-4.2": _spark_kafka("4.2.0", kafka="3.9.2", pool="2.13.1"),
    # HDFS in one process. What it shares with Hadoop's client lies among PySpark's jars.
    "hdfs": (
        Coordinate("org.apache.hadoop", "hadoop-client-minicluster", "3.4.1", without=("*:*",)),
        Coordinate("org.mockito", "mockito-core", "2.28.2"),
    ),
    # A Kerberos server in the JVM of that HDFS.
    "kdc": (Coordinate("org.apache.hadoop", "hadoop-minikdc", "3.4.1", without=("org.slf4j:*",)),),
    # What Spark needs for a checkpoint on S3, with the Hadoop of PySpark 4.0.
    "hadoop-aws": (
        Coordinate("org.apache.hadoop", "hadoop-aws", "3.4.1", without=("*:*",)),
        Coordinate("software.amazon.awssdk", "bundle", "2.24.6", without=("*:*",)),
    ),
    # Debezium's engine with two connectors, and the newest converter to Avro whose parts Maven Central has all of.
    "debezium": (
        Coordinate("io.debezium", "debezium-embedded", "3.5.0.Final"),
        Coordinate("io.debezium", "debezium-connector-postgres", "3.5.0.Final"),
        Coordinate("io.debezium", "debezium-connector-mariadb", "3.5.0.Final"),
        Coordinate("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final"),
        Coordinate("org.slf4j", "slf4j-simple", "1.7.36"),
    ),
    "paimon-s3": (Coordinate("org.apache.paimon", "paimon-s3", "1.4.2", without=("*:*",)),),
    "delta": (
        Coordinate("io.delta", "delta-spark_2.13", "4.0.0", without=("*:*",)),
        Coordinate("io.delta", "delta-storage", "4.0.0", without=("*:*",)),
    ),
    "iceberg": (Coordinate("org.apache.iceberg", "iceberg-spark-runtime-4.0_2.13", "1.10.0", without=("*:*",)),),
    # For the Spark 3.5 of PyPI: Maven Central has no bundle of Hudi for Spark 4.0.
    "hudi": (Coordinate("org.apache.hudi", "hudi-spark3.5-bundle_2.12", "1.1.1", without=("*:*",)),),
}


SPARK_KAFKA_SETS = {"3.5": "spark-kafka-3.5", "4.0": "spark-kafka-4.0", "4.1": "spark-kafka-4.1"}
"""By series of Spark; later ones take the jars of the newest set."""


class JarsUnavailableError(RuntimeError):
    """Maven is missing, or could not resolve a set; the message ends with what it printed."""


def cache_dir() -> Path:
    """The folder for everything tests download or build once; created when missing."""
    root = Path(os.environ.get("BUCKETLINE_TEST_CACHE") or CHECKOUT / ".venv" / ".cache")
    root.mkdir(parents=True, exist_ok=True)
    return root


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Holds the cache's lock `name`, against threads and processes of this machine (pytest-xdist workers)."""
    path = cache_dir() / f"{name}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jars(set_name: str) -> tuple[Path, ...]:
    """The jars of a set of `JAR_SETS`, ordered by name; downloads them the first time.

    Errors: KeyError for an unknown set; JarsUnavailableError when Maven cannot resolve it.
    """
    pom = _pom(JAR_SETS[set_name])
    target = cache_dir() / "jars" / f"{set_name}-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"
    if not target.is_dir():
        with exclusive(f"jars-{set_name}"):
            if not target.is_dir():
                _resolve(set_name, pom, target)
    return tuple(sorted(target.glob("*.jar")))


def spark_kafka_jars(spark_version: str) -> tuple[Path, ...]:
    """The Kafka source for a version of Spark, like 4.1.4."""
    return jars(SPARK_KAFKA_SETS.get(".".join(spark_version.split(".")[:2]), "spark-kafka-4.2"))


def class_path(*set_names: str) -> str:
    """The jars of several sets as one Java class path, sets in the order given."""
    return os.pathsep.join(str(jar) for name in set_names for jar in jars(name))


def class_path_on_spark(*set_names: str) -> str:
    """As `class_path`, and behind it PySpark's jars, which carry Hadoop's client and a logger."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None, "pyspark's jars carry Hadoop's client and a logger"
    return f"{class_path(*set_names)}{os.pathsep}{Path(found.origin).parent / 'jars' / '*'}"


def _resolve(set_name: str, pom: str, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError(f"mvn is not on PATH; it is needed to download the jar set {set_name!r}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{set_name}-") as scratch:
        project = Path(scratch) / "pom.xml"
        project.write_text(pom)
        found = Path(scratch) / "jars"
        done = subprocess.run(
            [maven, "-q", "-B", "-f", str(project), COPY_GOAL, f"-DoutputDirectory={found}", "-DincludeScope=runtime"],
            capture_output=True,
            text=True,
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0 or not any(found.glob("*.jar")):
            raise JarsUnavailableError(f"mvn could not resolve {set_name!r}:\n{(done.stdout + done.stderr)[-4000:]}")
        # Only a whole set gets the final name, so whoever sees the folder may use it without the lock.
        found.rename(target)


def _pom(coordinates: tuple[Coordinate, ...]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bucketline</groupId><artifactId>test-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(map(_dependency, coordinates))}</dependencies></project>\n"
    )


def _dependency(coordinate: Coordinate) -> str:
    left_out = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, _, artifact in (pattern.partition(":") for pattern in coordinate.without)
    )
    classifier = f"<classifier>{coordinate.classifier}</classifier>" if coordinate.classifier else ""
    return (
        f"<dependency><groupId>{coordinate.group}</groupId><artifactId>{coordinate.artifact}</artifactId>"
        f"<version>{coordinate.version}</version>{classifier}<exclusions>{left_out}</exclusions></dependency>"
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(JAR_SETS):
        for jar in jars(name):
            print(jar)
