"""A job of many tables over the day of a shop: it is killed again and again, and each table ends as it must.

`.ci/run shop-long` runs the whole day, with each reader, and once more with two hundred tables.
"""

import os
import random
import sys
from pathlib import Path

import pyspark
import pytest

from bucketline.streaming.many.ledger import Entry
from bucketline.streaming.many.ledger_files import ledger_files
from tests.support.peers.jars import spark_kafka_jars
from tests.support.processes import shop_process
from tests.support.processes.job_process import JobFolder, started
from tests.support.servers.broker import KafkaBroker
from tests.support.spark.shop_day import APPEARS, POISONED, ShopDay

EVENTS = int(os.environ.get("BUCKETLINE_SHOP_EVENTS", "0"))
"""The events of a day; in `shop-long` many."""
KILLS = int(os.environ.get("BUCKETLINE_SHOP_KILLS", "10"))
LONGEST_SECONDS = 600 + EVENTS // 200
"""From the start of a process to its end, on a machine with much else to do."""
BATCHES = 4
"""The batches that each part of a day is read in."""
_BETWEEN = (2, 6)
"""The parts that end between two commits of one batch."""

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(not EVENTS, reason="part of .ci/run shop-long"),
    pytest.mark.timeout(3600 + EVENTS // 100),
]


@pytest.mark.parametrize(
    ("reader", "more", "kills"), [("native", 0, KILLS), ("spark", 0, KILLS), ("native", 188, 2), ("spark", 188, 2)]
)
def test_each_table_ends_as_it_must_however_often_the_job_is_killed(
    kafka_broker: KafkaBroker, tmp_path: Path, reader: str, more: int, kills: int
) -> None:
    day = ShopDay(kafka_broker, tmp_path, f"day-{reader}-{more}", more=more)
    parts = max(kills, 5) + 1
    events = EVENTS // parts
    run = Run(day, reader, records_a_batch=max(100, events // BATCHES), draw=random.Random(reader))
    deaths, part, has_asked = 0, 0, False
    while deaths < kills or part < parts:
        day.produce(events, grows=part == 2, poison=part == 1, appears=part == 3)
        has_asked = has_asked or (part >= 4 and run.unpark())
        death = "never"
        if deaths < kills:
            death = (
                f"between:{run.draw.randint(1, 2)}" if deaths in _BETWEEN or kills == 2 else f"call:{run.drawn(more)}"
            )
        deaths += run.job(death) != 0
        day.check_commits()
        part += 1
    if not has_asked:
        assert run.unpark(), "the table was parked"
        day.produce(events)
    for _ in range(2):  # the second is for what the table that was parked still lacks
        day.produce(10)
        assert run.job("never") == 0
    day.check()
    entries = run.entries()
    assert entries[POISONED].takes_part and APPEARS in entries
    assert len(entries) == len(day.rows)


class Run:
    """The job of a day, process after process."""

    def __init__(self, day: ShopDay, reader: str, *, records_a_batch: int, draw: random.Random) -> None:
        self._day, self._reader, self._records_a_batch, self.draw = day, reader, records_a_batch, draw
        self._folder = JobFolder(day.root)
        self._jars = spark_kafka_jars(pyspark.__version__)
        self._write(poison_allowed=False)

    def _write(self, *, poison_allowed: bool) -> None:
        self._file = self._day.job_file(
            self._reader, records_a_batch=self._records_a_batch, poison_allowed=poison_allowed
        )

    def drawn(self, more: int) -> int:
        """A call to storage to die at: most are in the second or third batch of a process."""
        return self.draw.randint(1, 500 + 20 * more)

    def job(self, death: str) -> int:
        """The exit code of one process of the job; below 0 where it was killed."""
        with started(
            self._folder,
            [sys.executable, shop_process.__file__, death, "ingest", "--conf-file", str(self._file)],
            self._jars,
        ) as job:
            code = job.end()
            (self._day.root / "log").open("a").write(f"== {death}\n{job.output}\n== {code}\n")
            assert code <= 0, job.output
            return code

    def unpark(self) -> bool:
        """Whether the table with the poison was parked; then the poison is allowed, and the table asked back."""
        entry = self.entries().get(POISONED)
        if entry is None or entry.parked is None:
            return False
        self._write(poison_allowed=True)
        table = f"{self._day.root}/w/{POISONED}"
        program = [sys.executable, "-m", "bucketline.streaming"]
        with started(self._folder, [*program, "ingest", "--conf-file", str(self._file), "--unpark", table]) as asked:
            assert asked.end() == 0, asked.output
        return True

    def entries(self) -> dict[str, Entry]:
        """What the newest ledger says of the tables, by their names."""
        files = ledger_files(f"{self._day.root}/checkpoint", {})
        numbers = files.numbers()
        ledger = files.read(numbers[-1]) if numbers else None
        return {} if ledger is None else {name.rpartition("/")[2]: entry for name, entry in ledger.tables.items()}
