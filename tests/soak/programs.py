"""Jobs and compactors of a soak: programs that are started, looked at, ended or killed, and started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from tests.support.peers.jars import spark_kafka_jars

_PROGRAM = [sys.executable, "-m", "bucketline.streaming"]
_SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # What Spark keeps of each batch has to be full before the first third: nothing may grow after it.
    "spark.sql.streaming.minBatchesToRetain": "4",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}
_END_TIMEOUT_S = 180


@dataclass
class Program:
    """A command that is to run all the time. `unasked` are the ends that nobody had asked for."""

    name: str
    command: Sequence[str]
    root: Path
    env: Mapping[str, str] = field(default_factory=dict)
    unasked: list[str] = field(default_factory=list)
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> Path:
        """What the program has printed, in all of its lives."""
        return self.root / f"{self.name}.log"

    def start(self) -> None:
        """Starts the program in a process group of its own."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [*_PROGRAM, *self.command],
                cwd=self.root,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def look(self) -> None:
        """Starts the program again if it has ended by itself, which is noted."""
        if self._process is not None and self._process.poll() is not None:
            last = self.log.read_text(errors="replace").splitlines()[-3:]
            self.unasked.append(f"{self.name} ended with {self._process.returncode}: {' | '.join(last)}")
            self.start()

    def processes(self) -> list[psutil.Process]:
        """The program and all processes below it; none while it does not run."""
        with suppress(psutil.NoSuchProcess):
            if self._process is not None and self._process.poll() is None:
                top = psutil.Process(self._process.pid)
                return [top, *top.children(recursive=True)]
        return []

    def kill(self) -> None:
        """Kills the program and all below it."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._gone()

    def end(self) -> None:
        """Asks the program to end, and waits until it has. An end that is none of success is noted."""
        if self._process is None or self._process.poll() is not None:
            self.look()
        assert self._process is not None, "the program was started"
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = -1
            self.kill()
        if code != 0:
            last = self.log.read_text(errors="replace").splitlines()[-3:]
            self.unasked.append(f"{self.name}, asked to end, ended with {code}: {' | '.join(last)}")
        self._gone()

    def wait(self, seconds: float) -> int:
        """Waits until the program has ended by itself. Returns its exit code."""
        assert self._process is not None, "the program was started"
        return self._process.wait(seconds)

    def _gone(self) -> None:
        if self._process is not None:
            self._process.wait()
        self._process = None


def job(name: str, file: Path, root: Path) -> Program:
    """The job of a job file, on a Spark of its own."""
    words = [f"--conf {key}={value}" for key, value in _SPARK.items()]
    jars = ",".join(map(str, spark_kafka_jars(pyspark.__version__)))
    env = {
        "PYSPARK_SUBMIT_ARGS": " ".join(["--master local[2]", f"--jars {jars}", *words, "pyspark-shell"]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(root / "local"),
    }
    return Program(name, ["ingest", "--conf-file", str(file)], root, env)


def compactor(name: str, tables: Sequence[str], storage_file: Path, root: Path) -> Program:
    """A compactor of these tables."""
    waits = ["--poll", "1 s", "--lease", "15 s"]
    return Program(name, ["compactor", *tables, "--storage-file", str(storage_file), *waits], root)


def drivers_of(
    processes: Sequence[psutil.Process],
) -> tuple[list[psutil.Process], list[psutil.Process], list[psutil.Process]]:
    """Sorts the processes of a job: the driver's Python, its JVM, and the Pythons that run tasks."""
    python, java, tasks = [], [], []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline())
            if process.name() == "java":
                java.append(process)
            elif "daemon" in words:
                tasks.append(process)
            elif "ingest" in words:
                python.append(process)
    return python, java, tasks


def wait_until(is_so: Callable[[], bool], what: str, seconds: float) -> None:
    """Returns once it is so. Raises TimeoutError."""
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(0.2)  # other processes have to get on
