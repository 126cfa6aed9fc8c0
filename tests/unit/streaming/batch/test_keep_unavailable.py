"""`unavailable: keep`: a large value that an update leaves out stays as it is in the table."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.column_options import NO_COLUMN_OPTIONS, ColumnOptions, Expectation, Otherwise
from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import UNAVAILABLE, MessageOptions, Unavailable
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch import write_batch
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.rejects import RejectedRecordsError
from bucketline.streaming.decode.step_for_table import decode_step
from tests.support.spark.tasks import Cluster

Json = dict[str, Any]
LEFT_OUT = UNAVAILABLE
IN_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
COLUMNS = "id BIGINT NOT NULL, n INT, note STRING, raw BYTES, words ARRAY<STRING>"


class Job:
    """A stream of events, three tasks to a batch."""

    def __init__(
        self,
        root: Path,
        options: dict[str, str],
        *,
        columns: str = COLUMNS,
        decode: RecordFormat = RecordFormat.DEBEZIUM_JSON,
        max_bad: int = 0,
        partition_by: tuple[str, ...] = (),
        computed: ColumnOptions = NO_COLUMN_OPTIONS,
    ) -> None:
        path = str(root / "shop.db" / "t")
        table = create_table(path, columns, ("id",), partition_by, options)
        bad = BadRecords(str(root / "bad"), max_bad) if max_bad else BadRecords(None, 0)
        self.bad = root / "bad"
        keep = MessageOptions(unavailable=Unavailable.KEEP)
        step = decode_step(decode, handle_of(table).table_schema, bad, keep, columns=computed)
        own = {"bad-records.path": str(self.bad), "bad-records.max": str(max_bad)} if max_bad else {}
        self.path, self.number = path, 0
        self.sink, self.cluster = TableSink(path, own, decode=step), Cluster(random.Random(5), 3)

    def batch(self, *records: Json | None, keys: list[Json] | None = None, number: int | None = None) -> None:
        number = self.number if number is None else number
        own_keys = keys or [{"id": (r or {}).get("after", r or {}).get("id", 0)} for r in records]
        values = {
            "key": [json.dumps(key).encode() for key in own_keys],
            "value": [None if record is None else json.dumps(record).encode() for record in records],
        }
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        self.sink.write(self.cluster.frame(pa.table(values), 2, batch_rows=2), identity)
        self.number = number + 1

    def rows(self) -> dict[int, Json]:
        rows = open_table(self.path).to_arrow().to_pylist()
        return {row.pop("id"): row for row in rows}


def put(op: str, **row: Any) -> Json:
    return {"before": None, "after": row, "op": op, "source": {"db": "p", "schema": "s", "table": "t"}}


def full(key: int, n: int) -> Json:
    return put("c", id=key, n=n, note=f"note {key}", raw="AQI=", words=["a", f"{key}"])


def update(key: int, n: int, **more: Any) -> Json:
    return put("u", **{"id": key, "n": n, "note": LEFT_OUT, "raw": IN_BYTES, "words": [LEFT_OUT], **more})


TABLES = {
    "fixed": {"bucket": "2"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
    "lookup": {"bucket": "1", "changelog-producer": "lookup"},
    "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
    "partial": {"bucket": "2", "merge-engine": "partial-update", "ignore-delete": "true"},
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_value_that_is_left_out_stays(tmp_path: Path, kind: str) -> None:
    job = Job(tmp_path, TABLES[kind])
    job.batch(*(full(key, 1) for key in range(6)))
    job.batch(update(1, 2), update(2, 2, note="new"), update(3, 2), update(3, 3, raw="AwQ="))
    job.batch(update(2, 3), update(3, 4, words=None), full(7, 1), update(7, 2))
    expected = {
        key: {"n": 1, "note": f"note {key}", "raw": b"\x01\x02", "words": ["a", f"{key}"]} for key in (*range(6), 7)
    }
    expected[1]["n"] = 2
    expected[2] |= {"n": 3, "note": "new"}
    expected[3] |= {"n": 4, "raw": b"\x03\x04"}
    expected[7]["n"] = 2
    if kind != "partial":  # which takes a null for no value
        expected[3]["words"] = None
    assert job.rows() == expected


def test_replayed_and_repeated_batches_change_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "1"})
    job.batch(full(1, 1))
    job.batch(update(1, 2))
    before = job.rows()
    job.batch(update(1, 2), number=1)
    assert job.rows() == before == {1: {"n": 2, "note": "note 1", "raw": b"\x01\x02", "words": ["a", "1"]}}


@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_a_row_that_is_not_stored_makes_the_record_bad(tmp_path: Path, kind: str) -> None:
    job = Job(tmp_path, TABLES[kind], max_bad=5)
    job.batch(full(1, 1), full(2, 1))
    job.batch(
        update(3, 2),
        {"before": {"id": 1}, "after": None, "op": "d"},
        update(1, 2),
        update(2, 2),
        keys=[{"id": i} for i in (3, 1, 1, 2)],
    )
    assert {key: row["n"] for key, row in job.rows().items()} == {2: 2}
    bad = pq.read_table(next(job.bad.rglob("*.parquet"))).to_pylist()
    assert sorted(json.loads(row["value"])["id"] for row in bad) == [1, 3]
    assert all("no row with this key" in row["reason"] for row in bad)


def test_without_room_for_bad_records_nothing_is_written(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "1"})
    job.batch(full(1, 1))
    with pytest.raises(RejectedRecordsError, match="no row with this key"):
        job.batch(update(1, 5), update(2, 2))
    assert job.rows()[1]["n"] == 1


def test_a_row_that_somebody_changes_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, {"bucket": "1"})
    job.batch(full(1, 1))
    commit, turns = write_batch.commit_batch, iter([True])

    def late(*given: Any, **named: Any) -> Any:
        if next(turns, False):
            row = {"id": 1, "n": 0, "note": "theirs", "raw": b"", "words": []}
            table = open_table(job.path)
            table.write(pa.Table.from_pylist([row], schema=table.to_arrow().schema))
        return commit(*given, **named)

    monkeypatch.setattr(write_batch, "commit_batch", late)
    job.batch(update(1, 2))
    assert job.rows() == {1: {"n": 2, "note": "theirs", "raw": b"", "words": []}}


REJECTING = (Expectation("has_note", "note <> ''", Otherwise.REJECT),)


@pytest.mark.parametrize(
    ("computed", "reads"),
    [
        (ColumnOptions(select="*, n + 1 AS n", where="id < 100"), False),
        (ColumnOptions(select="*, upper(note) AS words2"), True),
        (ColumnOptions(where="Note IS NOT NULL"), True),
        (ColumnOptions(expect=REJECTING), True),
    ],
)
@pytest.mark.parametrize("kind", ["fixed", "partial"])
def test_what_is_computed_of_a_value_that_is_left_out_makes_the_record_bad_and_others_keep_theirs(
    tmp_path: Path, kind: str, computed: ColumnOptions, reads: bool
) -> None:
    columns = "id BIGINT NOT NULL, n INT, note STRING, raw BYTES, words2 STRING"
    removing = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    options = {"bucket": "2", **(removing if kind == "partial" else {})}
    job = Job(tmp_path, options, columns=columns, max_bad=5, computed=computed)
    job.batch(*(put("c", id=key, n=1, note=f"note {key}", raw="AQI=") for key in range(3)))
    job.batch(put("u", id=1, n=5, note=LEFT_OUT, raw="AwQ="), put("u", id=2, n=6, note="new", raw=IN_BYTES))
    plus = 1 if computed.select and "n + 1" in computed.select else 0
    rows = {key: (row["n"] - plus, row["note"], row["raw"]) for key, row in job.rows().items()}
    changed = (1, "note 1", b"\x01\x02") if reads else (5, "note 1", b"\x03\x04")
    assert rows == {0: (1, "note 0", b"\x01\x02"), 1: changed, 2: (6, "new", b"\x01\x02")}
    bad = [row for file in job.bad.rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert [json.loads(row["value"])["after"]["id"] for row in bad] == ([1] if reads else [])
    assert all("the source left out a large value" in row["reason"] for row in bad)


def test_a_row_that_no_longer_passes_is_deleted_whatever_it_leaves_out(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "1"}, computed=ColumnOptions(where="n < 10"))
    job.batch(full(1, 1), full(2, 1))
    job.batch(update(1, 10), update(2, 2), update(2, 3))
    assert job.rows() == {2: {"n": 3, "note": "note 2", "raw": b"\x01\x02", "words": ["a", "2"]}}


def test_columns_that_may_not_be_null_keep_their_values_beside_computed_ones(tmp_path: Path) -> None:
    columns = "id BIGINT NOT NULL, n INT, note STRING NOT NULL, raw BYTES NOT NULL"
    job = Job(tmp_path, {"bucket": "1"}, columns=columns, computed=ColumnOptions(select="*, n + 1 AS n"))
    job.batch(put("c", id=1, n=1, note="x", raw="AQI="))
    job.batch(put("u", id=1, n=2, note=LEFT_OUT, raw=IN_BYTES))
    assert job.rows() == {1: {"n": 3, "note": "x", "raw": b"\x01\x02"}}


def test_flat_rows_keep_values_too(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "1"}, decode=RecordFormat.DEBEZIUM_FLAT_JSON)
    job.batch({"id": 1, "n": 1, "note": "x", "raw": "AQI=", "words": ["a"], "__op": "c"})
    job.batch({"id": 1, "n": 2, "note": LEFT_OUT, "raw": IN_BYTES, "words": [LEFT_OUT], "__op": "u"})
    assert job.rows() == {1: {"n": 2, "note": "x", "raw": b"\x01\x02", "words": ["a"]}}


def test_a_new_row_of_a_partial_update_table_has_all_its_values(tmp_path: Path) -> None:
    job = Job(tmp_path, TABLES["partial"])
    with pytest.raises(RejectedRecordsError, match="the source left out a large value"):
        job.batch(put("c", id=1, n=1, note=LEFT_OUT))


@pytest.mark.parametrize("kind", ["fixed", "partial"])
def test_a_new_key_has_no_value_to_keep_where_nobody_knows_the_place_of_a_record(tmp_path: Path, kind: str) -> None:
    job = Job(tmp_path, TABLES[kind])
    job.batch(full(1, 1))
    moved = update(2, 2) | {"before": {"id": 1}}
    with pytest.raises(RejectedRecordsError, match="follows such a change only in records of Kafka"):
        job.batch(moved)
    assert list(job.rows()) == [1]


@pytest.mark.parametrize("record", [update(1, 1, id=LEFT_OUT), update(1, 1, seq=LEFT_OUT)])
def test_keys_and_sequence_fields_are_never_left_out(tmp_path: Path, record: Json) -> None:
    columns = "id STRING NOT NULL, n INT, note STRING, seq STRING"
    job = Job(tmp_path, {"bucket": "1", "sequence.field": "seq"}, columns=columns)
    record["after"]["id"] = str(record["after"]["id"])
    with pytest.raises(RejectedRecordsError, match="the source left out a large value"):
        job.batch(record)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"merge-engine": "aggregation"}, "merge-engine aggregation"),
        ({"merge-engine": "first-row", "ignore-delete": "true"}, "merge-engine first-row"),
        ({"changelog-producer": "input"}, "changelog-producer = input"),
        ({"bucket": "-2"}, "postponed buckets"),
        ({"merge-engine": "partial-update", "fields.n.sequence-group": "note"}, "column 'note' is in a sequence group"),
    ],
)
def test_tables_that_cannot_keep_a_value_refuse_it_at_the_start(
    tmp_path: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(OptionError, match=f"unavailable = keep .*{told}"):
        Job(tmp_path, {"bucket": "1", **options})


def test_cross_partition_tables_refuse_it_too(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unavailable = keep"):
        Job(tmp_path, {"bucket": "-1"}, partition_by=("n",))


def test_a_group_of_numbers_is_no_hindrance(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        {"bucket": "1", "merge-engine": "partial-update", "fields.m.sequence-group": "n"},
        columns="id BIGINT NOT NULL, n INT, m INT, note STRING",
    )
    job.batch(put("c", id=1, n=1, m=1, note="x"))
    job.batch(put("u", id=1, n=2, m=2, note=LEFT_OUT))
    assert job.rows() == {1: {"n": 2, "m": 2, "note": "x"}}


@pytest.mark.parametrize("decode", [RecordFormat.JSON, RecordFormat.CANAL_JSON])
def test_other_formats_refuse_it(tmp_path: Path, decode: RecordFormat) -> None:
    with pytest.raises(OptionError, match="unavailable needs messages of Debezium"):
        Job(tmp_path, {"bucket": "1"}, decode=decode)
