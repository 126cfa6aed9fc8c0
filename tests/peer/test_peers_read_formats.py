"""Paimon Java and pypaimon read, filter and compact tables that we write in each format, nested columns among them."""

from pathlib import Path
from typing import Any

import pytest

from tests.peer.test_peers_read_ours import conditions
from tests.support.peers.every_type import NANOSECONDS, VALUES, name_of, rows
from tests.support.peers.our_tables import fields_of, make_table, read_rows, write_rows
from tests.support.peers.peer import PaimonJava, Peer
from tests.support.peers.rows import assert_same_rows, table_fields

pytestmark = pytest.mark.peer

FORMATS = ("parquet", "avro", "orc")
# ORC's readers count nanoseconds in 64 bits, and pyarrow writes no fractions before 1970 that Java reads.
FAR = [kind for kind in VALUES if kind.startswith("TIMESTAMP") and kind not in NANOSECONDS]
NEAR = {
    "TIMESTAMP(0)": ("1970-01-01T00:00:00", "1969-12-31T23:59:59", "2024-02-29T12:34:56"),
    "TIMESTAMP(3)": ("1970-01-01T00:00:00", "1969-12-31T23:59:59", "1970-01-01T00:00:00.001000"),
    "TIMESTAMP(6)": ("1700-01-01T00:00:00", "1969-12-31T23:59:58", "2024-02-29T12:34:56.789012"),
}
COLUMNS_OF_A_TABLE = 4  # where a table of all types takes long
NESTED = {
    "l": "ARRAY<INT>",
    "deep": "ARRAY<ARRAY<STRING>>",
    "m": "MAP<STRING, DECIMAL(20, 2)>",
    "by": "MAP<INT, ARRAY<DATE>>",
    "bag": "MULTISET<STRING>",
    "r": "ROW<a INT, b ROW<c STRING, d TIMESTAMP(3)>>",
    "rs": "ARRAY<ROW<a INT NOT NULL, b STRING>>",
}
NESTED_ROWS: list[dict[str, Any]] = [
    {
        "l": [1, None, -3],
        "deep": [["a", None], None, []],
        "m": [["x", None], ["", "1.50"]],
        "by": [[1, [None, "1970-01-06"]], [-2, None], [3, []]],
        "bag": [["p", 2], ["q", 1]],
        "r": {"a": 1, "b": {"c": "é", "d": "1969-12-31T23:59:59"}},
        "rs": [{"a": 1, "b": None}, {"a": -1, "b": "z"}],
    },
    {"l": [], "deep": [], "m": [], "by": [], "bag": [], "r": {"a": None, "b": None}, "rs": []},
    dict.fromkeys(NESTED),
]


@pytest.fixture(params=["paimon_java", "pypaimon"])
def peer(request: pytest.FixtureRequest) -> Peer:
    found: Peer = request.getfixturevalue(request.param)
    return found


def kinds_for(form: str) -> list[str]:
    return [kind for kind in VALUES if kind not in NANOSECONDS and (form != "orc" or kind not in FAR)]


