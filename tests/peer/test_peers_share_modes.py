"""Tables with dynamic, cross-partition and postponed buckets in turns: Paimon Java and pypaimon continue what we began,
and we what they did, each by the other's index."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.store.index.hash_index_store import HashCache, HashIndexStore, hash_entries
from bucketline.state.store.table.table import Table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.types.binary_row import hash_rows
from bucketline.state.types.logical import parse_type_text
from tests.support.peers.golden import golden_table
from tests.support.peers.our_tables import fields_of, make_table, write_rows
from tests.support.peers.peer import PaimonJava, PyPaimon
from tests.support.peers.rows import assert_same_rows

pytestmark = pytest.mark.peer

Row = dict[str, Any]
COLUMNS = {"k": "BIGINT NOT NULL", "p": "INT NOT NULL", "v": "INT"}
FIELDS = fields_of(COLUMNS)
MERGES = ("deduplicate", "partial-update", "aggregation")


def options_of(engine: str) -> dict[str, str]:
    found = {} if engine == "deduplicate" else {"merge-engine": engine}
    return found | ({"fields.v.aggregate-function": "sum"} if engine == "aggregation" else {})


def merged(engine: str, old: Row | None, new: Row) -> Row:
    if old is None or engine == "deduplicate":
        return new
    if new["v"] is None:
        return old
    total = (old["v"] or 0) + new["v"] if engine == "aggregation" else new["v"]
    return {**old, "v": total}


def index_of(table: Table) -> dict[tuple[bytes, int], list[int]]:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    entries = handle_of(table).manifests.read_index(newest.index_manifest)
    assert all(n == 1 for n in Counter((e.partition, e.bucket) for e in entries).values())
    store = HashIndexStore(handle_of(table).io, table.path, cached=HashCache(0), storage={})
    return {(p, e.bucket): store.hashes(e).tolist() for p, es in hash_entries(entries).items() for e in es}


def draw_rows(draw: random.Random, keys: int = 60) -> list[Row]:
    count = draw.choice((1, 10, 40))
    return [{"k": draw.randrange(keys), "p": draw.randrange(2), "v": draw.choice((None, 1, 7))} for _ in range(count)]


@pytest.mark.parametrize("engine", MERGES)
@pytest.mark.parametrize("seed", [1, 2])
def test_dynamic_buckets_in_turns_by_one_index(
    paimon_java: PaimonJava, pypaimon: PyPaimon, tmp_path: Path, engine: str, seed: int
) -> None:
    draw, path = random.Random(f"{engine} {seed}"), tmp_path / "t"
    options = {**options_of(engine), "bucket": "-1", "dynamic-bucket.target-row-num": "7",
               "num-sorted-run.compaction-trigger": "3"}  # fmt: skip
    keys = {"primary_keys": ("p", "k"), "partition_keys": ("p",)}
    if seed == 1:
        paimon_java.create(path, FIELDS, options=options, **keys)
    else:
        make_table(path, COLUMNS, primary_key=("p", "k"), partition_by=("p",), options=options)
    expected: dict[Any, Row] = {}
    writers: list[Callable[[list[Row]], object]] = [
        lambda rows: write_rows(path, rows),
        lambda rows: paimon_java.write(path, rows),
        lambda rows: pypaimon.write(path, rows),
    ]
    for turn in range(9):
        rows = draw_rows(draw)
        writers[turn % 3](rows)
        for row in rows:
            key = (row["p"], row["k"])
            expected[key] = merged(engine, expected.get(key), row)
        if turn in (4, 7):
            paimon_java.compact(path) if turn == 4 else open_table(str(path)).compact()
        table = open_table(str(path))
        found = table.to_arrow().to_pylist()
        assert_same_rows(found, expected.values(), FIELDS)
        assert_same_rows(paimon_java.read(path), expected.values(), FIELDS)
        assert_same_rows(pypaimon.read(path), expected.values(), FIELDS)
        index = index_of(table)
        hashes = np.asarray(hash_rows([pa.array([k for _, k in expected])], [parse_type_text("BIGINT")])).tolist()
        assert Counter(h for found in index.values() for h in found) == Counter(hashes)
        assert max(map(len, index.values())) <= 7
        # Every row lies in the bucket whose index has its key.
        for row in paimon_java.read(path, buckets=True):
            (number,) = np.asarray(hash_rows([pa.array([row["k"]])], [parse_type_text("BIGINT")])).tolist()
            assert any(number in hs and b == row["__paimon_bucket"] for (_, b), hs in index.items())


@pytest.mark.parametrize("engine", MERGES)
def test_cross_partition_upserts_continue_what_java_wrote(paimon_java: PaimonJava, tmp_path: Path, engine: str) -> None:
    path = tmp_path / "t"
    options = {**options_of(engine), "bucket": "-1", "dynamic-bucket.target-row-num": "10"}
    columns = {**COLUMNS, "p": "INT"}
    fields = fields_of(columns)
    paimon_java.create(path, fields, primary_keys=("k",), partition_keys=("p",), options=options)
    expected: dict[int, Row] = {}

    def tell(rows: list[Row]) -> None:
        for row in rows:
            old = expected.get(row["k"])
            expected[row["k"]] = merged(engine, old, row)

    def check() -> None:
        assert_same_rows(open_table(str(path)).to_arrow().to_pylist(), expected.values(), fields)
        assert_same_rows(paimon_java.read(path), expected.values(), fields)

    # Java is told the buckets, as its engines would have them.
    first = [{"k": k, "p": k % 3, "v": k} for k in range(30)]
    paimon_java.write(path, [{**row, "_bucket": row["k"] // 20} for row in first])
    tell(first)
    draw = random.Random(engine)
    local = {"local-directory": str(tmp_path / "local")}
    for turn in range(6):
        rows = draw_rows(draw)
        data = pa.Table.from_pylist(rows, schema=pa.schema({"k": pa.int64(), "p": pa.int32(), "v": pa.int32()}))
        write_table(handle_of(open_table(str(path))), data, options=local)
        tell(rows)
        check()
        if turn == 2:
            paimon_java.compact(path)
        elif turn == 3:
            open_table(str(path)).compact()
        else:
            # Keys that nobody has had, written by another job in between.
            new = [{"k": 1000 + 10 * turn + i, "p": i % 3, "v": i} for i in range(6)]
            paimon_java.write(path, [{**row, "_bucket": 0} for row in new])
            tell(new)
        check()


@pytest.mark.parametrize("engine", MERGES)
def test_postponed_rows_of_every_writer_are_dealt_by_us_and_read_by_all(
    paimon_java: PaimonJava, pypaimon: PyPaimon, tmp_path: Path, engine: str
) -> None:
    path, draw = tmp_path / "t", random.Random(engine)
    options = {**options_of(engine), "bucket": "-2", "postpone.default-bucket-num": "2",
               "postpone.batch-write-fixed-bucket": "false"}  # fmt: skip
    make_table(path, COLUMNS, primary_key=("p", "k"), partition_by=("p",), options=options)
    expected: dict[Any, Row] = {}
    visible: dict[Any, Row] = {}
    writers: list[Callable[[list[Row]], object]] = [
        lambda rows: write_rows(path, rows),
        lambda rows: paimon_java.write(path, rows),
        lambda rows: pypaimon.write(path, rows),
    ]
    for turn in range(9):
        rows = draw_rows(draw)
        writers[turn % 3](rows)
        for row in rows:
            key = (row["p"], row["k"])
            expected[key] = merged(engine, expected.get(key), row)
        assert_same_rows(paimon_java.read(path), visible.values(), FIELDS)
        if turn % 4 == 3:
            open_table(str(path)).compact("full" if turn == 3 else "minor")
            visible = dict(expected)
        table = open_table(str(path))
        assert_same_rows(table.to_arrow().to_pylist(), visible.values(), FIELDS)
        assert_same_rows(paimon_java.read(path), visible.values(), FIELDS)
        waiting = open_table(str(path), options={"postpone.merge-on-read": "true"})
        assert_same_rows(waiting.to_arrow().to_pylist(), expected.values(), FIELDS)
    table.rescale(3)
    table.compact()
    paimon_java.compact(path, options={"bucket": "3"})
    for found in (open_table(str(path)).to_arrow().to_pylist(), paimon_java.read(path), pypaimon.read(path)):
        assert_same_rows(found, expected.values(), FIELDS)


def test_a_golden_dynamic_table_is_continued_by_its_own_index(paimon_java: PaimonJava, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(golden_table("pk_dynamic"), path)
    table = open_table(str(path))
    before, index = table.to_arrow(), index_of(table)
    assert before.num_rows > 0
    # Every row once more: each finds its bucket, and the index has nothing to learn.
    table.write(before)
    assert index_of(table) == index
    buckets = {r["__paimon_bucket"] for r in paimon_java.read(path, buckets=True)}
    assert len(paimon_java.read(path)) == before.num_rows and buckets == {b for _, b in index}
    table.compact()
    assert table.to_arrow().num_rows == len(paimon_java.read(path)) == before.num_rows
    assert not [f for f in table.doctor(rows=True) if f.severity.value == "error"]
