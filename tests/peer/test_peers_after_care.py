"""Paimon Java and pypaimon read what expiry, a rollback and changes of schema leave, and carry on from there."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import StorageError
from bucketline.state.store.catalog.rollback import rollback_to
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.peers.peer import PaimonJava, Peer
from tests.support.storage.faulty_io import FaultyIO

pytestmark = pytest.mark.peer

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("p", pa.string())])


@pytest.fixture(params=["paimon_java", "pypaimon"])
def peer(request: pytest.FixtureRequest) -> Peer:
    found: Peer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = create_table(
        str(tmp_path / "shop.db" / "t"),
        SCHEMA,
        primary_key=["id", "p"],
        partition_by=["p"],
        options={"bucket": "2", "snapshot.num-retained.min": "2", "snapshot.time-retained": "1 h"},
    )
    for number in range(6):
        rows = {"id": range(number * 3, number * 3 + 9), "v": [number] * 9, "p": ["a", "b b", "c"] * 3}
        made.write(pa.table(rows, schema=SCHEMA))
    return made


def _ours(table: Table, snapshot: int | str | None = None) -> list[dict[str, object]]:
    return sorted(open_table(table.path).to_arrow(snapshot=snapshot).to_pylist(), key=repr)


def _theirs(peer: Peer, table: Table, options: dict[str, str] | None = None) -> list[dict[str, object]]:
    return sorted((dict(row) for row in peer.read(table.path, options=options)), key=repr)


def test_what_expiry_leaves_is_read(table: Table, peer: Peer) -> None:
    table.create_tag("t2", 2)
    table.create_tag("timed", 4, retained=timedelta(days=3, milliseconds=5))
    assert table.expire_snapshots(retain_min=2, older_than=timedelta(0)).snapshots > 0
    assert _theirs(peer, table) == _ours(table)
    for snapshot_id in handle_of(table).snapshot_store.ids():
        assert _theirs(peer, table, {"scan.snapshot-id": str(snapshot_id)}) == _ours(table, snapshot_id)
    for tag in ("t2", "timed"):
        assert _theirs(peer, table, {"scan.tag-name": tag}) == _ours(table, tag)


def test_a_peer_commits_after_our_expiry_and_the_table_is_sound(table: Table, peer: Peer) -> None:
    table.expire_snapshots(retain_min=1, older_than=timedelta(0))
    peer.write(table.path, [{"id": 1, "v": 77, "p": "a"}, {"id": 100, "v": 78, "p": "z"}])
    assert _theirs(peer, table) == _ours(table)
    assert [f for f in open_table(table.path).doctor(rows=True) if f.rule != "hint"] == []
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_paimons_own_expiry_heeds_our_tags_and_goes_on_where_ours_stopped(
    table: Table, paimon_java: PaimonJava
) -> None:
    table.compact()
    table.create_tag("t4", 4)
    table.expire_snapshots(retain_min=5, older_than=timedelta(0))
    tagged = _ours(table, "t4")
    now = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}
    paimon_java.write(table.path, [{"id": 1, "v": 77, "p": "a"}], options=now)
    assert len(handle_of(table).snapshot_store.ids()) == 1
    assert (_ours(table, "t4"), _theirs(paimon_java, table, {"scan.tag-name": "t4"})) == (tagged, tagged)
    assert table.doctor(rows=True) == []
    assert table.delete_tag("t4")
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_what_a_rollback_leaves_is_read_and_written(table: Table, peer: Peer) -> None:
    table.create_tag("t2", 2)
    table.expire_snapshots(retain_min=2, older_than=timedelta(0))
    table.rollback_to("t2")
    assert _theirs(peer, table) == _ours(table)
    peer.write(table.path, [{"id": 1, "v": 77, "p": "a"}])
    assert handle_of(table).snapshot_store.ids()[:2] == [2, 3]
    assert _theirs(peer, table) == _ours(table)


@pytest.mark.parametrize("is_expired", [False, True])
def test_a_rollback_that_was_cut_short_is_read_and_after_our_next_write_written(
    table: Table, peer: Peer, is_expired: bool
) -> None:
    newest = max(handle_of(table).snapshot_store.ids())
    table.create_tag("t2", 2)
    table.create_tag("last", newest)
    table.expire_snapshots(retain_min=3, older_than=timedelta(0))
    target: str | int = "t2" if is_expired else newest - 2
    io = FaultyIO(handle_of(table).io)
    kept = handle_of(table).snapshot_store.path(newest - 1)

    def stop(call: str, path: str) -> None:
        io.is_cut_off = io.is_cut_off or (call, path) == ("delete", kept)

    io.before_call = stop
    with pytest.raises(StorageError):
        rollback_to(io, table.path, target)
    ids = handle_of(table).snapshot_store.ids()
    assert newest - 1 in ids and newest not in ids
    wanted = _ours(table)
    assert wanted == _ours(table, target) and _theirs(peer, table) == _ours(table, max(ids))
    table.write(pa.table({"id": [1], "v": [70], "p": ["a"]}, schema=SCHEMA))
    assert _theirs(peer, table) == _ours(table)
    assert len(_ours(table)) >= len(wanted)
    peer.write(table.path, [{"id": 1, "v": 77, "p": "a"}])
    assert _theirs(peer, table) == _ours(table)
    assert [f for f in open_table(table.path).doctor() if f.rule != "hint"] == []


def test_changed_schemas_are_read_and_written(table: Table, peer: Peer) -> None:
    altered = table.rename_column("v", "w").alter_column("w", type="BIGINT").add_column("n", "STRING", position="first")
    assert _theirs(peer, table) == _ours(table)
    altered.write(pa.table({"n": ["x"], "id": [1], "w": [2**40], "p": ["a"]}).cast(altered.schema))
    peer.write(table.path, [{"n": "y", "id": 2, "w": 2**41, "p": "a"}])
    assert _theirs(peer, table) == _ours(table)
    again = altered.drop_column("w").add_column("w", "DOUBLE")
    assert {row["w"] for row in _ours(again)} == {None}
    assert _theirs(peer, table) == _ours(table)
    assert again.doctor(rows=True) == []
