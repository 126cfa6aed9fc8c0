"""Every golden table reads to the rows Paimon reads, and shows the files and snapshots Paimon shows."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bucketline.state.errors import BucketlineError, CorruptFileError
from bucketline.state.store.table.table import Table, open_table
from tests.support.peers.golden import as_bag, expected_rows, golden_table, golden_tables, json_rows

TABLES = golden_tables()


def _decimals(table: Table) -> frozenset[str]:
    return frozenset(f.name for f in table.schema if pa.types.is_decimal(f.type))


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_that_paimon_reads(name: str) -> None:
    table = open_table(str(golden_table(name)))
    found = table.to_arrow()
    assert found.schema.equals(table.schema)
    decimals = _decimals(table)
    assert as_bag(json_rows(found), decimals) == as_bag(expected_rows(name), decimals)


@pytest.mark.parametrize("name", TABLES)
def test_files_are_those_that_paimon_shows(name: str) -> None:
    table = open_table(str(golden_table(name)))
    expected = expected_rows(name, "files")
    # Of a binary key Java shows an address in memory.
    hidden = {"min_key", "max_key"} if name == "bucket_binary" else set()
    shown = [c for c in expected[0] if c not in hidden]
    found = json_rows(table.files().select(shown))
    assert as_bag(found) == as_bag([{c: row[c] for c in shown} for row in expected])


@pytest.mark.parametrize("name", TABLES)
def test_listed_files_are_where_they_are_said_to_be(name: str) -> None:
    table = open_table(str(golden_table(name)))
    for path, size in zip(*(table.files()[c].to_pylist() for c in ("file_path", "file_size_in_bytes")), strict=True):
        assert Path(path).stat().st_size == size


@pytest.mark.parametrize("name", TABLES)
def test_snapshots_are_those_that_paimon_shows(name: str) -> None:
    table = open_table(str(golden_table(name)))
    expected = expected_rows(name, "snapshots")
    assert json_rows(table.snapshots().select(list(expected[0]))) == expected


@pytest.mark.parametrize("name", TABLES)
def test_a_filter_finds_what_filtering_all_rows_finds(name: str) -> None:
    table = open_table(str(golden_table(name)))
    everything = table.to_arrow()
    for column in everything.schema.names:
        values = everything[column].drop_null().unique()
        for value in [values[0], values[len(values) // 2], values[-1]]:
            conditions = [pc.field(column) == value, pc.field(column).is_null()]
            if not pa.types.is_boolean(values.type):
                conditions += [pc.field(column) > value, ~(pc.field(column) >= value)]
            for condition in conditions:
                found, wanted = table.to_arrow(filter=condition), everything.filter(condition)
                assert as_bag(json_rows(found)) == as_bag(json_rows(wanted)), str(condition)


@pytest.mark.parametrize("name", ["pk_fixed_levels", "pk_partitioned", "append_bucketed"])
def test_a_projection_with_a_filter_on_another_column_drops_the_other_column(name: str) -> None:
    table = open_table(str(golden_table(name)))
    everything = table.to_arrow()
    condition = pc.field("v").is_valid() & (pc.field("k") > 5)
    found = table.to_arrow(columns=["k"], filter=condition)
    assert found.schema.names == ["k"]
    assert found.num_rows == everything.filter(condition).num_rows > 0


def test_an_older_snapshot_has_the_rows_of_its_time() -> None:
    table = open_table(str(golden_table("pk_fixed_levels")))
    assert table.to_arrow(snapshot=1).num_rows == 26
    assert table.to_arrow(snapshot=1).num_rows < table.to_arrow(snapshot=2).num_rows


def test_read_optimized_sees_the_top_level_only() -> None:
    table = open_table(str(golden_table("pk_fixed_levels")))
    top = [row for row in expected_rows("pk_fixed_levels", "files") if row["level"] == 5]
    assert table.to_arrow(read_optimized=True).num_rows == sum(int(str(row["record_count"])) for row in top) > 0


@pytest.mark.parametrize("name", ["pk_fixed_levels", "types_append"])
def test_a_flipped_byte_of_any_column_is_seen(name: str, tmp_path: Path) -> None:
    copied = tmp_path / name
    shutil.copytree(golden_table(name), copied)
    victim = Path(open_table(str(copied)).files()["file_path"][0].as_py())
    whole = victim.read_bytes()
    group = pq.read_metadata(victim).row_group(0)
    assert group.num_columns > 2
    # A copy of the key that no reader looks at does not matter to anyone.
    for column in [c for c in map(group.column, range(group.num_columns)) if not c.path_in_schema.startswith("_KEY_")]:
        broken = bytearray(whole)
        broken[column.data_page_offset + column.total_compressed_size - 1] ^= 0x10
        victim.write_bytes(broken)
        if column.path_in_schema == "_SEQUENCE_NUMBER":
            # A query does not read it where manifests say which file is newer; whoever writes the rows anew does.
            with pytest.raises(CorruptFileError):
                open_table(str(copied)).compact()
            continue
        with pytest.raises(CorruptFileError):
            open_table(str(copied)).to_arrow()
    victim.write_bytes(whole)
    assert open_table(str(copied)).to_arrow().num_rows == len(expected_rows(name))


@pytest.mark.parametrize("folder", ["snapshot", "manifest", "schema"])
def test_flipped_metadata_never_reads_to_wrong_rows(folder: str, tmp_path: Path) -> None:
    copied = tmp_path / "table"
    shutil.copytree(golden_table("pk_partitioned"), copied)
    right = as_bag(expected_rows("pk_partitioned"))
    seen = 0
    for victim in sorted((copied / folder).iterdir()):
        whole = victim.read_bytes()
        broken = bytearray(whole)
        broken[len(whole) // 2] ^= 0x40
        victim.write_bytes(broken)
        try:
            assert as_bag(json_rows(open_table(str(copied)).to_arrow())) == right
        except BucketlineError:
            seen += 1
        victim.write_bytes(whole)
    assert seen > 0
