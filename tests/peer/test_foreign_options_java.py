"""Tables that others keep in a way of their own: manifests in ORC or Parquet, index files beside the data. Paimon Java
and this library write, compact and expire them in turns, and both see the same rows."""

from datetime import timedelta
from pathlib import Path

import pytest

from bucketline.state.store.table.table import open_table
from tests.support.peers.our_tables import fields_of, make_table, read_rows, write_rows
from tests.support.peers.peer import PaimonJava

pytestmark = pytest.mark.peer

COLUMNS = {"k": "BIGINT NOT NULL", "p": "INT NOT NULL", "v": "INT"}
BESIDE = {"index-file-in-data-file-dir": "true"}
KINDS: dict[str, dict[str, str]] = {
    "manifests in ORC": {
        "manifest.format": "orc",
        "manifest.compression": "zlib",
        "bucket": "2",
        "deletion-vectors.enabled": "true",
    },
    "manifests in Parquet": {"manifest.format": "parquet", "manifest.compression": "snappy", "bucket": "-1"},
    "vectors beside the data": {**BESIDE, "bucket": "2", "deletion-vectors.enabled": "true"},
    "hashes beside the data": {**BESIDE, "bucket": "-1", "dynamic-bucket.target-row-num": "5"},
    "vectors of an append table": {**BESIDE, "bucket": "-1", "deletion-vectors.enabled": "true"},
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("first", ["java", "ours"])
def test_java_and_ours_go_on_with_each_others_tables(
    paimon_java: PaimonJava, tmp_path: Path, kind: str, first: str
) -> None:
    path, options = tmp_path / "t", {**KINDS[kind], "manifest.merge-min-count": "3", "write-only": "false"}
    keys = () if "append" in kind else ("p", "k")
    if first == "java":
        paimon_java.create(path, fields_of(COLUMNS), options=options, primary_keys=keys, partition_keys=("p",))
    else:
        make_table(path, COLUMNS, primary_key=keys, partition_by=("p",), options=options)
    expected: dict[int, int] = {}
    for turn in range(4):
        rows = [{"k": k, "p": k % 2, "v": turn * 100 + k} for k in range(turn * 6, turn * 6 + 10)]
        if not keys:
            rows = [row for row in rows if row["k"] not in expected]
        (paimon_java.write if turn % 2 else write_rows)(path, rows)
        expected |= {row["k"]: row["v"] for row in rows}
        gone = turn * 6 + 3
        open_table(str(path)).delete(f"k = {gone}")
        expected.pop(gone)
        (open_table(str(path)).compact if turn % 2 else lambda: paimon_java.compact(path))()
        for found in (read_rows(path), paimon_java.read(path)):
            assert {row["k"]: row["v"] for row in found} == expected, (turn, len(found))
    table = open_table(str(path))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(0))
    assert table.doctor(rows=True) == []
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
    assert {row["k"]: row["v"] for row in paimon_java.read(path)} == expected
    if kind.endswith("beside the data"):
        assert list(path.glob("p=*/bucket-*/index-*")) and not list(path.glob("index/*"))
