"""Drawn `select`, `where` and `expect` over drawn messages, against a reference that goes row by row; and whole jobs,
whose tables equal a dictionary."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.column_options import ColumnOptions, Expectation, Otherwise
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, parse_source_type
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.choose_reader import JobSink
from tests.support.models.sweeps import share_of
from tests.support.spark.tasks import Cluster

Image = Mapping[str, Any]
DEBEZIUM, JSON = RecordFormat.DEBEZIUM_JSON, RecordFormat.JSON
DAY_MS = 86_400_000
COLUMNS = "id BIGINT NOT NULL, v BIGINT, s STRING, n BIGINT, t STRING, dt STRING NOT NULL"
SHAPES = ((("id", "dt"), ("dt",)), (("id", "dt"), ()), (("id",), ("dt",)))
"""Keys and partitions: the last one is a cross-partition table."""


class CannotError(Exception):
    """The value cannot be computed."""


def whole(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as e:
        raise CannotError from e


def halves(number: int | None) -> int | None:
    if number == 0:
        raise CannotError
    return None if number is None else int(6 / number)


def day(image: Image) -> str | None:
    return None if image["created"] is None else f"{image['created'] // DAY_MS + 1:02}"


def tried(text: str | None) -> int | None:
    try:
        return whole(text)
    except CannotError:
        return None


def with_null(compute: Callable[..., Any], *values: Any) -> Any:
    return None if None in values else compute(*values)


Computed = tuple[str, Callable[[Image], Any]]
NUMBERS: Sequence[Computed] = (
    ("v", lambda m: m["v"]),
    ("CAST(s AS BIGINT)", lambda m: whole(m["s"])),
    ("try_cast(s AS BIGINT)", lambda m: tried(m["s"])),
    ("coalesce(v, 0) * 2", lambda m: (m["v"] or 0) * 2),
    ("CASE WHEN v > 0 THEN v END", lambda m: m["v"] if (m["v"] or 0) > 0 else None),
    ("6 div v", lambda m: halves(m["v"])),
    ("length(s)", lambda m: with_null(len, m["s"])),
)
TEXTS: Sequence[Computed] = (
    ("upper(s)", lambda m: with_null(str.upper, m["s"])),
    ("concat(s, '-', v)", lambda m: with_null(lambda s, v: f"{s}-{v}", m["s"], m["v"])),
    ("substring(s, 1, 1)", lambda m: with_null(lambda s: s[:1], m["s"])),
    ("coalesce(s, 'none')", lambda m: "none" if m["s"] is None else m["s"]),
)
DAYS: Sequence[Computed] = (
    ("date_format(created, 'dd')", day),
    ("coalesce(date_format(created, 'dd'), '00')", lambda m: day(m) or "00"),
    ("CAST(v AS STRING)", lambda m: with_null(str, m["v"])),
    ("CAST(CAST(s AS BIGINT) AS STRING)", lambda m: with_null(str, whole(m["s"]))),
)
DAY_INPUTS = {0: "created", 1: "created", 2: "v", 3: "s"}
WHERES: Sequence[Computed] = (
    ("v > 0", lambda m: with_null(lambda v: v > 0, m["v"])),
    ("CAST(s AS BIGINT) < 5", lambda m: with_null(lambda n: n < 5, whole(m["s"]))),
    ("created IS NOT NULL AND v IS NOT NULL", lambda m: m["created"] is not None and m["v"] is not None),
    ("6 div v > 1", lambda m: with_null(lambda n: n > 1, halves(m["v"]))),
    ("s IN ('7', 'x')", lambda m: with_null(lambda s: s in ("7", "x"), m["s"])),
)
CHECKS: Sequence[Computed] = (
    ("n >= 0", lambda r: with_null(lambda n: n >= 0, r["n"])),
    ("t <> 'X'", lambda r: with_null(lambda t: t != "X", r["t"])),
    ("6 div n > 0", lambda r: with_null(lambda n: n > 0, halves(r["n"]))),
    ("dt = '01' OR n IS NULL", lambda r: r["n"] is None or with_null(lambda dt: dt == "01", r["dt"])),
)


@dataclass
class Drawn:
    """Settings of columns, and what they mean."""

    number: Computed
    text: Computed
    day: Computed
    day_input: str
    where: Computed | None
    checks: list[tuple[str, Computed, Otherwise]]
    key: tuple[str, ...]
    partition: tuple[str, ...]
    decode: RecordFormat

    @classmethod
    def of(cls, draw: random.Random) -> "Drawn":
        at = draw.randrange(len(DAYS))
        key, partition = draw.choice(SHAPES)
        others = (Otherwise.WARN, Otherwise.DROP, Otherwise.REJECT)
        chosen = draw.sample(CHECKS, draw.randrange(3))
        checks = [(f"e{n}", check, draw.choice(others)) for n, check in enumerate(chosen)]
        where = draw.choice([None, *WHERES])
        decode = draw.choice([DEBEZIUM, DEBEZIUM, JSON])
        return cls(
            draw.choice(NUMBERS), draw.choice(TEXTS), DAYS[at], DAY_INPUTS[at], where, checks, key, partition, decode
        )

    def options(self) -> ColumnOptions:
        select = f"id, v, s, {self.number[0]} AS n, {self.text[0]} AS t, {self.day[0]} AS dt"
        expect = tuple(Expectation(name, check, otherwise) for name, (check, _), otherwise in self.checks)
        return ColumnOptions(select, None if self.where is None else self.where[0], expect)

    def step(self) -> DecodeStep:
        options = {"bucket": "-1" if self.key == ("id",) else "2"}
        schema = plan_schema(COLUMNS, self.key, self.partition, options, None, storage_options={}, time_ms=0)
        types = (("created", parse_source_type("epoch-millis")),)
        step = decode_step(
            self.decode, schema, BadRecords("/bad", 99), MessageOptions(types=types), columns=self.options()
        )
        assert step is not None
        return step

    def needed(self, image: Image) -> dict[str, Any]:
        """What deletes must have. Raises CannotError."""
        return {"id": image["id"], "dt": self.day[1](image)}

    def row(self, image: Image) -> tuple[dict[str, Any], bool]:
        """All columns, null where one cannot be computed; and whether all can."""
        row, is_whole = {"id": image["id"], "v": image["v"], "s": image["s"]}, True
        for name, (_, compute) in (("n", self.number), ("t", self.text), ("dt", self.day)):
            try:
                row[name] = compute(image)
            except CannotError:
                row[name], is_whole = None, False
        return row, is_whole


@dataclass
class Expected:
    """What becomes of messages: rows with their kinds, the messages that are bad, and how many rows were unexpected."""

    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def take(self, drawn: Drawn, event: Mapping[str, Any]) -> None:
        try:
            self.rows += self._rows(drawn, event)
        except CannotError:
            self.bad.append(event["ts_ms"])

    def _rows(self, drawn: Drawn, event: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
        op, before, after = event["op"], event["before"], event["after"]
        if before is not None and "dt" in drawn.key and before[drawn.day_input] is None:
            # Debezium leaves out what REPLICA IDENTITY does not name: it is not known whether the key has changed.
            raise CannotError
        if op == "d":
            drawn.needed(before)
            return _stored((3, drawn.row(before)[0]))
        passes = drawn.where is None or drawn.where[1](after) is True
        if not passes and op == "c":
            return []
        row, is_whole = drawn.row(after)
        refused, dropped = self._checked(drawn, row) if passes else (False, False)
        new_key = drawn.needed(after)
        if refused or (passes and not is_whole):
            raise CannotError
        kind = (2 if op == "u" else 0) if passes else 3
        rows = [(kind, row)]
        if op == "u" and "dt" in drawn.key and before[drawn.day_input] != after[drawn.day_input]:
            old_key = drawn.needed(before)
            if old_key != new_key:
                rows.insert(0, (3, drawn.row(before)[0]))
        return [] if dropped else _stored(*rows)

    def _checked(self, drawn: Drawn, row: Mapping[str, Any]) -> tuple[bool, bool]:
        """Whether the record is bad, and whether it is left out."""
        refused = dropped = False
        for name, (_, check), otherwise in drawn.checks:
            try:
                if check(row) is False:
                    self.counts[name] = self.counts.get(name, 0) + 1
                    refused |= otherwise is Otherwise.REJECT
                    dropped |= otherwise is Otherwise.DROP
            except CannotError:
                refused = True
        return refused, dropped


def _stored(*rows: tuple[int, dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    if any(row["dt"] is None for _, row in rows):
        raise CannotError
    return list(rows)


def drawn_image(draw: random.Random, key: int) -> dict[str, Any]:
    return {
        "id": key,
        "v": draw.choice([None, -2, 0, 1, 2, 7]),
        "s": draw.choice([None, "7", "-3", "x", "2", "2"]),
        "created": draw.choice([None, 0, DAY_MS, DAY_MS, 2 * DAY_MS]),
    }


class Source:
    """A table of a database whose rows change; what it says of a row is whole."""

    def __init__(self, draw: random.Random, decode: RecordFormat) -> None:
        self.draw, self.decode, self.count = draw, decode, 0
        self.rows: dict[int, dict[str, Any]] = {}

    def event(self) -> dict[str, Any]:
        key, at = self.draw.randrange(5), self.count
        self.count += 1
        after = drawn_image(self.draw, key)
        if self.decode is JSON:
            return {"op": "c", "before": None, "after": after, "ts_ms": at}
        before = self.rows.pop(key, None)
        if before is not None and self.draw.random() < 0.2:
            return {"op": "d", "before": before, "after": None, "ts_ms": at}
        self.rows[key] = after
        op = self.draw.choice("cr") if before is None else "u"
        return {"op": op, "before": before, "after": after, "ts_ms": at}

    def records(self, events: Sequence[Mapping[str, Any]]) -> pa.Table:
        told = [{**e["after"], "at": e["ts_ms"]} if self.decode is JSON else e for e in events]
        keys = [json.dumps({"id": (e["after"] or e["before"])["id"]}).encode() for e in events]
        values = pa.array([json.dumps(t).encode() for t in told], pa.binary())
        return pa.table({"value": values, "key": pa.array(keys, pa.binary())})


def messages_of(values: Sequence[bytes], decode: RecordFormat) -> list[int]:
    return [json.loads(value)["at" if decode is JSON else "ts_ms"] for value in values]


@pytest.mark.parametrize("seed", range(share_of(40)))
def test_drawn_columns_become_what_the_reference_makes_of_them(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(5):
        drawn = Drawn.of(draw)
        source, expected = Source(draw, drawn.decode), Expected()
        events = [source.event() for _ in range(draw.randrange(1, 16))]
        for event in events:
            expected.take(drawn, event)
        found = drawn.step()(source.records(events))
        rows = found.rows.to_pylist()
        kinds = [row.pop("_row_kind", 0) for row in rows]
        given = list(zip(kinds, rows, strict=True))
        wanted = [(kind, _as_delete(row, drawn) if kind == 3 else row) for kind, row in expected.rows]
        assert [(k, _as_delete(r, drawn) if k == 3 else r) for k, r in given] == wanted, drawn
        rejects = (
            [] if found.rejects is None else pa.ipc.open_stream(found.rejects.blob).read_all()["value"].to_pylist()
        )
        assert sorted(messages_of(rejects, drawn.decode)) == expected.bad, drawn
        assert dict(found.seen.unexpected) == expected.counts, drawn


def _as_delete(row: Mapping[str, Any], drawn: Drawn) -> dict[str, Any]:
    return {name: row[name] for name in (*drawn.key, *drawn.partition)}


@pytest.mark.parametrize("seed", range(share_of(12)))
def test_a_drawn_job_leaves_the_table_and_the_bad_records_that_the_reference_has(tmp_path: Path, seed: int) -> None:
    draw = random.Random(1000 + seed)
    drawn = Drawn.of(draw)
    path, place = str(tmp_path / "shop.db" / "t"), Folder(str(tmp_path / "bad"))
    create_table(path, COLUMNS, drawn.key, drawn.partition, {"bucket": "-1" if drawn.key == ("id",) else "2"})
    source, expected = Source(draw, drawn.decode), Expected()
    for number in range(3):
        events = [source.event() for _ in range(draw.randrange(4, 12))]
        for event in events:
            expected.take(drawn, event)
        frame = Cluster(random.Random(seed), 2).frame(source.records(events), 1, batch_rows=4)
        identity = BatchIdentity("query", number, f"[{number}]", f"[{number + 1}]", f"d{number}", run_id="run")
        JobSink(path, {"bad-records.max": "99"}, decode=drawn.step(), bad_records=place).write(frame, identity)
    stored: dict[tuple[Any, ...], dict[str, Any]] = {}
    for kind, row in expected.rows:
        key = tuple(row[name] for name in drawn.key)
        stored.pop(key, None)
        if kind != 3:
            stored[key] = row
    found = open_table(path).to_arrow().to_pylist()
    assert {tuple(row[name] for name in drawn.key): row for row in found} == stored, drawn
    assert len(found) == len(stored)
    files = sorted((tmp_path / "bad").rglob("*.parquet"))
    values = [value for file in files for value in pq.read_table(file)["value"].to_pylist()]
    assert sorted(messages_of(values, drawn.decode)) == expected.bad, drawn


def _told(decode: RecordFormat, old: Image, new: Image) -> bytes:
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
