"""No shape of messages costs many times what another one costs. Only ratios of CPU time are compared."""

import json
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.records import decode_debezium, decode_json
from bucketline.streaming.decode.schema_needs import WatchFor

COUNT = 6000
Json = dict[str, Any]
MAP = {"type": "MAP", "key": "STRING", "value": "STRING"}


def columns(note: Any = "STRING") -> tuple[DataField, ...]:
    types = {"id": "BIGINT NOT NULL", "name": "STRING", "amount": "DOUBLE", "n": "INT", "note": note}
    return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


def row(key: int, note: object = "a note of some words") -> Json:
    return {"id": key, "name": f"name {key}", "amount": key * 1.5, "n": key % 100, "note": note}


def event(key: int, table: str = "orders", note: object = "a note of some words") -> Json:
    source = {"version": "3.5.0.Final", "connector": "postgresql", "name": "s", "ts_ms": 1795452729898}
    place = {"snapshot": "false", "db": "shop", "schema": "public", "table": table, "txId": 756, "lsn": 23487952}
    return {"before": None, "after": row(key, note), "source": source | place, "op": "c", "ts_ms": 1795452730764}


def schema(table: str) -> Json:
    types = {"id": "int64", "name": "string", "amount": "double", "n": "int32", "note": "string"}
    fields = [{"type": kind, "optional": True, "field": name} for name, kind in types.items()]
    images = [
        {"type": "struct", "fields": fields, "optional": True, "name": f"s.public.{table}.Value", "field": image}
        for image in ("before", "after")
    ]
    return {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}], "name": f"s.{table}.Envelope"}


def packed(*records: object) -> pa.Array:
    return pa.array([json.dumps(r, separators=(",", ":")).encode() for r in records], pa.binary())


def enveloped(tables: int) -> pa.Array:
    schemas = [schema(f"orders_{number:03}") for number in range(tables)]
    return packed(
        *({"schema": schemas[i % tables], "payload": event(i, f"orders_{i % tables:03}")} for i in range(COUNT))
    )


def ratio(one: Callable[[], Any], other: Callable[[], Any]) -> float:
    """How many times as much CPU the one takes as the other; the best of several turns of each."""
    best = [float("inf"), float("inf")]
    for _ in range(5):
        for number, call in enumerate((one, other)):
            started = time.process_time()
            call()
            best[number] = min(best[number], time.process_time() - started)
    return best[0] / best[1]


def reads(values: pa.Array, fields: tuple[DataField, ...], watch: WatchFor = WatchFor.NOTHING) -> Callable[[], Any]:
    def read() -> None:
        found = decode_debezium(values, fields, primary_key=("id",), watch=watch)
        assert found.rows.num_rows == COUNT

    return read


@pytest.mark.parametrize("tables", [17, 100])
def test_many_schemas_cost_little_more_than_one(tables: int) -> None:
    assert ratio(reads(enveloped(tables), columns()), reads(enveloped(1), columns())) < 5


@pytest.mark.parametrize("watch", [WatchFor.NOTHING, WatchFor.ALL])
@pytest.mark.parametrize(
    ("note", "kind"),
    [
        ({"a": "1", "b": "x y"}, MAP),
        ('{"a": "1", "b": "x y"}', MAP),
        ({"a": 1, "b": [1, "x y"]}, "STRING"),
        ([1, 2, 3], "STRING"),
        (12.5, "STRING"),
    ],
)
def test_maps_and_objects_in_texts_cost_little_more_than_plain_columns(
    note: object, kind: Any, watch: WatchFor
) -> None:
    late = packed(*(event(i, note=note) for i in range(COUNT)))
    plain = packed(*(event(i) for i in range(COUNT)))
    assert ratio(reads(late, columns(kind), watch), reads(plain, columns(), watch)) < 6


def test_a_text_that_becomes_an_object_further_on_costs_little_more() -> None:
    mixed = packed(*(row(i, {"a": i} if i % 3 == 2 and i > 100 else "text") for i in range(COUNT)))
    plain = packed(*(row(i) for i in range(COUNT)))
    own, other = (lambda values=v: decode_json(values, columns()) for v in (mixed, plain))
    assert decode_json(mixed, columns()).rows.num_rows == COUNT
    assert ratio(own, other) < 12
