"""Every bucket mode under every merge engine: restarts with another parallelism, retried tasks, deaths between any two
steps, compactions, rescales, expiry and lost local state; after each, the table holds what a dictionary says."""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from bucketline.state.format.index.hash_index import HASH
from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.index.hash_index_store import HashCache, HashIndexStore, hash_entries, shared_hash_cache
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write import dynamic
from bucketline.state.store.write.cross import cross_write
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.models.modes import COLUMNS, ENGINES, MODES, Histories, Row, draw_kind, table_of
from tests.support.spark.tasks import Cluster, killed_at

SEEDS = int(os.environ.get("BUCKETLINE_MODE_SEEDS", "2"))
FIRST_SEED = int(os.environ.get("BUCKETLINE_MODE_FIRST_SEED", "0"))
STEPS = 14
KEYS = 30


def as_is(records):
    return DecodedRows(records)


class Life:
    """A table, the job that streams into it, people who compact and rescale it, and what it must hold."""

    def __init__(self, root: Path, mode: str, engine: str, seed: int) -> None:
        self.draw = random.Random(f"{mode} {engine} {seed}")
        self.root, self.kind = root, draw_kind(self.draw, mode, engine)
        self.path = str(root / "shop.db" / "t")
        create_table(self.path, self.kind.sql, self.kind.primary_key, self.kind.partition_by, self.kind.options)
        self.told = Histories(self.kind)
        self.batch_id, self.runs = 0, 0
        self.log = [f"seed {seed}: {self.kind}"]
        self.seen: set[int] = set()
        self.reprocess = False
        self.restart()

    def table(self) -> Table:
        return open_table(self.path)

    # ---- what happens ----

    def restart(self) -> None:
        """The job starts again, perhaps elsewhere, with another parallelism and other options of its own."""
        draw = self.draw
        self.runs += 1
        forget_table(self.path, "query")
        shared_hash_cache.cache_clear()
        options = {
            "local-directory": str(self.root / "local"),
            "route-memory": draw.choice(("1 mb", "128 mb")),
            "key-index-memory": draw.choice(("1 mb", "256 mb")),
        }
        if draw.random() < 0.5:
            options["write-parallelism"] = str(draw.choice((1, 2, 3, 7)))
        if draw.random() < 0.5:
            options["assigner-parallelism"] = str(draw.choice((1, 2, 4, 7)))
        if draw.random() < 0.2:
            options["compaction"] = "none"
        if self.kind.mode == "postpone" and draw.random() < 0.5:
            options["postpone-compaction.batches"] = str(draw.choice((1, 2, 3)))
        self.options = options
        self.parallelism = draw.choice((1, 2, 3, 5))
        self.log.append(f"start {self.runs}: parallelism {self.parallelism}, {options}")

    def stream(self) -> None:
        """One micro-batch, exactly once, whatever becomes of the attempts before the last."""
        rows = self.told.draw_rows(self.draw, self.draw.choice((0, 1, 5, 40)), KEYS)
        self.log.append(f"batch {self.batch_id}: {rows}")
        while not self._attempt(rows):
            self.restart()
        self.told.add(rows)
        self.batch_id += 1

    def _attempt(self, rows: list[Row]) -> bool:
        """Whether the batch is in the table now, as far as the job can know."""
        try:
            return self._run_batch(rows)
        except CheckpointMismatchError:
            # Others have expired what would tell; people who know restart the job as its message says.
            self.log.append(f"  batch {self.batch_id} is {'' if self.batch_id in self.seen else 'not '}in the table")
            if self.batch_id in self.seen:
                return True
            self.reprocess = True
            return False

    def _run_batch(self, rows: list[Row]) -> bool:
        draw, number = self.draw, self.batch_id
        at = draw.randrange(1, 120) if draw.random() < 0.35 else None
        cluster = Cluster(draw, self.parallelism, unrest=draw.choice((0.0, 0.2)))
        sink = TableSink(self.path, self.options, decode=as_is, allow_reprocess=self.reprocess)
        identity = BatchIdentity(
            "query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}", f"run {self.runs}",
            checkpoint=str(self.root / "checkpoint"),
        )  # fmt: skip
        frame = cluster.frame(table_of(rows), self.parallelism)
        done = False
        with killed_at(at, draw.choice(("before", "after", "torn"))) as death:
            sink.write(frame, identity)
            done = True
        self.reprocess = False
        found = self.table().snapshots().to_pylist()
        self.seen |= {s["commit_identifier"] for s in found if s["commit_user"] == "query"}
        if not done:
            assert death.is_dead
            self.table().expire_snapshots()
            self.log.append(f"  killed at call {at} {death.way}")
        return done

    def batch_write(self) -> None:
        """A batch write beside the stream. Nobody knows whether one that is killed is in the table."""
        rows = self.told.draw_rows(self.draw, self.draw.choice((1, 5, 20)), KEYS)
        at = self.draw.randrange(1, 80) if self.draw.random() < 0.3 else None
        self.log.append(f"batch write, death at {at}: {rows}")
        options = {"local-directory": str(self.root / "local"), "key-index-memory": "1 mb"}
        before = handle_of(self.table()).snapshot_store.latest_id() or 0
        with killed_at(at):
            write_table(handle_of(self.table()), table_of(rows), options=options)
        shared_hash_cache.cache_clear()
        newest = handle_of(self.table()).snapshot_store.latest_id() or 0
        if newest > before:
            self.told.add(rows)

    def compact(self) -> None:
        strategy = self.draw.choice(("full", "minor"))
        self._care(f"compact {strategy}", lambda: self.table().compact(strategy))

    def expire(self) -> None:
        kept = self.draw.choice((1, 2))
        self._care("expire", lambda: self.table().expire_snapshots(retain_max=kept, retain_min=1))
        # What is half gone is removed by the next expiry.
        self.table().expire_snapshots(retain_max=kept, retain_min=1)

    def lose(self) -> None:
        """Local state is gone, wholly or in part."""
        local = self.root / "local"
        files = [p for p in local.rglob("*") if p.is_file()]
        way = self.draw.choice(("all", "one", "torn"))
        self.log.append(f"lose {way} of {len(files)} local files")
        if way == "all" or not files:
            shutil.rmtree(local, ignore_errors=True)
        elif way == "one":
            self.draw.choice(files).unlink()
        else:
            torn = self.draw.choice(files)
            torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])

    def rescale(self) -> None:
        if self.kind.mode not in ("fixed", "postpone"):
            return
        number = self.draw.choice((1, 2, 4))
        self.log.append(f"rescale to {number}")
        self._care(f"rescale to {number}", lambda: self.table().rescale(number))
        # Killed between its two commits it is begun, and has to be finished.
        self.table().rescale(number)

    def _care(self, name: str, act: Callable[[], object]) -> None:
        at = self.draw.randrange(1, 80) if self.draw.random() < 0.3 else None
        self.log.append(f"{name}, death at {at}")
        with killed_at(at, self.draw.choice(("before", "after", "torn"))):
            act()

    # ---- what must be true ----

    def check(self) -> None:
        table = self.table()
        expected = self.told.expected()
        reading = {"postpone.merge-on-read": "true"} if self.kind.mode == "postpone" else {}
        found = open_table(self.path, options=reading).to_arrow().to_pylist()
        if not self.kind.is_stale:
            self._check_rows(found, expected, whole=self.kind.engine != "first-row")
        findings = [f for f in table.doctor(rows=True) if f.severity is Severity.ERROR]
        assert findings == []
        if self.kind.has_hash_index:
            self._check_hash_index(table)

    def _check_rows(self, found: list[Row], expected: dict, *, whole: bool) -> None:
        counts = Counter(self.kind.key(r) for r in found)
        assert [k for k, n in counts.items() if n > 1] == []
        rows = {self.kind.key(r): {c: r[c] for c in COLUMNS} for r in found}
        assert rows == (expected if whole else {k: r for k, r in expected.items() if k in rows})

    def _check_hash_index(self, table: Table) -> None:
        newest = handle_of(table).snapshot_store.latest()
        index = [] if newest is None else handle_of(table).manifests.read_index(newest.index_manifest)
        index = [e for e in index if e.index_type == HASH]
        places = Counter((e.partition, e.bucket) for e in index)
        assert all(n == 1 for n in places.values())
        store = HashIndexStore(handle_of(table).io, table.path, cached=HashCache(0), storage={})
        found: dict[bytes, list[int]] = {}
        for partition, entries in hash_entries(index).items():
            found[partition] = sorted(h for e in entries for h in store.hashes(e).tolist())
        wanted: dict[bytes, set[int]] = {}
        for key, key_hash in self.told.hashes().items():
            wanted.setdefault(self.told.partition(key), set()).add(key_hash)
        assert found == {p: sorted(hs) for p, hs in wanted.items()}
        limit = self.kind.options.get("dynamic-bucket.max-buckets")
        if limit is not None:
            assert all(bucket < int(limit) for _, bucket in places)
        else:
            assert all(e.row_count <= int(self.kind.options["dynamic-bucket.target-row-num"]) for e in index)

    def finish(self) -> None:
        """In the end everything is compacted and seen."""
        self.table().compact()
        found = self.table().to_arrow().to_pylist()
        self._check_rows(found, self.told.expected(), whole=True)
        self.check()
        assert self.table().compact() is None

    def step(self) -> None:
        choices = [self.stream] * 5 + [self.restart, self.batch_write, self.compact, self.expire, self.lose]
        choices += [self.rescale] if self.kind.mode in ("fixed", "postpone") else []
        self.draw.choice(choices)()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_the_table_is_what_a_dictionary_says(tmp_path: Path, mode: str, engine: str, seed: int) -> None:
    life = Life(tmp_path, mode, engine, seed)
    chunk = life.draw.choice((200, 192 << 20))
    # An index of a few keys counts as a large one to jobs that give it a megabyte.
    per_key = life.draw.choice((dynamic.BYTES_PER_KEY, 1 << 17))
    with (
        patch("os.fsync"),
        patch.object(cross_write, "CHUNK_BYTES", chunk),
        patch.object(dynamic, "BYTES_PER_KEY", per_key),
    ):
        try:
            for _ in range(STEPS):
                life.step()
                life.check()
            life.finish()
        except BaseException as problem:
            problem.add_note("\n".join(life.log))
            raise
