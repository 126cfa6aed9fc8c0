"""What a read sees: versions, branches, changes, files elsewhere, metadata that is old, stale or missing."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from bucketline.conf.errors import OptionError
from bucketline.state.errors import (
    BranchNotFoundError,
    CorruptFileError,
    MissingSnapshotError,
    TableNotFoundError,
    UnsupportedTableError,
)
from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from bucketline.state.format.entries import FileKind, IndexManifestEntry
from bucketline.state.format.index.deletion_vector import encode_deletion_vectors
from bucketline.state.format.index.index_manifest import decode_index_manifest, encode_index_manifest
from bucketline.state.store.index.deletion_vectors import drop_deleted
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.binary_row import Timestamp, decode_row, encode_row
from tests.support.peers.golden import GOLDEN, as_bag, json_rows
from tests.support.tables.edited_manifests import edit_manifests

LEVELS = GOLDEN / "shared.db" / "pk_fixed_levels"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of a table of ten commits."""
    copied = tmp_path / "t"
    shutil.copytree(LEVELS, copied)
    return copied


def _opened(path: Path, **options: str) -> Table:
    return open_table(str(path), options={key.replace("_", "-").replace("--", "."): v for key, v in options.items()})


def _bag(table: pa.Table) -> Any:
    return as_bag(json_rows(table))


def _edit(file: Path, **members: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | members))


def test_a_version_is_read_by_id_tag_or_time(path: Path) -> None:
    ids = open_table(str(path)).snapshots()["snapshot_id"].to_pylist()
    old, older = ids[2], ids[0]
    expected = _bag(open_table(str(path)).to_arrow(snapshot=old))
    for snapshot_id in ids:
        _edit(path / "snapshot" / f"snapshot-{snapshot_id}", timeMillis=1_000_000 + 1000 * snapshot_id)
    (path / "tag").mkdir(exist_ok=True)
    shutil.copy(path / "snapshot" / f"snapshot-{old}", path / "tag" / "tag-kept")
    assert _bag(_opened(path, scan__snapshot_id=str(old)).to_arrow()) == expected
    assert _bag(_opened(path, scan__tag_name="kept").to_arrow()) == expected
    assert _bag(_opened(path, scan__version="kept").to_arrow()) == expected
    assert _bag(_opened(path, scan__version=str(old)).to_arrow()) == expected
    for time_ms in (1_000_000 + 1000 * old, 1_000_999 + 1000 * old):
        assert _bag(_opened(path, scan__timestamp_millis=str(time_ms)).to_arrow()) == expected
    table = open_table(str(path))
    assert _bag(table.to_arrow(snapshot="kept")) == expected
    with pytest.raises(OptionError, match="no snapshot committed"):
        _opened(path, scan__timestamp_millis=str(1_000_000 + 1000 * older - 1)).to_arrow()
    with pytest.raises(OptionError, match="no tag 'lost'; its tags: kept"):
        table.to_arrow(snapshot="lost")
    with pytest.raises(OptionError, match="both say"):
        _opened(path, scan__timestamp_millis="1", scan__tag_name="kept")


def test_a_tag_outlives_its_snapshot_and_snapshots_without_hints_are_found(path: Path) -> None:
    table = open_table(str(path))
    ids = table.snapshots()["snapshot_id"].to_pylist()
    expected, newest = _bag(table.to_arrow(snapshot=ids[1])), _bag(table.to_arrow())
    (path / "tag").mkdir(exist_ok=True)
    (path / "snapshot" / f"snapshot-{ids[1]}").rename(path / "tag" / "tag-kept")
    (path / "snapshot" / f"snapshot-{ids[0]}").unlink()
    for hint in ("LATEST", "EARLIEST"):
        (path / "snapshot" / hint).unlink(missing_ok=True)
    assert _bag(table.to_arrow(snapshot="kept")) == expected
    assert _bag(open_table(str(path)).to_arrow()) == newest
    for stale in ("1", str(ids[-1] - 1), "0", "-1", "x", ""):
        (path / "snapshot" / "LATEST").write_text(stale)
        assert _bag(open_table(str(path)).to_arrow()) == newest
    (path / "snapshot" / "LATEST").write_text("999")
    with pytest.raises(MissingSnapshotError, match="LATEST names snapshot 999"):
        open_table(str(path)).to_arrow()
    (path / "snapshot" / "LATEST").unlink()
    with pytest.raises(OptionError, match=f"no snapshot {ids[0]}"):
        table.to_arrow(snapshot=ids[0])
    with pytest.raises(OptionError, match="expired"):
        table.to_arrow(changes_since=0)


