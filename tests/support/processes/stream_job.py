"""A program that streams files into tables and can be killed at a named step.

`python -m tests.support.processes.stream_job` starts it.

Its one argument is a `StreamJob` as JSON. It leads a process group of its own, and a kill takes the whole group: the
driver's Python and the JVM below it die in the same moment, as when a machine goes down. Kill points are put around the
product's steps here, in this process; the product knows nothing of them.

To start Spark takes far longer than a batch. So a run can also live through many deaths: at each it keeps a copy of its
files, which is all that a death leaves, gives the query up, and starts a new one on the copy.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from bucketline.state.format.entries import CommitKind
from bucketline.state.store.commit import snapshot_commit
from bucketline.streaming.batch import write_batch
from bucketline.streaming.batch.sink import TableSink
from tests.support.spark.streams import FileStream

ROOT = Path(__file__).parents[3]

KILL_POINTS = (
    "before write",
    "after level 0",
    "after manifests",
    "after APPEND",
    "between APPEND and COMPACT",
    "after COMPACT",
    "before Spark's commit log",
)


@dataclass(frozen=True, slots=True)
class Kill:
    """Where a run dies: at a point of one batch, while it writes the table with that position in the job."""

    point: str
    batch_id: int
    table: int = 0


@dataclass(frozen=True, slots=True)
class StreamJob:
    """One run of a query over the files in `root`/input until they are all written.

    Every batch goes into each of `tables`, one after the other. `kill` names a step to die at, `kill_after_seconds` a
    moment, counted from the first batch; without either the run ends by itself. It goes through `deaths` first, and
    what each of them left is in `left(root, number)`; the tables have to lie in `root`.
    """

    root: str
    ddl: str
    tables: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    kill: Kill | None = None
    kill_after_seconds: float | None = None
    deaths: tuple[Kill, ...] = ()

    def run(self, *, timeout_seconds: float = 300, python: str = sys.executable) -> int:
        """Runs in a process group of its own, with the Spark of that Python; the exit code, -9 after a kill. What it
        printed is in `root`/log.
        """
        with (Path(self.root) / "log").open("ab") as log:
            process = subprocess.Popen(
                [python, "-m", "tests.support.processes.stream_job", json.dumps(asdict(self))],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
                start_new_session=True,
            )
            try:
                return process.wait(timeout_seconds)
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def log(self) -> str:
        return (Path(self.root) / "log").read_text()


def left(root: Path, number: int) -> Path:
    """The folder with the tables and the checkpoint as that of `deaths` left them; one more is the end."""
    return root / f"left-{number}"


def session(root: Path) -> SparkSession:
    """A Spark session of two local threads, as quick to start as there is."""
    return (
        SparkSession.builder.master("local[2]")
        .appName("bucketline-stream-job")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC -XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.local.dir", str(root / "local"))
        .config("spark.sql.warehouse.dir", str(root / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .getOrCreate()
    )


def die() -> None:
    """SIGKILL for this process and all that it has started, itself included: nothing is flushed, nothing cleaned up."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


class KillSwitch:
    """Knows where the job is, and dies where it was told to."""

    def __init__(self, kill: Kill | None) -> None:
        self.kill = kill
        self.die: Callable[[], None] = die
        self.batch_id = self.table = -1

    def passes(self, point: str) -> None:
        assert point in KILL_POINTS, point
        if self.kill == Kill(point, self.batch_id, self.table):
            self.die()

    def install(self) -> None:
        """Puts the points around the steps of the sink and of the commit."""
        write_batch.run = self._around_tasks(write_batch.run)
        snapshot_commit.publish_snapshot = self._around_publish(snapshot_commit.publish_snapshot)

    def _around_tasks(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def run_tasks(*args: Any) -> Any:
            self.passes("before write")
            outcome = run(*args)
            self.passes("after level 0")
            return outcome

        return run_tasks

    def _around_publish(self, publish: Callable[..., Any]) -> Callable[..., Any]:
        def publish_snapshot(snapshots: Any, manifests: Any, snapshot: Any, *rest: Any) -> Any:
            is_append = snapshot.commit_kind is CommitKind.APPEND
            self.passes("after manifests" if is_append else "between APPEND and COMPACT")
            publication = publish(snapshots, manifests, snapshot, *rest)
            self.passes("after APPEND" if is_append else "after COMPACT")
            return publication

        return publish_snapshot


class GivenUpError(Exception):
    """The files have been copied as a death would leave them; what the query still does is not looked at."""


def main(text: str) -> None:
    told = json.loads(text)
    job = StreamJob(
        **{
            **told,
            "kill": None if told["kill"] is None else Kill(**told["kill"]),
            "deaths": tuple(Kill(**death) for death in told["deaths"]),
        }
    )
    switch = KillSwitch(job.kill)
    switch.install()
    spark = session(Path(job.root))
    if job.deaths:
        _live_through(job, spark, switch)
    else:
        _stream(job, spark, switch, FileStream(Path(job.root), job.ddl))


def _stream(job: StreamJob, spark: SparkSession, switch: KillSwitch, stream: FileStream) -> None:
    sinks = [TableSink(path, job.options) for path in job.tables]
    timer: list[threading.Thread] = []

    def write(frame: Any, batch_id: int) -> None:
        if job.kill_after_seconds is not None and not timer:
            timer.append(threading.Thread(target=_die_after, args=(job.kill_after_seconds,), daemon=True))
            timer[0].start()
        switch.batch_id = batch_id
        for position, sink in enumerate(sinks):
            switch.table = position
            sink(frame, batch_id)
            switch.passes("before Spark's commit log")

    stream.run(spark, write)


def _live_through(job: StreamJob, spark: SparkSession, switch: KillSwitch) -> None:
    """Runs once for each death and then to the end, each time on a copy of what was left, with the one input."""
    root = life = Path(job.root)
    for number, death in enumerate((*job.deaths, None)):
        image, is_whole = left(root, number), threading.Event()

        def give_up(life: Path = life, image: Path = image, is_whole: threading.Event = is_whole) -> None:
            _copy(life, image)
            is_whole.set()
            raise GivenUpError

        switch.kill, switch.die = death, give_up
        tables = tuple(path.replace(str(root), str(life), 1) for path in job.tables)
        stream = FileStream(root, job.ddl)
        stream.checkpoint = life / "checkpoint"
        try:
            _stream(replace(job, tables=tables), spark, switch, stream)
        except StreamingQueryException:
            if not is_whole.is_set():
                raise
        else:
            assert death is None, f"it ended before {death}"
            _copy(life, image)
        # The query that was given up may still write into the folder it had.
        life = root / f"life-{number + 1}"
        _copy(image, life)


def _copy(life: Path, to: Path) -> None:
    for folder in ("shop.db", "checkpoint"):
        shutil.copytree(life / folder, to / folder)


def _die_after(seconds: float) -> None:
    time.sleep(seconds)
    die()


if __name__ == "__main__":
    main(sys.argv[1])
