"""`unavailable: keep` where the primary key changes: the value comes from the row of the old key."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.column_options import NO_COLUMN_OPTIONS, ColumnOptions
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import UNAVAILABLE, MessageOptions, Truncate, Unavailable
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch import write_batch
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.step_for_table import decode_step
from tests.support.spark.tasks import Cluster

Json = dict[str, Any]
COLUMNS = "id BIGINT NOT NULL, n INT, note STRING, raw BYTES NOT NULL"
NULLABLE = "id BIGINT NOT NULL, n INT, note STRING, raw BYTES"
IN_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
MANY = 1000
TABLES = {
    "fixed": {"bucket": "2"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "2"},
    "lookup": {"bucket": "1", "changelog-producer": "lookup"},
    "vectors": {"bucket": "2", "deletion-vectors.enabled": "true"},
    "sequence": {"bucket": "2", "sequence.field": "n"},
    "ignoring": {"bucket": "2", "ignore-delete": "true"},
    "partial": {"bucket": "2", "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
}


class Job:
    """A stream out of a topic with two partitions, three tasks to a batch."""

    def __init__(
        self,
        root: Path,
        options: dict[str, str],
        *,
        columns: str | None = None,
        key: tuple[str, ...] = ("id",),
        partition_by: tuple[str, ...] = (),
        decode: RecordFormat = RecordFormat.DEBEZIUM_JSON,
        computed: ColumnOptions = NO_COLUMN_OPTIONS,
        truncate: Truncate = Truncate.REJECT,
        seed: int = 5,
    ) -> None:
        self.path, self.bad = str(root / "shop.db" / "t"), root / "bad"
        # A null says that a value was left out where updates are partial.
        columns = columns or (NULLABLE if "merge-engine" in options else COLUMNS)
        table = create_table(self.path, columns, key, partition_by, options)
        keep = MessageOptions(unavailable=Unavailable.KEEP, truncate=truncate)
        bad = BadRecords(str(self.bad), MANY)
        step = decode_step(decode, handle_of(table).table_schema, bad, keep, columns=computed)
        settings = {"bad-records.path": str(self.bad), "bad-records.max": str(MANY)}
        self.sink, self.cluster = TableSink(self.path, settings, decode=step), Cluster(random.Random(seed), 3)
        self.ends, self.number = [0, 0], 0
        self.batches: list[tuple[pa.Table, BatchIdentity]] = []

    def batch(self, *records: Json, partitions: list[int] | None = None) -> None:
        """One batch; `partitions` are those of the records."""
        places = []
        before = self._offsets()
        for partition in partitions or [0] * len(records):
            places.append((partition, self.ends[partition]))
            self.ends[partition] += 1
        rows = {
            # A task reads a partition.
            "partition": pa.array([p for p, _ in places], pa.int32()),
            "key": [json.dumps(_key(r)).encode() for r in records],
            "value": [json.dumps(r).encode() for r in records],
            "topic": ["t"] * len(records),
            "offset": pa.array([at for _, at in places], pa.int64()),
        }
        rows = pa.table(rows).sort_by([("partition", "ascending"), ("offset", "ascending")])
        identity = BatchIdentity("query", self.number, before, self._offsets(), f"digest {self.number}")
        self.batches.append((rows, identity))
        self.number += 1
        self.repeat()

    def repeat(self) -> None:
        records, identity = self.batches[-1]
        self.sink.write(self.cluster.frame(records, 2, batch_rows=100), identity)

    def _offsets(self) -> str:
        return json.dumps([{"t": {str(p): end for p, end in enumerate(self.ends)}}])

    def rows(self) -> dict[int, tuple[Any, ...]]:
        rows = open_table(self.path).to_arrow().to_pylist()
        return {row["id"]: tuple(v for k, v in row.items() if k != "id") for row in rows}

    def refused(self) -> list[Json]:
        files = self.bad.rglob("*.parquet")
        return [json.loads(row["value"]) for file in files for row in pq.read_table(file).to_pylist()]


def event(op: str, before: Json | None, after: Json | None, lsn: int = 0) -> Json:
    source = {"db": "p", "schema": "s", "table": "t", "lsn": lsn}
    return {"before": before, "after": after, "op": op, "source": source}


def _key(record: Json) -> Json:
    row = record.get("after") or record.get("before") or record
    return {"id": row.get("id"), "dt": row.get("dt")}


def full(key: int, n: int = 1, op: str = "c") -> Json:
    return event(op, None, {"id": key, "n": n, "note": f"note {key}", "raw": "AQI="})


def lacking(key: int, n: int, **more: Any) -> Json:
    return {"id": key, "n": n, "note": UNAVAILABLE, "raw": IN_BYTES, **more}


def move(old: int, new: int, n: int, **more: Any) -> Json:
    return event("u", {"id": old, "n": n}, lacking(new, n, **more))


def pair(old: int, new: int, n: int, lsn: int) -> tuple[Json, Json]:
    """What Debezium sends where the key of the source changes."""
    return event("d", {"id": old, "n": n}, None, lsn), event("c", None, lacking(new, n), lsn)


@pytest.mark.parametrize("kind", TABLES)
def test_a_row_with_a_new_key_has_the_values_of_its_old_key(tmp_path: Path, kind: str) -> None:
    job = Job(tmp_path, TABLES[kind])
    job.batch(full(1), full(2), full(3))
    job.batch(
        full(9),
        move(1, 11, 2),  # out of the table
        move(9, 19, 2),  # out of the batch
        move(2, 12, 2, note="new"),  # one value only
        event("u", None, lacking(12, 3)),
        move(12, 22, 4),  # on and on
        move(22, 32, 5),
        event("u", None, lacking(32, 6)),
    )
    expected = {
        3: (1, "note 3", b"\x01\x02"),
        11: (2, "note 1", b"\x01\x02"),
        19: (2, "note 9", b"\x01\x02"),
        32: (6, "new", b"\x01\x02"),
    }
    shown = job.rows()
    if kind == "ignoring":
        assert {key: shown[key] for key in expected} == expected
        assert shown[1] == (1, "note 1", b"\x01\x02")
    else:
        assert shown == expected
    assert job.refused() == []


@pytest.mark.parametrize(("kind", "partitions"), [("dynamic", [0, 0]), ("sequence", [0, 1]), ("partial", [1, 0])])
def test_a_delete_and_an_insert_at_the_same_position_of_the_log_change_a_key(
    tmp_path: Path, kind: str, partitions: list[int]
) -> None:
    job = Job(tmp_path, TABLES[kind])
    job.batch(full(1), full(2))
    job.batch(*pair(1, 11, 2, lsn=70), partitions=partitions)
    shown = job.rows()
    if kind == "ignoring":
        shown.pop(1)
    assert shown == {2: (1, "note 2", b"\x01\x02"), 11: (2, "note 1", b"\x01\x02")}
    assert job.refused() == []


def test_without_a_row_of_the_old_key_the_record_is_bad_as_a_whole(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "2"})
    job.batch(full(1), full(2))
    job.batch(
        move(5, 15, 2),  # was never there
        event("d", {"id": 1}, None),
        move(1, 11, 2),  # was deleted
        move(15, 16, 3),  # comes from a bad record
        event("u", None, lacking(2, 7)),
    )
    assert job.rows() == {2: (7, "note 2", b"\x01\x02")}
    assert sorted(r["after"]["id"] for r in job.refused()) == [11, 15, 16]


def test_an_insert_whose_delete_was_in_an_earlier_batch_is_bad(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "2"})
    job.batch(full(1))
    gone, come = pair(1, 11, 2, lsn=70)
    job.batch(gone)
    job.batch(full(1, n=5))
    job.batch(come)
    assert job.rows() == {1: (5, "note 1", b"\x01\x02")}
    assert [r["id"] for r in job.refused()] == [11]


@pytest.mark.parametrize("kind", ["fixed", "partial"])
def test_two_deletes_at_one_position_leave_it_open_whose_values_are_meant(tmp_path: Path, kind: str) -> None:
    job = Job(tmp_path, TABLES[kind])
    job.batch(full(1), full(2))
    job.batch(event("d", {"id": 1}, None, 70), *pair(2, 11, 2, lsn=70))
    assert job.rows() == {}
    assert [r["after"]["id"] for r in job.refused()] == [11]


def test_records_that_debezium_sends_again_in_a_batch_change_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "2"})
    job.batch(full(1), full(2))
    sent = (*pair(1, 11, 2, lsn=70), *pair(11, 12, 3, lsn=71))
    job.batch(*sent, *sent)
    assert job.rows() == {2: (1, "note 2", b"\x01\x02"), 12: (3, "note 1", b"\x01\x02")}
    assert job.refused() == []


def test_flattened_rows_change_keys_too(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "2"}, decode=RecordFormat.DEBEZIUM_FLAT_JSON)
    job.batch({"id": 1, "n": 1, "note": "x", "raw": "AQI=", "__op": "c", "__deleted": "false", "__lsn": 60})
    moved = {**lacking(2, 2), "__op": "c", "__deleted": "false", "__lsn": 70}
    job.batch({"id": 1, "n": 1, "note": None, "raw": None, "__op": "d", "__deleted": "true", "__lsn": 70}, moved)
    assert job.rows() == {2: (2, "x", b"\x01\x02")}


def test_the_columns_of_a_wider_key_move_a_row_between_partitions(tmp_path: Path) -> None:
    columns = "id BIGINT NOT NULL, dt STRING NOT NULL, n INT, note STRING"
    job = Job(tmp_path, {"bucket": "2"}, columns=columns, key=("id", "dt"), partition_by=("dt",))
    job.batch(event("c", None, {"id": 1, "dt": "a", "n": 1, "note": "x"}))
    job.batch(event("u", {"id": 1, "dt": "a"}, {"id": 1, "dt": "b", "n": 2, "note": UNAVAILABLE}))
    assert job.rows() == {1: ("b", 2, "x")}


def test_a_key_that_is_computed_and_stays_the_same_keeps_its_own_values(tmp_path: Path) -> None:
    computed = ColumnOptions(select="id % 10 AS id, n, note, raw", where="n < 100")
    job = Job(tmp_path, {"bucket": "2"}, computed=computed)
    job.batch(full(1), full(2))
    job.batch(move(1, 11, 2), move(2, 13, 3))
    assert job.rows() == {1: (2, "note 1", b"\x01\x02"), 3: (3, "note 2", b"\x01\x02")}
    job.batch(move(13, 14, 100))
    assert job.rows() == {1: (2, "note 1", b"\x01\x02")}
    assert job.refused() == []


def test_behind_a_truncate_only_rows_of_the_batch_have_values(tmp_path: Path) -> None:
    job = Job(tmp_path, {"bucket": "2"}, truncate=Truncate.APPLY)
    job.ends = [0]
    job.batch(full(1), full(2))
    job.batch(event("t", None, None), move(1, 11, 2), full(3), move(3, 13, 2))
    assert job.rows() == {13: (2, "note 3", b"\x01\x02")}
    assert [r["after"]["id"] for r in job.refused()] == [11]


def test_a_row_that_somebody_changes_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, TABLES["partial"])
    job.batch(full(1))
    commit, turns = write_batch.commit_batch, iter([True])

    def late(*given: Any, **named: Any) -> Any:
        if next(turns, False):
            row = {"id": 1, "n": 0, "note": "theirs", "raw": b""}
            table = open_table(job.path)
            table.write(pa.Table.from_pylist([row], schema=table.to_arrow().schema))
        return commit(*given, **named)

    monkeypatch.setattr(write_batch, "commit_batch", late)
    job.batch(move(1, 11, 2))
    assert job.rows() == {11: (2, "theirs", b"")}


def test_a_column_for_rescued_values_may_stand_anywhere(tmp_path: Path) -> None:
    columns = "id BIGINT NOT NULL, rest STRING, n INT, note STRING, a INT, b INT, c INT, d INT"
    job = Job(tmp_path, {"bucket": "1"}, columns=columns, computed=ColumnOptions(rescued="rest"))
    job.batch(*(event("c", None, {"id": key, "n": 1, "note": f"note {key}", "more": key}) for key in (1, 2)))
    job.batch(
        event("u", None, {"id": 1, "n": 2, "note": UNAVAILABLE, "more": 5}),
        event("u", {"id": 2}, {"id": 12, "n": 3, "note": UNAVAILABLE}),
    )
    rows = job.rows()
    assert {key: row[1:3] for key, row in rows.items()} == {1: (2, "note 1"), 12: (3, "note 2")}
    assert json.loads(rows[1][0])["more"] == 5 and rows[12][0] is None


class _Reference:
    """The table, row by row: `n` and `note` of each key."""

    def __init__(self, draw: random.Random) -> None:
        self.rows: dict[int, tuple[int, str]] = {}
        self.draw, self.n, self.refused = draw, 0, list[tuple[int, int]]()

    def drawn(self) -> list[Json]:
        """Applies a drawn change; the records that say it."""
        draw, self.n = self.draw, self.n + 1
        n, (old, new) = self.n, draw.sample(range(6), 2)
        kind = draw.choice(["full", "delete", "move", "move", "pair", "stay"])
        if kind == "full":
            self.rows[new] = n, f"note {n}"
            return [event("c", None, {"id": new, "n": n, "note": f"note {n}"}, n)]
        if kind == "delete":
            self.rows.pop(old, None)
            return [event("d", {"id": old}, None, n)]
        if kind == "stay":
            # A row that is not there is refused where buckets are written, and there the last row of a key counts.
            if old not in self.rows:
                return []
            self.rows[old] = n, self.rows[old][1]
            return [event("u", None, {"id": old, "n": n, "note": UNAVAILABLE}, n)]
        row = self.rows.pop(old, None)
        if row is None:
            self.refused.append((new, n))
        else:
            self.rows[new] = n, row[1]
        after = {"id": new, "n": n, "note": UNAVAILABLE}
        if kind == "pair":
            return [event("d", {"id": old}, None, n), event("c", None, after, n)]
        return [event("u", {"id": old}, after, n)]


@pytest.mark.parametrize("seed", range(2))
def test_drawn_chains_of_keys_give_the_rows_of_a_reference_that_goes_row_by_row(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    kind = ("dynamic", "vectors", "fixed", "lookup")[seed % 4]
    job = Job(tmp_path, TABLES[kind], columns="id BIGINT NOT NULL, n INT, note STRING", seed=seed)
    reference = _Reference(draw)
    for _ in range(3):
        job.batch(full(9), *(record for _ in range(draw.randrange(30)) for record in reference.drawn()))
        shown = {key: row for key, row in job.rows().items() if key != 9}
        assert shown == reference.rows
    assert sorted((r["after"]["id"], r["after"]["n"]) for r in job.refused()) == sorted(reference.refused)


def test_a_batch_that_died_gives_the_same_rows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, {"bucket": "2"})
    job.batch(full(1), full(2))

    def dies(*given: Any, **named: Any) -> Any:
        raise MemoryError("killed before the commit")

    with monkeypatch.context() as patched:
        patched.setattr(write_batch, "commit_batch", dies)
        with pytest.raises(MemoryError):
            job.batch(move(1, 11, 2), move(11, 12, 3), move(7, 8, 1))
    forget_table(job.path, "query")
    job.repeat()
    expected = {2: (1, "note 2", b"\x01\x02"), 12: (3, "note 1", b"\x01\x02")}
    assert job.rows() == expected
    forget_table(job.path, "query")
    job.repeat()
    assert job.rows() == expected
    assert [r["after"]["id"] for r in job.refused()] == [8]
