"""Processes around a table whose changes Spark reads, each of which a test may kill at any moment.

`python -m tests.support.processes.change_stream_process stream|write|compact ARGUMENT...`
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from bucketline.state.errors import CommitConflictError
from bucketline.state.store.table.table import Table, open_table

CONSUMER = "changes"
KEYS, KEYS_OF_A_STEP = 60, 8

Change = tuple[int, int, int, int]
"""id, n, row kind, snapshot."""


def start(what: str, *arguments: object, log: Path) -> "subprocess.Popen[bytes]":
    """A process that leads a group of its own; what it prints is added to `log`."""
    command = [sys.executable, "-m", "tests.support.processes.change_stream_process", what, *map(str, arguments)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("ab") as out:
        return subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def batches(out: Path) -> dict[int, list[Change]]:
    """What the stream has handed to its sink, by the id of the batch."""
    return {int(p.stem): [tuple(row) for row in json.loads(p.read_text())] for p in out.glob("*.json")}  # type: ignore[misc]


def steps(log: Path) -> list[list[tuple[int, int, int]]]:
    """What the writer has begun to write: id, n and kind of each row; n is the number of the step."""
    return [[tuple(row) for row in json.loads(line)] for line in log.read_text().splitlines()]  # type: ignore[misc]


def stream(path: str, checkpoint: str, out: str, files: str, until: str) -> None:
    """Reads the table's changes; the sink writes each batch as a file, and fails if one that comes again differs."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )

    def each(found: Any, number: int) -> None:
        rows = [[r.id, r.n, r["_row_kind"], r["_commit_version"]] for r in found.collect()]
        target = Path(out) / f"{number}.json"
        if target.exists():
            assert json.loads(target.read_text()) == rows, f"batch {number} came again with other rows"
        unfinished = target.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(rows))
        unfinished.rename(target)

    reader = spark.readStream.format("bucketline").option("read.changelog", "true").option("consumer-id", CONSUMER)
    if files != "0":
        reader = reader.option("read.stream.maxFilesPerTrigger", files)
    writer = reader.load(path).writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="200 milliseconds").start()
    if until == "end":
        query.processAllAvailable()
        query.stop()
    else:
        query.awaitTermination()


def write(path: str, log: str, seed: str) -> None:
    """Writes for ever; what it is about to write is logged first."""
    number = len(steps(Path(log)))
    draw = random.Random(f"{seed} {number}")
    while True:
        ids = sorted(draw.sample(range(KEYS), KEYS_OF_A_STEP))
        kinds = [draw.choice([0, 0, 2, 3]) for _ in ids]
        with Path(log).open("a") as lines:
            lines.write(json.dumps([[i, number, kind] for i, kind in zip(ids, kinds, strict=True)]) + "\n")
        rows = pa.table({"id": ids, "n": pa.array([number] * len(ids), pa.int32())})
        open_table(path).write(rows, pa.array(kinds, pa.int8()))
        number += 1
        time.sleep(0.5)  # the stream has to get on


def compact(path: str, strategy: str) -> None:
    """Compacts and expires for ever; expiry begins with the stream's first sign of life, which holds it back."""
    while True:
        table = open_table(path)
        with suppress(CommitConflictError):  # the writer compacts too
            table.compact(strategy)
        if (Path(path) / "consumer" / f"consumer-{CONSUMER}").exists():
            table.expire_snapshots(retain_max=1, retain_min=1)
        time.sleep(0.5)  # the writer has to get on


def rebuilt(changes: list[Change]) -> dict[int, int]:
    """What the changes come to, one after the other. Fails where one does not fit what is there."""
    found: dict[int, int] = {}
    for at, (key, n, row_kind, snapshot) in enumerate(changes):
        where = f"change {at}: {(key, n, row_kind, snapshot)}, there is {found.get(key)}"
        if row_kind in (1, 3):
            assert found.pop(key, None) == n, where
        else:
            assert key not in found, where
            found[key] = n
    return found


def table_rows(table: Table) -> dict[int, int]:
    return {r["id"]: r["n"] for r in open_table(table.path).to_arrow().to_pylist()}


_WHAT: dict[str, Callable[..., None]] = {"stream": stream, "write": write, "compact": compact}

if __name__ == "__main__":
    _WHAT[sys.argv[1]](*sys.argv[2:])
