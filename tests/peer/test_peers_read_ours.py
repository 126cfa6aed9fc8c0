"""Paimon Java and pypaimon read the tables that we write, row for row, and Java places rows where we place them."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.table.table import open_table
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.peers.every_type import BYTES, FLOATS, NAN, NANOSECONDS, VALUES, name_of, rows
from tests.support.peers.our_tables import fields_of, make_table, read_rows, write_rows
from tests.support.peers.peer import PaimonJava, Peer
from tests.support.peers.rows import assert_same_rows, table_fields
from tests.support.spark.tasks import Cluster

pytestmark = pytest.mark.peer

# Paimon's files can hold finer timestamps than microseconds beside coarser ones, pyarrow's cannot.
MICROSECONDS = [kind for kind in VALUES if kind not in NANOSECONDS]
# Java before 19 writes these with more digits than it takes to tell them apart.
SHORTEST_DIFFERS = (3.4028234663852886e38, 1.7976931348623157e308)
# Java writes the identity of an array as the folder's name: nobody can follow that, so we refuse such a table.
PARTITION_KINDS = [kind for kind in VALUES if kind not in BYTES]


@pytest.fixture(params=["paimon_java", "pypaimon"])
def peer(request: pytest.FixtureRequest) -> Peer:
    found: Peer = request.getfixturevalue(request.param)
    return found


def numbered(found: Iterable[dict[str, Any]], start: int = 0) -> list[dict[str, Any]]:
    return [{"k": start + i, **row} for i, row in enumerate(found)]


def directories(table: Path) -> set[str]:
    """The folders that hold data, as paths below the table."""
    return {str(f.parent.relative_to(table)) for f in table.rglob("*.parquet")}


@pytest.mark.parametrize(
    ("primary_key", "options"),
    [((), {}), ((), {"bucket": "3", "bucket-key": "k"}), (("k",), {"bucket": "2"})],
    ids=["append", "append bucketed", "primary key"],
)
def test_a_peer_reads_every_type(
    peer: Peer, primary_key: tuple[str, ...], options: dict[str, str], tmp_path: Path
) -> None:
    table = tmp_path / "t"
    columns = {"k": "INT NOT NULL"} | {name_of(kind): kind for kind in MICROSECONDS}
    make_table(table, columns, primary_key=primary_key, options=options)
    expected = numbered(rows(MICROSECONDS))
    write_rows(table, expected[:5])
    write_rows(table, expected[5:])
    assert_same_rows(read_rows(table), expected, table_fields(table))
    assert_same_rows(peer.read(table), expected, table_fields(table))


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_a_peer_reads_an_overwritten_table(peer: Peer, bucket: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    columns = {"dt": "STRING NOT NULL", "k": "INT NOT NULL", "v": "STRING"}
    make_table(table, columns, primary_key=("dt", "k"), partition_by=("dt",), options={"bucket": bucket})
    old = [{"dt": day, "k": i, "v": "old"} for day in ("a", "b") for i in range(20)]
    write_rows(table, old)
    new = [{"dt": "a", "k": i, "v": "new"} for i in range(5, 30)]
    ours = open_table(str(table))
    ours.overwrite(pa.Table.from_pylist(new, ours.schema))
    ours.write(pa.Table.from_pylist([{"dt": "a", "k": 7, "v": "newer"}], ours.schema))
    expected = [row for row in old if row["dt"] == "b"] + [
        row | {"v": "newer"} if row["k"] == 7 else row for row in new
    ]
    assert_same_rows(peer.read(table), expected, table_fields(table))


def test_a_peer_reads_rows_that_tasks_have_sorted(peer: Peer, tmp_path: Path) -> None:
    table = tmp_path / "t"
    options = {"bucket": "-1", "target-file-size": "500 b", "deletion-vectors.enabled": "true"}
    make_table(table, {"k": "INT", "v": "STRING"}, options=options)
    expected = [{"k": (i * 37) % 200, "v": f"value {i}"} for i in range(200)]
    for start in (0, 100):
        write_rows(table, expected[start : start + 100])
    ours = open_table(str(table))
    ours.delete("k < 20")
    ours.compact(order_by=["k"], order_strategy="order", engine=SparkEngine(Cluster(random.Random(1), 3)))
    left = sorted((row for row in expected if row["k"] >= 20), key=lambda row: row["k"])
    assert len(open_table(str(table)).files()) > 2
    assert_same_rows(read_rows(table), left, table_fields(table))
    assert_same_rows(peer.read(table), left, table_fields(table))


@pytest.mark.parametrize("codec", ["zstd", "deflate", "snappy", "bzip2", "null"])
def test_a_peer_reads_manifests_of_every_codec(peer: Peer, codec: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    options = {"bucket": "-1", "manifest.compression": codec}
    make_table(table, {"k": "INT NOT NULL", "v": "STRING"}, primary_key=("k",), options=options)
    expected = [{"k": i, "v": str(i)} for i in range(50)]
    write_rows(table, expected[:30])
    write_rows(table, expected[30:])
    assert_same_rows(peer.read(table), expected, table_fields(table))


@pytest.mark.parametrize("primary_key", [(), ("k",)], ids=["append", "primary key"])
def test_java_reads_nanoseconds(paimon_java: PaimonJava, primary_key: tuple[str, ...], tmp_path: Path) -> None:
    ours, javas = tmp_path / "ours", tmp_path / "javas"
    columns = {"k": "INT NOT NULL"} | {name_of(kind): kind for kind in NANOSECONDS}
    options = {"bucket": "1"} if primary_key else {}
    make_table(ours, columns, primary_key=primary_key, options=options)
    paimon_java.create(javas, fields_of(columns), primary_keys=primary_key, options=options)
    expected = numbered(rows(NANOSECONDS))
    write_rows(ours, expected)
    paimon_java.write(javas, expected)
    assert_same_rows(paimon_java.read(ours), expected, fields_of(columns))
    assert_same_rows(read_rows(ours), expected, fields_of(columns))
    assert_same_rows(read_rows(javas), expected, fields_of(columns))


def test_nanoseconds_beside_coarser_timestamps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="coarse"):
        make_table(tmp_path / "t", {"fine": "TIMESTAMP(9)", "coarse": "TIMESTAMP(3)"})
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("levels", ["level 0", "compacted inline", "compacted fully"])
def test_a_peer_reads_upserts_and_deletes(peer: Peer, levels: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    options = {"bucket": "2", "write-only": str(levels != "compacted inline").lower()}
    columns = {"k": "INT NOT NULL"} | {name_of(kind): kind for kind in MICROSECONDS}
    handle = make_table(table, columns, primary_key=["k"], options=options)
    first = numbered(rows(MICROSECONDS))
    for _ in range(5):
        write_rows(table, first)
    gone = [{"k": 3, "_row_kind": "-D"}, {"k": 4, "_row_kind": "-U"}, {"k": 1000, "_row_kind": "-D"}]
    write_rows(table, gone)
    changed = [{**first[5], "k": 6, "_row_kind": "+U"}, {**first[0], "k": 100}]
    write_rows(table, changed)
    if levels == "compacted fully":
        handle.compact()
        assert {f["level"] for f in handle.files().to_pylist()} == {5}
    expected = [row for row in first if row["k"] not in (3, 4, 6)]
    expected += [{**first[5], "k": 6}, {**first[0], "k": 100}]
    assert_same_rows(peer.read(table), expected, table_fields(table))
    assert_same_rows(read_rows(table), expected, table_fields(table))


@pytest.mark.parametrize("kind", PARTITION_KINDS)
def test_partitions_of_every_type_lie_where_java_lays_them(
    paimon_java: PaimonJava, pypaimon: Peer, kind: str, tmp_path: Path
) -> None:
    ours, javas = tmp_path / "ours", tmp_path / "javas"
    columns = {"p": kind, "q": "STRING", "v": "INT"}
    make_table(ours, columns, partition_by=["p", "q"])
    paimon_java.create(javas, fields_of(columns), partition_keys=["p", "q"])
    values = [v for v in VALUES[kind] if v not in SHORTEST_DIFFERS]
    data = [{"p": p, "q": q, "v": i} for i, p in enumerate((*values, None)) for q in ("a", None)]
    write_rows(ours, data)
    paimon_java.write(javas, data)
    assert directories(ours) == directories(javas)
    assert_same_rows(paimon_java.read(ours), data, fields_of(columns))
    assert_same_rows(read_rows(ours), data, fields_of(columns))
    assert_same_rows(read_rows(javas), data, fields_of(columns))
    if kind in MICROSECONDS and kind not in (*FLOATS, "STRING", "VARCHAR(10)"):
        assert_same_rows(pypaimon.read(ours), data, fields_of(columns))


def test_partition_names_of_any_text_lie_where_java_lays_them(paimon_java: PaimonJava, tmp_path: Path) -> None:
    ours, javas = tmp_path / "ours", tmp_path / "javas"
    columns = {"p": "STRING", "v": "INT"}
    make_table(ours, columns, partition_by=["p"])
    paimon_java.create(javas, fields_of(columns), partition_keys=["p"])
    texts = [chr(c) * 2 for c in (*range(1, 128), 0x80, 0xA0, 0x100, 0x3000, 0x1F40E)]
    texts += ["", " ", "  x  ", "\t", "\u3000", "..", ".", "__DEFAULT_PARTITION__", "%41", "a=b/c=d", "bucket-0"]
    data: list[dict[str, Any]] = [{"p": p, "v": i} for i, p in enumerate((*texts, None))]
    write_rows(ours, data)
    paimon_java.write(javas, data)
    assert directories(ours) == directories(javas)
    assert_same_rows(paimon_java.read(ours), data, fields_of(columns))
    assert_same_rows(read_rows(javas), data, fields_of(columns))


@pytest.mark.parametrize("kind", BYTES)
def test_partitions_of_bytes_are_refused(kind: str, tmp_path: Path) -> None:
    make_table(tmp_path / "t", {"p": kind, "v": "INT"}, partition_by=["p"])
    with pytest.raises(UnsupportedTableError, match="folder name"):
        write_rows(tmp_path / "t", [{"p": "00", "v": 1}])


@pytest.mark.parametrize("kind", VALUES)
def test_rows_go_to_the_bucket_java_chooses(paimon_java: PaimonJava, pypaimon: Peer, kind: str, tmp_path: Path) -> None:
    ours, javas = tmp_path / "ours", tmp_path / "javas"
    columns = {"a": f"{kind} NOT NULL", "b": "STRING NOT NULL", "v": "INT"}
    make_table(ours, columns, primary_key=["a", "b"], options={"bucket": "7"})
    paimon_java.create(javas, fields_of(columns), primary_keys=["a", "b"], options={"bucket": "7"})
    data = [{"a": a, "b": b, "v": i} for i, a in enumerate(VALUES[kind]) for b in ("", "b", "longer than eight", "ž")]
    write_rows(ours, data)
    paimon_java.write(javas, data)
    expected = paimon_java.read(javas, buckets=True)
    assert_same_rows(paimon_java.read(ours, buckets=True), expected, fields_of(columns))
    if kind in MICROSECONDS:
        assert_same_rows(pypaimon.read(ours, buckets=True), expected, fields_of(columns))
    assert_same_rows(read_rows(javas), data, fields_of(columns))
    for row in data[::5]:
        found = paimon_java.read(ours, equals={"a": row["a"], "b": row["b"]})
        assert_same_rows(found, [row], fields_of(columns))


BUCKETED = [(kind, "default") for kind in VALUES] + [("INT", "mod"), ("BIGINT", "mod")]
BUCKETED += [(kind, "hive") for kind in VALUES if not kind.startswith("TIMESTAMP")]


@pytest.mark.parametrize(("kind", "function"), BUCKETED)
def test_rows_of_append_tables_go_to_the_bucket_java_chooses(
    paimon_java: PaimonJava, kind: str, function: str, tmp_path: Path
) -> None:
    ours, javas = tmp_path / "ours", tmp_path / "javas"
    columns = {"a": kind, "v": "INT"}
    options = {"bucket": "7", "bucket-key": "a", "bucket-function.type": function}
    make_table(ours, columns, options=options)
    paimon_java.create(javas, fields_of(columns), options=options)
    nulls = () if function == "mod" else (None,)
    data = [{"a": a, "v": i} for i, a in enumerate((*VALUES[kind], *nulls))]
    write_rows(ours, data)
    paimon_java.write(javas, data)
    expected = paimon_java.read(javas, buckets=True)
    assert_same_rows(paimon_java.read(ours, buckets=True), expected, fields_of(columns))


def conditions(kind: str, column: str) -> list[dict[str, Any]]:
    """Conditions at every value of a type, and none."""
    values = VALUES[kind]
    found: list[dict[str, Any]] = [{"operator": operator} for operator in ("is null", "is not null")]
    # Java compares bytes as if they had signs, but its Parquet reader does not.
    ordered = () if kind in BYTES else ("<", "<=", ">", ">=")
    found += [{"operator": o, "value": v} for v in values for o in ("=", "!=", *ordered)]
    found += [{"operator": o, "values": list(values[i : i + 2])} for i in range(len(values)) for o in ("in", "not in")]
    if kind in ("STRING", "VARCHAR(10)"):
        found += [{"operator": "starts with", "value": v} for v in ("", "a", "x" * 15, "x" * 16, "x" * 17, "ž", "🐎")]
    return [{"column": column, **one} for one in found]


STATISTICS: list[tuple[str, str, tuple[str, ...]]] = [(kind, "truncate(16)", ()) for kind in VALUES]
STATISTICS += [(kind, mode, ()) for kind in ("STRING", "INT") for mode in ("full", "truncate(1)", "counts", "none")]
STATISTICS += [(kind, "full", ("k",)) for kind in ("STRING", "BIGINT", "TIMESTAMP(6)")]


@pytest.mark.parametrize(("kind", "mode", "primary_key"), STATISTICS)
def test_java_loses_no_row_to_our_statistics(
    paimon_java: PaimonJava, kind: str, mode: str, primary_key: tuple[str, ...], tmp_path: Path
) -> None:
    table = tmp_path / "t"
    options = {"metadata.stats-mode": mode} | ({"bucket": "1", "write-only": "true"} if primary_key else {})
    make_table(table, {"k": "INT NOT NULL", "v": kind}, primary_key=primary_key, options=options)
    values = VALUES[kind]
    for i in range(0, len(values), 2):
        write_rows(table, [{"k": 100 * i + n, "v": v} for n, v in enumerate((values[i], None, values[(i + 1) // 2]))])
    write_rows(table, [{"k": n, "v": v} for n, v in enumerate((*values, None))])
    write_rows(table, [{"k": 5000, "v": None}])
    wanted = conditions(kind, "v")
    answers = paimon_java.prune_check(table, wanted)
    for condition, answer in zip(wanted, answers, strict=True):
        assert (answer["lost"], answer["extra"]) == ([], []), condition
    assert any(answer["planned"] < answer["files"] for answer in answers) == (mode != "none")


@pytest.mark.parametrize("kind", PARTITION_KINDS)
def test_java_loses_no_row_to_key_and_partition_ranges(paimon_java: PaimonJava, kind: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    columns = {"p": f"{kind} NOT NULL", "a": f"{kind} NOT NULL", "v": "INT"}
    handle = make_table(table, columns, primary_key=["p", "a"], partition_by=["p"], options={"bucket": "1"})
    # Java's order of float keys takes NaN for equal to everything.
    values = [v for v in VALUES[kind] if v not in (*SHORTEST_DIFFERS, NAN)][:6]
    for i, value in enumerate(values):
        write_rows(table, [{"p": p, "a": value, "v": i} for p in values])
    wanted = conditions(kind, "a") + conditions(kind, "p")
    for _ in range(2):
        answers = paimon_java.prune_check(table, wanted)
        for condition, answer in zip(wanted, answers, strict=True):
            assert (answer["lost"], answer["extra"]) == ([], []), condition
        assert any(answer["planned"] < answer["files"] for answer in answers)
        handle.compact()
