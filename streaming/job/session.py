"""The Spark session of a job: the running session, or a new one whose JVM gets no signals that are sent to this
process's group.

Ctrl-C and `timeout` signal a whole process group. A JVM in that group would end before the batch. A JVM in its own
group ends with this process, because it finds its standard input closed.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from bucketline.conf.errors import OptionError
from bucketline.conf.job_file.properties_file import parse_properties
from bucketline.streaming.batch.preflight import connect_refused, worker_python_advice
from bucketline.streaming.job.start.java_process import Printed, end_java, why_not_started
from bucketline.streaming.worker import DAEMON

_LAUNCHED_BY_SPARK = "PYSPARK_GATEWAY_PORT"
_PYTHON_OF_WORKERS = "PYSPARK_PYTHON"
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_CONNECT = "SPARK_REMOTE"
_QUIET: Mapping[str, str] = {"spark.ui.showConsoleProgress": "false"}
"""Settings of a job's own JVM, unless the user sets another value. Spark's progress bars would mix with the lines of
the log."""
_DAEMON = "spark.python.daemon.module"
_MASTER = "spark.master"
_PACKAGES = "spark.jars.packages"

_own: list[Any] = [None]
"""The gateway to the JVM that this process has started; None if it has started none."""


def is_running() -> bool:
    """Returns True if this process already has a Spark session."""
    return SparkSession.getActiveSession() is not None


def start_session(name: str, settings: Mapping[str, str] | None = None) -> Any:
    """Returns the running Spark session, or a new session with these settings. Workers use this Python unless the user
    sets another.

    Raises OptionError if Spark does not start, and for Spark Connect.
    """
    if _CONNECT in os.environ:
        raise connect_refused()
    try:
        if starts_java():
            os.environ.setdefault(_PYTHON_OF_WORKERS, sys.executable)
            _start_jvm(name, settings or {})
        return SparkSession.builder.appName(name).getOrCreate()
    except Py4JJavaError as e:
        why = str(e.java_exception.toString()).splitlines()[0]
        _end_own()
        raise OptionError(f"Spark did not start: {why}", key="spark") from e
    except (PySparkException, Py4JError, OSError) as e:
        _end_own()
        raise OptionError(f"Spark did not start: {e}", key="spark") from e


def end_session(session: Any) -> None:
    """Stops a session. If this process has started the session's JVM, returns when the JVM has ended."""
    with suppress(PySparkException, Py4JError, ConnectionError):
        session.stop()
    _end_own()


def starts_java() -> bool:
    """Returns True if this process must start a JVM to get a session."""
    return _LAUNCHED_BY_SPARK not in os.environ and SparkContext._gateway is None


def settings_to_start_with() -> tuple[list[str], dict[str, str], str]:
    """Returns the arguments and settings with which this process starts Spark, and the folder of the Spark that it
    starts.
    """
    arguments = submit_arguments()
    return arguments, {**_defaults(arguments), **_chosen(arguments)}, str(_find_spark_home())


def awaited_packages(arguments: Sequence[str]) -> str | None:
    """Returns the packages that Spark fetches before it has started; None if the arguments contain no packages."""
    named = [b for a, b in pairwise(arguments) if a == "--packages"]
    return named[-1] if named else _chosen(arguments).get(_PACKAGES)


def settings_of_own(arguments: Sequence[str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that bucketline adds for a JVM that it starts itself, without settings that the user has
    set.

    With one of these settings Spark forks Python workers from a process that has loaded the needed modules. The setting
    is added only if Spark runs on this machine with this Python, because only then it is certain to work.
    """
    chosen = {**defaults, **_chosen(arguments)}
    ours = dict(_QUIET)
    if (
        chosen.get(_MASTER, os.environ.get("MASTER", "local")).partition("[")[0] == "local"
        and worker_python_advice(chosen) is None
    ):
        ours[_DAEMON] = DAEMON
    return {key: text for key, text in ours.items() if key not in chosen}


def _end_own() -> None:
    """Ends and forgets the JVM that this process has started, if there is one."""
    gateway = _own[0]
    if gateway is not None and gateway is SparkContext._gateway:
        _own[0] = SparkContext._gateway = SparkContext._jvm = None
        end_java(gateway)


def _start_jvm(name: str, settings: Mapping[str, str]) -> None:
    conf, of_context = SparkConf(loadDefaults=False), SparkConf(loadDefaults=False).setAppName(name)
    for key, text in settings_of_own(submit_arguments(), _defaults(submit_arguments())).items():
        conf.set(key, text)
    for key, text in settings.items():
        conf.set(key, text)
        of_context.set(key, text)
    printed = Printed()
    try:
        gateway = launch_gateway(conf, popen_kwargs={"process_group": 0, "stderr": printed.pipe})
    except (PySparkException, OSError) as e:
        printed.started()
        raise OptionError(
            why_not_started(printed.text(), str(e), awaited_packages(submit_arguments())), key="spark"
        ) from e
    printed.started()
    printed.forget()
    _own[0] = gateway
    SparkContext(conf=of_context, gateway=gateway)


def submit_arguments() -> list[str]:
    """Returns the arguments with which this process starts Spark."""
    return shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, ""))


def _chosen(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the settings in `--conf key=value` and `--master`."""
    pairs = [b for a, b in pairwise(arguments) if a in ("--conf", "-c")]
    pairs += [a.removeprefix("--conf=") for a in arguments if a.startswith("--conf=")]
    masters = [b for a, b in pairwise(arguments) if a == "--master"]
    masters += [a.removeprefix("--master=") for a in arguments if a.startswith("--master=")]
    named = {_MASTER: masters[-1]} if masters else {}
    return {key: text for key, _, text in (pair.partition("=") for pair in pairs)} | named


def _defaults(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the settings in the properties file that Spark will read. A file that cannot be read is left to Spark,
    which reports it.
    """
    named = [b for a, b in pairwise(arguments) if a == "--properties-file"]
    folder = os.environ.get("SPARK_CONF_DIR") or f"{_find_spark_home()}/conf"
    try:
        text = Path(named[-1] if named else f"{folder}/spark-defaults.conf").read_text(encoding="utf-8")
        return dict(parse_properties(text))
    except (OSError, UnicodeDecodeError, OptionError):
        return {}
