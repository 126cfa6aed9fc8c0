"""A writer in a process of its own that reads each of its rows back, while others write and compact the same buckets.

Importable, so that `forking` can start it.
"""

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.errors import CommitConflictError
from bucketline.state.store.table.table import Table, open_table


def rows(ids: Sequence[int], number: int) -> pa.Table:
    """Rows of the columns of `tests.support.models.modes`; `s` says which write they are of."""
    count = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "p": pa.array([i % 2 for i in ids], pa.int32()),
            "s": pa.array([number] * count, pa.int32()),
            "t": pa.array([number] * count, pa.int64()),
            "q": pa.array([number] * count, pa.int32()),
        }
    )


def write_and_read(path: str, writer: int, writers: int, count: int, engine: str, start: Any, told: Any) -> None:
    """Writes `count` times a new key and one written before, both of this writer alone; tells what it read wrongly.

    `start` is a barrier of all writers, `told` a queue that gets (writer, what went wrong, errors).
    """
    table, expected, wrong = open_table(path), dict[int, int](), list[str]()
    start.wait()
    for number in range(1, count + 1):
        new = number * writers + writer
        again = (number // 2 + 1) * writers + writer
        ids = sorted({new, again})
        done = table.write(rows(ids, number))
        if not done.visible:
            wrong.append(f"write {number} returned snapshot {int(done)}, not visible: {done.dropped}")
        for key in ids:
            expected[key] = merged(engine, expected.get(key), number)
            found = table.to_arrow(filter=pc.field("id") == key)["s"].to_pylist()
            if found != [expected[key]]:
                wrong.append(f"write {number}: key {key} has {found}, not {expected[key]}")
    found = {r["id"]: r["s"] for r in table.to_arrow(columns=["id", "s"]).to_pylist()}
    own = {key: value for key, value in found.items() if key % writers == writer}
    if own != expected:
        wrong.append(f"at the end {len(set(own.items()) ^ set(expected.items()))} rows differ")
    told.put((writer, wrong))


def merged(engine: str, before: int | None, value: int) -> int:
    """What column `s` of a key is after a row with this value."""
    if before is None or engine in ("deduplicate", "partial-update"):
        return value
    return before if engine == "first-row" else before + value


def keep_compacting(path: str, stop: Any, told: Any) -> None:
    """Compacts fully again and again until `stop` is set; tells (rounds that came through, rounds that lost)."""
    table: Table = open_table(path)
    done = lost = 0
    while not stop.is_set():
        try:
            done += table.compact() is not None
        except CommitConflictError:
            lost += 1
        time.sleep(0.05)
    told.put((done, lost))
