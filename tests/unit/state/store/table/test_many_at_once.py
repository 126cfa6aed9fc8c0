"""Many tables of one process are written by any of its threads at the same time: nothing of a write is a thread's."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock

import pyarrow as pa
import pytest

from bucketline.state.commit.author import Author
from bucketline.state.determinism import SYSTEM_IDS, World
from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.store.write.write_plan import WriteScope

TABLES, THREADS, BATCHES = 16, 8, 3
KINDS: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (("id",), {"bucket": "2"}),
    (("id",), {"bucket": "-1"}),
    (("id",), {"bucket": "1", "deletion-vectors.enabled": "true"}),
    ((), {}),
]


class SeenIds:
    """Fresh names, none of which may come twice."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._lock = Lock()

    def new_uuid(self) -> str:
        made = SYSTEM_IDS.new_uuid()
        with self._lock:
            assert made not in self.seen
            self.seen.add(made)
        return made


def rows(table: int, batch: int) -> pa.Table:
    ids = pa.array(range(batch, batch + 5), pa.int64())
    return pa.table({"id": ids, "v": pa.array([100 * table + batch] * 5, pa.int64())})


def batch_of(at: TableAt, table: int, batch: int) -> TableAt:
    """The table after one more batch of its stream, by whichever thread."""
    at = at.refreshed()
    user = f"stream-{table}"
    scope = WriteScope(at.plan.trigger(batch), user, batch_id=batch)
    source = Parts([GivenRows(iter([rows(table, batch)]))])
    outcome = LOCAL_ENGINE.run(at.plan.mode.stages(at.plan, at, scope, source))
    committed = commit_change(at, appended(at, outcome.messages, ignore_empty=False), Author(user, batch))
    return at.after(committed)


@pytest.fixture
def world() -> Iterator[World]:
    ids = SeenIds()
    yield World(ids=ids)
    assert len(ids.seen) > TABLES * BATCHES


def test_sixteen_tables_are_committed_to_by_eight_threads_in_one_world(tmp_path: Path, world: World) -> None:
    paths = [str(tmp_path / "s.db" / f"t{n}") for n in range(TABLES)]
    views: list[TableAt] = []
    for n, path in enumerate(paths):
        key, options = KINDS[n % len(KINDS)]
        options = {"num-sorted-run.compaction-trigger": "2", **options} if key else options
        table = create_table(path, "id BIGINT NOT NULL, v BIGINT", key, options=options, world=world)
        views.append(table_at(handle_of(table), {"local-directory": str(tmp_path / "local")}))
    together = Barrier(THREADS)

    def work(n: int, batch: int) -> TableAt:
        if n < THREADS:
            together.wait(60)
        return batch_of(views[n], n, batch)

    with ThreadPoolExecutor(THREADS) as threads:
        for batch in range(BATCHES):
            # The next batch of a table is another thread's, with what the last has left.
            order = [(n + batch) % TABLES for n in range(TABLES)]
            done = {n: threads.submit(work, n, batch) for n in sorted(order, key=lambda n: n >= THREADS)}
            views = [done[n].result() for n in range(TABLES)]
    for n, path in enumerate(paths):
        table = open_table(path)
        found = sorted(zip(*table.to_arrow().to_pydict().values(), strict=True))
        written = [(i, 100 * n + b) for b in range(BATCHES) for i in range(b, b + 5)]
        expected = sorted(written) if not table.primary_key else sorted(dict(written).items())
        assert found == expected, n
        assert table.doctor(rows=True) == []


def test_writes_of_many_threads_to_one_table_all_come_through(tmp_path: Path, world: World) -> None:
    path = str(tmp_path / "s.db" / "t")
    create_table(path, "id BIGINT NOT NULL, v BIGINT", ("id",), options={"bucket": "2"}, world=world)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda n: open_table(path, world=world).write(rows(n, 5 * n)), range(THREADS)))
    table = open_table(path)
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(5 * THREADS)) and table.doctor(rows=True) == []
