"""A day of a shop as Debezium tells it: events of many tables, drawn from a seed, and what each table holds after them.

Each table has a topic of its own; further tables share one. The day has what such topics bring: deletes with their
tombstones, keys that change, heartbeats, transactions of the database and of Kafka, columns that are added, a table
that appears, records that are broken, and one that does not fit its table.
"""

import json
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bucketline.state.store.table.table import Table, open_table
from tests.support.servers.broker import KafkaBroker, KafkaRecord

COLUMNS = "id BIGINT NOT NULL, v STRING, n BIGINT"
POISONED, APPEARS, GROWS = "payments", "returns", "orders"
"""The table that a record does not fit, the one that appears in the course of the day, and the one with a new
column."""
_DECLARED = ("products", APPEARS)
"""The tables whose records have their schema in them: they are made as the records declare."""
_INSERTED = ("visits", "totals")
"""The tables that only get new rows, and add up what they get for a key: a row that is written twice shows."""
_COUNTS = {"event_count": None, "data_collections": None}
_PARTITIONED, _POSTPONED, _MOVING = "reviews", "carts", "addresses"
"""The last is partitioned by a column that is not in its key, so that its rows move between partitions."""
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "orders": {"bucket": "2"},
    "items": {"bucket": "1", "changelog-producer": "input"},
    POISONED: {"bucket": "1"},
    "customers": {"bucket": "-1"},
    "products": {"bucket": "1"},
    "stock": {"bucket": "1", "deletion-vectors.enabled": "true"},
    _POSTPONED: {"bucket": "-2"},
    "visits": {"bucket": "-1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "totals": {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "reviews": {"bucket": "1"},
    "coupons": {"bucket": "1", "changelog-producer": "lookup"},
    _MOVING: {"bucket": "-1"},
    APPEARS: {"bucket": "2"},
}
_REGIONS = ("north", "south", "west")
_PARTITIONS = 2

Row = dict[str, Any]


def _schema(table: str) -> dict[str, Any]:
    of_row = [("id", "int64", False), ("v", "string", True), ("n", "int64", True)]
    row = {"type": "struct", "optional": True, "fields": [{"field": f, "type": t, "optional": o} for f, t, o in of_row]}
    text = {"type": "string", "optional": True}
    source = {"type": "struct", "field": "source", "fields": [{**text, "field": name} for name in ("db", "table")]}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, source, {**text, "field": "op"}]
    return {"type": "struct", "name": f"shop.{table}.Envelope", "fields": fields}


