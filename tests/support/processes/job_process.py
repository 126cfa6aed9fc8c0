"""A job as processes of its own, as an operator starts it, by the command line or by spark-submit.

Everything it prints is kept, and can be waited for line by line.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from bucketline.state.store.table.table import Table, open_table

_LONGEST_SECONDS = 400
_LOOK_SECONDS = 0.05
_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
_DRIVERS = {"--conf-file", "quickstart"}
_SPARK = ("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=512m")
_COMMAND_LINE = [sys.executable, "-m", "bucketline.streaming", "ingest"]
_SCRIPT = Path(__file__).parents[3] / "streaming" / "submit" / "bucketline_ingest.py"
_SUBMIT = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *_SPARK, str(_SCRIPT)]


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A folder with the input, the table and the checkpoint of one job."""

    root: Path

    @property
    def input(self) -> Path:
        return self.root / "input"

    def table(self) -> Table:
        return open_table(str(self.root / "shop.db" / "orders"))

    def add(self, number: int, *lines: str) -> None:
        """One more file, which will be one more batch; Spark takes files in the order of their times."""
        self.input.mkdir(exist_ok=True)
        path = self.input / f"{number:03}.json"
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def command(
        self,
        *settings: str,
        submit: bool = False,
        flags: Sequence[str] = (),
        parts: Mapping[str, object] | None = None,
    ) -> list[str]:
        """The command that starts the job; `settings` are added to those of the job file, and `parts` replace parts of
        it; None takes one out."""
        config: dict[str, object] = {
            "table": str(self.root / "shop.db" / "orders"),
            "source": {
                "format": "text",
                "decode": "json",
                "options": {"path": str(self.input), "maxFilesPerTrigger": "1"},
            },
            "checkpoint": str(self.root / "checkpoint"),
            "trigger": "0 s",
            "create": {"schema": "id BIGINT NOT NULL, n BIGINT", "primary-key": "id", "options": {"bucket": "2"}},
            **(parts or {}),
        }
        config = {key: value for key, value in config.items() if value is not None}
        (self.root / "job.json").write_text(json.dumps(config))
        assigned = [part for setting in settings for part in ("--set", setting)]
        start = _SUBMIT if submit else _COMMAND_LINE
        return [*start, *flags, "--conf-file", str(self.root / "job.json"), *assigned]


class JobProcess:
    """A running job, which leads a process group of its own, and what it has printed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.lines: list[str] = []

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def read_until(self, text: str) -> None:
        """Returns when a line with that text has been printed; fails when the job ends without it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"no line with {text!r} in:\n{self.output}")

    def await_java(self) -> None:
        """Returns when Spark's JVM has begun, whatever it prints; fails when it has not begun after a long while.

        Spark's start script runs another Java before, which makes the command line of the JVM.
        """
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not any(_is_spark(p) for p in self.processes()):
            assert time.monotonic() < deadline and self._process.poll() is None, self.output
            time.sleep(_LOOK_SECONDS)

    def end(self) -> int:
        """Reads what is left, and returns the exit code."""
        assert self._process.stdout is not None
        self.lines += self._process.stdout
        return self._process.wait()

    def left_by_end(self, before: Sequence[psutil.Process]) -> list[psutil.Process]:
        """Waits until the started process has ended; those processes that live then, among those seen before."""
        self._process.wait()
        return [p for p in before if _lives(p)]

    def processes(self) -> list[psutil.Process]:
        """The started process and all below it that live."""
        top = psutil.Process(self._process.pid)
        return [p for p in (top, *top.children(recursive=True)) if _lives(p)]

    def java(self) -> psutil.Process:
        """Spark's JVM."""
        return next(p for p in self.processes() if p.name() == "java")

    def python(self) -> psutil.Process:
        """The Python of the driver: the started process, or the one that spark-submit has started."""
        return next(p for p in self.processes() if p.name() != "java" and _DRIVERS & set(p.cmdline()))

    def kill(self) -> None:
        """Kills the driver, Spark's JVM and the workers, as when the power fails."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def signal_group(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)


def _is_spark(process: psutil.Process) -> bool:
    """Whether a process is Spark's JVM; False if it has ended meanwhile."""
    with suppress(psutil.Error):
        return process.name() == "java" and _MAIN_CLASS in process.cmdline()
    return False


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _as_from_a_terminal() -> None:
    """Tests may be run with signals ignored, by `nohup` or in the background of a script."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def started(
    folder: JobFolder, command: Sequence[str], jars: Sequence[Path] = (), longest_seconds: float = _LONGEST_SECONDS
) -> Iterator[JobProcess]:
    """The process of a command, killed with all its group at the end of the block or after a long while."""
    more = ["--jars", ",".join(map(str, jars))] if jars else []
    env = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": " ".join([*more, *_SPARK, "pyspark-shell"]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder.root / "local"),
    }
    process = subprocess.Popen(
        command,
        cwd=folder.root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_as_from_a_terminal,
    )

    def kill() -> None:
        for below in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                below.kill()
        process.kill()

    too_long = threading.Timer(longest_seconds, kill)
    too_long.start()
    try:
        yield JobProcess(process)
    finally:
        too_long.cancel()
        if process.poll() is None:
            kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