def test_a_branch_has_its_own_snapshots_and_shares_the_files(path: Path) -> None:
    ids = open_table(str(path)).snapshots()["snapshot_id"].to_pylist()
    branch = path / "branch" / "branch-b1"
    shutil.copytree(path / "schema", branch / "schema")
    (branch / "snapshot").mkdir()
    shutil.copy(path / "snapshot" / f"snapshot-{ids[3]}", branch / "snapshot")
    found = open_table(str(path), options={"branch": "b1"})
    assert found.snapshots()["snapshot_id"].to_pylist() == [ids[3]]
    assert _bag(found.to_arrow()) == _bag(open_table(str(path)).to_arrow(snapshot=ids[3]))
    assert _bag(found.refreshed().to_arrow()) == _bag(found.to_arrow())
    with pytest.raises(BranchNotFoundError, match="has no branch 'none'; its branches: main, b1"):
        open_table(str(path), options={"branch": "none"})
    with pytest.raises(TableNotFoundError, match="nowhere is not a Paimon table"):
        open_table(f"{path}/nowhere", options={"branch": "none"})
    with pytest.raises(OptionError):
        open_table(str(path), options={"branch": "../b1"})


def test_changes_can_be_projected_and_filtered_and_are_applied_in_order() -> None:
    table = open_table(str(LEVELS))
    ids = table.snapshots()["snapshot_id"].to_pylist()
    changes = table.to_arrow(changes_since=0)
    assert changes.schema.names == [*table.schema.names, "_row_kind"]
    key = table.primary_key[0]
    newest: dict[object, dict[str, object]] = {}
    for row in changes.to_pylist():
        newest[row[key]] = row
    alive = [{k: v for k, v in row.items() if k != "_row_kind"} for row in newest.values() if row["_row_kind"] != 3]
    assert as_bag(json_rows(pa.Table.from_pylist(alive, schema=table.schema))) == _bag(table.to_arrow())
    found = table.to_arrow(columns=["v"], filter=pc.field(key) > 5, changes_since=0)
    assert found.schema.names == ["v", "_row_kind"]
    assert found.num_rows == changes.filter(pc.field(key) > 5).num_rows > 0
    assert table.to_arrow(changes_since=ids[-1]).num_rows == 0
    with pytest.raises(OptionError, match="older"):
        table.to_arrow(changes_since=ids[1], snapshot=ids[0])


@pytest.mark.parametrize("scheme", ["file:", "FILE:", "File://", ""])
def test_data_files_lie_where_their_full_path_says(path: Path, tmp_path: Path, scheme: str) -> None:
    expected = _bag(open_table(str(path)).to_arrow())
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    for file in path.rglob("bucket-*/*"):
        file.rename(elsewhere / file.name)
    edit_manifests(path, lambda file: replace(file, external_path=f"{scheme}{elsewhere}/{file.file_name}"))
    assert _bag(open_table(str(path)).to_arrow()) == expected


def test_files_whose_first_and_last_values_are_unknown_are_not_left_out(path: Path) -> None:
    expected = open_table(str(path)).to_arrow(filter=pc.field("k") == 17)
    edit_manifests(path, lambda file: replace(file, value_stats=EMPTY_STATS, value_stats_cols=()))
    assert _bag(open_table(str(path)).to_arrow(filter=pc.field("k") == 17)) == _bag(expected)
    assert expected.num_rows == 1