@dataclass
class ShopDay:
    """The topics of a shop whose names begin with `name`, and its tables below `root`. `more` tables share a topic.

    The tables lie below `warehouse` instead, where it is set, and `storage` are the options that reach it.
    """

    broker: KafkaBroker
    root: Path
    name: str
    seed: int = 1
    more: int = 0
    warehouse: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    rows: dict[str, dict[int, Row]] = field(default_factory=dict)
    """What each table must hold."""
    records: int = 0
    poison: int = 0
    """How many records are bad ones of `POISONED`."""
    _ids: int = 1_000_000_000

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self._grown = False
        self.shared = [f"more_{number}" for number in range(self.more)]
        self.rows = {table: {} for table in (*_OPTIONS, *self.shared) if table != APPEARS}
        for topic in (*(t for t in _OPTIONS if t != APPEARS), *(["more"] if self.more else [])):
            self.broker.create_topic(self._topic(topic), partitions=_PARTITIONS)
        self.broker.create_topic(self._topic("transaction"))
        self.broker.create_topic(f"{self.name}.heartbeat")

    def _topic(self, table: str) -> str:
        return f"{self.name}.shop.{'more' if table in self.shared else table}"

    def place(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.warehouse or f'{self.root}/w'}/{table}"

    def open(self, table: str) -> Table:
        """A table as it is now."""
        return open_table(self.place(table), storage_options=self.storage)

    def job_file(self, reader: str, *, records_a_batch: int, poison_allowed: bool) -> Path:
        """The job file, made for a reader of Kafka; `poison_allowed` if the poison is put aside."""
        routes: list[dict[str, Any]] = []
        for table, options in _OPTIONS.items():
            create: dict[str, Any] = {"options": dict(options)}
            if table not in _DECLARED:
                is_split = table in (_PARTITIONED, _MOVING)
                create["schema"] = f"{COLUMNS}, region STRING NOT NULL" if is_split else COLUMNS
                if is_split:
                    create["partition-by"] = ["region"]
            create["primary-key"] = ["region", "id"] if table == _PARTITIONED else ["id"]
            route = {"source-table": f"shop.{table}", "table": self.place(table), "create": create}
            if table == _POSTPONED:
                route["options"] = {"postpone-compaction.batches": 2}
            if table == POISONED:
                route["bad-records"] = {"max": 100 if poison_allowed else 0}
            routes.append(route)
        create = {"schema": COLUMNS, "primary-key": ["id"], "options": {"bucket": "1"}}
        routes.append({"source-table": "regex:shop\\.more_.*", "table": self.place("{table}"), "create": create})
        options = {
            "kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "kafka.isolation.level": "read_committed",
            "kafka.metadata.max.age.ms": "1000",
            "subscribePattern": f"{self.name}\\..*",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(records_a_batch),
        }
        job = {
            "source": {"format": "kafka", "reader": reader, "decode": "debezium-json", "options": options},
            "checkpoint": f"{self.root}/checkpoint",
            "trigger": "availableNow",
            "options": {"schema-evolution": "evolve"},
            "bad-records": {"path": f"{self.root}/bad", "max": 1000},
            "on-table-failure": "park",
            **({"storage": dict(self.storage)} if self.storage else {}),
            "tables": routes,
        }
        path = self.root / "job.json"
        path.write_text(json.dumps(job))
        return path

    def produce(self, events: int, *, grows: bool = False, poison: bool = False, appears: bool = False) -> None:
        """The next part of the day. From `grows` on a table has one more column; `poison` brings a record that does not
        fit its table, and `appears` a table that was not there."""
        if appears:
            self.rows[APPEARS] = {}
            self.broker.create_topic(self._topic(APPEARS), partitions=_PARTITIONS)
        self._grown = self._grown or grows
        sent: dict[str, list[KafkaRecord]] = {}
        tables = [*(t for t in _OPTIONS if t in self.rows), *self.shared]
        weights = [1 if t in _DECLARED else 8 if t not in self.shared else 1 for t in tables]
        for table in self.draw.choices(tables, weights, k=events):
            sent.setdefault(self._topic(table), []).extend(self._event(table, max(50, events // 20)))
        if poison:
            broken = {"id": 7, "v": "poison", "n": "no number"}
            sent.setdefault(self._topic(POISONED), []).append(self._record(POISONED, broken, "c"))
            self.poison += 1
        sent.setdefault(self._topic(GROWS), []).append(KafkaRecord(b"{broken", b"x", 0))
        sent[f"{self.name}.heartbeat"] = [KafkaRecord(b'{"ts_ms": %d}' % self.records, b"{}", 0)]
        sent[self._topic("transaction")] = [
            KafkaRecord(json.dumps({"status": status, "id": f"t{self.records}", **_COUNTS}).encode(), b"{}")
            for status in ("BEGIN", "END")
        ]
        for topic, records in sent.items():
            self.records += self.broker.produce(topic, records)
        self._abort(self._topic("items"))

    def _event(self, table: str, keys: int) -> Iterator[KafkaRecord]:
        rows = self.rows[table]
        if table in _INSERTED:
            self._ids += 1
            key = self._ids if table == "visits" else self.draw.randrange(keys)
            row: Row = {"id": key, "v": "x", "n": self.draw.randrange(100)}
            before = rows.get(key)
            rows[key] = row if before is None else {**row, "n": before["n"] + row["n"]}
            yield self._record(table, row, "c")
            return
        key = self.draw.randrange(keys)
        was = rows.get(key)
        if was is not None and self.draw.random() < 0.3:
            del rows[key]
            yield from self._deleted(table, was)
            other = self.draw.randrange(keys)
            if other in rows or self.draw.random() < 0.5:
                return
            # The key of the row changes: to Debezium that is a delete, and a row with the new key.
            rows[other] = {**was, "id": other}
            yield self._record(table, rows[other], "c")
            return
        row = {"id": key, "v": f"{table} {self.draw.randrange(10_000)}", "n": self.draw.randrange(1000)}
        if table == _PARTITIONED:
            row["region"] = _REGIONS[key % len(_REGIONS)]
        if table == _MOVING:
            row["region"] = self.draw.choice(_REGIONS)
        if table == GROWS and self._grown:
            row["note"] = f"note {self.draw.randrange(100)}"
        rows[key] = row
        yield self._record(table, row, "c" if was is None else "u", was)

    def _deleted(self, table: str, row: Row) -> Sequence[KafkaRecord]:
        deleted = self._record(table, None, "d", row)
        return deleted, KafkaRecord(None, deleted.key, deleted.partition)

    def _record(self, table: str, row: Row | None, op: str, before: Row | None = None) -> KafkaRecord:
        event: dict[str, Any] = {"before": before, "after": row, "op": op, "source": {"db": "shop", "table": table}}
        key = (row or before or {})["id"]
        if table in _DECLARED:
            event = {"schema": _schema(table), "payload": event}
        return KafkaRecord(json.dumps(event).encode(), b'{"id": %d}' % key, key % _PARTITIONS)

    def _abort(self, topic: str) -> None:
        """A transaction that Kafka gives up: what it has written must not be read."""
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap_servers, "transactional.id": str(uuid.uuid4()), "log_level": 0}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        record = self._record("items", {"id": -1, "v": "aborted", "n": -1}, "c")
        producer.produce(topic, record.value, record.key, partition=0)
        producer.flush(30)
        producer.abort_transaction(30)

    def check_commits(self) -> None:
        """Each table has each batch at most once."""
        for table in self.rows:
            if self.storage or (self.root / "w" / table / "snapshot").exists():
                snapshots = self.open(table).snapshots().to_pylist()
                batches = [s["commit_identifier"] for s in snapshots if s["commit_kind"] == "APPEND"]
                assert batches == sorted(set(batches)), table

    def check(self) -> None:
        """Each table holds what it must, and each row once."""
        self.open(_POSTPONED).compact()
        for table, expected in self.rows.items():
            found = self.open(table).to_arrow().to_pylist()
            columns = {name for row in expected.values() for name in row}
            rows = {row["id"]: {name: row[name] for name in columns} for row in found}
            assert len(found) == len(rows), f"{table}: a row is there twice"
            wanted = {key: {name: row.get(name) for name in columns} for key, row in expected.items()}
            wrong = sorted(key for key in {*rows, *wanted} if rows.get(key) != wanted.get(key))
            assert not wrong, f"{table}: {len(wrong)} rows, as {rows.get(wrong[0])} for {wanted.get(wrong[0])}"
