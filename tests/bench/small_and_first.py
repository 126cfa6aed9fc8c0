"""Small batches and first batches of a job that reads Kafka, each stream in a process of its own, as a user starts it.

A warm batch of 1,000 records is compared with an empty `foreachBatch` over the same topic, and with one that has Spark
read the records; a job's first batch with that of an older commit. Times are those of the files in Spark's checkpoint:
from the end of a batch to the end of the next is all that a batch costs, planning and Spark's own logs included.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pyspark

from tests.bench.kafka import KINDS
from tests.bench.result import Result, Size, folder_bytes
from tests.bench.watch import WorkerWatch, cpu_of
from tests.support.peers.jars import CHECKOUT, spark_kafka_jars
from tests.support.processes.old_release import unpack_release
from tests.support.servers.broker import KafkaBroker, KafkaRecord

OLDER = "5b275a2"
"""The last commit whose tasks get Kafka's records from Spark alone."""

PARTITIONS = 4
SMALL, WARMING, MEASURED, WINDOW = 1000, 15, 30, 5
FIRST = (100_000, 500_000)
LONGEST_SECONDS = 300.0
_POLL_SECONDS = 0.005
_SUBMIT = (
    "--master local[2] --driver-memory 2g --conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1 "
    "--conf spark.driver.host=127.0.0.1 --conf spark.log.level=ERROR --jars {jars} pyspark-shell"
)
PLAIN, OURS = ("empty", "noop"), ("native", "spark")


@dataclass(frozen=True, slots=True)
class Stream:
    """Seconds of a stream: to the end of its first batch from the start of the process (`up`) and from the moment when
    Spark had planned that batch (`first`), of each later batch, and of CPU a batch, some batches at a time."""

    up: float
    first: float
    later: tuple[float, ...]
    cpu: tuple[float, ...]
    cpu_in_all: float

    @property
    def warm(self) -> tuple[float, ...]:
        return self.later[WARMING:]


