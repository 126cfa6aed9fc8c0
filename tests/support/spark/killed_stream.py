"""A job of many tables that runs on a standalone cluster, whose processes a test kills."""

import json
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pyspark

from tests.support.models.drawn_deaths import DRIVERS, Death, Victim
from tests.support.peers.jars import spark_kafka_jars
from tests.support.spark.standalone import UNREST, Standalone, command_of, is_java, kill_tree, python_workers

LONGEST_SECONDS = 600
"""From one batch to the next, with a start of Spark between them, on a machine with much else to do."""
_LAST_BATCHES = 6


class KilledStream:
    """The job of a job file, submitted to a cluster in one of the two deploy modes."""

    def __init__(self, cluster: Standalone, job_file: Path, deploy_mode: str, draw: random.Random) -> None:
        self._cluster, self._file, self._mode, self._draw = cluster, job_file, deploy_mode, draw
        self._checkpoint = Path(json.loads(job_file.read_text())["checkpoint"])
        self.log = cluster.folder / "submit.log"
        self._submitted: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Submits the job. In client mode the driver is a process of ours, in cluster mode one of a worker."""
        command = self._cluster.submit(
            ["--conf-file", str(self._file)],
            jars=spark_kafka_jars(pyspark.__version__),
            settings=UNREST,
            deploy_mode=self._mode,
        )
        with self.log.open("ab") as out:
            self._submitted = subprocess.Popen(
                command,
                cwd=self._cluster.folder,
                env=self._cluster.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def close(self) -> None:
        """Kills what a test that failed has left of the driver in client mode; the others end with the cluster."""
        if self._submitted is not None and self._submitted.poll() is None:
            kill_tree(psutil.Process(self._submitted.pid))
            self._submitted.wait()

    def batches(self, log: str = "offsets") -> list[int]:
        """The batches in one of Spark's two logs: those that were begun, or with `commits` those that were done."""
        folder = self._checkpoint / log
        return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.exists() else []

    def wait_for(self, batch_id: int, log: str = "offsets") -> None:
        """Returns once that batch has begun, or is done. Fails when the job ends, or stands still."""
        self._wait(lambda: max(self.batches(log), default=-1) >= batch_id, f"batch {batch_id} in {log}")

    def die(self, death: Death) -> None:
        """Waits for the moment of a death and kills; what does not come back by itself is started again."""
        self.wait_for(death.batch_id)
        time.sleep(death.share * self._batch_seconds())  # the moment of death is drawn
        if death.victim is Victim.MACHINE:
            name = self._draw.choice(self._cluster.workers())
            self._cluster.kill(name)
            self._cluster.start_worker(int(name.rpartition("-")[2]))
        elif death.victim in DRIVERS:
            self._kill_driver(death.victim)
        else:
            self._kill_task_side(death.victim)

    def end(self) -> None:
        """Asks the job to end, as an operator does, and waits until it has."""
        python = self._find(lambda: self._driver_pythons())
        python.send_signal(signal.SIGTERM)
        if self._mode == "client":
            assert self._submitted is not None
            code = self._submitted.wait(LONGEST_SECONDS)
            assert code == 0, f"exit code {code}:\n{self.told()}"
        else:
            self._wait(lambda: not self._cluster.drivers(), "the end of the driver", is_ending=True)

    def told(self) -> str:
        """The end of what the drivers have printed."""
        logs = [self.log, *sorted((self._cluster.folder / "work").glob("driver-*/std*"))]
        return "\n".join(f"== {p}\n{p.read_text(errors='replace')[-5000:]}" for p in logs if p.exists())

    def _kill_task_side(self, victim: Victim) -> None:
        if victim is Victim.EXECUTOR:
            kill_tree(self._find(self._cluster.executors))
        else:
            self._find(lambda: list(python_workers(self._cluster.executors()))).kill()

    def _kill_driver(self, victim: Victim) -> None:
        java, python = self._find(self._driver_jvms), self._find(self._driver_pythons)
        killed = {Victim.DRIVER: (java, python), Victim.DRIVER_JVM: (java,), Victim.DRIVER_PYTHON: (python,)}[victim]
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self._mode == "client":
            assert self._submitted is not None
            self._submitted.wait(LONGEST_SECONDS)
            self._wait(
                lambda: not python.is_running() or python.status() == psutil.STATUS_ZOMBIE, "end of Python", True
            )
            self.start()
        else:
            self._wait(lambda: not java.is_running() or java.status() == psutil.STATUS_ZOMBIE, "end of the JVM", True)

    def _driver_jvms(self) -> list[psutil.Process]:
        if self._mode == "cluster":
            return self._cluster.drivers()
        assert self._submitted is not None
        with suppress(psutil.NoSuchProcess):
            return [p for p in (psutil.Process(self._submitted.pid),) if is_java(p)]
        return []

    def _driver_pythons(self) -> list[psutil.Process]:
        found = []
        for java in self._driver_jvms():
            with suppress(psutil.NoSuchProcess):
                found += [p for p in java.children() if "bucketline_ingest.py" in " ".join(command_of(p))]
        return found

    def _find(self, among: Callable[[], list[psutil.Process]]) -> psutil.Process:
        """One of these processes, drawn, once there is any."""
        self._wait(lambda: bool(among()), "a process to kill")
        found = among()
        return self._draw.choice(sorted(found, key=lambda p: p.pid)) if found else self._find(among)

    def _batch_seconds(self) -> float:
        """How long one of the last batches took."""
        newest = self.batches()[-_LAST_BATCHES:]
        times = [(self._checkpoint / "offsets" / str(number)).stat().st_mtime for number in newest]
        return statistics.median([b - a for a, b in pairwise(times)] or [1.0])

    def _wait(self, is_so: Callable[[], bool], what: str, is_ending: bool = False) -> None:
        newest, end = -2, 0.0
        while not is_so():
            begun = max(self.batches(), default=-1)
            if begun > newest:
                newest, end = begun, time.monotonic() + LONGEST_SECONDS
            ended = None if self._submitted is None or self._mode == "cluster" else self._submitted.poll()
            assert is_ending or ended is None, f"the job ended with {ended} before {what}:\n{self.told()}"
            assert time.monotonic() < end, f"no {what}, and for {LONGEST_SECONDS} s no batch:\n{self.told()}"
            time.sleep(0.01)  # the cluster has to get on
