"""A key out of two partitions of a topic is found in every bucket mode, with every merge engine, however the records
are shared among tasks; and only where the order of rows matters. The judge looks at one row after the other."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.lsm.merge.feeds import (
    FeedCheck,
    FeedSpans,
    MixedKey,
    first_mixed,
    first_mixed_row,
    joined_spans,
    mixed_key,
)
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS
from bucketline.state.store.table.table import Table, create_table
from bucketline.state.store.write import dynamic
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.cross import cross_write
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import RunSealer
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_plan import WriteScope
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.key_order import KeyOrderError
from bucketline.streaming.batch.sink import TableSink
from tests.support.models.modes import DELETE, ENGINES, INSERT, MODES, Kind, draw_kind
from tests.support.models.sweeps import share_of
from tests.support.spark.tasks import Cluster, Frame

TOPICS = (("a", 0), ("a", 1), ("a", 2), ("b", 0))
NAMES = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.int32()),
        ("s", pa.int32()),
        ("t", pa.int64()),
        ("q", pa.int32()),
        ("_row_kind", pa.int8()),
        ("_kafka_topic", pa.string()),
        ("_kafka_partition", pa.int32()),
    ]
)
Record = dict[str, Any]


def order_matters(kind: Kind) -> bool:
    """What tables of the drawn kinds need, said once more in plain words."""
    if kind.engine == "aggregation":
        functions = {v for k, v in kind.options.items() if k.endswith("aggregate-function")}
        return functions != {"sum"} or not (kind.partitioned or "fields.p.aggregate-function" in kind.options)
    return "sequence.field" not in kind.options


def mixed_keys(kind: Kind, records: Sequence[Record]) -> dict[str, set[tuple[str, int]]]:
    """The keys of several partitions, as messages name them, with these."""
    found: dict[str, set[tuple[str, int]]] = {}
    for r in records:
        key = ", ".join(f"{name} = {r[name]}" for name in kind.primary_key)
        found.setdefault(key, set()).add((r["_kafka_topic"], r["_kafka_partition"]))
    return {key: places for key, places in found.items() if len(places) > 1}


@dataclass
class Stream:
    """Batches of records into one table, each shared among tasks at random."""

    table: Table
    folder: Path
    draw: random.Random
    batch_id: int = 0

    def write(self, records: Sequence[Record], policy: str) -> None:
        ends = {t: {str(p): 100 for u, p in TOPICS if u == t} for t, _ in TOPICS}
        identity = BatchIdentity("q", self.batch_id, None, json.dumps([ends]), f"d{self.batch_id}")
        data = pa.Table.from_pylist(list(records), NAMES)
        borders = sorted(self.draw.randint(0, len(records)) for _ in range(self.draw.randint(0, 4)))
        pieces = [data.slice(a, b - a) for a, b in zip([0, *borders], [*borders, len(records)], strict=True)]
        parts = [p.to_batches(max_chunksize=self.draw.choice((3, 1000))) for p in pieces]
        cluster = Cluster(self.draw, self.draw.randint(1, 3), unrest=0.1)
        options = {"key-order": policy, "local-directory": str(self.folder), "key-index-memory": "8 mb"}
        TableSink(self.table.path, options).write(Frame(cluster, parts, NAMES.names), identity)
        self.batch_id += 1


def drawn_records(draw: random.Random, kind: Kind, *, keeps_partitions: bool) -> list[Record]:
    """Records in the order of topic, partition and offset, some keys of which may be in several partitions."""
    records = []
    for number in range(draw.choice((1, 5, 60))):
        key = draw.randrange(40)
        topic, partition = TOPICS[key % 4 if keeps_partitions or draw.random() < 0.95 else draw.randrange(4)]
        row_kind = draw.choice((INSERT, DELETE)) if kind.engine == "deduplicate" else INSERT
        # In a cross-partition table the key is the id alone.
        place = draw.randrange(3) if kind.mode == "cross-partition" else key % 3
        records.append(
            {"id": key, "p": place, "s": number, "t": 1, "q": draw.randrange(5), "_row_kind": row_kind}
            | {"_kafka_topic": topic, "_kafka_partition": partition}
        )
    return sorted(records, key=lambda r: (r["_kafka_topic"], r["_kafka_partition"]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", [*MODES, "cross-partition in pieces", "dynamic by shares"])
@pytest.mark.parametrize("seed", range(share_of(4)))
def test_a_key_of_two_partitions_is_found_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, mode: str, engine: str, seed: int
) -> None:
    """A share of a cross-partition table that is large is placed in pieces; a large HASH index makes each assigner look
    its keys up in a stage of its own."""
    monkeypatch.setattr(cross_write, "CHUNK_BYTES", 1000 if "pieces" in mode else cross_write.CHUNK_BYTES)
    monkeypatch.setattr(dynamic, "BYTES_PER_KEY", 1 << 20 if "shares" in mode else dynamic.BYTES_PER_KEY)
    mode = mode.partition(" ")[0]
    caplog.set_level("INFO", "bucketline.streaming.batch.key_order")
    draw = random.Random(f"{seed} {mode} {engine}")
    kind = draw_kind(draw, mode, engine)
    path = str(tmp_path / "shop.db" / "t")
    table = create_table(path, kind.sql, kind.primary_key, kind.partition_by, dict(kind.options))
    stream = Stream(table, tmp_path / "local", draw)
    stream.write(drawn_records(draw, kind, keeps_partitions=True), "fail")
    for _ in range(5):
        records = drawn_records(draw, kind, keeps_partitions=False)
        mixed = mixed_keys(kind, records) if order_matters(kind) else {}
        before = table.snapshots()["snapshot_id"].to_pylist()
        caplog.clear()
        if not mixed or mode == "postpone":
            stream.write(records, "fail")
            assert bool(mixed) == any("nothing says which of them is newer" in m for m in caplog.messages)
            continue
        for _ in range(2):  # shared among tasks in another way
            with pytest.raises(KeyOrderError) as e:
                stream.write(records, "fail")
            places = e.value.fields["partitions"]
            assert isinstance(places, list) and set(places) <= mixed[str(e.value.fields["key"])]
            assert table.snapshots()["snapshot_id"].to_pylist() == before
        stream.write(records, "warn")
        assert any("nothing says which of them is newer" in m for m in caplog.messages)


FEEDS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@given(st.lists(FEEDS, min_size=1, max_size=5), st.integers(0, 50))
def test_spans_say_the_feed_of_each_rank(parts: list[list[int]], first: int) -> None:
    spans, starts = [], [first]
    for part in parts:
        spans.append(FeedSpans.of(np.array(part, np.int8), starts[-1]))
        starts.append(starts[-1] + len(part))
    sent = [FeedSpans.from_bytes(s.to_bytes()).moved(7) for s in (*spans, *spans)]
    joined = joined_spans(sent)
    feeds = [feed for part in parts for feed in part]
    assert joined is not None
    assert joined.of_ranks(np.arange(first, starts[-1]) + 7).tolist() == feeds
    assert joined.is_one_feed == (len(set(feeds)) == 1)


KEYED = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=30)


def is_mixed(rows: Sequence[tuple[int, int]]) -> bool:
    """Whether a key has two feeds, looking at one row after the other."""
    seen: dict[int, int] = {}
    return any(seen.setdefault(key, feed) != feed for key, feed in rows)


@given(KEYED)
def test_a_key_of_two_feeds_is_seen_among_rows_by_key(rows: list[tuple[int, int]]) -> None:
    by_key = sorted(rows, key=lambda row: row[0])
    keys, feeds = (np.array([row[i] for row in by_key], np.int64) for i in (0, 1))
    at = first_mixed(feeds, np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    assert (at is not None) == is_mixed(rows)
    assert at is None or (keys[at] == keys[at - 1] and feeds[at] != feeds[at - 1])


@given(KEYED)
def test_a_key_of_two_feeds_is_seen_among_rows_as_they_came(rows: list[tuple[int, int]]) -> None:
    names = sorted({key for key, _ in rows})
    numbers = np.array([names.index(key) for key, _ in rows], np.int64)
    found = first_mixed_row(numbers, np.array([feed for _, feed in rows], np.int16))
    assert (found is not None) == is_mixed(rows)
    if found is not None:
        row, (one, other) = found
        assert one != other == rows[row][1] and (rows[row][0], one) in rows[:row]


def test_a_check_names_the_key_and_its_feeds() -> None:
    rows = pa.table({"id": ["x", "y", "y" * 300], "n": [1, 2, 3], "_SEQUENCE_NUMBER": [4, 5, 9]})
    spans = FeedSpans(np.array([4, 6]), np.array([8, 2], np.int32))
    starts = np.array([True, False, False])
    check = FeedCheck(spans, ("id",))
    check(rows, None, np.array([True, True, True]))
    assert check.found is None
    check(rows, np.array([2, 0, 1]), starts)
    assert check.found == MixedKey('id = "x"', (2, 8))
    assert MixedKey.from_bytes(check.found.to_bytes()) == check.found
    assert len(mixed_key(rows, 2, ["id"], (1, 0)).key) < 210


@pytest.mark.parametrize("limit", [2, 100])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(share_of(3)))
def test_runs_of_several_flushes_and_passes_keep_the_feeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, engine: str, limit: int
) -> None:
    """A task seals its rows many times, and a merge cannot hold all of its runs."""
    monkeypatch.setattr("bucketline.state.store.write.bucket_writer.runs_at_once", lambda memory_bytes: limit)
    draw = random.Random(f"{seed} {engine} {limit}")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    options = {"bucket": "2", **({} if engine == "deduplicate" else {"merge-engine": engine})}
    for number in range(8):
        table = create_table(str(tmp_path / f"{number}.db" / "t"), schema, ("id",), options=options)
        session = table_at(open_handle(table.path), {}).refreshed()
        stages = session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "u"), NO_ROWS)
        rows, mixed = [], list[MixedKey]()
        write = replace(stages.write, write=replace(stages.write.write, mixed=mixed.append))
        with RunBuffer(budget_bytes=0, directory=str(tmp_path)) as buffer:
            for origin in range(3):
                sealer = RunSealer(replace(stages.seal, budget_bytes=200, run_bytes=100), origin=origin)
                for _ in range(6):
                    ids = [draw.randrange(100) for _ in range(draw.randint(1, 20))]
                    feeds = sorted(i % 3 if draw.random() < 0.99 else draw.randrange(3) for i in ids)
                    rows += list(zip(ids, feeds, strict=True))
                    data = pa.table({"id": ids, "n": ids}, schema=schema)
                    accepted = AcceptedRows(data, pa.array([INSERT] * len(ids), pa.int8()), None, np.array(feeds))
                    for run in sealer.add(accepted):
                        buffer.add(run)
                for run in sealer.finish():
                    buffer.add(run)
                mixed += [sealer.mixed] if sealer.mixed is not None else []
            list(write_buckets(write, buffer))
        named = {f"id = {key}": {f for k, f in rows if k == key} for key, _ in rows}
        assert bool(mixed) == is_mixed(rows)
        assert all(set(found.feeds) <= named[found.key] for found in mixed)