@dataclass(frozen=True, slots=True)
class Streams:
    """Runs streams over the topics of a broker, in folders of their own."""

    broker: KafkaBroker
    root: Path
    older: Path

    def in_turns(self, names: Sequence[str], topic: str, most: int, turns: int) -> dict[str, list[Stream]]:
        """Each of these by turns, so that a slow spell of the machine hits all of them."""
        found: dict[str, list[Stream]] = {name: [] for name in names}
        for turn in range(turns):
            for name in names:
                found[name].append(self.run(name, topic, most, self.root / f"{topic}-{name}-{turn}"))
        return found

    def run(self, name: str, topic: str, most: int, folder: Path) -> Stream:
        """A stream from its process's start until it has read the topic, `most` records a batch."""
        folder.mkdir()
        tree = self.older if name == "older" else CHECKOUT
        jars = ",".join(map(str, spark_kafka_jars(pyspark.__version__)))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (tree / "src", tree))),
            "PYSPARK_SUBMIT_ARGS": _SUBMIT.format(jars=jars),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        of = self._plain if name in PLAIN else self._job
        with (folder / "log").open("wb") as log:
            started = time.time()
            process = subprocess.Popen(
                [sys.executable, "-m", *of(name, topic, most, folder)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            cpu, in_all = _watched(process, folder / "checkpoint" / "commits")
        assert process.returncode == 0, (folder / "log").read_text()[-4000:]
        planned, ended = (_times(folder / "checkpoint" / part) for part in ("offsets", "commits"))
        later = tuple(b - a for a, b in pairwise(ended))
        return Stream(ended[0] - started, ended[0] - planned[0], later, cpu, in_all)

    def _plain(self, does: str, topic: str, most: int, folder: Path) -> Sequence[str]:
        given = {"servers": self.broker.bootstrap_servers, "topic": topic, "most": most, "does": does}
        return "tests.bench.plain_query", json.dumps(given | {"checkpoint": str(folder / "checkpoint")})

    def _job(self, name: str, topic: str, most: int, folder: Path) -> Sequence[str]:
        settings = {
            "table": f"{folder / 'k.db' / 't'}",
            "source.format": "kafka",
            "source.options.kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "source.options.subscribe": topic,
            "source.options.startingOffsets": "earliest",
            "source.options.maxOffsetsPerTrigger": most,
            "source.decode": "json",
            "checkpoint": f"file:{folder / 'checkpoint'}",
            "trigger": "availableNow",
            "create.schema": KINDS[0].schema,
            "create.primary-key": "id",
            "create.options.bucket": 4,
            "options.compaction": "none",
        } | ({} if name == "older" else {"source.reader": name})
        job = folder / "job.properties"
        job.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        return "bucketline.streaming", "ingest", "--conf-file", str(job)


def run(size: Size, root: Path) -> Sequence[Result]:
    with KafkaBroker() as broker, WorkerWatch() as watch:
        streams = Streams(broker, root, unpack_release(OLDER, root / "older").folder)
        counts = {"small": SMALL * (WARMING + MEASURED + 1)} | {f"first-{n}": size.rows(n) for n in FIRST}
        for topic, count in counts.items():
            broker.create_topic(topic, partitions=PARTITIONS)
            made = KINDS[0].make(count)
            broker.produce(topic, (KafkaRecord(text, str(i).encode(), i % PARTITIONS) for i, text in made))
        small = streams.in_turns((*PLAIN, *OURS), "small", SMALL, size.repeats)
        found = [_warm(small, name, root, watch) for name in OURS]
        for topic, count in counts.items():
            if topic != "small":
                firsts = streams.in_turns(("older", *OURS), topic, count + PARTITIONS, size.repeats)
                found += [_first(firsts, name, count, root, topic, watch) for name in OURS]
    return found


def _warm(streams: dict[str, list[Stream]], name: str, root: Path, watch: WorkerWatch) -> Result:
    seconds = {n: [median(s.warm) for s in found] for n, found in streams.items()}
    return Result(
        name=f"small {name}",
        what=f"a warm batch of {SMALL:,} records, {_WHAT[name]}, against an empty foreachBatch",
        rows=SMALL,
        seconds=median(seconds[name]),
        other_seconds=median(seconds["empty"]),
        written_bytes=folder_bytes(root / f"small-{name}-0" / "k.db"),
        worker_peak_bytes=watch.peak_bytes,
        ratio=median(a / b for a, b in zip(seconds[name], seconds["empty"], strict=True)),
        at_most=3.0,
        memory_limit_bytes=1 << 30,
        detail={
            "median": seconds,
            "lowest quarter": {n: [lowest_quarter(s.warm) for s in found] for n, found in streams.items()},
            "cpu": {n: [median(s.cpu) for s in found] for n, found in streams.items()},
            "cpu, lowest": {n: [min(s.cpu) for s in found] for n, found in streams.items()},
            "cpu ratio": median(median(s.cpu) for s in streams[name]) / median(median(s.cpu) for s in streams["empty"]),
        },
    )


def _first(
    streams: dict[str, list[Stream]], name: str, count: int, root: Path, topic: str, watch: WorkerWatch
) -> Result:
    ours, older = streams[name], streams["older"]
    return Result(
        name=f"first {name}",
        what=f"the first batch of {count:,} records, {_WHAT[name]}, against commit {OLDER}",
        rows=count,
        seconds=median(s.first for s in ours),
        other_seconds=median(s.first for s in older),
        written_bytes=folder_bytes(root / f"{topic}-{name}-0" / "k.db"),
        worker_peak_bytes=watch.peak_bytes,
        ratio=median(a.first / b.first for a, b in zip(ours, older, strict=True)),
        at_most=0.5,
        memory_limit_bytes=1 << 30,
        detail={
            "streams": {n: [asdict(s) for s in found] for n, found in streams.items()},
            "with the start": median(a.up / b.up for a, b in zip(ours, older, strict=True)),
            "cpu ratio": median(a.cpu_in_all / b.cpu_in_all for a, b in zip(ours, older, strict=True)),
        },
    )


_WHAT = {"native": "tasks that read themselves", "spark": "Spark's Kafka source"}


def lowest_quarter(seconds: Sequence[float]) -> float:
    """The mean of the lowest quarter."""
    return fmean(sorted(seconds)[: max(1, len(seconds) // 4)])


def _times(folder: Path) -> list[float]:
    """When the files of a log of Spark were written, in the order of their batches."""
    files = sorted((f for f in folder.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    return [f.stat().st_mtime_ns / 1e9 for f in files]


def _watched(process: "subprocess.Popen[bytes]", commits: Path) -> tuple[tuple[float, ...], float]:
    """CPU of a batch, for each window of batches after those that warm up, and of the whole process once it has ended.

    The processes are looked at when the window's last batch ends.
    """
    seen: list[float] = []
    in_all, looked, deadline = 0.0, 0.0, time.monotonic() + LONGEST_SECONDS
    while process.poll() is None:
        assert time.monotonic() < deadline, f"a stream did not end within {LONGEST_SECONDS} seconds"
        if (commits / str(WARMING + WINDOW * len(seen))).exists():
            seen.append(cpu_of(process.pid, below=True))
        if time.monotonic() - looked > 0.2:
            in_all, looked = max(in_all, cpu_of(process.pid, below=True)), time.monotonic()
        time.sleep(_POLL_SECONDS)
    return tuple((b - a) / WINDOW for a, b in pairwise(seen)), in_all
