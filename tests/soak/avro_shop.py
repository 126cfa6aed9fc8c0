"""A topic of changes in Avro, whose schema gets one more column now and then, and the tables that come of it."""

import random
import struct
from dataclasses import dataclass, field
from typing import Any

from bucketline.state.store.table.table import Table
from tests.support.models.avro_values import body_of
from tests.support.servers.broker import KafkaBroker, KafkaRecord
from tests.support.servers.schema_registry import SchemaRegistry

Row = dict[str, Any]

TABLES = ("clicks", "carts_seen", "sessions", "searches")
_KEYS = 60
_SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": name, "type": "string"} for name in ("db", "table")],
}
_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def _envelope(version: int) -> Row:
    more = [{"name": f"c{at}", "type": ["null", "int"], "default": None} for at in range(version)]
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, *more]}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    others = [{"name": "source", "type": _SOURCE}, {"name": "op", "type": "string"}]
    return {"type": "record", "name": "Envelope", "fields": [*images, *others]}


@dataclass
class AvroShop:
    """The topic, what its tables must hold, and the version of the schema with which new records are written."""

    broker: KafkaBroker
    registry: SchemaRegistry
    topic: str
    draw: random.Random
    version: int = 1
    rows: dict[str, dict[int, Row]] = field(default_factory=lambda: {name: {} for name in TABLES})

    def __post_init__(self) -> None:
        self.broker.create_topic(self.topic)

    def produce(self, count: int) -> None:
        """Writes that many changes, and a tombstone after each delete."""
        frame = struct.pack(">bI", 0, self.registry.add("value", _envelope(self.version)))
        key_frame = struct.pack(">bI", 0, self.registry.add("key", _KEY))
        records = []
        for _ in range(count):
            table, key = self.draw.choice(TABLES), self.draw.randrange(_KEYS)
            key_bytes = key_frame + body_of(_KEY, {"id": key})
            event = self._change(table, key)
            records.append(KafkaRecord(frame + body_of(_envelope(self.version), event), key_bytes, 0))
            if event["op"] == "d":
                records.append(KafkaRecord(None, key_bytes, 0))
        self.broker.produce(self.topic, records)

    def _change(self, table: str, key: int) -> Row:
        rows = self.rows[table]
        old = rows.get(key)
        shown = None if old is None else {"id": key, **{c: old.get(c) for c in self._columns()}}
        new: Row | None = {"id": key, **{c: self.draw.randrange(1000) for c in self._columns()}}
        if old is not None and self.draw.random() < 0.25:
            new = None
            del rows[key]
        else:
            assert new is not None
            rows[key] = new
        op = "d" if new is None else "c" if old is None else "u"
        return {"before": shown, "after": new, "op": op, "source": {"db": "shop", "table": table}}

    def _columns(self) -> list[str]:
        return [f"c{at}" for at in range(self.version)]

    def check(self, name: str, table: Table) -> None:
        """Fails unless the table holds what it must."""
        found = table.to_arrow().to_pylist()
        wanted = {k: {"id": k, **{c: row.get(c) for c in self._columns()}} for k, row in self.rows[name].items()}
        assert len(found) == len(wanted), f"{name}: {len(found)} rows for {len(wanted)}"
        assert {row["id"]: row for row in found} == wanted, name
