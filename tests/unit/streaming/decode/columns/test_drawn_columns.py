"""Drawn `select`, `where` and `expect` over drawn messages, against a reference that goes row by row; and whole jobs,
whose tables equal a dictionary, or what a plain write of the reference's rows makes of an engine that retracts."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.column_options import ColumnOptions
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.choose_reader import JobSink
from tests.support.models.column_reference import DELETE, INSERT, UPDATE_AFTER, Judging, Row
from tests.support.models.drawn_columns import (
    COLUMNS,
    DEBEZIUM,
    ENGINES,
    PLAIN,
    Drawn,
    Engine,
    Source,
    Told,
    messages_of,
    with_null,
)
from tests.support.models.merge_functions import KIND, SEQ
from tests.support.models.merge_reference import aggregate
from tests.support.models.sweeps import share_of
from tests.support.spark.tasks import Cluster


@pytest.mark.parametrize("seed", range(share_of(40)))
def test_drawn_columns_become_what_the_reference_makes_of_them(seed: int) -> None:
    draw = random.Random(seed)
    for engine in [PLAIN] * 5 + [draw.choice(ENGINES)]:
        drawn = Drawn.of(draw, engine)
        source, expected = Source(draw, drawn.decode), drawn.expected()
        events = [source.event() for _ in range(draw.randrange(1, 16))]
        for event in events:
            expected.take(drawn.event(event))
        found = drawn.step()(source.records(events))
        rows = found.rows.to_pylist()
        kinds = [row.pop("_row_kind", 0) for row in rows]
        given = [(kind, counted(row, kind, drawn)) for kind, row in zip(kinds, rows, strict=True)]
        assert given == [(kind, counted(row, kind, drawn)) for kind, row in expected.rows], drawn
        rejects = (
            [] if found.rejects is None else pa.ipc.open_stream(found.rejects.blob).read_all()["value"].to_pylist()
        )
        assert sorted(messages_of(rejects, drawn.decode)) == expected.bad, drawn
        assert dict(found.seen.unexpected) == expected.counts, drawn


def counted(row: Row, kind: int, drawn: Drawn) -> dict[str, Any]:
    """What counts of a row: of a delete the key, unless it takes back what it has."""
    names = {*drawn.key, *drawn.partition} if kind == DELETE and drawn.engine.judging is not Judging.OWN else set(row)
    return {name: row[name] for name in row if name in names}


class RunningJob:
    """A job that writes drawn events into a table, batch by batch, and the reference that has seen the same."""

    def __init__(self, root: Path, draw: random.Random, engine: Engine = PLAIN) -> None:
        self.draw, self.root, self.count = draw, root, 0
        self.drawn = Drawn.of(draw, engine)
        self.source, self.expected = Source(draw, self.drawn.decode), self.drawn.expected()
        self.path = str(root / "shop.db" / "t")
        create_table(self.path, COLUMNS, self.drawn.key, self.drawn.partition, self.drawn.table_options)

    def write(self) -> list[tuple[int, Row]]:
        """Writes one batch. Returns the rows that the reference has of it."""
        before = len(self.expected.rows)
        events = [self.source.event() for _ in range(self.draw.randrange(4, 12))]
        for event in events:
            self.expected.take(self.drawn.event(event))
        frame = Cluster(random.Random(self.count), 2).frame(self.source.records(events), 1, batch_rows=4)
        number = self.count
        identity = BatchIdentity("query", number, f"[{number}]", f"[{number + 1}]", f"d{number}", run_id="run")
        place = Folder(str(self.root / "bad"))
        JobSink(self.path, {"bad-records.max": "99"}, decode=self.drawn.step(), bad_records=place).write(
            frame, identity
        )
        self.count += 1
        return self.expected.rows[before:]

    def check_bad_records(self) -> None:
        files = sorted((self.root / "bad").rglob("*.parquet"))
        values = [value for file in files for value in pq.read_table(file)["value"].to_pylist()]
        assert sorted(messages_of(values, self.drawn.decode)) == self.expected.bad, self.drawn


@pytest.mark.parametrize("seed", range(share_of(12)))
def test_a_drawn_job_leaves_the_table_and_the_bad_records_that_the_reference_has(tmp_path: Path, seed: int) -> None:
    job = RunningJob(tmp_path, random.Random(1000 + seed))
    for _ in range(3):
        job.write()
    stored: dict[tuple[Any, ...], Row] = {}
    for kind, row in job.expected.rows:
        key = tuple(row[name] for name in job.drawn.key)
        stored.pop(key, None)
        if kind != DELETE:
            stored[key] = row
    found = open_table(job.path).to_arrow().to_pylist()
    assert {tuple(row[name] for name in job.drawn.key): row for row in found} == stored, job.drawn
    assert len(found) == len(stored)
    job.check_bad_records()


@pytest.mark.parametrize("seed", range(share_of(4)))
def test_a_drawn_job_over_an_engine_that_retracts_leaves_what_a_plain_write_of_the_same_rows_leaves(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(2000 + seed)
    job = RunningJob(tmp_path, draw, ENGINES[seed % len(ENGINES)])
    drawn = job.drawn
    plain = create_table(str(tmp_path / "plain"), COLUMNS, drawn.key, drawn.partition, drawn.table_options)
    for _ in range(3):
        rows = job.write()
        if rows:
            table = pa.Table.from_pylist([dict(row) for _, row in rows], open_table(plain.path).to_arrow().schema)
            plain.write(table, pa.array([kind for kind, _ in rows], pa.int8()))
    assert by_key(open_table(job.path).to_arrow(), drawn) == by_key(open_table(plain.path).to_arrow(), drawn)
    assert changes_of(job.path, drawn) == changes_of(plain.path, drawn), drawn
    if drawn.engine.options.get("merge-engine") == "aggregation":
        stored, sums = by_key(open_table(job.path).to_arrow(), drawn), summed(job)
        assert {key: stored.get(key, []) for key in sums} == sums, drawn
    job.check_bad_records()


def changes_of(path: str, drawn: Drawn) -> dict[tuple[Any, ...], list[Row]]:
    """The changes of each key that readers of a stream get."""
    return by_key(open_table(path).to_arrow(changes_since=0), drawn)


def summed(job: RunningJob) -> dict[tuple[Any, ...], list[Row]]:
    """What the reference of the engine has for each key that began with an insert: what it is for others depends on
    how rows were put into batches."""
    types = {f.name: f.type for f in handle_of(open_table(job.path)).table_schema.fields}
    histories: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for number, (kind, row) in enumerate(job.expected.rows):
        histories.setdefault(tuple(row[k] for k in job.drawn.key), []).append({**row, KIND: kind, SEQ: number})
    keys, options = (*job.drawn.key, *job.drawn.partition), job.drawn.table_options
    found = {}
    for key, rows in histories.items():
        if rows[0][KIND] in (INSERT, UPDATE_AFTER):
            merged = rows[0] if len(rows) == 1 else aggregate(rows, types, keys, options)
            found[key] = [{name: merged[name] for name in types}]
    return found


def by_key(rows: pa.Table, drawn: Drawn) -> dict[tuple[Any, ...], list[Row]]:
    """The rows of each key, in their order."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows.to_pylist():
        found.setdefault(tuple(row[name] for name in drawn.key), []).append(row)
    return found


