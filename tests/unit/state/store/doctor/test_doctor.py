"""The doctor finds nothing in sound tables, and each thing that is broken on purpose."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import FileKind, ManifestEntry
from bucketline.state.format.index.hash_index import decode_hash_index, encode_hash_index
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.tags import tag_snapshot
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.key_index.ready import IndexPlan, ready_index
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.peers.golden import golden_table, golden_tables
from tests.support.tables.examined import examine
from tests.support.tables.moving_keys import MovingKeys


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Two buckets, several levels, a tag and a branch."""
    path = tmp_path_factory.mktemp("doctor") / "t"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = create_table(str(path), schema, primary_key=["id"], options={"bucket": "2"})
    for start in (0, 50, 25):
        table.write(pa.table({"id": range(start, start + 60), "v": ["x"] * 60}, schema=schema))
    table.compact()
    table.write(pa.table({"id": range(10), "v": ["y"] * 10}, schema=schema))
    table.write(pa.table({"id": range(10), "v": ["z"] * 10}, schema=schema))
    tag = tag_snapshot(handle_of(table).io, table.path, "t", 2)
    Branches(handle_of(table).io, table.path).create("b", tag)
    return table


@pytest.fixture
def table(sound: Table, tmp_path: Path) -> Table:
    shutil.copytree(sound.path, tmp_path / "t")
    return open_table(str(tmp_path / "t"))


def test_a_sound_table_has_no_findings(sound: Table) -> None:
    assert examine(handle_of(sound), rows=True) == []


@pytest.mark.parametrize("name", golden_tables())
def test_what_paimon_wrote_is_sound(name: str) -> None:
    found = examine(handle_of(open_table(str(golden_table(name)))), rows=True)
    # The hint EARLIEST and orphans depend on how the copies were made.
    assert [f for f in found if f.severity is Severity.ERROR] == []


def _rewrite_delta(table: Table, change: Callable[[list[ManifestEntry]], list[ManifestEntry]]) -> None:
    """Gives the newest snapshot another delta."""
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    metas = handle_of(table).manifests.write(change(handle_of(table).manifests.delta_entries(newest)), 0)
    name, size = handle_of(table).manifests.write_list(metas)
    changed = replace(newest, delta_manifest_list=name, delta_manifest_list_size=size)
    handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(newest.id), encode_snapshot(changed))


def _with_file(change: Callable[[DataFileMeta], DataFileMeta]) -> Callable[[list[ManifestEntry]], list[ManifestEntry]]:
    return lambda entries: [replace(entries[0], file=change(entries[0].file)), *entries[1:]]


def _lose_data(table: Table) -> None:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    name = handle_of(table).manifests.live_entries(newest)[0].file.file_name
    next(Path(table.path).rglob(name)).unlink()


def _cut_data(table: Table) -> None:
    found = max(Path(table.path).glob("bucket-*/*"), key=lambda p: p.stat().st_mtime_ns)
    found.write_bytes(found.read_bytes()[:-10])


def _lose_tagged(table: Table) -> None:
    tagged, newest = handle_of(table).snapshot_store.get(2), handle_of(table).snapshot_store.latest()
    assert tagged is not None and newest is not None
    live = {e.file.file_name for e in handle_of(table).manifests.live_entries(newest)}
    name = next(
        e.file.file_name for e in handle_of(table).manifests.live_entries(tagged) if e.file.file_name not in live
    )
    next(Path(table.path).rglob(name)).unlink()
    for snapshot_id in handle_of(table).snapshot_store.ids()[:-1]:
        handle_of(table).io.delete(handle_of(table).snapshot_store.path(snapshot_id))
    handle_of(table).snapshot_store.write_earliest_hint(newest.id)


def _lose_list(table: Table) -> None:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    handle_of(table).io.delete(handle_of(table).manifests.path(newest.base_manifest_list))


def _write(path: str, data: bytes) -> Callable[[Table], None]:
    return lambda table: handle_of(table).io.overwrite(f"{table.path}/{path}", data)