@pytest.mark.parametrize(
    "option",
    ["scan.fallback-delta-branch", "chain-table.enabled", "type"],
)
def test_tables_whose_rows_are_not_what_files_say_are_refused_by_name(path: Path, option: str) -> None:
    schema = max((path / "schema").iterdir())
    found = json.loads(schema.read_text())
    _edit(schema, options=found["options"] | {option: "true"})
    with pytest.raises(UnsupportedTableError, match=option):
        open_table(str(path)).to_arrow()


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"scan.mode": "latest"}, False),
        ({"scan.mode": "FROM-SNAPSHOT", "scan.snapshot-id": "3"}, False),
        ({"scan.mode": "from-snapshot"}, True),
        ({"scan.mode": "compacted-full"}, True),
        ({"scan.mode": "incremental"}, True),
    ],
)
def test_the_scan_mode_that_a_table_names_for_its_reads_is_followed_or_refused(
    path: Path, options: dict[str, str], refused: bool
) -> None:
    third = open_table(str(path)).to_arrow(snapshot=3)
    expected = third if "scan.snapshot-id" in options else open_table(str(path)).to_arrow()
    schema = max((path / "schema").iterdir())
    _edit(schema, options=json.loads(schema.read_text())["options"] | options)
    table = open_table(str(path))
    if not refused:
        assert table.to_arrow() == expected
        return
    with pytest.raises(UnsupportedTableError, match=f"'scan.mode' = '{options['scan.mode']}' cannot be read"):
        table.to_arrow()
    assert table.to_arrow(snapshot=3) == third


def test_a_filter_may_look_into_a_row(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT, r ROW<x INT, q ROW<y INT>>", ["k"], options={"bucket": "3"})
    values = [None if k % 3 == 0 else {"x": k, "q": {"y": -k}} for k in range(10)]
    table.write(pa.table({"k": pa.array(range(10), pa.int32()), "r": pa.array(values, table.schema.field("r").type)}))
    for condition, keys in (
        (pc.field("r", "x") == 4, [4]),
        ((pc.field("r", "x") == 4) & (pc.field("k") == 4), [4]),
        ((pc.field("r", "x") == 4) & (pc.field("k") == 5), []),
        (pc.field("r", "q", "y") == -5, [5]),
        (pc.field("r", "x").is_null(), [0, 3, 6, 9]),
    ):
        assert sorted(table.to_arrow(filter=condition)["k"].to_pylist()) == keys


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
@pytest.mark.parametrize("kind", ["ROW<b STRING NOT NULL>", "ROW<a INT, c ROW<d ROW<b STRING NOT NULL> NOT NULL>>"])
def test_rows_without_a_value_in_a_column_of_rows_can_be_written_to_parquet(
    tmp_path: Path, engine: str, kind: str
) -> None:
    options = {"bucket": "1", "merge-engine": engine, "write-only": "true"}
    table = create_table(str(tmp_path / "t"), f"k INT NOT NULL, r {kind}", ["k"], options=options)
    for _ in range(2):
        nothing = pa.nulls(2, table.schema.field("r").type)
        table.write(pa.table({"k": pa.array([1, 2], pa.int32()), "r": nothing}))
    table = table.add_column("added", kind)
    found = table.to_arrow()
    pq.write_table(found, tmp_path / "found.parquet")
    assert found.drop_columns(["k"]).to_pylist() == [{"r": None, "added": None}] * 2
    assert pq.read_table(tmp_path / "found.parquet").to_pylist() == found.to_pylist()


def test_nulls_of_before_a_column_became_not_null_are_told_apart_from_damage(tmp_path: Path) -> None:
    options = {"alter-column-null-to-not-null.disabled": "false"}
    table = create_table(str(tmp_path / "t"), "k INT, v INT", options=options)
    table.write(pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([None], pa.int32())}))
    table = table.alter_column("v", nullable=False)
    with pytest.raises(UnsupportedTableError, match=r"column v became NOT NULL after this file was written"):
        table.to_arrow()
    assert table.to_arrow(columns=["k"]).num_rows == 1
    assert table.alter_column("v", nullable=True).to_arrow()["v"].to_pylist() == [None]


