"""One rival in a process of its own: `python -m tests.bench.rivals.one NAME WHAT FOLDER`.

WHAT is `stream`: a warm session writes the batches that lie in FOLDER/input; or `again`: a new session goes on from the
checkpoint with what has come since, and then reads the table. Prints what it took as JSON on its last line.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from tests.bench.result import folder_bytes
from tests.bench.rivals import iceberg
from tests.bench.rivals.all import RIVALS
from tests.bench.rivals.rival import Rival, Source
from tests.bench.rivals.tree import TreeWatch
from tests.bench.watch import cpu_seconds
from tests.support.peers.jars import jars

STARTED = time.monotonic()
READS = 3
TABLE = "warehouse/w.db/t"


class BatchTimes(StreamingQueryListener):  # type: ignore[misc]
    """Notes how many seconds each batch took from its trigger to its end, as Spark reports it."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress.json)
        if "addBatch" in progress["durationMs"]:
            self.seconds[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1000

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


def main(name: str, what: str, folder: Path) -> None:
    rival = RIVALS[name]
    with TreeWatch() as watch, _session(rival, folder) as spark:
        found = _stream(rival, spark, folder) if what == "stream" else _again(rival, spark, folder)
    print(json.dumps({**found, "peak_bytes": watch.peak_bytes}))


def _stream(rival: Rival, spark: Any, folder: Path) -> dict[str, Any]:
    warm = str(folder / "warehouse" / "w.db" / "warm")
    rival.create(spark, warm)
    rival.write(spark, Source(folder / "warm", folder / "warm-checkpoint"), warm)
    table = str(folder / TABLE)
    times = BatchTimes()
    spark.streams.addListener(times)
    rival.create(spark, table)
    cpu, started = cpu_seconds(), time.monotonic()
    rival.write(spark, Source(folder / "input", folder / "checkpoint"), table)
    cpu, seconds = cpu_seconds() - cpu, time.monotonic() - started
    batches = len(list((folder / "input").glob("*.parquet")))
    patience = time.monotonic() + 60
    while len(times.seconds) < batches and time.monotonic() < patience:
        time.sleep(0.05)  # events of a query come a moment after its end
    assert len(times.seconds) == batches, (times.seconds, batches)
    data = [p for p in Path(table).rglob("*") if p.is_file() and not _is_metadata(p.relative_to(table))]
    return {
        "batch_seconds": [times.seconds[n] for n in sorted(times.seconds)],
        "cpu": cpu,
        "seconds": seconds,
        "bytes": folder_bytes(table),
        "data_files": len(data),
    }


def _again(rival: Rival, spark: Any, folder: Path) -> dict[str, Any]:
    table = str(folder / TABLE)
    rival.write(spark, Source(folder / "input", folder / "checkpoint"), table)
    restart = {"restart_seconds": time.monotonic() - STARTED, "restart_cpu": cpu_seconds()}
    seconds, cpu = [], []
    for _ in range(READS):
        spent, started = cpu_seconds(), time.monotonic()
        rows = _read_all(rival, spark, table)
        seconds.append(time.monotonic() - started)
        cpu.append(cpu_seconds() - spent)
    return {**restart, "read_seconds": seconds, "read_cpu": cpu, "rows": rows}


def _read_all(rival: Rival, spark: Any, table: str) -> int:
    """Reads all columns of all rows, and returns how many rows there are."""
    found = rival.read(spark, table)
    if not hasattr(found, "agg"):
        return sum(batch.num_rows for batch in found)
    columns = ", ".join(found.columns)
    rows = found.selectExpr(f"xxhash64({columns}) AS h").selectExpr(
        "count(h) AS n", "sum(cast(h AS decimal(38, 0))) AS s"
    )
    return int(rows.collect()[0]["n"])


def _is_metadata(path: Path) -> bool:
    """Whether a file has no rows: it lies in a folder of metadata, or is hidden."""
    folders = {"manifest", "snapshot", "schema", "metadata", "_delta_log", "_spark_metadata", ".hoodie"}
    return path.name.startswith((".hoodie", "_")) or path.suffix == ".crc" or bool(folders & set(path.parts))


@contextmanager
def _session(rival: Rival, folder: Path) -> Iterator[Any]:
    """A session of two local threads; what a rival asks for comes on top."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = rival.session_settings
    if rival.name == "iceberg":
        settings = iceberg.session_settings(str(folder / "warehouse"))
    builder = SparkSession.builder.master("local[2]").appName(rival.name)
    for key, value in {**BASE, **{k: v for k, v in settings.items() if k.startswith("spark.")}}.items():
        builder = builder.config(key, value)
    found = [*map(str, (jar for name in rival.jar_sets for jar in jars(name))), *rival.more_jars]
    if found:
        builder = builder.config("spark.jars", ",".join(found))
    spark = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


BASE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
"""Settings that all rivals have: Spark's defaults for everything else."""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
