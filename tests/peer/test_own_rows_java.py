"""A writer reads its own rows while Paimon Java compacts the same buckets.

First-row tables are compacted by both at the same time. In tables with deletion vectors Java compacts between our
writes: its commit does not compare the vectors of its inputs with those of the snapshot it follows, and so brings rows
back that were marked meanwhile. On a local file system its rename may also replace a snapshot that we have just
published. Where that is seen to happen the test ends without a verdict, as nothing of ours can prevent it.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc
import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.store.doctor.examine import Severity
from bucketline.state.store.table.table import create_table, open_table
from tests.support.models.modes import COLUMNS
from tests.support.peers.peer import PaimonJava, PeerError
from tests.support.processes.own_rows_worker import rows
from tests.support.storage.published_io import PublishedIO
from tests.support.storage.watched_access import on_io

pytestmark = pytest.mark.peer

WRITES = int(os.environ.get("BUCKETLINE_OWN_ROWS", "12"))
KINDS: Mapping[str, Mapping[str, str]] = {
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "first-row": {"merge-engine": "first-row"},
}
SQL = ", ".join(f"{n} {t}{' NOT NULL' if n == 'id' else ''}" for n, t in COLUMNS.items())


@dataclass
class Compactions:
    """Java's compactions of one table, one after the other, and those that it lost."""

    java: PaimonJava
    path: str
    lost: list[str] = field(default_factory=list)

    def once(self) -> None:
        try:
            self.java.compact(self.path)
        except PeerError as e:
            self.lost.append(e.kind)

    @contextmanager
    def without_end(self) -> Iterator[None]:
        """Compacts in a thread of its own until the block ends."""
        ended = threading.Event()

        def compact() -> None:
            while not ended.is_set():
                self.once()

        beside = threading.Thread(target=compact)
        beside.start()
        try:
            yield
        finally:
            ended.set()
            beside.join()


@contextmanager
def no_verdict_on_replaced(io: PublishedIO) -> Iterator[None]:
    """Skips the test when what fails in the block may come of a snapshot of ours that Java has replaced."""
    try:
        yield
    except (AssertionError, BucketlineError) as e:
        if io.replaced():
            pytest.skip(f"Paimon's local rename replaced {io.replaced()[0]}: {e}")
        raise


def own(kind: str, before: int | None, number: int) -> int:
    """What a key has after a write with this number."""
    return before if kind == "first-row" and before is not None else number


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
    made = create_table(str(tmp_path / "shop.db" / "t"), SQL, ("id",), (), options)
    io = PublishedIO()
    table = on_io(made, io)
    compactions = Compactions(paimon_java, table.path)
    table.write(rows([0], 1))
    expected = {0: 1}

    def write(number: int) -> None:
        ids = sorted({number, number // 2 + 1})
        assert table.write(rows(ids, number)).visible
        for key in ids:
            expected[key] = own(kind, expected.get(key), number)
            assert table.to_arrow(filter=pc.field("id") == key)["s"].to_pylist() == [expected[key]], number

    with no_verdict_on_replaced(io):
        if kind == "first-row":
            with compactions.without_end():
                for number in range(1, WRITES + 1):
                    write(number)
        else:
            for number in range(1, WRITES + 1):
                write(number)
                compactions.once()
            assert compactions.lost == []
        assert {r["id"]: r["s"] for r in table.to_arrow().to_pylist()} == expected
        assert {r["id"]: r["s"] for r in paimon_java.read(table.path)} == expected
        assert [f.message for f in open_table(table.path).doctor(rows=True) if f.severity is Severity.ERROR] == []
    # Java gives up where it lost; our rows are what counts.
    assert all("Exception" in kind for kind in compactions.lost)
