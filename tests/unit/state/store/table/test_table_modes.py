"""Table modes, batch by batch: what is on which level after each commit, and what readers see of it."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import Table, create_table, handle_of, open_table

SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int32())])
VECTORS = {"deletion-vectors.enabled": "true"}
GENTLE = {"lookup-compact": "gentle", "num-sorted-run.compaction-trigger": "4"}


def _table(tmp_path: Path, options: dict[str, str]) -> Table:
    return create_table(str(tmp_path / "t"), SCHEMA, primary_key=["k"], options={"bucket": "1", **options})


def _write(table: Table, rows: dict[int, int], kind: int = 0) -> None:
    data = pa.table([list(rows), list(rows.values())], schema=SCHEMA)
    table.write(data, pa.array([kind] * len(rows), pa.int8()))


def _rows(table: Table, **options: str) -> dict[int, int]:
    found = open_table(table.path, options=options).to_arrow()
    rows = dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(rows) == found.num_rows
    return rows


def _levels(table: Table) -> list[int]:
    return sorted(open_table(table.path).files()["level"].to_pylist())


def _kinds(table: Table) -> str:
    return "".join(kind[0] for kind in table.snapshots()["commit_kind"].to_pylist())


@pytest.mark.parametrize(
    ("options", "levels", "kinds", "seen"),
    [
        # Merge on read: level 0 waits for the trigger, and is read.
        ({"num-sorted-run.compaction-trigger": "4"}, [1, 2, 3, 1], "AAAAC", [1, 2, 3, 4]),
        # Copy on write: one file after each commit.
        ({"full-compaction.delta-commits": "1"}, [1, 1, 1, 1], "ACACACAC", [1, 2, 3, 4]),
        # Level 0 is emptied with each commit.
        ({"force-lookup": "true"}, None, "ACACACAC", [1, 2, 3, 4]),
        ({"compaction.force-up-level-0": "true"}, None, "ACACACAC", [1, 2, 3, 4]),
        (VECTORS, None, "ACACACAC", [1, 2, 3, 4]),
        ({**VECTORS, "deletion-vectors.bitmap64": "true"}, None, "ACACACAC", [1, 2, 3, 4]),
        # Gentle: level 0 waits for the trigger, and is not read until then, or is with merge-on-read.
        ({**VECTORS, **GENTLE}, [1, 2, 3, 1], "AAAAC", [0, 0, 0, 4]),
        ({**VECTORS, **GENTLE, "deletion-vectors.merge-on-read": "true"}, [1, 2, 3, 1], "AAAAC", [1, 2, 3, 4]),
        # A compactor does what a writer leaves.
        ({**VECTORS, "write-only": "true"}, [1, 2, 3, 4], "AAAA", [0, 0, 0, 0]),
        (
            {**VECTORS, "write-only": "true", "deletion-vectors.merge-on-read": "true"},
            [1, 2, 3, 4],
            "AAAA",
            [1, 2, 3, 4],
        ),
    ],
    ids=str,
)
def test_a_mode_says_what_each_commit_leaves_and_what_is_read(
    tmp_path: Path, options: dict[str, str], levels: list[int] | None, kinds: str, seen: list[int]
) -> None:
    table = _table(tmp_path, options)
    counted = []
    for v, wanted in enumerate(seen, start=1):
        _write(table, {0: v, v: v})
        counted.append(len(_levels(table)))
        assert _rows(table) == ({0: wanted} | {k: k for k in range(1, wanted + 1)} if wanted else {})
        if levels is None:
            assert 0 not in _levels(table)
    assert levels is None or counted == levels
    assert _kinds(table) == kinds
    table.compact()
    assert _levels(table) == [handle_of(open_table(table.path)).table_schema.settings.compaction.top_level]
    assert _rows(table) == {0: 4} | {k: k for k in range(1, 5)}
    assert _rows(table) == {r["k"]: r["v"] for r in table.to_arrow(read_optimized=True).to_pylist()}
    assert table.doctor(rows=True) == []


def test_gentle_tables_empty_level_0_after_so_many_batches_without_a_compaction(tmp_path: Path) -> None:
    options = {**VECTORS, "lookup-compact": "gentle", "lookup-compact.max-interval": "6"}
    table = _table(tmp_path, {**options, "num-sorted-run.compaction-trigger": "5", "compaction.size-ratio": "0"})
    waiting = []
    for v in range(24):
        _write(table, {k: v for k in range(v * 3, v * 3 + 1 + 40 // (v + 1))})
        waiting.append(sum(level == 0 for level in _levels(table)))
    assert max(waiting) <= 5 and 0 in waiting[4:]
    assert table.doctor(rows=True) == []


def test_the_newest_values_are_read_whatever_changes_between_batches(tmp_path: Path) -> None:
    """Modes are options of the table, so they may change with rows there; drawn by seed."""
    chance = random.Random(11)
    table = _table(tmp_path, {**VECTORS, "deletion-vectors.modifiable": "true"})
    expected: dict[int, int] = {}
    for step in range(40):
        action = chance.random()
        if action < 0.15:
            table.compact()
            enabled = chance.choice(["true", "false"])
            table = table.set_options({"deletion-vectors.enabled": enabled})
        elif action < 0.3:
            key = chance.choice(["deletion-vectors.bitmap64", "deletion-vectors.merge-on-read"])
            table = table.set_options({key: chance.choice(["true", "false"])})
        elif action < 0.4:
            table = table.set_options({"lookup-compact": chance.choice(["gentle", "radical"])})
        keys = chance.sample(range(60), chance.randrange(1, 20))
        if chance.random() < 0.3:
            _write(table, dict.fromkeys(keys, 0), kind=3)
            expected = {k: v for k, v in expected.items() if k not in keys}
        else:
            _write(table, dict.fromkeys(keys, step))
            expected |= dict.fromkeys(keys, step)
        assert _rows(table, **{"deletion-vectors.merge-on-read": "true"}) == expected
    table.compact()
    assert _rows(table) == expected
    assert table.doctor(rows=True) == []


def test_vectors_of_both_kinds_are_read_beside_each_other(tmp_path: Path) -> None:
    table = _table(tmp_path, {**VECTORS, "compaction.small-file-ratio": "0.0"})
    _write(table, {k: 0 for k in range(100)})
    _write(table, {1: 1})
    table = table.set_options({"deletion-vectors.bitmap64": "true"})
    _write(table, {2: 2})
    assert _rows(table) == {k: 0 for k in range(100)} | {1: 1, 2: 2}
    table = table.set_options({"deletion-vectors.bitmap64": "false"})
    _write(table, {3: 3}, kind=3)
    assert _rows(table) == {k: 0 for k in range(100) if k != 3} | {1: 1, 2: 2}
    assert table.doctor(rows=True) == []