@pytest.mark.parametrize("kind", ["VARIANT", "BLOB", {"type": "ARRAY", "element": "VARIANT"}])
def test_columns_without_an_arrow_type_are_refused_by_name_and_others_read(path: Path, kind: object) -> None:
    schema = max((path / "schema").iterdir())
    found = json.loads(schema.read_text())
    odd = {"id": found["highestFieldId"] + 1, "name": "odd", "type": kind}
    _edit(schema, fields=[*found["fields"], odd], highestFieldId=odd["id"])
    table = open_table(str(path))
    with pytest.raises(UnsupportedTableError, match="column odd"):
        table.to_arrow()
    names = [f["name"] for f in found["fields"]]
    assert _bag(table.to_arrow(columns=names)) == _bag(open_table(str(LEVELS)).to_arrow())
    assert table.to_arrow(columns=names, filter=pc.field("k") > 5).num_rows > 0


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/St_Johns"])
def test_the_zone_of_the_process_changes_nothing(zone: str) -> None:
    program = """
import sys
from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, SimpleStats
from bucketline.state.format.index.deletion_vector import encode_deletion_vectors
from bucketline.state.format.entries import FileKind, IndexManifestEntry
from bucketline.state.format.index.index_manifest import decode_index_manifest, encode_index_manifest
from bucketline.state.format.manifest import (
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
)
from bucketline.state.store.index.deletion_vectors import drop_deleted
from bucketline.state.store.table.table import open_table
from tests.support.peers.golden import json_rows
for path in sys.argv[1:]:
    for row in json_rows(open_table(path).to_arrow()):
        print(row)
"""
    paths = [str(p) for p in sorted((GOLDEN / "java.db").iterdir())]
    paths += [str(GOLDEN / "shared.db" / name) for name in ("types_append", "bucket_timestamp", "pk_partitioned")]
    root = str(Path(__file__).resolve().parents[5])
    environment = {"TZ": zone, "PATH": "/usr/bin:/bin", "PYTHONPATH": root, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", program, *paths], env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    here = [str(row) for p in paths for row in json_rows(open_table(p).to_arrow())]
    assert done.stdout.splitlines() == here


@pytest.mark.parametrize("bitmap64", [False, True])
@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_rows_deleted_by_position_are_gone_from_append_tables(tmp_path: Path, form: str, bitmap64: bool) -> None:
    path = tmp_path / "t"
    shutil.copytree(GOLDEN / "java.db" / f"all_{form}", path)
    data_file = next(path.rglob("bucket-0/*"))
    data, ranges = encode_deletion_vectors({"other": BitMap([0, 1]), data_file.name: BitMap([0])}, bitmap64)
    (path / "index").mkdir(exist_ok=True)
    (path / "index" / "index-x-0").write_bytes(data)
    entry = IndexManifestEntry(
        FileKind.ADD, EMPTY_ROW, 0, "DELETION_VECTORS", "index-x-0", len(data), 2, deletion_vector_ranges=ranges
    )
    (path / "manifest" / "index-manifest-x-0").write_bytes(encode_index_manifest([entry]))
    _edit(path / "snapshot" / "snapshot-1", indexManifest="index-manifest-x-0")
    assert open_table(str(path)).to_arrow(columns=["id"])["id"].to_pylist() == [1, 2]
    schema = path / "schema" / "schema-0"
    _edit(schema, options=json.loads(schema.read_text())["options"] | {"deletion-vectors.enabled": "true"})
    table = open_table(str(path))
    assert table.to_arrow(columns=["id"])["id"].to_pylist() == [2]
    assert table.to_arrow(columns=[]).num_rows == 1
    assert table.to_arrow(filter=pc.field("id") == 1).num_rows == 0
    (path / "index" / "index-x-0").write_bytes(data[:-1])
    with pytest.raises(CorruptFileError, match="index-x-0"):
        table.to_arrow()


def test_a_vector_for_rows_that_a_file_does_not_have_is_found_out() -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    kept = list(drop_deleted([batch, batch], np.array([0, 3, 4, 5]), "file"))
    assert [b["a"].to_pylist() for b in kept] == [[2, 3]]
    with pytest.raises(CorruptFileError, match="file"):
        list(drop_deleted([batch], np.array([3]), "file"))


def test_bounds_of_old_files_are_shown_in_the_current_types(tmp_path: Path) -> None:
    columns = "k INT, d DECIMAL(5, 2), f FLOAT"
    table = create_table(str(tmp_path / "t"), columns, options={"metadata.stats-mode": "full"})
    table.write(pa.table({"k": pa.array([1], pa.int32()), "d": [Decimal("1.50")], "f": pa.array([0.1], pa.float32())}))
    changed = table.alter_column("d", type="DECIMAL(10, 4)").alter_column("f", type="DOUBLE")
    # As Paimon Java shows them.
    assert changed.files()["max_value_stats"].to_pylist() == ["{d=1.5000, f=0.10000000149011612, k=1}"]


def test_instants_of_an_orc_writer_whose_zone_is_not_known_are_refused_where_they_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(GOLDEN / "java.db" / "all_orc", path)
    assert open_table(str(path)).to_arrow(columns=["l3"]).num_rows == 2
    fields = handle_of(open_table(str(path))).table_schema.fields

    def shift(meta: DataFileMeta) -> DataFileMeta:
        """As if the file were of a writer in Asia/Shanghai: its bounds are the instants that were meant."""
        at = [f.name for f in fields].index("l3")
        types = [f.type.as_nullable() for f in fields]
        ends = (meta.value_stats.min_values, meta.value_stats.max_values)
        low, high = (encode_row([_later(decode_row(e, types)[at], 8 * 3_600_000)], [types[at]]) for e in ends)
        return replace(meta, value_stats=SimpleStats(low, high, (1,)), value_stats_cols=("l3",))

    edit_manifests(path, shift)
    with pytest.raises(UnsupportedTableError, match="column l3: the file was written in an unknown time zone"):
        open_table(str(path)).to_arrow()
    assert open_table(str(path)).to_arrow(columns=["l6"]).num_rows == 2


def _later(value: object, by: int) -> Timestamp:
    assert isinstance(value, Timestamp)
    return Timestamp(value.millis + by, value.nanos_of_milli)


@pytest.mark.parametrize("scheme", ["file:", "FILE:"])
def test_index_files_lie_where_their_full_path_says(tmp_path: Path, scheme: str) -> None:
    path, elsewhere = tmp_path / "t", tmp_path / "else where"
    shutil.copytree(GOLDEN / "shared.db" / "pk_dv", path)
    expected = _bag(open_table(str(path)).to_arrow())
    elsewhere.mkdir()
    for file in (path / "index").iterdir():
        file.rename(elsewhere / file.name)
    for file in (path / "manifest").glob("index-manifest-*"):
        entries = decode_index_manifest(file.read_bytes())
        moved = [replace(e, external_path=f"{scheme}{elsewhere}/{e.file_name}") for e in entries]
        file.write_bytes(encode_index_manifest(moved))
    table = open_table(str(path))
    assert _bag(table.to_arrow()) == expected
    keys = table.to_arrow(columns=list(table.primary_key))
    table.write(table.to_arrow().slice(0, 1))
    assert table.to_arrow(columns=list(table.primary_key)).num_rows == keys.num_rows
