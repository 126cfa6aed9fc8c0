"""A writer reads its own rows while Paimon Java compacts, and writes, the same buckets."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow.compute as pc
import pytest

from bucketline.state.store.doctor.examine import Severity
from bucketline.state.store.table.table import create_table, open_table
from tests.support.modes import COLUMNS
from tests.support.own_rows_worker import rows
from tests.support.peer import PaimonJava, PeerError

pytestmark = pytest.mark.peer

WRITES = int(os.environ.get("BUCKETLINE_OWN_ROWS", "12"))
KINDS: Mapping[str, Mapping[str, str]] = {
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "first-row": {"merge-engine": "first-row"},
}
SQL = ", ".join(f"{n} {t}{' NOT NULL' if n == 'id' else ''}" for n, t in COLUMNS.items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("buckets", ["2", "-1"])
def test_a_writer_reads_its_own_rows_while_java_compacts(
    tmp_path: Path, paimon_java: PaimonJava, kind: str, buckets: str
) -> None:
    options = {
        "bucket": buckets,
        **KINDS[kind],
        "snapshot.num-retained.max": "1000",
        "snapshot.num-retained.min": "1000",
    }
    table = create_table(str(tmp_path / "shop.db" / "t"), SQL, ("id",), (), options)
    table.write(rows([0], 1))
    ended, lost = threading.Event(), list[str]()

    def compact() -> None:
        while not ended.is_set():
            try:
                paimon_java.compact(table.path)
            except PeerError as e:
                lost.append(e.kind)

    beside = threading.Thread(target=compact)
    beside.start()
    try:
        expected = {0: 1}
        for number in range(1, WRITES + 1):
            ids = sorted({number, number // 2 + 1})
            done = table.write(rows(ids, number))
            assert done.visible
            for key in ids:
                first = kind == "first-row" and key in expected
                expected[key] = expected[key] if first else number
                assert table.to_arrow(filter=pc.field("id") == key)["s"].to_pylist() == [expected[key]], number
    finally:
        ended.set()
        beside.join()
    assert {r["id"]: r["s"] for r in table.to_arrow().to_pylist()} == expected
    assert {r["id"]: r["s"] for r in paimon_java.read(table.path)} == {k: v for k, v in expected.items()}
    assert [f.message for f in open_table(table.path).doctor(rows=True) if f.severity is Severity.ERROR] == []
    # Java gives up where it lost; our rows are what counts.
    assert all("Exception" in kind for kind in lost)
