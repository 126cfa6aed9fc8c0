"""Data files that do not lie in the table's own folder: `data-file.external-paths` and `data-file.path-directory`."""

import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.table.choices import ExternalPlace
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.store.datafile.external_places import ExternalPlaces, hash_folders, murmur3_32
from bucketline.state.store.table.maintenance import expire_table
from bucketline.state.store.table.table import Table, create_table, handle_of
from tests.support.tables.commit_table import StillClock
from tests.support.tables.worlds import handle_in

PATHS = "data-file.external-paths"


def _table(tmp_path: Path, options: dict[str, str], name: str = "t") -> Table:
    given = {"bucket": "2", "num-sorted-run.compaction-trigger": "2", **options}
    return create_table(
        str(tmp_path / name), "k INT NOT NULL, p INT, v INT", primary_key=["k", "p"], partition_by=["p"], options=given
    )


def _outside(tmp_path: Path, count: int = 2, **options: str) -> dict[str, str]:
    paths = ",".join(f"file:{tmp_path}/out{n}" for n in range(count))
    return {PATHS: paths, f"{PATHS}.strategy": "round-robin", **{f"{PATHS}.{k}": v for k, v in options.items()}}


def _write(table: Table, v: int, rows: int = 20) -> None:
    data = {"k": range(rows), "p": [1, 2] * (rows // 2), "v": [v] * rows}
    table.write(pa.table(data, schema=table.schema))


def _files(folder: Path) -> set[str]:
    return {str(f.relative_to(folder)) for f in folder.rglob("data-*")}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"changelog-producer": "lookup"},
        {"deletion-vectors.enabled": "true"},
        {"bucket": "-1"},
        {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"},
    ],
    ids=str,
)
def test_new_files_go_to_the_external_paths_in_turn_and_are_read_compacted_and_removed(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = _table(tmp_path, {**_outside(tmp_path), **options})
    for v in range(4):
        _write(table, v)
    table.compact()
    assert _files(Path(table.path)) == set()
    assert set(table.to_arrow()["v"].to_pylist()) == {3}
    assert all(path.startswith(f"file:{tmp_path}/out") for path in table.files()["file_path"].to_pylist())
    assert _files(tmp_path / "out0") and _files(tmp_path / "out1")
    assert table.doctor(rows=True) == []
    before = len(_files(tmp_path / "out0")) + len(_files(tmp_path / "out1"))
    clock = StillClock(2**42)
    expire_table(handle_in(table, clock=clock), retain_min=1, retain_max=1, older_than=None, limit=None)
    left = {f"file:{tmp_path}/{f}" for n in ("out0", "out1") for f in {f"{n}/{x}" for x in _files(tmp_path / n)}}
    assert left == set(table.files()["file_path"].to_pylist()) and len(left) < before
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_orphans_in_external_folders_are_found_and_removed(tmp_path: Path) -> None:
    table = _table(tmp_path, _outside(tmp_path, strategy="entropy-inject"))
    _write(table, 1)
    stray = tmp_path / "out0/p=1/bucket-0/0000/1111/0101/00001111/data-x.parquet"
    foreign = tmp_path / "out0/p=1/bucket-0/notes/data-x.parquet"
    for file in (stray, foreign):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
        os.utime(file, (0, 0))
    assert [f.path for f in table.remove_orphan_files().files] == [str(stray)]
    assert stray.exists()
    assert len(table.remove_orphan_files(dry_run=False).files) == 1
    assert not stray.exists() and foreign.exists()
    assert table.to_arrow().num_rows == 20


def test_two_tables_do_not_share_an_external_folder(tmp_path: Path) -> None:
    first = _table(tmp_path, _outside(tmp_path, 1))
    _write(first, 1)
    second = _table(tmp_path, _outside(tmp_path, 1), "other")
    with pytest.raises(UnsupportedTableError, match="files of another table"):
        _write(second, 2)
    assert second.snapshots().num_rows == 0
    Path(tmp_path / "out0/.bucketline-table").unlink()
    stray = tmp_path / "out0/p=1/bucket-0/data-x.parquet"
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    # Whose folder it is cannot be told, so nothing in it is an orphan.
    assert first.remove_orphan_files().files == ()


def test_a_write_that_fails_leaves_no_file_outside(tmp_path: Path) -> None:
    table = _table(tmp_path, {**_outside(tmp_path), "partition.timestamp-format.strict": "true"})
    with pytest.raises(Exception, match="find no time in partition"):
        _write(table, 1)
    assert _files(tmp_path / "out0") == _files(tmp_path / "out1") == set()


def test_paths_that_are_named_for_a_later_time_are_not_used(tmp_path: Path) -> None:
    table = _table(tmp_path, {**_outside(tmp_path), f"{PATHS}.strategy": "none"})
    _write(table, 1)
    assert len(_files(Path(table.path))) > 0 and not (tmp_path / "out0").exists()
    table = table.set_options({f"{PATHS}.strategy": "specific-fs", f"{PATHS}.specific-fs": "FILE"})
    _write(table, 2)
    assert _files(tmp_path / "out0") | _files(tmp_path / "out1")
    assert set(table.to_arrow()["v"].to_pylist()) == {2}


@pytest.mark.parametrize(
    "options",
    [
        {PATHS: "/data/out"},
        {PATHS: "file:/a", f"{PATHS}.strategy": "specific-fs", f"{PATHS}.specific-fs": "s3"},
        {PATHS: "file:/a,file:/b", f"{PATHS}.strategy": "weighted", f"{PATHS}.weights": "1"},
        {PATHS: "file:/a,file:/b", f"{PATHS}.strategy": "weighted", f"{PATHS}.weights": "1,0"},
        {"data-file.path-directory": "a/../b"},
        {"data-file.path-directory": "snapshot"},
        {"data-file.path-directory": "p=1"},
    ],
    ids=str,
)
def test_places_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        _table(tmp_path, options)
    assert caught.value.fields["key"] in options


def test_names_are_hashed_as_guava_does() -> None:
    # Guava's murmur3_32 of these texts, as published with the algorithm's test vectors for seed 0.
    assert (murmur3_32(b""), murmur3_32(b"test"), murmur3_32(b"Hello, world!")) == (0, 0xBA6BD213, 0xC0363E43)
    assert murmur3_32(b"The quick brown fox jumps over the lazy dog") == 0x2E4FF723
    assert hash_folders("test") == "1011/1101/0010/00010011"


@pytest.mark.parametrize("strategy", [s.value for s in ExternalPlace if s is not ExternalPlace.NONE])
def test_files_are_spread_as_the_strategy_says(tmp_path: Path, strategy: str) -> None:
    options = _outside(tmp_path, 3, strategy=strategy, weights="1,2,5", **{"specific-fs": "file"})
    schema = handle_of(
        create_table(str(tmp_path / "s"), "k INT NOT NULL", primary_key=["k"], options=options)
    ).table_schema
    places = ExternalPlaces(schema, EMPTY_ROW, 0, "a-seed")
    found = [places.place(f"data-{n}.parquet") or "" for n in range(800)]
    counts = [sum(f.startswith(f"file:{tmp_path}/out{n}/bucket-0/") for f in found) for n in range(3)]
    if strategy == "weighted":
        assert all(abs(count - share * 100) < 60 for count, share in zip(counts, (1, 2, 5), strict=True))
    else:
        assert max(counts) - min(counts) <= 1 and sum(counts) == 800
    assert all(f.count("/") == found[0].count("/") for f in found)


@pytest.mark.parametrize("bucket", ["2", "-1", "-2"])
def test_data_files_lie_in_the_folder_that_the_table_names(tmp_path: Path, bucket: str) -> None:
    table = _table(tmp_path, {"data-file.path-directory": "files/data", "bucket": bucket})
    for v in range(3):
        _write(table, v)
    assert all(f.startswith("files/data/p=") for f in _files(Path(table.path)))
    assert set(table.to_arrow()["v"].to_pylist()) == {2}
    assert table.doctor(rows=True) == []
    stray = Path(table.path, "files/data/p=1/bucket-0/data-x.parquet")
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    assert [f.path for f in table.remove_orphan_files().files] == [str(stray)]
