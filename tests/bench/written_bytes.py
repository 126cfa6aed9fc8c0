"""Bytes that 1,000 small batches write, compactions included, beside Paimon Java with the same options. Nothing here
depends on the speed of a machine; the seconds are beside the point."""

import time
from collections.abc import Sequence
from pathlib import Path

from bucketline.state.store.table.table import create_table
from tests.bench.result import Result, Size
from tests.support.peers.peer import PaimonJava
from tests.support.peers.written_bytes import COLUMNS, KEPT, PATTERNS, batch_of, written_bytes

BATCHES = 1_000
ROWS = 500
AT_MOST = 1.1


def run(size: Size, root: Path) -> Sequence[Result]:
    batches = max(20, int(BATCHES * size.scale))
    with PaimonJava() as java:
        return [_measured(java, root / pattern, pattern, batches) for pattern in PATTERNS]


def _measured(java: PaimonJava, root: Path, pattern: str, batches: int) -> Result:
    options = {"bucket": "1", **KEPT}
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    table = create_table(str(root / "ours"), columns, ["k"], options=options)
    fields = [{"name": name, "type": kind} for name, kind in COLUMNS.items()]
    java.create(root / "java", fields, primary_keys=("k",), options=options)
    seconds = {"ours": 0.0, "java": 0.0}
    for turn in range(batches):
        rows = batch_of(pattern, turn, batches, ROWS)
        started = time.monotonic()
        table.write(rows)
        between = time.monotonic()
        java.write(root / "java", rows.to_pylist(), wait_compaction=True)
        seconds["ours"] += between - started
        seconds["java"] += time.monotonic() - between
    written = {name: written_bytes(root / name) for name in seconds}
    ours, other = (sum(written[name].values()) for name in ("ours", "java"))
    return Result(
        name=f"bytes-{pattern}",
        what=f"bytes written by {batches} batches of {ROWS} rows, {pattern} keys / Paimon Java",
        rows=batches * ROWS,
        seconds=seconds["ours"],
        other_seconds=seconds["java"],
        written_bytes=ours,
        worker_peak_bytes=0,
        ratio=ours / other,
        at_most=AT_MOST,
        detail={name: {source.name: count for source, count in found.items()} for name, found in written.items()},
    )