def every_row(form: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Columns and rows of all types that a format holds."""
    kinds = kinds_for(form)
    columns, found = {name_of(kind): kind for kind in kinds}, rows(kinds)
    if form == "orc":
        columns |= {name_of(kind): kind for kind in NEAR}
        found = [row | {name_of(k): NEAR[k][i % 3] for k in NEAR} for i, row in enumerate(found)]
    return {"k": "INT NOT NULL"} | columns, [{"k": i, **row} for i, row in enumerate(found)]


@pytest.mark.parametrize(
    ("primary_key", "codec"),
    [((), "snappy"), ((), "none"), (("k",), "zstd")],
    ids=["append snappy", "append none", "primary key"],
)
@pytest.mark.parametrize("form", FORMATS)
def test_a_peer_reads_every_type_in_every_format(
    peer: Peer, form: str, primary_key: tuple[str, ...], codec: str, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    columns, expected = every_row(form)
    options = {"file.format": form, "file.compression": codec} | ({"bucket": "2"} if primary_key else {})
    make_table(table, columns, primary_key=primary_key, options=options)
    write_rows(table, expected[:5])
    write_rows(table, expected[5:])
    assert {f.suffix for f in table.rglob("data-*")} == {f".{form}"}
    assert_same_rows(read_rows(table), expected, table_fields(table))
    assert_same_rows(peer.read(table), expected, table_fields(table))


@pytest.mark.parametrize(("form", "codec"), [("avro", "deflate"), ("orc", "zlib"), ("orc", "lz4"), ("orc", "none")])
def test_a_peer_passes_over_our_checksums(peer: Peer, form: str, codec: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    options = {"file.format": form, "file.compression": codec, "bucket": "1"}
    make_table(table, {"k": "INT NOT NULL", "v": "STRING"}, primary_key=("k",), options=options)
    expected = [{"k": k, "v": f"text {k * 7919 % 100003}"} for k in range(40_000)]
    write_rows(table, expected)
    assert_same_rows(peer.read(table), expected, table_fields(table))
    assert_same_rows(peer.read(table, equals={"k": 33_333}), expected[33_333:33_334], table_fields(table))


@pytest.mark.parametrize("form", FORMATS)
def test_a_peer_reads_nested_columns_in_every_format(peer: Peer, form: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    options = {"file.format": form, "bucket": "1", "write-only": "true"}
    # pypaimon has no multisets, and does not read ORC, where all is nullable, as what is not.
    hidden = {"bag"} | ({"rs"} if form == "orc" else set()) if peer.name == "pypaimon" else set()
    nested = {name: kind for name, kind in NESTED.items() if name not in hidden}
    handle = make_table(table, {"k": "INT NOT NULL", **nested}, primary_key=("k",), options=options)
    expected = [{"k": i} | {name: row[name] for name in nested} for i, row in enumerate(NESTED_ROWS)]
    write_rows(table, [{**expected[0], "k": 1}, {**expected[1], "k": 2}])
    write_rows(table, expected)
    assert_same_rows(peer.read(table), expected, table_fields(table))
    handle.compact()
    assert_same_rows(peer.read(table), expected, table_fields(table))


@pytest.mark.parametrize("form", FORMATS)
def test_java_compacts_what_we_wrote_and_we_read_that(paimon_java: PaimonJava, form: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    columns, expected = every_row(form)
    options = {"file.format": form, "bucket": "1", "write-only": "true"}
    make_table(table, {**columns, **NESTED}, primary_key=("k",), options=options)
    expected = [{**row, **NESTED_ROWS[row["k"] % 3]} for row in expected]
    write_rows(table, [{**expected[0], "k": 5}, *expected[1:3]])
    write_rows(table, expected)
    write_rows(table, [{"k": 3, "_row_kind": "-D"}])
    paimon_java.compact(table)
    assert {f["level"] for f in paimon_java.files(table)} == {5}
    del expected[3]
    assert_same_rows(read_rows(table), expected, table_fields(table))
    assert_same_rows(paimon_java.read(table), expected, table_fields(table))


def test_levels_of_different_formats_are_read_as_one_table(peer: Peer, tmp_path: Path) -> None:
    table = tmp_path / "t"
    options = {
        "file.format.per.level": "0:avro,4:parquet,5:orc",
        "bucket": "1",
        "num-sorted-run.compaction-trigger": "3",
        "data-file.thin-mode": "true",
    }
    make_table(table, {"k": "INT NOT NULL", "v": "STRING"}, primary_key=("k",), options=options)
    expected = {}
    for turn in range(8):
        data = [{"k": k, "v": f"{turn}"} for k in range(turn, turn + 5)]
        write_rows(table, data)
        expected |= {row["k"]: row for row in data}
    assert len({f.suffix for f in table.rglob("data-*")}) > 1
    assert_same_rows(peer.read(table), expected.values(), table_fields(table))
    assert_same_rows(read_rows(table), expected.values(), table_fields(table))


@pytest.mark.parametrize(("form", "mode"), [("avro", "truncate(2)"), ("avro", "full"), ("orc", "truncate(2)")])
def test_java_loses_no_row_that_it_would_not_lose_of_its_own(
    paimon_java: PaimonJava, form: str, mode: str, tmp_path: Path
) -> None:
    """Java's ORC reader skips rows by indexes that order text by UTF-16 and days before 1582 otherwise."""
    every_column, every = every_row(form)
    options = {"metadata.stats-mode": mode, "file.format": form}
    kinds, spared = kinds_for(form), 0
    # Several narrow tables: Java's Avro reader takes the header of a file, with its columns, byte by byte.
    for first in range(0, len(kinds), COLUMNS_OF_A_TABLE):
        several = kinds[first : first + COLUMNS_OF_A_TABLE]
        ours, javas = tmp_path / f"ours-{first}", tmp_path / f"javas-{first}"
        columns = {name: every_column[name] for name in ("k", *map(name_of, several))}
        data = [{name: row[name] for name in columns} for row in every]
        make_table(ours, columns, options=options)
        paimon_java.create(javas, fields_of(columns), options=options)
        for start in range(0, len(data), 3):
            write_rows(ours, data[start : start + 3])
            paimon_java.write(javas, data[start : start + 3])
        wanted = [condition for kind in several for condition in conditions(kind, name_of(kind))]
        found = zip(paimon_java.prune_check(ours, wanted), paimon_java.prune_check(javas, wanted), strict=True)
        for condition, (answer, own) in zip(wanted, found, strict=True):
            assert set(answer["lost"]) <= set(own["lost"]), condition
            assert answer["extra"] == [] and (form == "orc" or own["lost"] == []), condition
            spared += answer["files"] - answer["planned"]
    assert spared > 0


def test_java_reads_instants_that_we_wrote_to_orc(paimon_java: PaimonJava, tmp_path: Path) -> None:
    table = tmp_path / "t"
    columns = {"k": "INT", "a": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "b": "TIMESTAMP(6) WITH LOCAL TIME ZONE"}
    make_table(table, columns, options={"file.format": "orc", "orc.timestamp-ltz.legacy.type": "false"})
    data = [
        {"k": 1, "a": "1969-12-31T23:59:59", "b": "2024-02-29T12:34:56.789012"},
        {"k": 2, "a": None, "b": "1700-01-01T00:00:00"},
    ]
    write_rows(table, data)
    assert_same_rows(paimon_java.read(table), data, table_fields(table))
    assert_same_rows(read_rows(table), data, table_fields(table))
