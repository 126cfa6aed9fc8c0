"""Bad records of a stream whose batches die and are repeated: each once, and those of the batch that was committed."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.column_options import ColumnOptions
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.bad_records.place import BadRecordsPlace, Rejects
from bucketline.streaming.bad_records.rejects_table import RejectsTable
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.choose_reader import JobSink
from tests.support.spark.tasks import Cluster


class Death(Exception):
    """The driver dies."""


@dataclass(frozen=True)
class DyingPlace:
    """A place after which the driver dies: before the batch is committed."""

    place: BadRecordsPlace

    @property
    def name(self) -> str:
        return self.place.name

    def prepare(self) -> None:
        self.place.prepare()

    def put(self, rejects: Rejects) -> str:
        self.place.put(rejects)
        raise Death


class Stream:
    """A job on JSON whose bad records go to a table."""

    def __init__(self, root: Path) -> None:
        self.path, self.bad = str(root / "shop.db" / "t"), str(root / "ops.db" / "bad")
        create_table(self.path, "id BIGINT NOT NULL, n INT", ("id",), options={"bucket": "2"})
        self.place: BadRecordsPlace = RejectsTable(self.bad)
        self.runs = 0

    def run(self, number: int, *records: Any, dies: bool = False, select: str | None = None) -> None:
        """A new run, whose first batch this is."""
        self.runs += 1
        step = decode_step(
            RecordFormat.JSON,
            handle_of(open_table(self.path)).table_schema,
            BadRecords(None, 9, self.bad),
            columns=ColumnOptions(select),
        )
        sink = JobSink(
            self.path,
            {"bad-records.max": "9", "bad-records.table": self.bad},
            decode=step,
            bad_records=DyingPlace(self.place) if dies else None,
        )
        values = {
            "value": [json.dumps(r).encode() for r in records],
            "key": [b"k"] * len(records),
            "topic": ["t"] * len(records),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": list(range(len(records))),
        }
        identity = BatchIdentity("query", number, "[0]", "[1]", f"digest {number}", run_id=f"run {self.runs}")
        frame = Cluster(random.Random(5), 2).frame(pa.table(values), 2, batch_rows=2)
        if dies:
            with pytest.raises(Death):
                sink.write(frame, identity)
        else:
            sink.write(frame, identity)

    def found(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids in the table; batch and offset of each bad record."""
        bad = open_table(self.bad).to_arrow().to_pylist()
        ids = open_table(self.path).to_arrow()["id"].to_pylist()
        return sorted(ids), sorted((r["batch_id"], r["offset"]) for r in bad)


RECORDS = ({"id": 1, "n": 1}, {"id": "x"}, {"id": 2, "n": "y"}, {"id": 3})


def test_a_batch_that_dies_before_its_commit_has_its_bad_records_once(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run(0, *RECORDS, dies=True)
    assert stream.found() == ([], [(0, 1), (0, 2)])
    stream.run(0, *RECORDS)
    stream.run(0, *RECORDS)
    stream.run(1, {"id": "z"}, {"id": 4})
    assert stream.found() == ([1, 3, 4], [(0, 1), (0, 2), (1, 0)])


def test_bad_records_are_those_of_the_attempt_that_was_committed(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run(0, *RECORDS, dies=True)
    stream.run(0, *RECORDS, select="id, CAST(NULL AS INT) AS n")
    assert stream.found() == ([1, 2, 3], [(0, 1)])
