"""Branches that are written: each has rows, schemas and snapshots of its own, and shares files with its table."""

import random
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.maintenance import expire_table
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.table_at import table_at
from tests.support.tables.commit_table import StillClock
from tests.support.tables.worlds import handle_in

BUCKETS = [
    {"bucket": "2"},
    {"bucket": "-1"},
    {"bucket": "1", "deletion-vectors.enabled": "true"},
    {"bucket": "1", "changelog-producer": "input"},
]


def _table(tmp_path: Path, options: dict[str, str] | None = None) -> Table:
    return create_table(
        str(tmp_path / "t"), "k INT NOT NULL, v INT", primary_key=["k"], options={"bucket": "1", **(options or {})}
    )


def _open(table: Table, branch: str) -> Table:
    return open_table(table.path, options={"branch": branch})


def _write(table: Table, rows: dict[int, int], clock: StillClock | None = None) -> None:
    data = pa.table({"k": list(rows), "v": list(rows.values())}, schema=table.schema)
    write_table(handle_in(table, clock=clock or StillClock()), data)


def _rows(table: Table, snapshot: int | None = None) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.to_arrow(columns=["k", "v"], snapshot=snapshot).to_pylist()}


def _sound(table: Table) -> None:
    assert table.doctor(rows=True) == []
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


@pytest.mark.parametrize("options", BUCKETS, ids=str)
def test_a_branch_is_written_and_compacted_beside_its_table(tmp_path: Path, options: dict[str, str]) -> None:
    table = _table(tmp_path, options)
    _write(table, {1: 1, 2: 2})
    table.create_tag("start")
    table.create_branch("dev", "start")
    dev = _open(table, "dev")
    _write(dev, {2: 20, 3: 30})
    _write(table, {2: 200})
    assert _rows(dev) == {1: 1, 2: 20, 3: 30}
    assert _rows(table) == {1: 1, 2: 200}
    assert compact_table(handle_of(dev)) is not None or "deletion-vectors.enabled" in options
    assert _rows(dev) == {1: 1, 2: 20, 3: 30} and _rows(table) == {1: 1, 2: 200}
    assert dev.snapshots().num_rows > 1 and not Path(table.path, "branch/branch-dev/manifest").exists()
    _sound(table)
    _sound(dev)
    grown = dev.add_column("note", "STRING")
    assert grown.schema.names == ["k", "v", "note"] and table.refreshed().schema.names == ["k", "v"]


