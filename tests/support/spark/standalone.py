"""Spark's standalone cluster on this machine: a master, workers, and jobs that are submitted to it.

Each process leads a group of its own, and can be killed and started again. Executors and drivers are found among the
children of the workers, as the product knows nothing of this cluster.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from bucketline.streaming.cli.ship import build_zip
from tests.support.servers.broker import free_ports

_SPARK = Path(pyspark.__file__).parent
_SCRIPT = Path(__file__).parents[3] / "streaming" / "submit" / "bucketline_ingest.py"
START_TIMEOUT_S = 120.0
CORES = 3
"""The cores of a worker: two for its executor, and one for a driver of cluster mode."""
_RUNNER = "org.apache.spark.deploy.PythonRunner"
UNREST = {
    "spark.task.maxFailures": "20",
    "spark.stage.maxConsecutiveAttempts": "20",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.task.duration.threshold": "3s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
}
"""Settings by which tasks that fail are tried again many times, and slow ones are run twice."""


class Standalone:
    """A master and two workers below `folder`."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.port, *_ = free_ports(1)
        self.master = f"spark://127.0.0.1:{self.port}"
        self._count = workers
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "local").mkdir(parents=True)

    def __enter__(self) -> Self:
        try:
            self._start(
                "master",
                ["org.apache.spark.deploy.master.Master", "--port", str(self.port)],
                "I have been elected leader",
            )
            for number in range(self._count):
                self.start_worker(number)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Kills all processes of the cluster and what runs on it."""
        for name in tuple(self._processes):
            self.kill(name)

    def kill(self, name: str) -> None:
        """Kills the master, or a worker with its executors and drivers: those have groups of Spark's own."""
        process = self._processes.pop(name)
        below = self._below(process)
        process.kill()
        process.wait()
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def start_worker(self, number: int) -> None:
        """Starts a worker, the first time or after its death."""
        command = ["org.apache.spark.deploy.worker.Worker", "-c", str(CORES), "-m", "3g", self.master]
        self._start(f"worker-{number}", command, "Successfully registered with master")

    def workers(self) -> list[str]:
        """The names of the workers that run."""
        return [name for name in self._processes if name != "master"]

    def executors(self) -> list[psutil.Process]:
        """The JVMs of all executors."""
        return self._running("CoarseGrainedExecutorBackend")

    def drivers(self) -> list[psutil.Process]:
        """The JVMs of all drivers in cluster mode."""
        return self._running("DriverWrapper")

    def _running(self, main: str) -> list[psutil.Process]:
        found = [p for name in self.workers() for p in self._below(self._processes[name])]
        return [p for p in found if any(main in word for word in command_of(p)) and is_java(p)]

    def _below(self, process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(process.pid).children(recursive=True)
        return []

    def _start(self, name: str, command: Sequence[str], text: str) -> None:
        log = self.folder / f"{name}.log"
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [str(_SPARK / "bin" / "spark-class"), *command, "--host", "127.0.0.1", "--webui-port", "0"],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + START_TIMEOUT_S
        while text.encode() not in log.read_bytes()[before:]:
            if self._processes[name].poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.05)  # it has to start

    def environment(self) -> dict[str, str]:
        """What all processes of the cluster have in their environment."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK", "PYSPARK"))}
        return {
            **kept,
            "SPARK_HOME": str(_SPARK),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-XX:+UseSerialGC -Dspark.deploy.maxExecutorRetries=-1",
            "SPARK_WORKER_OPTS": "-XX:+UseSerialGC",
        }

    def submit(
        self, arguments: Sequence[str], *, jars: Sequence[Path], settings: Mapping[str, str], deploy_mode: str
    ) -> list[str]:
        """The command that submits the job of `bucketline ingest` with these arguments.

        Spark refuses programs in Python in cluster mode on a standalone cluster. There the driver is given Spark's own
        class that runs such programs, and the master starts the driver again when it dies.
        """
        package = build_zip(self.folder / "zip")
        confs = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "600m",
            "spark.executor.memory": "600m",
            "spark.executor.cores": str(CORES - 1),
            "spark.cores.max": str(self._count * (CORES - 1)),
            "spark.sql.shuffle.partitions": "4",
            "spark.default.parallelism": "4",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.master.rest.enabled": "false",
            **settings,
        }
        jar_list = ",".join(map(str, jars))
        start = [
            str(_SPARK / "bin" / "spark-submit"),
            *("--master", self.master, "--deploy-mode", deploy_mode, "--jars", jar_list),
            *(word for key, value in confs.items() for word in ("--conf", f"{key}={value}")),
        ]
        if deploy_mode == "client":
            return [*start, "--py-files", str(package), str(_SCRIPT), *arguments]
        classes = ["--conf", f"spark.driver.extraClassPath={jar_list.replace(',', ':')}"]
        packages = ["--conf", f"spark.submit.pyFiles={package}"]
        program = ["--supervise", "--class", _RUNNER, str(jars[0]), str(_SCRIPT), str(package)]
        return [*start, *classes, *packages, *program, *arguments]


def command_of(process: psutil.Process) -> list[str]:
    """The command line of a process; nothing of one that has ended."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return list(process.cmdline())
    return []


def is_java(process: psutil.Process) -> bool:
    """Whether the process is a JVM that runs, and none that Spark's scripts ask for a command line."""
    with suppress(psutil.NoSuchProcess):
        return process.name() == "java" and process.status() != psutil.STATUS_ZOMBIE
    return False


def python_workers(executors: Sequence[psutil.Process]) -> Iterator[psutil.Process]:
    """The Python processes that run tasks for these executors, without the daemons that fork them."""
    for executor in executors:
        with suppress(psutil.NoSuchProcess):
            for daemon in executor.children():
                with suppress(psutil.NoSuchProcess):
                    yield from daemon.children()


def kill_tree(top: psutil.Process) -> None:
    """Kills a process and all below it."""
    with suppress(psutil.NoSuchProcess):
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
