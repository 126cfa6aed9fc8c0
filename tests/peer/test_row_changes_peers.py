"""We change rows, Paimon Java and pypaimon write and compact in between, and all three read the same after every turn.

`$BUCKETLINE_CHANGES` says how many tables of each sort are tried.
"""

import os
import random
from pathlib import Path

import pytest

from tests.support.models.row_changes import NAMES, SORTS, ChangedTable
from tests.support.peers.peer import PaimonJava, PyPaimon

pytestmark = pytest.mark.peer

TABLES = int(os.environ.get("BUCKETLINE_CHANGES", "1"))
TURNS = 6
PYTHON_WRITES = ("merge-on-read", "append", "append bucketed")
"""pypaimon leaves level 0 where its readers do not look, and cannot tell where a dynamic key lives."""

READ_BY_JAVA_ALONE = ("partial-update", "cross-partition vectors", "copy-on-write", "lookup")
WRITTEN_BY_US_ALONE = ("cross-partition", "cross-partition vectors")


@pytest.mark.parametrize("seed", range(TABLES))
@pytest.mark.parametrize("sort", sorted({*SORTS} - {"copy-on-write", "lookup"}))
def test_all_read_what_changes_leave(
    sort: str, seed: int, paimon_java: PaimonJava, pypaimon: PyPaimon, tmp_path: Path
) -> None:
    path, draw = tmp_path / "w.db" / "t", random.Random(f"peers {sort} {seed}")
    changed = ChangedTable.create(str(path), sort, draw)

    def peers_write(peer: PaimonJava | PyPaimon) -> None:
        rows = changed.drawn(5)
        changed.log.append(f"{peer.name} writes {rows}")
        kind = {"_row_kind": "+I"} if changed.table.primary_key and isinstance(peer, PaimonJava) else {}
        peer.write(path, [dict(zip(NAMES, r, strict=True)) | kind for r in rows])
        changed.put(rows)

    def java_compacts() -> None:
        changed.log.append("java compacts")
        paimon_java.compact(path, full=draw.random() < 0.5)

    acts = [changed.change] * 6
    if sort not in WRITTEN_BY_US_ALONE:
        acts += [lambda: peers_write(paimon_java), java_compacts]
    if sort in PYTHON_WRITES:
        acts += [lambda: peers_write(pypaimon)]
    try:
        for _ in range(TURNS):
            draw.choice(acts)()
            changed.check()
            expected = sorted(changed.rows, key=repr)
            for peer in (paimon_java, *(() if sort in READ_BY_JAVA_ALONE else (pypaimon,))):
                found = peer.read(path)
                assert sorted((tuple(row[n] for n in NAMES) for row in found), key=repr) == expected, peer.name
    except BaseException as problem:
        problem.add_note("\n".join(changed.log))
        raise
