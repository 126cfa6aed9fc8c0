"""Drawn shapes of messages: columns, values and layouts."""

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.records import decode_debezium, decode_json
from bucketline.streaming.decode.schema_needs import WatchFor

COUNT = 2500
Make = Callable[[random.Random, int], Any]

_ODD = ["naïve", 'a "quote"', "back\\slash", "{not: json}", "line\nbreak", ""]
KINDS: dict[str, tuple[Any, Make]] = {
    "whole": ("BIGINT", lambda r, i: r.randrange(10**9)),
    "fraction": ("DOUBLE", lambda r, i: r.random()),
    "decimal": ("DECIMAL(12, 2)", lambda r, i: f"{r.randrange(10**6)}.{r.randrange(10)}5"),
    "text": ("STRING", lambda r, i: "some words " * r.randrange(4)),
    "odd text": ("STRING", lambda r, i: r.choice(_ODD)),
    "flag": ("BOOLEAN", lambda r, i: r.random() < 0.5),
    "moment": ("TIMESTAMP(6)", lambda r, i: f"2024-02-{1 + i % 28:02}T10:11:12.{r.randrange(10**6):06}Z"),
    "day": ("DATE", lambda r, i: f"2024-02-{1 + i % 28:02}"),
    "bytes": ("BYTES", lambda r, i: "AP9hYg=="),
    "object in a text": ("STRING", lambda r, i: {"a": i, "b": [1, 2]}),
    "object or text": ("STRING", lambda r, i: {"a": i} if r.random() < 0.3 else "plain"),
    "number in a text": ("STRING", lambda r, i: r.randrange(100)),
    "map": (
        {"type": "MAP", "key": "STRING", "value": "STRING"},
        lambda r, i: {f"k{n}": "v" for n in range(r.randrange(4))},
    ),
    "list": ({"type": "ARRAY", "element": "INT"}, lambda r, i: [r.randrange(9) for _ in range(r.randrange(5))]),
    "row": (
        {"type": "ROW", "fields": [{"id": 1, "name": "x", "type": "INT"}, {"id": 2, "name": "y", "type": "STRING"}]},
        lambda r, i: {"x": i, "y": "text"},
    ),
    "always null": ("STRING", lambda r, i: None),
}


def drawn(seed: int) -> tuple[tuple[DataField, ...], pa.Array, bool, WatchFor, str]:
    """Columns, messages, whether they are events, what is watched, and how the shape is called."""
    r = random.Random(seed)
    chosen = [r.choice(list(KINDS)) for _ in range(r.choice([1, 3, 8, 20]))]
    names = [f"c{n}" for n in range(len(chosen))]
    nulls, lacking, unknown = (r.choice([0, 0, 0.2]) for _ in range(3))
    shuffled, spaced, is_event = (r.random() < 0.3 for _ in range(3))
    types = ["BIGINT NOT NULL", *(KINDS[kind][0] for kind in chosen)]
    fields = tuple(DataField(i, n, parse_type(t)) for i, (n, t) in enumerate(zip(["id", *names], types, strict=True)))
    records = []
    for i in range(COUNT):
        row: dict[str, Any] = {"id": i}
        for name, kind in zip(names, chosen, strict=True):
            if r.random() >= lacking:
                row[name] = None if r.random() < nulls else KINDS[kind][1](r, i)
        if r.random() < unknown:
            row["unknown"] = {"deep": [i]}
        if shuffled:
            row = dict(r.sample(list(row.items()), len(row)))
        record = {"before": None, "after": row, "source": {"db": "d", "table": "t"}, "op": "c"} if is_event else row
        records.append(json.dumps(record, separators=(", ", ": ") if spaced else (",", ":")).encode())
    watch = r.choice([WatchFor.NOTHING, WatchFor.ALL])
    told = f"{seed}: {chosen} {nulls=} {lacking=} {unknown=} {shuffled=} {spaced=} {is_event=} {watch}"
    return fields, pa.array(records, pa.binary()), is_event, watch, told


def reader_of(fields: tuple[DataField, ...], values: pa.Array, is_event: bool, watch: WatchFor) -> Callable[[], int]:
    """What reads the messages, none of which may be bad, and returns the number of rows."""

    def read() -> int:
        found = (
            decode_debezium(values, fields, primary_key=("id",), watch=watch)
            if is_event
            else decode_json(values, fields, watch)
        )
        assert found.bad.to_pylist() == []
        return int(found.rows.num_rows)

    return read
