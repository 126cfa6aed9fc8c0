"""Jobs of an old release that die at named steps, one after the other in one Spark: `OldRelease.die_at` starts it.

It runs with the code of that release, whose `stream_job` kills its process. Here a copy of the files, which is all
that a kill leaves, is kept instead, and put in their place when the query has ended. Its argument is a list of what
`StreamJob` of that release is made of, as JSON.
"""

import importlib
import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

# Where that release has them.
stream_job = importlib.import_module("tests.support.stream_job")
FileStream = importlib.import_module("tests.support.streams").FileStream


class GivenUpError(Exception):
    """The files have been copied; what the query still does is not looked at."""


def main(text: str) -> None:
    jobs = json.loads(text)
    spark = stream_job.session(Path(jobs[0]["root"]))
    switch = stream_job.KillSwitch(None)
    switch.install()
    for job in jobs:
        _die(job, spark, switch)


def _die(job: dict[str, Any], spark: Any, switch: Any) -> None:
    root, kept = Path(job["root"]), Path(job["root"]) / "kept"
    folders = ("shop.db", "checkpoint", "index")
    is_whole = threading.Event()
    sinks = [stream_job.TableSink(path, job["options"]) for path in job["tables"]]

    def give_up() -> None:
        for folder in folders:
            shutil.copytree(root / folder, kept / folder)
        is_whole.set()
        raise GivenUpError

    def write(frame: Any, batch_id: int) -> None:
        switch.batch_id = batch_id
        for position, sink in enumerate(sinks):
            switch.table = position
            sink(frame, batch_id)

    switch._kill, stream_job.die = stream_job.Kill(**job["kill"]), give_up
    try:
        FileStream(root, job["ddl"]).run(spark, write)
    except StreamingQueryException:
        if not is_whole.is_set():
            raise
    else:
        raise AssertionError(f"it ended before {job['kill']}")
    for folder in folders:
        shutil.rmtree(root / folder)
        (kept / folder).rename(root / folder)


if __name__ == "__main__":
    main(sys.argv[1])