def test_an_empty_branch_begins_with_its_own_rows(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _write(table, {1: 1})
    table.create_branch("dev")
    dev = _open(table, "dev")
    _write(dev, {7: 7})
    assert (_rows(dev), _rows(table)) == ({7: 7}, {1: 1})
    _sound(table)


def test_a_job_names_the_branch_that_it_writes(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _write(table, {1: 1})
    table.create_branch("dev")
    session = table_at(open_handle(table.path, reading={"branch": "dev"}), {})
    assert session.table.metadata_path.endswith("/branch/branch-dev") and session.refreshed().view.snapshot is None
    with pytest.raises(OptionError, match="branch"):
        table_at(handle_of(table), {"branch": "dev"})
    with pytest.raises(OptionError, match="cannot be an option of the table"):
        table.set_options({"branch": "dev"})
    with pytest.raises(OptionError, match="cannot be an option of the table"):
        _table(tmp_path / "other", {"branch": "dev"})


@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("start", ["tag", "empty"])
def test_a_table_is_forwarded_to_its_branch(tmp_path: Path, start: str, producer: str) -> None:
    table = _table(tmp_path, {"changelog-producer": producer})
    _write(table, {1: 1})
    table.create_tag("start")
    table.create_branch("dev", "start" if start == "tag" else None)
    dev = _open(table, "dev").add_column("note", "STRING")
    for number in range(2, 9):
        write_table(
            handle_of(dev), pa.table({"k": [number, 1], "v": [number] * 2, "note": ["x"] * 2}, schema=dev.schema)
        )
        _write(table, {100 + number: 0})
    table.create_tag("lost")
    wanted, seen = _rows(dev), {i: _rows(dev, i) for i in handle_of(dev).snapshot_store.ids()}
    newest = table.fast_forward("dev")
    table = table.refreshed()
    assert newest == max(seen) and table.schema.names == ["k", "v", "note"]
    assert _rows(table) == wanted and {i: _rows(table, i) for i in seen} == seen
    assert "lost" not in table.tags()["tag_name"].to_pylist()
    assert table.fast_forward("dev") == newest
    write_table(handle_of(table), pa.table({"k": [1], "v": [0], "note": ["y"]}, schema=table.schema))
    assert _rows(table) == {**wanted, 1: 0} and _rows(dev) == wanted
    assert table.doctor(rows=True) == []
    table.remove_orphan_files(dry_run=False, older_than=timedelta(0), no_writers=True)
    assert _rows(table) == {**wanted, 1: 0} and _rows(dev) == wanted


def test_a_table_is_not_forwarded_to_a_branch_without_rows(tmp_path: Path) -> None:
    table = _table(tmp_path)
    with pytest.raises(OptionError, match="Branch name 'dev' doesn't exist"):
        table.fast_forward("dev")
    table.create_branch("dev")
    with pytest.raises(OptionError, match="has no snapshot"):
        table.fast_forward("dev")


def test_a_branch_that_has_expired_past_its_beginning_keeps_what_the_table_had_there(tmp_path: Path) -> None:
    table, clock = _table(tmp_path), StillClock()
    _write(table, {1: 1}, clock)
    _write(table, {2: 2}, clock)
    table.create_tag("start")
    table.create_branch("dev", "start")
    table.delete_tag("start")
    compact_table(handle_in(table, clock=clock))
    dev = _open(table, "dev")
    dev.delete_tag("start")
    _write(dev, {3: 3}, clock)
    _write(dev, {4: 4}, clock)
    clock.now += 1
    _expire(dev, clock, 1)
    compact_table(handle_in(dev, clock=clock))
    _write(dev, {5: 5}, clock)
    clock.now += 1
    _expire(dev, clock, 1)
    assert [_rows(table, i) for i in (1, 2, 3)] == [{1: 1}, {1: 1, 2: 2}, {1: 1, 2: 2}]
    assert _rows(dev) == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}


@pytest.mark.parametrize("seed", range(3))
def test_whatever_expires_in_one_history_the_others_stay_whole(tmp_path: Path, seed: int) -> None:
    chance, clock = random.Random(seed), StillClock()
    table = _table(tmp_path, {"num-sorted-run.compaction-trigger": "2", "bucket": str(chance.choice([1, -1]))})
    _write(table, {k: 0 for k in range(4)}, clock)
    names: list[str] = []
    for step in range(24):
        clock.now += 1000
        branch = chance.choice([None, *names])
        history = table if branch is None else _open(table, branch)
        action = chance.random()
        if action < 0.55:
            _write(history, {chance.randrange(8): step}, clock)
        elif action < 0.65:
            compact_table(handle_in(history, clock=clock))
        elif action < 0.75 and len(names) < 3 and handle_of(table).snapshot_store.latest_id() is not None:
            table.create_tag(f"t{step}")
            table.create_branch(f"b{step}", f"t{step}")
            names.append(f"b{step}")
            if chance.random() < 0.5:
                table.delete_tag(f"t{step}")
        elif action < 0.8 and names:
            table.fast_forward(chance.choice(names))
        else:
            _expire(history, clock, chance.randrange(1, 4))
        _readable(table, names)
    _expire(table, clock, 1)
    for name in names:
        _expire(_open(table, name), clock, 1)
    _readable(table, names)
    assert table.doctor(rows=True) == []


def _expire(table: Table, clock: StillClock, keep: int) -> None:
    expire_table(handle_in(table, clock=clock), retain_min=keep, retain_max=keep, older_than=None, limit=None)


def _readable(table: Table, names: list[str]) -> None:
    for history in (table, *(_open(table, name) for name in names)):
        for snapshot_id in handle_of(history).snapshot_store.ids():
            history.to_arrow(snapshot=snapshot_id)
        for tag in history.tags()["tag_name"].to_pylist():
            history.to_arrow(snapshot=tag)