def _told(decode: RecordFormat, old: Told, new: Told) -> bytes:
    """An update as each format tells it."""
    if decode is DEBEZIUM:
        return json.dumps({"op": "u", "before": old, "after": new}).encode()
    changed = {name: value for name, value in old.items() if new[name] != value}
    if decode is RecordFormat.MAXWELL_JSON:
        said = {"database": "d", "table": "t", "type": "update", "data": new, "old": changed}
        return json.dumps(said).encode()
    texts = {name: with_null(str, value) for name, value in new.items()}
    older = {name: with_null(str, value) for name, value in changed.items()}
    return json.dumps({"database": "d", "table": "t", "type": "UPDATE", "data": [texts], "old": [older]}).encode()


@pytest.mark.parametrize("decode", [DEBEZIUM, RecordFormat.MAXWELL_JSON, RecordFormat.CANAL_JSON])
def test_a_row_moves_also_where_what_its_key_is_computed_from_is_null(decode: RecordFormat) -> None:
    schema = plan_schema(
        "id BIGINT NOT NULL, v BIGINT, k STRING NOT NULL",
        ("id", "k"),
        (),
        {"bucket": "2"},
        None,
        storage_options={},
        time_ms=0,
    )
    step = decode_step(decode, schema, BadRecords("/bad", 9), columns=ColumnOptions("id, v, coalesce(s, 'none') AS k"))
    assert step is not None
    some, none = {"id": 1, "v": 5, "s": "a"}, {"id": 1, "v": 6, "s": None}
    values = [_told(decode, some, none), _told(decode, none, some), _told(decode, none, {**none, "v": 7})]
    found = step(pa.table({"value": pa.array(values, pa.binary()), "key": pa.array([b'{"id":1,"s":"a"}'] * 3)}))
    rows = [(row["_row_kind"], row["v"], row["k"]) for row in found.rows.to_pylist()]
    assert rows[:2] == [(3, 5, "a"), (2, 6, "none")]
    if decode is not DEBEZIUM:  # there a null may stand for what REPLICA IDENTITY leaves out
        assert rows[2:] == [(3, 6, "none"), (2, 5, "a"), (2, 7, "none")]


@pytest.mark.parametrize("decode", [DEBEZIUM, RecordFormat.MAXWELL_JSON])
def test_a_key_is_computed_from_nested_values_of_the_old_row_and_the_new_one(decode: RecordFormat) -> None:
    schema = plan_schema(
        "id BIGINT NOT NULL, r ROW<x INT>, a ARRAY<INT>, m MAP<STRING, INT>, k STRING NOT NULL",
        ("id", "k"),
        (),
        {"bucket": "2"},
        None,
        storage_options={},
        time_ms=0,
    )
    step = decode_step(
        decode, schema, BadRecords("/bad", 9), columns=ColumnOptions("*, concat(r.x, a[0], m['y']) AS k")
    )
    assert step is not None
    row = {"id": 1, "r": {"x": 1}, "a": [2, None], "m": {"y": 3}}
    changes = [(row, row), (row, row | {"r": {"x": 5}}), (row, row | {"a": [7, None]}), (row, row | {"m": {"y": 9}})]
    values = [_told(decode, old, new) for old, new in changes]
    found = step(pa.table({"value": pa.array(values, pa.binary()), "key": pa.array([b'{"id":1}'] * 4)}))
    assert [(r["_row_kind"], r["k"]) for r in found.rows.to_pylist()] == [
        (2, "123"),
        (3, "123"),
        (2, "523"),
        (3, "123"),
        (2, "173"),
        (3, "123"),
        (2, "129"),
    ]
