"""Rules of tables, branches and folders as Paimon Java keeps them: both write, expire and compact the same tables."""

import shutil
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.peers.our_tables import rows_of
from tests.support.peers.peer import PaimonJava

pytestmark = pytest.mark.peer


def _rows(table: Table | str) -> list[tuple[object, ...]]:
    return sorted(tuple(r.values()) for r in rows_of(open_table(getattr(table, "path", table)).to_arrow()))


def _theirs(peer: PaimonJava, path: str, **options: str) -> list[tuple[object, ...]]:
    return sorted(tuple(r.values()) for r in peer.read(path, options=options))


def _write(table: Table, *rows: tuple[object, ...]) -> None:
    arrays = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), table.schema, strict=True)]
    table.write(pa.table(arrays, schema=table.schema))


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_java_and_ours_drop_the_same_rows_and_keep_the_same_changelogs(
    tmp_path: Path, paimon_java: PaimonJava, producer: str
) -> None:
    options = {
        "bucket": "1",
        "record-level.expire-time": "1 h",
        "record-level.time-field": "t",
        "changelog-producer": producer,
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "1",
        "changelog.num-retained.max": "100",
    }
    ours = create_table(
        str(tmp_path / "ours"),
        "k INT NOT NULL, t BIGINT, v INT",
        primary_key=["k"],
        options={**options, "write-only": "true"},
    )
    now = int(time.time())
    times = [now, now - 7200, None, (now - 7200) * 1000, now * 1000, now - 3000]
    for v in range(3):
        _write(ours, *((k, t, v) for k, t in enumerate(times) if (k + v) % 3))
    theirs = str(tmp_path / "theirs")
    shutil.copytree(ours.path, theirs)
    ours.compact()
    paimon_java.compact(theirs)
    assert _rows(ours) == _rows(theirs) == _theirs(paimon_java, ours.path) == _theirs(paimon_java, theirs)
    assert len(_rows(ours)) == 4
    assert [p.name for p in sorted(Path(ours.path, "snapshot").glob("snapshot-*"))] == [
        p.name for p in sorted(Path(theirs, "snapshot").glob("snapshot-*"))
    ]
    assert _names(ours.path) == _names(theirs) != []
    # Each expires what the other has left, and the changes can still be read.
    for path in (ours.path, theirs):
        table = open_table(path).set_options({"write-only": "false"})
        _write(table, (9, now, 9))
        paimon_java.write(path, [{"k": 10, "t": now, "v": 10}])
        changes = table.to_arrow(changes_since=0)
        assert {9, 10} <= set(changes["k"].to_pylist())
        assert table.doctor(rows=True) == []
        assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
        newest = max(handle_of(table).snapshot_store.ids())
        seen = paimon_java.changes(path, 1)
        assert {r["k"] for r in seen} >= {9, 10} and newest > 5


def _names(path: str) -> list[str]:
    return sorted(p.name for p in Path(path, "changelog").glob("changelog-*"))


def test_java_reads_and_goes_on_with_tables_whose_files_lie_elsewhere(tmp_path: Path, paimon_java: PaimonJava) -> None:
    for name, options in (
        ("in", {"data-file.path-directory": "files/data"}),
        (
            "out",
            {
                "data-file.external-paths": f"file:{tmp_path}/a,file:{tmp_path}/b",
                "data-file.external-paths.strategy": "round-robin",
            },
        ),
    ):
        table = create_table(
            str(tmp_path / name),
            "k INT NOT NULL, p STRING NOT NULL, v INT",
            primary_key=["k", "p"],
            partition_by=["p"],
            options={"bucket": "1", **options},
        )
        for v in range(3):
            _write(table, *((k, f"p{k % 2}", v) for k in range(6)))
        assert _theirs(paimon_java, table.path) == _rows(table)
        paimon_java.write(table.path, [{"k": k, "p": "p0", "v": 9} for k in (0, 2)])
        paimon_java.compact(table.path)
        assert _theirs(paimon_java, table.path) == _rows(table) and (0, "p0", 9) in _rows(table)
        table.compact()
        _write(table, (1, "p1", 7))
        assert _theirs(paimon_java, table.path) == _rows(table)
        shown = {Path(f["file_path"].removeprefix("file:")).parent for f in paimon_java.files(table.path)}
        assert shown == {Path(p.removeprefix("file:")).parent for p in table.files()["file_path"].to_pylist()}
        assert table.doctor(rows=True) == []
        assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_java_reads_a_branch_and_the_table_that_was_forwarded_to_it(tmp_path: Path, paimon_java: PaimonJava) -> None:
    table = create_table(str(tmp_path / "t"), "k INT NOT NULL, v INT", primary_key=["k"], options={"bucket": "1"})
    _write(table, (1, 1))
    table.create_tag("start")
    table.create_branch("dev", "start")
    dev = open_table(table.path, options={"branch": "dev"})
    for v in range(2, 8):
        _write(dev, (1, v), (v, v))
    _write(table, (100, 0))
    wanted = sorted(tuple(r.values()) for r in rows_of(dev.to_arrow()))
    assert _theirs(paimon_java, table.path, **{"branch": "dev"}) == wanted
    table.fast_forward("dev")
    assert _theirs(paimon_java, table.path) == _rows(table) == wanted
    assert [r["branch_name"] for r in paimon_java.read(table.path, system="branches")] == ["dev"]
    paimon_java.write(table.path, [{"k": 50, "v": 50}])
    paimon_java.compact(table.path)
    assert _rows(table) == [*wanted, (50, 50)]
    assert open_table(table.path).doctor(rows=True) == []


def test_java_and_ours_name_the_same_tags_and_drop_the_same_partitions(tmp_path: Path, paimon_java: PaimonJava) -> None:
    options = {
        "bucket": "1",
        "tag.automatic-creation": "process-time",
        "tag.creation-period": "two-hours",
        "tag.default-time-retained": "1 d",
        "sink.process-time-zone": "Asia/Tokyo",
        "partition.expiration-time": "3 d",
        "partition.expiration-check-interval": "0 s",
        "partition.timestamp-formatter": "yyyyMMdd",
        "partition.timestamp-pattern": "$dt",
    }
    now = int(time.time())
    days = [time.strftime("%Y%m%d", time.localtime(now - n * 86_400)) for n in range(6)]
    found = []
    for name in ("ours", "theirs"):
        table = create_table(
            str(tmp_path / name),
            "k INT NOT NULL, dt STRING NOT NULL",
            primary_key=["k", "dt"],
            partition_by=["dt"],
            options=options,
        )
        rows = [(k, day) for k, day in enumerate([*days, "x"])]
        if name == "ours":
            _write(table, *rows)
        else:
            paimon_java.write(table.path, [{"k": k, "dt": day} for k, day in rows])
        tags = table.tags().to_pylist()
        kinds = table.snapshots()["commit_kind"].to_pylist()
        found.append((_rows(table), [(t["tag_name"], t["snapshot_id"], t["time_retained"]) for t in tags], kinds))
    assert found[0] == found[1]
    assert len(found[0][0]) == 4 and found[0][2] == ["APPEND", "OVERWRITE"]
