"""Bloom filters of data files, shared with Paimon Java: it leaves out files by ours, and we do by its own."""

import shutil
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from bucketline.state.format.index.file_index import decode_head
from bucketline.state.store.table.table import handle_of, open_table
from tests.support.peers.our_tables import fields_of, make_table, write_rows
from tests.support.peers.peer import PaimonJava, PeerError
from tests.support.peers.rows import assert_same_rows

pytestmark = pytest.mark.peer

COLUMNS = {
    "k": "INT NOT NULL", "tiny": "TINYINT", "small": "SMALLINT", "big": "BIGINT", "f": "FLOAT", "d": "DOUBLE",
    "s": "STRING", "c": "CHAR(7)", "b": "VARBINARY(40)", "day": "DATE", "at": "TIME(0)", "t3": "TIMESTAMP(3)",
    "t6": "TIMESTAMP(6)", "z": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}  # fmt: skip
ROWS = 60


def row(number: int) -> dict[str, Any]:
    moment = datetime(2024, 2, 28) + timedelta(hours=number, microseconds=number)
    text = f"{number:03}" * (number % 14)
    return {
        "k": number, "tiny": number - 60, "small": -number * 100, "big": number * 10**15, "f": number / 4,
        "d": -number / 8, "s": text if number % 7 else None, "c": f"c{number}", "b": text[:40].encode().hex(),
        "day": str(date(1960, 1, 1) + timedelta(days=number * 300)), "at": str(time(number % 24, number % 60)),
        "t3": moment.replace(microsecond=0).isoformat(), "t6": moment.isoformat(),
        "z": moment.isoformat(),
    }  # fmt: skip


def indexes(path: Path) -> list[dict[str, bytes]]:
    """The stored filters of each data file, by column."""
    table = handle_of(open_table(str(path)))
    newest = table.snapshot_store.latest()
    assert newest is not None
    found = []
    for entry in table.manifests.live_entries(newest):
        whole = entry.file.embedded_index
        if whole is None:
            (beside,) = path.rglob(entry.file.extra_files[0])
            whole = beside.read_bytes()
        found.append({p.column: whole[p.start : p.start + p.length] for p in decode_head(whole)})
    return found


@pytest.mark.parametrize("column", [c for c in COLUMNS if c not in ("s", "b", "c")])
def test_filters_are_those_of_java_byte_for_byte(paimon_java: PaimonJava, tmp_path: Path, column: str) -> None:
    # Without CHAR, which we store with its blanks. Java makes a filter as large as the option says; ours is as large as
    # the different values of the file ask for.
    rows = [row(n) for n in range(ROWS)]
    different = len({str(r[column]) for r in rows})
    options = {"bucket": "-1", "file-index.bloom-filter.columns": column,
               f"file-index.bloom-filter.{column}.items": str(different)}  # fmt: skip
    paimon_java.create(tmp_path / "java", fields_of(COLUMNS), options=options)
    paimon_java.write(tmp_path / "java", rows)
    make_table(tmp_path / "ours", COLUMNS, options=options)
    write_rows(tmp_path / "ours", rows)
    assert indexes(tmp_path / "ours") == indexes(tmp_path / "java")


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"], ids=["beside", "in manifests"])
@pytest.mark.parametrize("writer", ["java", "ours"])
def test_a_reader_opens_no_file_that_the_index_of_the_other_rules_out(
    paimon_java: PaimonJava, tmp_path: Path, writer: str, threshold: str
) -> None:
    path = tmp_path / "t"
    options = {"bucket": "-1", "file-index.bloom-filter.columns": "s,k", "file-index.in-manifest-threshold": threshold,
               "file-index.bloom-filter.s.items": "100", "file-index.bloom-filter.s.fpp": "0.0001",
               "compaction.min.file-num": "50"}  # fmt: skip
    columns = {"k": "INT NOT NULL", "s": "STRING"}
    if writer == "java":
        paimon_java.create(path, fields_of(columns), options=options)
    else:
        make_table(path, columns, options=options)
    turns = [[{"k": n, "s": f"value {n}"} for n in range(turn, 90, 3)] for turn in range(3)]
    for rows in turns:
        if writer == "java":
            paimon_java.write(path, rows)
        else:
            write_rows(path, rows)
    wanted = turns[1][10]
    # The bounds of all files hold the value; only their indexes say that two of them lack it.
    assert_same_rows(read(paimon_java, path, wanted, writer), [wanted], fields_of(columns))
    kept = None
    for data in sorted(path.rglob("data-*.parquet")):
        away = tmp_path / data.name
        shutil.move(data, away)
        try:
            found = read(paimon_java, path, wanted, writer)
        except (PeerError, Exception):  # noqa: BLE001 - whoever opens the file says in its own words that it is gone
            assert kept is None, "a second file is opened"
            kept = data
            shutil.move(away, data)
        else:
            assert_same_rows(found, [wanted], fields_of(columns))
    assert kept is not None
    assert len(list(path.rglob("data-*.parquet"))) == 1


def read(paimon_java: PaimonJava, path: Path, wanted: dict[str, Any], writer: str) -> list[dict[str, Any]]:
    """The wanted rows as the other one reads them."""
    if writer == "ours":
        return paimon_java.read(path, equals={"s": wanted["s"]})
    return open_table(str(path)).to_arrow(filter=f"s = '{wanted['s']}'").to_pylist()


def test_java_compacts_files_with_our_indexes_and_gives_them_new_ones(paimon_java: PaimonJava, tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = {"k": "INT NOT NULL", "s": "STRING"}
    options = {"bucket": "1", "file-index.bloom-filter.columns": "k,s", "file-index.in-manifest-threshold": "0 b"}
    make_table(path, columns, primary_key=("k",), options=options)
    for turn in range(3):
        write_rows(path, [{"k": n, "s": f"{turn} {n}"} for n in range(turn * 5, turn * 5 + 20)])
    expected = paimon_java.read(path)
    paimon_java.compact(path)
    assert set(indexes(path)[0]) == {"k", "s"}
    assert_same_rows(open_table(str(path)).to_arrow().to_pylist(), expected, fields_of(columns))
    assert open_table(str(path)).to_arrow(filter="s = '2 12'").num_rows == 1
    open_table(str(path)).compact()
    assert_same_rows(paimon_java.read(path), expected, fields_of(columns))