def _replace_in(path: str, old: str, new: str) -> Callable[[Table], None]:
    def change(table: Table) -> None:
        text = Path(table.path, path).read_text()
        assert old in text
        Path(table.path, path).write_text(text.replace(old, new))

    return change


def _commit_twice(table: Table) -> None:
    for snapshot_id in (5, 6):
        found = handle_of(table).snapshot_store.get(snapshot_id)
        assert found is not None
        again = replace(found, commit_user="u", commit_identifier=7)
        handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(snapshot_id), encode_snapshot(again))


def _wrong_base(table: Table) -> None:
    newest = handle_of(table).snapshot_store.latest()
    before = handle_of(table).snapshot_store.get(2)
    assert newest is not None and before is not None
    changed = replace(
        newest,
        base_manifest_list=before.base_manifest_list,
        base_manifest_list_size=before.base_manifest_list_size,
    )
    handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(newest.id), encode_snapshot(changed))


def _delta(change: Callable[[list[ManifestEntry]], list[ManifestEntry]]) -> Callable[[Table], None]:
    return lambda table: _rewrite_delta(table, change)


BROKEN: dict[str, tuple[Callable[[Table], None], str]] = {
    "a data file is gone": (_lose_data, "missing-file"),
    "a data file is cut short": (_cut_data, "file-size"),
    "a tag's data file is gone": (_lose_tagged, "missing-file"),
    "a manifest list is gone": (_lose_list, "unreadable"),
    "a gap": (lambda t: handle_of(t).io.delete(handle_of(t).snapshot_store.path(3)), "snapshot-gap"),
    "a snapshot is no snapshot": (_write("snapshot/snapshot-3", b"{}"), "snapshot"),
    "LATEST too high": (_write("snapshot/LATEST", b"77"), "hint"),
    "LATEST too low": (_write("snapshot/LATEST", b"1"), "hint"),
    "EARLIEST is no number": (_write("snapshot/EARLIEST", b"x"), "hint"),
    "a foreign snapshot": (_write("snapshot/snapshot-1.bak", b""), "foreign-file"),
    "a foreign schema": (_write("schema/schema-old", b""), "foreign-file"),
    "a field id twice": (_replace_in("schema/schema-0", '"id": 1,', '"id": 0,'), "schema"),
    "the highest field id": (_replace_in("schema/schema-0", '"highestFieldId": 1', '"highestFieldId": 0'), "schema"),
    "a consumer": (_write("consumer/consumer-c", b"[]"), "consumer"),
    "a tag is no snapshot": (_write("tag/tag-x", b"{}"), "tag"),
    "a branch without schema": (_write("branch/branch-x/tag/x", b""), "branch"),
    "the same commit twice": (_commit_twice, "commit-twice"),
    "another base": (_wrong_base, "base"),
    "record counts": (_delta(_with_file(lambda f: replace(f, row_count=f.row_count + 1))), "record-count"),
    "a file added twice": (_delta(lambda e: [*e, e[0]]), "record-count"),
    "a level overlap": (_delta(_with_file(lambda f: replace(f, level=5))), "level-overlap"),
    "bucket counts": (_delta(lambda e: [replace(e[0], total_buckets=3), *e[1:]]), "bucket-count"),
    "a bucket too high": (_delta(lambda e: [replace(e[0], bucket=9), *e[1:]]), "bucket"),
    "a schema that is gone": (_delta(_with_file(lambda f: replace(f, schema_id=9))), "missing-schema"),
    "added before deleted": (
        _delta(lambda e: [e[0], replace(e[0], kind=FileKind.DELETE, file=replace(e[0].file, level=1))]),
        "entry-order",
    ),
    "deleted without having been": (
        _delta(lambda e: [replace(e[0], kind=FileKind.DELETE), *e[1:]]),
        "deleted-nothing",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_found(case: str, table: Table) -> None:
    breaks, rule = BROKEN[case]
    breaks(table)
    found = examine(handle_of(table))
    assert rule in [f.rule for f in found]
    assert all(f.message and f.subject for f in found)
    severities = [f.severity for f in found]
    assert severities == sorted(severities, key=lambda s: s is Severity.WARNING)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda f: replace(f, min_sequence_number=f.max_sequence_number), "sequence"),
        (lambda f: replace(f, row_count=1), "data-file"),
    ],
)
def test_rows_are_held_against_their_metadata(
    table: Table, change: Callable[[DataFileMeta], DataFileMeta], rule: str
) -> None:
    _rewrite_delta(table, _with_file(change))
    assert rule in {f.rule for f in examine(handle_of(table), rows=True)}


