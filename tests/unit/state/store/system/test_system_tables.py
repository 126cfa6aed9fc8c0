"""System tables: names, time travel, statistics. `tests/peer/test_system_tables_java.py` compares the rows."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.system.history import duration_text
from bucketline.state.store.system.tables import SYSTEM_TABLES
from bucketline.state.store.table.table import Table, create_table, open_table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    found = create_table(str(tmp_path / "t"), "k INT, v STRING", ("k",), options={"bucket": "1"})
    found.write(pa.table({"k": pa.array([1, 2], pa.int32()), "v": ["a", "b"]}))
    found.write(pa.table({"k": pa.array([2], pa.int32()), "v": ["c"]}))
    return found


def test_every_system_table_of_an_empty_table_has_its_columns(tmp_path: Path) -> None:
    empty = create_table(str(tmp_path / "t"), "k INT, v STRING", ("k",), options={"bucket": "1"})
    found = {name: empty.system(name) for name in SYSTEM_TABLES}
    assert all(table.schema.names for table in found.values())
    rows = {name: table.num_rows for name, table in found.items() if table.num_rows}
    assert rows == {"schemas": 1, "options": 1, "aggregation_fields": 2}


def test_types_inside_of_values_are_written_out_with_their_names_in_backticks(tmp_path: Path) -> None:
    columns = "k INT, a ARRAY<INT NOT NULL>, r ROW<x INT COMMENT 'it''s', `y z` MAP<STRING, DATE>>, m MULTISET<STRING>"
    table = create_table(str(tmp_path / "t"), columns, ("k",), options={"bucket": "1"})
    assert table.system("aggregation_fields")["field_type"].to_pylist() == [
        "INT NOT NULL",
        "ARRAY<INT NOT NULL>",
        "ROW<`x` INT COMMENT 'it''s', `y z` MAP<STRING, DATE>>",
        "MULTISET<STRING>",
    ]


def test_a_name_that_is_no_system_table_is_refused_with_the_nearest(table: Table) -> None:
    with pytest.raises(OptionError, match=r"no system table 'snapshot'; did you mean 'snapshots'"):
        table.system("snapshot")


def test_time_travel_shows_what_an_older_snapshot_held(table: Table) -> None:
    older = open_table(table.path, options={"scan.snapshot-id": "1"})
    assert older.system("partitions")["record_count"].to_pylist() == [2]
    assert table.system("partitions")["record_count"].to_pylist() == [3]
    assert older.system("manifests").num_rows == 1
    with pytest.raises(OptionError, match=r"\$schemas describes the whole table and not one snapshot"):
        older.system("schemas")


def test_the_log_shows_the_kind_of_the_newest_record_of_each_key_until_a_compaction(table: Table) -> None:
    table.delete("k = 1")
    log = table.system("audit_log")
    assert log.schema.names == ["rowkind", "k", "v"]
    assert log.to_pylist() == [{"rowkind": "-D", "k": 1, "v": "a"}, {"rowkind": "+I", "k": 2, "v": "c"}]
    assert table.system("binlog").to_pylist()[0] == {"rowkind": "-D", "k": [1], "v": ["a"]}
    assert table.system("ro").num_rows == 0
    table.compact()
    assert table.system("audit_log")["k"].to_pylist() == table.system("ro")["k"].to_pylist() == [2]


def test_the_log_shows_one_record_of_a_key_where_level_0_is_read_beside_deletion_vectors(tmp_path: Path) -> None:
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"}
    table = create_table(str(tmp_path / "t"), "k INT, v STRING", ("k",), options=options)
    table.write(pa.table({"k": pa.array([1, 2, 3], pa.int32()), "v": ["a", "b", "c"]}))
    table.compact()
    waiting = open_table(table.path, options={"compaction": "none"})
    waiting.write(pa.table({"k": pa.array([1], pa.int32()), "v": ["new"]}))
    waiting.delete("k = 2")
    expected = [
        {"rowkind": "+I", "k": 1, "v": "new"},
        {"rowkind": "-D", "k": 2, "v": "b"},
        {"rowkind": "+I", "k": 3, "v": "c"},
    ]
    assert table.system("audit_log").to_pylist() == expected
    shown = [row for row in expected if row.pop("rowkind") == "+I"]
    assert table.to_arrow().to_pylist() == shown


def test_null_and_blank_partitions_are_shown_by_the_default_name(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "p STRING, k INT", (), ("p",))
    table.write(pa.table({"p": ["", None, " ", "a"], "k": pa.array([1, 2, 3, 4], pa.int32())}))
    names = ["p=__DEFAULT_PARTITION__"] * 3 + ["p=a"]
    assert table.system("partitions")["partition"].to_pylist() == names


def test_rows_of_an_append_table_are_all_inserts_in_its_log(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT")
    table.write(pa.table({"k": pa.array([1, 1], pa.int32())}))
    assert table.system("audit_log").to_pylist() == [{"rowkind": "+I", "k": 1}] * 2


def test_statistics_of_an_analyzed_snapshot_are_one_row(table: Table) -> None:
    snapshot = Path(table.path, "snapshot", "snapshot-2")
    snapshot.write_text(json.dumps({**json.loads(snapshot.read_text()), "statistics": "stat-1"}))
    file = Path(table.path, "statistics", "stat-1")
    file.parent.mkdir()
    file.write_text(
        '{"snapshotId": 2, "schemaId": 0, "mergedRecordCount": 2, "mergedRecordSize": 9, "colStats": {"k": 1}}'
    )
    assert table.system("statistics").to_pylist() == [
        {
            "snapshot_id": 2,
            "schema_id": 0,
            "mergedRecordCount": 2,
            "mergedRecordSize": 9,
            "colstat": '{\n  "k" : 1\n}',
        }
    ]
    file.write_text("[1]")
    with pytest.raises(CorruptFileError, match="does not hold statistics"):
        table.system("statistics")


@pytest.mark.parametrize(
    ("millis", "text"),
    [(0, "PT0S"), (500, "PT0.5S"), (90_000, "PT1M30S"), (86_400_000, "PT24H"), (3_600_001, "PT1H0.001S")],
)
def test_durations_are_written_as_java_writes_them(millis: int, text: str) -> None:
    assert duration_text(millis) == text
