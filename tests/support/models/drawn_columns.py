"""Drawn `select`, `where` and `expect`, with plain functions that say what they mean; and a source of drawn changes."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bucketline.conf.column_options import ColumnOptions, Expectation, Otherwise
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, parse_source_type
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.step_for_table import decode_step
from tests.support.models.column_reference import ERROR, Event, Expected, Image, Judging, Rules

Told = Mapping[str, Any]
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


def day(image: Told) -> str | None:
    return None if image["created"] is None else f"{image['created'] // DAY_MS + 1:02}"


def tried(text: str | None) -> int | None:
    try:
        return whole(text)
    except CannotError:
        return None


def with_null(compute: Callable[..., Any], *values: Any) -> Any:
    return None if None in values else compute(*values)


Computed = tuple[str, Callable[[Told], Any]]
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


@dataclass(frozen=True)
class Engine:
    """What a table does with rows: its options, and what follows for changes."""

    options: Mapping[str, str] = field(default_factory=dict)
    judging: Judging = Judging.NEW
    gives_old: bool = False


PLAIN = Engine()
_SUMS = {"fields.v.aggregate-function": "sum", "fields.n.aggregate-function": "sum"}
_LAST = {"fields.default-aggregate-function": "last_value"}
_GROUP = {"fields.v.sequence-group": "n,s", "fields.n.aggregate-function": "sum"}
_SUMMED = {"merge-engine": "aggregation", **_SUMS, **_LAST}
_UPDATED = {"merge-engine": "partial-update", **_GROUP}
ENGINES = (
    Engine(_SUMMED, Judging.OWN, gives_old=True),
    Engine({**_SUMMED, "changelog-producer": "lookup"}, Judging.OWN, gives_old=True),
    Engine(_UPDATED, Judging.OWN, gives_old=True),
    Engine({**_UPDATED, "changelog-producer": "full-compaction"}, Judging.OWN, gives_old=True),
    Engine({"changelog-producer": "input"}, gives_old=True),
    Engine({"changelog-producer": "lookup"}),
    Engine({"changelog-producer": "full-compaction"}),
)
"""Engines that take back old rows, and producers of changelogs."""


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
    engine: Engine = PLAIN

    @classmethod
    def of(cls, draw: random.Random, engine: Engine = PLAIN) -> "Drawn":
        at = draw.randrange(len(DAYS))
        key, partition = draw.choice(SHAPES if engine is PLAIN else SHAPES[:2])
        others = [Otherwise.WARN, Otherwise.DROP, Otherwise.REJECT][: 1 if engine.judging is Judging.OWN else 3]
        chosen = draw.sample(CHECKS, draw.randrange(3))
        checks = [(f"e{n}", check, draw.choice(others)) for n, check in enumerate(chosen)]
        where = draw.choice([None, *WHERES])
        decode = draw.choice([DEBEZIUM, DEBEZIUM, JSON]) if engine is PLAIN else DEBEZIUM
        number, text = draw.choice(NUMBERS), draw.choice(TEXTS)
        return cls(number, text, DAYS[at], DAY_INPUTS[at], where, checks, key, partition, decode, engine)

    @property
    def table_options(self) -> dict[str, str]:
        return {"bucket": "-1" if self.key == ("id",) else "2", **self.engine.options}

    def options(self) -> ColumnOptions:
        select = f"id, v, s, {self.number[0]} AS n, {self.text[0]} AS t, {self.day[0]} AS dt"
        expect = tuple(Expectation(name, check, otherwise) for name, (check, _), otherwise in self.checks)
        return ColumnOptions(select, None if self.where is None else self.where[0], expect)

    def step(self) -> DecodeStep:
        schema = plan_schema(COLUMNS, self.key, self.partition, self.table_options, None, storage_options={}, time_ms=0)
        types = (("created", parse_source_type("epoch-millis")),)
        step = decode_step(
            self.decode, schema, BadRecords("/bad", 99), MessageOptions(types=types), columns=self.options()
        )
        assert step is not None
        return step

    def expected(self) -> Expected:
        """The reference for this job, which has seen nothing yet."""
        judging = Judging.INSERTS if self.decode is JSON else self.engine.judging
        expect = {name: otherwise for name, _, otherwise in self.checks}
        has_where = self.where is not None
        needed = ("id", "dt")
        return Expected(Rules(judging, self.key, needed, needed, has_where, expect, gives_old=self.engine.gives_old))

    def event(self, told: Mapping[str, Any]) -> Event:
        """The event as the reference takes it."""
        before, after = (None if told[name] is None else self._image(told[name]) for name in ("before", "after"))
        return Event(told["ts_ms"], told["op"], before, after)

    def _image(self, told: Told) -> Image:
        row = {"id": told["id"], "v": told["v"], "s": told["s"]}
        row |= {name: tried_with(c, told) for name, c in (("n", self.number), ("t", self.text), ("dt", self.day))}
        known = {name: None if value is ERROR else value for name, value in row.items()}
        where = True if self.where is None else tried_with(self.where, told)
        checks = {name: tried_with(check, known) for name, check, _ in self.checks}
        return Image(row, [told[self.day_input]] if "dt" in self.key else [], where, checks)


def tried_with(computed: Computed, row: Told) -> Any:
    """The value, or `ERROR`."""
    try:
        return computed[1](row)
    except CannotError:
        return ERROR


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