def test_rows_in_the_wrong_bucket_are_found(table: Table) -> None:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    entry = handle_of(table).manifests.delta_entries(newest)[0]
    name, other = entry.file.file_name, 1 - entry.bucket
    shutil.copy(Path(table.path, f"bucket-{entry.bucket}", name), Path(table.path, f"bucket-{other}", name))
    _rewrite_delta(table, lambda e: [replace(entry, bucket=other)])
    assert "bucket-of-row" in {f.rule for f in examine(handle_of(table), rows=True)}


def test_old_files_that_nothing_names_are_a_warning(table: Table) -> None:
    handle_of(table).io.write_new(f"{table.path}/bucket-0/data-x.parquet", b"x")
    assert examine(handle_of(table)) == []
    os.utime(Path(table.path, "bucket-0/data-x.parquet"), (0, 0))
    (found,) = examine(handle_of(table))
    assert found == Finding(Severity.WARNING, "orphans", f"{table.path}/bucket-0/data-x.parquet", found.message)


@pytest.fixture
def dynamic(tmp_path: Path) -> Table:
    """Two partitions with three buckets each, some rows deleted, some compacted."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.int32(), nullable=False)])
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "20"}
    found = create_table(str(tmp_path / "d"), schema, ["p", "id"], ["p"], options)
    data = pa.table({"id": range(100), "p": [i % 2 for i in range(100)]}, schema=schema)
    found.write(data)
    found.write(data.slice(0, 30), pa.array([3] * 30, pa.int8()))
    found.compact()
    found.write(data.slice(20, 30))
    return found


def _rewrite_index(table: Table, bucket: int, hashes: Callable[[list[np.ndarray]], np.ndarray]) -> None:
    """Gives a bucket of the first partition other hashes; `hashes` makes them of those of all its buckets."""
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    entries = sorted(
        handle_of(table).manifests.read_index(newest.index_manifest), key=lambda e: (e.partition, e.bucket)
    )
    folder = Path(table.path, "index")
    before = [decode_hash_index((folder / e.file_name).read_bytes()) for e in entries[:3]]
    changed = hashes(before)
    data = encode_hash_index(changed)
    (folder / entries[bucket].file_name).write_bytes(data)
    entries[bucket] = replace(entries[bucket], row_count=len(changed), file_size=len(data))
    written = handle_of(table).manifests.write_index(entries)
    rewritten = replace(newest, index_manifest=written)
    handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(newest.id), encode_snapshot(rewritten))


def test_keys_are_held_against_the_hash_index(dynamic: Table) -> None:
    assert [f for f in examine(handle_of(dynamic), rows=True) if f.rule == "hash-index"] == []
    _rewrite_index(dynamic, 1, lambda found: found[1][3:])
    found = [f for f in examine(handle_of(dynamic), rows=True) if f.rule == "hash-index"]
    assert found and all(f.severity is Severity.ERROR and "of the bucket: the next change" in f.message for f in found)


def test_a_hash_in_two_buckets_is_found(dynamic: Table) -> None:
    _rewrite_index(dynamic, 1, lambda found: np.concatenate([found[1], found[0][:2]]))
    (problem,) = [f for f in examine(handle_of(dynamic), rows=True) if f.rule == "hash-index"]
    assert "2 hashes in several buckets, the first in the buckets 0 and 1" in problem.message


def test_a_lost_hash_index_is_found(dynamic: Table) -> None:
    next(Path(dynamic.path, "index").iterdir()).unlink()
    assert "missing-file" in {f.rule for f in examine(handle_of(dynamic))}
    assert "hash-index" in {f.rule for f in examine(handle_of(dynamic), rows=True)}


def test_a_key_in_two_partitions_is_found(tmp_path: Path) -> None:
    moving = MovingKeys(tmp_path / "t")
    for name, rows in (("one", [(1, "a", 1, 0), (2, "b", 2, 0)]), ("another", [(3, "a", 3, 0), (1, "b", 4, 0)])):
        plan = IndexPlan(moving.table.uri, moving.keys(), str(tmp_path / name), RocksSettings(8 << 20))
        index, _ = ready_index(plan, moving.source, None)
        with index:
            moving.write(rows, index)
        found = [f for f in examine(handle_of(moving.table), rows=True) if f.severity is Severity.ERROR]
        assert [f.rule for f in found] == ([] if name == "one" else ["key-in-two-places"])
    assert "1 key in two buckets" in found[0].message
    next((tmp_path / "t").rglob("data-*")).unlink()
    assert "missing-file" in {f.rule for f in examine(handle_of(moving.table), rows=True)}


def test_a_branch_is_held_against_its_own_schemas(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT NOT NULL", primary_key=("k",), options={"bucket": "1"})
    first = table.write(pa.table({"k": pa.array([1], pa.int32())}))
    wider = table.add_column("v", "INT")
    wider.write(pa.table({"k": pa.array([2], pa.int32()), "v": pa.array([2], pa.int32())}))
    wider.create_tag("wide")
    wider.create_branch("b", "wide")
    wider.rollback_to(first)
    # As if only the branch had been changed.
    (tmp_path / "t" / "schema" / "schema-1").unlink()
    assert examine(handle_of(open_table(str(tmp_path / "t")))) == []


INNER = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.int64()), ("d", pa.int64())])
NESTED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("one", INNER), ("many", pa.list_(INNER))])


def _count_nested_ids_from_0(path: Path) -> None:
    """As pypaimon up to 1.4 writes a schema."""

    def counted(kind: object) -> object:
        if not isinstance(kind, dict):
            return kind
        inner = {key: counted(kind[key]) for key in ("element", "key", "value") if key in kind}
        rows = [{**f, "id": i, "type": counted(f["type"])} for i, f in enumerate(kind.get("fields", ()))]
        return {**kind, **inner, **({"fields": rows} if rows else {})}

    found = json.loads(path.read_text())
    columns = [{**f, "id": i, "type": counted(f["type"])} for i, f in enumerate(found["fields"])]
    path.write_text(json.dumps(found | {"fields": columns, "highestFieldId": len(columns) - 1}))


def test_nested_fields_counted_from_0_in_each_row_are_told_apart_by_their_row(tmp_path: Path) -> None:
    made = create_table(str(tmp_path / "t"), NESTED, ("id",), options={"bucket": "1"})
    _count_nested_ids_from_0(Path(made.path, "schema", "schema-0"))
    table = open_table(made.path)
    value = {"a": 1, "b": "x", "c": 2, "d": 3}
    rows = pa.Table.from_pylist([{"id": i, "one": value, "many": [value, None]} for i in range(3)], schema=NESTED)
    table.write(rows)
    assert table.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
    (found,) = examine(handle_of(table), rows=True)
    assert (found.severity, found.rule) == (Severity.WARNING, "schema") and "id of a nested field" in found.message

    table = table.add_column(["one", "e"], "INT")
    assert [f.id for f in handle_of(table).table_schema.fields[1].type.fields] == [0, 1, 2, 3, 4]
    assert {f.severity for f in examine(handle_of(table), rows=True)} == {Severity.WARNING}
    expected = [row | {"one": value | {"e": None}} for row in rows.to_pylist()]
    assert table.to_arrow().sort_by("id").to_pylist() == expected
