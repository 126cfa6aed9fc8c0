"""Both peers read Paimon's golden tables as Paimon's own readings say, so that they may judge ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers.golden import GOLDEN, expected_rows, golden_table
from tests.support.peers.peer import Peer, PeerError
from tests.support.peers.rows import assert_same_rows, table_fields

pytestmark = pytest.mark.peer
beside_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden tables are not beside the repository")

GOLDEN_TABLES = ("pk_fixed_levels", "types_append", "pk_partitioned", "pk_dynamic", "pk_dv", "bucket_decimal_30_4_")
EVERY_TYPE = (
    ("k_bool", "BOOLEAN"),
    ("k_tiny", "TINYINT"),
    ("k_small", "SMALLINT"),
    ("k_int", "INT NOT NULL"),
    ("k_big", "BIGINT"),
    ("k_float", "FLOAT"),
    ("k_double", "DOUBLE"),
    ("k_dec9", "DECIMAL(9, 2)"),
    ("k_dec38", "DECIMAL(38, 10)"),
    ("k_str", "STRING"),
    ("k_bin", "BYTES"),
    ("k_date", "DATE"),
    ("k_time", "TIME(3)"),
    ("k_ts3", "TIMESTAMP(3)"),
    ("k_ts6", "TIMESTAMP(6)"),
    ("k_ltz", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("k_array", {"type": "ARRAY", "element": "INT"}),
    ("k_map", {"type": "MAP", "key": "STRING NOT NULL", "value": "DECIMAL(9, 2)"}),
)
FIELDS = [{"name": name, "type": kind} for name, kind in EVERY_TYPE]
ROWS: list[dict[str, Any]] = [
    {
        "k_bool": True,
        "k_tiny": -128,
        "k_small": 32767,
        "k_int": 1,
        "k_big": -9223372036854775808,
        "k_float": 0.10000000149011612,
        "k_double": -0.0,
        "k_dec9": "-9999999.99",
        "k_dec38": "1234567890123456789012345678.0123456789",
        "k_str": "žluťoučký 🐎",
        "k_bin": "00ff",
        "k_date": "1900-01-01",
        "k_time": "23:59:59.999000",
        "k_ts3": "1969-12-31T23:59:59.999000",
        "k_ts6": "2024-02-29T12:34:56.789012",
        "k_ltz": "1900-01-01T00:00:00.000001",
        "k_array": [1, None, 3],
        "k_map": [["a", "1.50"], ["b", None]],
    },
    {name: 2 if name == "k_int" else None for name, _ in EVERY_TYPE},
    {name: None for name, _ in EVERY_TYPE} | {"k_int": 3, "k_float": "NaN", "k_double": float("inf"), "k_str": ""},
]


@pytest.fixture(params=["paimon_java", "pypaimon"])
def peer(request: pytest.FixtureRequest) -> Peer:
    found: Peer = request.getfixturevalue(request.param)
    return found


@beside_golden
@pytest.mark.parametrize("name", GOLDEN_TABLES)
def test_a_peer_reads_the_rows_paimon_read(peer: Peer, name: str) -> None:
    table = golden_table(name)
    assert_same_rows(peer.read(table), expected_rows(name), table_fields(table))


def _flip(rows: list[dict[str, Any]]) -> None:
    rows[0]["v"] += 1


def _lose(rows: list[dict[str, Any]]) -> None:
    rows.pop()


def _double(rows: list[dict[str, Any]]) -> None:
    rows.append(dict(rows[0]))


@beside_golden
@pytest.mark.parametrize("damage", [_flip, _lose, _double])
def test_a_damaged_expectation_fails(peer: Peer, damage: Callable[[list[dict[str, Any]]], None]) -> None:
    table = golden_table("pk_fixed_levels")
    expected = expected_rows("pk_fixed_levels")
    damage(expected)
    with pytest.raises(AssertionError, match=r"1 (unexpected|missing) rows"):
        assert_same_rows(peer.read(table), expected, table_fields(table))


@beside_golden
@pytest.mark.parametrize("name", ["k_dec38", "k_bin", "k_ltz", "k_double", "k_str"])
def test_a_damaged_value_of_any_form_fails(peer: Peer, name: str) -> None:
    table = golden_table("types_append")
    damaged = {"k_dec38": "-1E-9", "k_bin": "01", "k_ltz": "1900-01-01T00:00:00.000001", "k_double": 1.0, "k_str": "x"}
    expected = expected_rows("types_append")
    expected[0][name] = damaged[name]
    with pytest.raises(AssertionError, match="unexpected rows"):
        assert_same_rows(peer.read(table), expected, table_fields(table))


@beside_golden
def test_a_peer_names_the_bucket_of_each_row(peer: Peer) -> None:
    table = golden_table("bucket_string")
    assert_same_rows(peer.read(table, buckets=True), expected_rows("bucket_string", "buckets"), table_fields(table))


@beside_golden
def test_java_lists_the_files_paimon_listed(paimon_java: Peer) -> None:
    expected = expected_rows("pk_fixed_levels", "files")
    found = paimon_java.files(golden_table("pk_fixed_levels"))
    named = ("bucket", "level", "record_count", "min_sequence_number", "max_sequence_number", "file_source", "min_key")
    assert sorted(tuple(file[name] for name in named) for file in found) == sorted(
        tuple(file[name] for name in named) for file in expected
    )


@beside_golden
def test_pypaimon_lists_as_many_rows_in_files_as_paimon(pypaimon: Peer) -> None:
    expected = expected_rows("pk_fixed_levels", "files")
    found = pypaimon.files(golden_table("pk_fixed_levels"))
    assert sorted((file["level"], file["record_count"]) for file in found) == sorted(
        (file["level"], file["record_count"]) for file in expected
    )


@beside_golden
def test_a_peer_filters_by_equality(peer: Peer) -> None:
    wanted = expected_rows("pk_fixed_levels")[7]
    assert peer.read(golden_table("pk_fixed_levels"), equals={"k": wanted["k"]}) == [wanted]
    assert peer.read(golden_table("pk_fixed_levels"), equals={"k": -1}) == []


@pytest.mark.parametrize("writer_name", ["paimon_java", "pypaimon"])
def test_peers_read_each_others_rows_of_every_type(
    peer: Peer, writer_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    writer: Peer = request.getfixturevalue(writer_name)
    table = tmp_path / "t"
    writer.create(table, FIELDS, primary_keys=["k_int"], options={"bucket": "2"})
    assert writer.write(table, ROWS, mode="stream", commit_user="u", commit_identifier=1) == 1
    assert_same_rows(peer.read(table), ROWS, FIELDS)


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_java_applies_row_kinds_and_compacts(paimon_java: Any, pypaimon: Peer, tmp_path: Path, bucket: str) -> None:
    table = tmp_path / "t"
    fields = [{"name": "k", "type": "STRING NOT NULL"}, {"name": "v", "type": "INT"}]
    paimon_java.create(table, fields, primary_keys=["k"], options={"bucket": bucket, "write-only": "true"})
    for commit in range(3):
        paimon_java.write(table, [{"k": f"k{i}", "v": commit} for i in range(10)], write_only=True)
    paimon_java.write(table, [{"k": "k3", "_row_kind": "-D"}], write_only=True)
    assert {file["level"] for file in paimon_java.files(table)} == {0}

    assert paimon_java.compact(table, full=True) == 5

    assert {file["level"] for file in paimon_java.files(table)} == {5}
    left = [{"k": f"k{i}", "v": 2} for i in range(10) if i != 3]
    assert_same_rows(paimon_java.read(table), left, fields)
    assert_same_rows(pypaimon.read(table), left, fields)


def test_java_compacts_inline_unless_told_to_write_only(paimon_java: Peer, tmp_path: Path) -> None:
    table = tmp_path / "t"
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
    paimon_java.create(table, fields, primary_keys=["k"], options={"bucket": "1"})
    for commit in range(6):
        paimon_java.write(table, [{"k": 1, "v": commit}], mode="stream", commit_user="u", commit_identifier=commit)
    assert max(file["level"] for file in paimon_java.files(table)) > 0
    kinds = {row["commit_kind"] for row in paimon_java.read(table, system="snapshots")}
    assert kinds == {"APPEND", "COMPACT"}


def test_java_compacts_an_append_table(paimon_java: Any, tmp_path: Path) -> None:
    table = tmp_path / "t"
    fields = [{"name": "v", "type": "INT"}]
    paimon_java.create(table, fields, options={"compaction.min.file-num": "2"})
    for commit in range(6):
        paimon_java.write(table, [{"v": commit}])
    paimon_java.compact(table)
    assert len(paimon_java.files(table)) == 1
    assert_same_rows(paimon_java.read(table), [{"v": commit} for commit in range(6)], fields)


def test_java_shows_row_kinds_of_a_changelog(paimon_java: Peer, tmp_path: Path) -> None:
    table = tmp_path / "t"
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
    options = {"bucket": "1", "changelog-producer": "input"}
    paimon_java.create(table, fields, primary_keys=["k"], options=options)
    paimon_java.write(table, [{"k": 1, "v": 1}])
    paimon_java.write(table, [{"k": 1, "v": 1, "_row_kind": "-D"}])
    log = paimon_java.read(
        table, row_kinds=True, options={"incremental-between": "1,2", "incremental-between-scan-mode": "changelog"}
    )
    assert log == [{"k": 1, "v": 1, "_row_kind": "-D"}]


def test_a_refusal_names_its_reason_and_the_peer_goes_on(peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(PeerError):
        peer.read(tmp_path / "nothing")
    fields = [{"name": "v", "type": "INT"}]
    peer.create(tmp_path / "t", fields)
    with pytest.raises(PeerError, match="no column called w"):
        peer.write(tmp_path / "t", [{"w": 1}])
    peer.write(tmp_path / "t", [{"v": 1}])
    assert peer.read(tmp_path / "t") == [{"v": 1}]
