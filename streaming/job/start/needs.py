"""Checks before Spark starts that this machine has what a job needs: packages, the Kafka jar, and files or ports for
metrics.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from bucketline.conf.errors import OptionError
from bucketline.conf.job import SOURCE_FORMAT, JobConfig, ReaderChoice
from bucketline.conf.metrics_options import MetricsOptions
from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.conf.sources.reader_choice import not_native, obstacles
from bucketline.conf.sources.source_options import KAFKA
from bucketline.streaming.metrics.outlets import open_outlets, show_outlets
from bucketline.streaming.metrics.registry import REGISTRY, Metric, MetricKind, Registry
from bucketline.streaming.tasks.first_tasks import client_error

UP = Metric("up", MetricKind.GAUGE, "1 from the start of a job to its end, 0 after it, label name")

_NAMES_JARS = ("--packages", "--jars", "--driver-class-path")
_SETTINGS_WITH_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath", "spark.archives")
_VARIABLES_WITH_JARS = ("SPARK_DIST_CLASSPATH", "SPARK_CLASSPATH", "HADOOP_CLASSPATH")


def require_packages(config: JobConfig, options: Mapping[str, str], has: Callable[[str], bool] | None = None) -> None:
    """Checks that the Python packages that the job needs are installed. Raises OptionError with the name of the missing
    package. `has` returns True if a package is installed; by default this Python is searched.
    """
    installed = has or (lambda name: find_spec(name) is not None)
    if not installed("pandas"):
        raise OptionError(
            "PySpark needs pandas to run functions over Arrow data: install the extra 'spark', or pip install "
            "'pandas>=2.2,<4'",
            key="spark",
        )
    is_native = config.source.format == KAFKA and config.source.reader is ReaderChoice.NATIVE
    if is_native and not obstacles(config.source, options):
        why = client_error(kafka_client(options, config.source.token_provider).settings)
        if why:
            raise not_native(why)


def require_kafka_jar(
    source_format: str,
    arguments: Sequence[str],
    settings: Mapping[str, str],
    spark_home: str,
    version: str,
    variables: Mapping[str, str] = os.environ,
) -> None:
    """Raises OptionError, with the package to add, if Spark certainly has no Kafka source. This is certain if nothing
    adds jars (neither Spark's arguments, settings and environment variables nor a `spark-env.sh`), and Spark's folder
    holds no Kafka jar. In a doubtful case nothing is raised.

    `variables` are the environment variables of this process, which starts Spark.
    """
    if source_format != KAFKA:
        return
    named = any(a == n or a.startswith(f"{n}=") for a in arguments for n in _NAMES_JARS)
    if named or any(settings.get(key) for key in _SETTINGS_WITH_JARS):
        return
    folder = Path(variables.get("SPARK_CONF_DIR") or Path(spark_home, "conf"))
    may_be_named = any(variables.get(name) for name in _VARIABLES_WITH_JARS) or (folder / "spark-env.sh").exists()
    if may_be_named or any(Path(spark_home, "jars").glob("*kafka*")):
        return
    raise OptionError(no_kafka_source(version), key=SOURCE_FORMAT.key)


def no_kafka_source(version: str) -> str:
    """Returns the error text for a Spark without a Kafka source. The text names the package to add, which for PySpark
    3.5 is the package for Scala 2.12.
    """
    series = ".".join(version.split(".")[:2])
    scala, fix = ("2.12", 7) if series == "3.5" else ("2.13", 0)
    package = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{series}.{fix}"
    return (
        f"Spark {version} has no Kafka source on this machine: start the job with --packages {package} "
        "(without spark-submit: in "
        "PYSPARK_SUBMIT_ARGS, before pyspark-shell); docs/kafka.md names the jars"
    )


@contextmanager
def shown_as_up(
    settings: MetricsOptions, name: str, table: str, registry: Registry = REGISTRY
) -> Iterator[dict[str, str]]:
    """Opens the files and ports for metrics, and shows that the job is up until the block ends. Yields the labels of
    the job.

    Raises OptionError for a file or port that cannot be opened, such as a port that is in use.
    """
    open_outlets(settings, registry)
    labels = {"name": name, "table": table}
    registry.set(UP, 1, labels)
    show_outlets(settings, registry)
    try:
        yield labels
    finally:
        registry.set(UP, 0, labels)
        show_outlets(settings, registry)
