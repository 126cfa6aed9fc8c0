"""JVMs of Spark that start quickly: most of the time of a test with one is spent on loading and compiling classes.

The options go into `SPARK_SUBMIT_OPTS`, which Spark's scripts add to the command of each driver. They choose the quick
compiler, and an archive of loaded classes that is made once and kept in the tests' cache.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark

from tests.support.peers.jars import cache_dir, exclusive

VARIABLE = "SPARK_SUBMIT_OPTS"
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_LONGEST_SECONDS = 300
_STREAM = """
import time
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
)
def write(frame, batch_id):
    frame.repartition(2).mapInArrow(lambda batches: batches, frame.schema).count()
rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
query = rows.writeStream.trigger(processingTime="0 seconds").foreachBatch(write).start()
while (query.lastProgress or {"batchId": 0})["batchId"] < 2 and query.isActive:
    time.sleep(0.05)
query.stop()
java = spark.sparkContext._gateway.proc
spark.stop()
# The JVM ends with its input, and writes the archive then.
java.stdin.close()
java.wait()
"""


def start_quickly() -> None:
    """Lets all drivers that this process and its children start use the quick options; a value that is set stays."""
    if VARIABLE not in os.environ and shutil.which("java"):
        # An archive that does not fit is passed over, without a word.
        archive = f"-Xshare:auto -XX:SharedArchiveFile={_archive()} -Xlog:cds*=off"
        os.environ[VARIABLE] = f"{QUICK} {archive}"


def _archive() -> Path:
    """The archive for this Spark and this Java; a run of Spark that ends well leaves it."""
    java = Path(shutil.which("java") or "").resolve()
    jars = sorted((p.name, p.stat().st_mtime_ns) for p in (Path(pyspark.__file__).parent / "jars").iterdir())
    which = hashlib.sha256(repr((pyspark.__file__, jars, str(java), java.stat().st_mtime_ns)).encode()).hexdigest()
    target = cache_dir() / f"spark-classes-{which[:12]}.jsa"
    with exclusive("spark-classes"):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                made = Path(scratch) / "made.jsa"
                with suppress(subprocess.TimeoutExpired):
                    subprocess.run(
                        [sys.executable, "-c", _STREAM],
                        cwd=scratch,
                        env={
                            **os.environ,
                            "PYSPARK_PYTHON": sys.executable,
                            VARIABLE: f"{QUICK} -XX:ArchiveClassesAtExit={made} -Xlog:cds*=off",
                        },
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        timeout=_LONGEST_SECONDS,
                        check=False,
                    )
                if made.exists():
                    made.rename(target)
    return target
