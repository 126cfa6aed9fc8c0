"""Indexes of data files: written beside them or in manifests, and used by reads, which find the same rows with them."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.index.bloom_filter import bloom_hashes, may_hold
from bucketline.state.format.index.file_index import decode_head
from bucketline.state.store.read.splits import plan_scan
from bucketline.state.store.read.table_read import ReadRequest
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.logical import parse_type_text
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io

COLUMNS = "k BIGINT NOT NULL, v INT, s STRING, m MAP<STRING, INT>"
INDEXED = {"file-index.bloom-filter.columns": "k,v,s,m[x]", "write-only": "true"}
BESIDE = {"file-index.in-manifest-threshold": "0 b"}
MODES: Sequence[tuple[bool, Mapping[str, str]]] = [
    (False, {"bucket": "-1"}),
    (True, {"bucket": "1"}),
    (True, {"bucket": "2", "merge-engine": "partial-update"}),
    (True, {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}),
    (True, {"bucket": "1", "deletion-vectors.enabled": "true", "write-only": "false"}),
    (True, {"bucket": "1", "merge-engine": "first-row", "write-only": "false"}),
]


def _rows(keys: Sequence[int], turn: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "v": pa.array([None if k % 9 == 0 else k % 40 + turn for k in keys], pa.int32()),
            "s": pa.array([f"{turn}-{k}" for k in keys]),
            "m": pa.array([[("x", k), ("y", -k)] if k % 2 else None for k in keys], pa.map_(pa.string(), pa.int32())),
        }
    )


def _table(path: Path, keyed: bool, options: Mapping[str, str]) -> Table:
    table = create_table(str(path), COLUMNS, ["k"] if keyed else [], options={**INDEXED, **options})
    draw = random.Random(4)
    for turn in range(4):
        table.write(_rows(sorted(draw.sample(range(3_000), 200)), turn))
    return table


def _files(table: Table) -> list[DataFileMeta]:
    handle = handle_of(table)
    newest = handle.snapshot_store.latest()
    assert newest is not None
    return [e.file for e in handle.manifests.live_entries(newest)]


def _opened(table: Table, condition: str) -> tuple[pa.Table, set[str]]:
    """The rows that pass, and the data files that were opened for them."""
    io = FaultyIO(handle_of(table).io)
    rows = on_io(table, io).to_arrow(filter=condition)
    data = {path.rpartition("/")[2] for _, path in io.calls if path.endswith(".parquet")}
    return rows, data


@pytest.mark.parametrize("place", [BESIDE, {}], ids=["beside", "in manifests"])
@pytest.mark.parametrize(("keyed", "options"), MODES, ids=str)
def test_reads_with_indexes_find_what_reads_without_them_do(
    tmp_path: Path, keyed: bool, options: Mapping[str, str], place: Mapping[str, str]
) -> None:
    table = _table(tmp_path / "t", keyed, {**options, **place})
    plain = open_table(table.path, options={"file-index.read.enabled": "false"})
    everything = plain.to_arrow().to_pylist()
    draw = random.Random(5)
    conditions = []
    for _ in range(12):
        row = draw.choice(everything)
        other = draw.randrange(3_000)
        conditions += [
            f"k = {row['k']}",
            f"k = {other} OR s = '{row['s']}'",
            f"k IN ({row['k']}, {other})",
            f"s = '{row['s']}'",
            f"v = {row['v'] or 0} AND k < {other}",
            f"s IN ('0-{other}', '{row['s']}')",
        ]
    for condition in draw.sample(conditions, 24):
        expected = plain.to_arrow(filter=condition).to_pylist()
        found = table.to_arrow(filter=condition).to_pylist()
        assert sorted(found, key=str) == sorted(expected, key=str), condition


@pytest.mark.parametrize("place", [BESIDE, {}], ids=["beside", "in manifests"])
def test_a_key_that_few_files_have_opens_those_alone(tmp_path: Path, place: Mapping[str, str]) -> None:
    table = create_table(str(tmp_path / "t"), COLUMNS, ["k"], options={**INDEXED, **place, "bucket": "1"})
    for turn in range(4):
        table.write(_rows(range(turn, 120, 4), turn))
    found, opened = _opened(table, "k = 42")
    assert found["s"].to_pylist() == ["2-42"]
    assert len(opened) <= 2
    # The newest version of a row may lie in a file without the wanted value.
    assert _opened(table, "s = '2-42'")[0].num_rows == 1
    assert _opened(table, "s = 'nowhere'")[1] == set()
    assert len(_opened(open_table(table.path, options={"file-index.read.enabled": "false"}), "k = 42")[1]) == 4


def test_each_file_has_an_index_of_its_own_values(tmp_path: Path) -> None:
    table = _table(tmp_path / "t", True, {"bucket": "1", **BESIDE})
    for compacted in (False, True):
        if compacted:
            table.compact()
        for file in _files(table):
            assert file.extra_files == (f"{file.file_name}.index",)
            assert file.embedded_index is None
            (path,) = Path(table.path).rglob(file.extra_files[0])
            whole = path.read_bytes()
            parts = {p.column: whole[p.start : p.start + p.length] for p in decode_head(whole)}
            assert list(parts) == ["k", "v", "s", "m[x]"]
            (data,) = Path(table.path).rglob(file.file_name)
            rows = pq.read_table(data)
            assert may_hold(parts["s"], bloom_hashes(rows["s"], parse_type_text("STRING"))).all()
            items = [dict(m)["x"] for m in rows["m"].to_pylist() if m is not None]
            assert may_hold(parts["m[x]"], bloom_hashes(pa.array(items, pa.int32()), parse_type_text("INT"))).all()
            others = pa.array([-k for k in items], pa.int32())
            assert may_hold(parts["m[x]"], bloom_hashes(others, parse_type_text("INT"))).mean() < 0.3
            # As large as its values ask for, and not as a million of them would.
            assert len(whole) < 2_000


def test_the_options_say_how_large_filters_are_and_what_manifests_keep(tmp_path: Path) -> None:
    sizes = {}
    for name, options in {
        "plain": {},
        "exact": {"file-index.bloom-filter.k.fpp": "0.001"},
        "few": {"file-index.bloom-filter.k.items": "20"},
    }.items():
        given = {"bucket": "1", "file-index.bloom-filter.columns": "k", "file-index.in-manifest-threshold": "1 mb"}
        table = create_table(str(tmp_path / name), COLUMNS, ["k"], options={**given, **options})
        table.write(_rows(range(400), 0))
        (file,) = _files(table)
        assert file.extra_files == ()
        assert file.embedded_index is not None
        sizes[name] = len(file.embedded_index)
    assert sizes["few"] < sizes["plain"] < sizes["exact"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("file-index.bloom-filter.k.fpp", "1", "between 0 and 1"),
        ("file-index.bloom-filter.k.items", "0", "must be at least 1"),
        ("file-index.bloom-filter.k.items", "many", "must be a whole number"),
        ("file-index.in-manifest-threshold", "big", "not a size"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(tmp_path: Path, key: str, value: str, why: str) -> None:
    with pytest.raises(OptionError, match=why) as refused:
        create_table(str(tmp_path / "t"), COLUMNS, ["k"], options={**INDEXED, "bucket": "1", key: value})
    assert refused.value.key == key
    assert not (tmp_path / "t").exists()


def test_columns_of_another_name_or_type_are_read_as_their_files_have_them(tmp_path: Path) -> None:
    options = {"bucket": "-1", "file-index.bloom-filter.columns": "v,s"}
    table = create_table(str(tmp_path / "t"), COLUMNS, options=options)
    table.write(_rows(range(0, 100, 2), 0))
    table = table.rename_column("s", "text").alter_column("v", type="BIGINT")
    assert table.to_arrow(filter="text = '0-42'")["k"].to_pylist() == [42]
    assert table.to_arrow(filter="v = 12")["k"].to_pylist() == [12, 52, 92]
    assert _opened(table, "text = '0-43'")[1] == set()
    assert len(_opened(table, "v = 39")[1]) <= 1


def test_splits_leave_out_files_whose_manifests_say_enough(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), COLUMNS, options={"bucket": "-1", **INDEXED})
    for turn in range(3):
        table.write(_rows(range(turn, 60, 3), turn))
    scan = plan_scan(handle_of(table), ReadRequest(filter="s = '1-31'"))
    assert len(scan.units) < 3
    assert len(plan_scan(handle_of(table), ReadRequest()).units) == 3


def test_a_damaged_or_missing_index_stops_a_read_that_asks_it(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), COLUMNS, options={"bucket": "-1", **INDEXED, **BESIDE})
    table.write(_rows(range(50), 0))
    (index,) = Path(table.path).rglob("*.index")
    index.write_bytes(index.read_bytes()[:40])
    with pytest.raises(CorruptFileError, match=r"data-.*\.index"):
        table.to_arrow(filter="k = 7")
    assert open_table(table.path, options={"file-index.read.enabled": "false"}).to_arrow(filter="k = 7").num_rows == 1
    assert table.to_arrow().num_rows == 50


def test_indexes_go_with_their_files(tmp_path: Path) -> None:
    table = _table(tmp_path / "t", True, {"bucket": "1", "snapshot.num-retained.min": "1", **BESIDE})
    table.compact()
    table.expire_snapshots(retain_max=1)
    data = {p.name for p in Path(table.path).rglob("data-*.parquet")}
    assert {p.name for p in Path(table.path).rglob("*.index")} == {f"{name}.index" for name in data}
    assert len(data) == 1
    table.remove_orphan_files(no_writers=True)
    assert len(list(Path(table.path).rglob("*.index"))) == 1


def test_a_write_that_fails_leaves_no_index(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), COLUMNS, options={"bucket": "-1", **INDEXED, **BESIDE})
    rows = _rows(range(50), 0).set_column(0, "k", pa.array([None] * 50, pa.int64()))
    with pytest.raises(Exception, match="k"):
        table.write(rows)
    assert list(Path(table.path).rglob("*.index")) == []
