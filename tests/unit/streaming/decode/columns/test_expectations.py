"""Expectations in whole batches: what is stored, what is counted by name, and what ends the batch before its commit."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.column_options import ColumnOptions, Expectation, Otherwise
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.decode.rejects import RejectedRecordsError, UnexpectedRowsError
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.choose_reader import JobSink
from tests.support.spark.tasks import Cluster


class Shop:
    """A job with the expectation `positive`, which writes the events that it is given as batches."""

    def __init__(self, root: Path, otherwise: Otherwise, most_bad: int = 0) -> None:
        self.path, self.bad, self.most, self.count = str(root / "shop.db" / "t"), root / "bad", most_bad, 0
        create_table(self.path, "id BIGINT NOT NULL, n BIGINT", ("id",), options={"bucket": "1"})
        expect = (Expectation("positive", "n > 0", otherwise), Expectation("small", "n < 100"))
        self.columns = ColumnOptions(None, None, expect)

    def write(self, *events: Any) -> None:
        schema, limit = handle_of(open_table(self.path)).table_schema, BadRecords(str(self.bad), self.most)
        step = decode_step(RecordFormat.DEBEZIUM_JSON, schema, limit, columns=self.columns)
        values = pa.table({"value": [json.dumps(event).encode() for event in events]})
        number, self.count = self.count, self.count + 1
        identity = BatchIdentity("query", number, f"[{number}]", f"[{number + 1}]", f"d{number}", run_id="run")
        sink = JobSink(self.path, {"bad-records.max": str(self.most)}, decode=step, bad_records=Folder(str(self.bad)))
        sink.write(Cluster(random.Random(1), 1).frame(values, 1), identity)

    def rows(self) -> dict[int, int | None]:
        return {row["id"]: row["n"] for row in open_table(self.path).to_arrow().to_pylist()}

    def refused(self) -> list[str]:
        files = sorted(self.bad.rglob("*.parquet"))
        return [code for file in files for code in pq.read_table(file)["code"].to_pylist()]


def row(op: str, id: int, n: int | None, old: int | None = None) -> dict[str, Any]:
    before = None if op == "c" else {"id": id, "n": old}
    return {"op": op, "before": before, "after": None if op == "d" else {"id": id, "n": n}}


@pytest.mark.parametrize(
    ("otherwise", "stored", "refused"),
    [
        (Otherwise.WARN, {1: -1, 2: -2, 4: None, 5: 200}, []),
        (Otherwise.DROP, {1: 1, 4: None, 5: 200}, []),
        (Otherwise.REJECT, {1: 1, 4: None, 5: 200}, ["EXPECTATION", "EXPECTATION"]),
    ],
)
def test_rows_that_are_dropped_or_rejected_leave_the_stored_row_and_all_are_counted_by_name(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    otherwise: Otherwise,
    stored: dict[int, int | None],
    refused: list[str],
) -> None:
    shop = Shop(tmp_path, otherwise)
    shop.write(row("c", 1, 1), row("c", 3, 3))
    with caplog.at_level("INFO", "bucketline.progress"):
        events = [row("u", 1, -1, 1), row("c", 2, -2), row("d", 3, None, -3), row("c", 4, None), row("c", 5, 200)]
        shop.write(*events)
    assert shop.rows() == stored
    assert shop.refused() == refused
    assert "did not meet expectations: positive 2, small 1" in caplog.text


def test_an_expectation_that_ends_the_job_ends_it_before_the_batch_commits(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Otherwise.FAIL)
    shop.write(row("c", 1, 1))
    with pytest.raises(UnexpectedRowsError, match=r"2 rows of the batch .* positive \(n > 0\)"):
        shop.write(row("c", 2, 2), row("c", 3, -3), row("u", 1, -1, 1))
    assert shop.rows() == {1: 1}
    assert open_table(shop.path).snapshots().num_rows == 1
    assert not list(Path(shop.path).rglob("*.tmp"))
    assert len(list(Path(shop.path).rglob("data-*.parquet"))) == 1


def test_rejected_rows_do_not_count_for_the_limit_of_bad_records(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Otherwise.REJECT, most_bad=1)
    shop.write(row("c", 1, 1), *(row("c", id, -1) for id in range(2, 6)), {"op": "x"})
    assert shop.rows() == {1: 1}
    assert sorted(shop.refused()) == ["EXPECTATION"] * 4 + ["MESSAGE"]
    with pytest.raises(RejectedRecordsError):
        shop.write(row("c", 7, -1), {"op": "x"}, {"op": "y"})
    assert shop.rows() == {1: 1}
