"""Instants in ORC files of ours, read by Paimon Java in zones east and west of Greenwich, and in its files by us."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import open_table
from tests.support.peers.arrow_text import table_of
from tests.support.peers.our_tables import make_table, rows_of
from tests.support.peers.peer import PaimonJava, PyPaimon
from tests.support.peers.rows import assert_same_rows, table_fields

pytestmark = pytest.mark.peer

COLUMNS = {"k": "INT NOT NULL", "l": "TIMESTAMP_LTZ(6)", "t": "TIMESTAMP(3)", "a": "ARRAY<TIMESTAMP_LTZ(3)>"}
TIMES = (
    "2024-07-01T12:00:00.123456",
    "1970-01-01T00:00:00.000000",
    "2024-10-27T00:30:00.001000",
    "2024-11-03T05:30:00.000000",
    "1950-05-05T05:05:05.000000",
    "2200-12-31T23:59:59.999999",
)


def table_with(path: Path, legacy: str) -> Path:
    options = {"bucket": "1", "file.format": "orc", "orc.timestamp-ltz.legacy.type": legacy}
    table = make_table(path, COLUMNS, primary_key=("k",), options=options)
    rows = [
        {"k": n, "l": time, "t": f"{time[:19]}.000000", "a": [f"{time[:19]}.000000", None]}
        for n, time in enumerate(TIMES)
    ]
    table.write(table_of([*rows, {"k": len(TIMES), "l": None, "t": None, "a": None}], table.schema))
    table.compact()
    return path


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_instants_mean_the_same_to_java_in_every_zone(tmp_path: Path, zone: str) -> None:
    with PaimonJava(zone) as java:
        for legacy in ("true", "false"):
            path = table_with(tmp_path / legacy, legacy)
            ours = rows_of(open_table(str(path)).to_arrow())
            assert [row["l"] for row in ours[:1]] == [TIMES[0]]
            assert_same_rows(ours, java.read(path), table_fields(path))
            conditions = [
                {"column": "l", "operator": operator, "value": time} for operator in ("=", "<", ">=") for time in TIMES
            ]
            for found in java.prune_check(path, conditions):
                assert (found["lost"], found["extra"]) == ([], [])
        path = tmp_path / "of-java"
        make_table(path, COLUMNS, primary_key=("k",), options={"bucket": "1", "file.format": "orc"})
        summers = [f"{year}-07-01T12:00:00.500000" for year in (2024, 2037, 2040, 2200)]
        java.write(path, [{"k": n, "l": time, "t": f"{time[:19]}.000000"} for n, time in enumerate(summers)])
        assert [row["l"] for row in rows_of(open_table(str(path)).to_arrow())] == summers


def test_instants_mean_the_same_to_pypaimon(tmp_path: Path, pypaimon: PyPaimon) -> None:
    path = table_with(tmp_path / "t", "true")
    ours = rows_of(open_table(str(path)).to_arrow())
    assert_same_rows(ours, pypaimon.read(path), table_fields(path))
    assert open_table(str(path)).schema.field("l").type == pa.timestamp("us", "UTC")
