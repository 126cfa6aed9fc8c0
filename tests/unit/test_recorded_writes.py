"""What is written, published and deleted stays as it is, byte for byte, while the code is put in order.

`recorded_writes.json` holds a digest of each log and the number of calls that read. Files are Avro without compression,
which no library encodes for us. Where what is written is meant to change, `python -m tests.unit.test_recorded_writes`
writes the file anew; with the name of a folder it writes the logs there, to compare two states of the code.
"""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.sql.compute.expression import expr
from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.engine.make_visible import Again
from bucketline.state.store.plans.compactor import Compactor
from bucketline.state.store.plans.item_work import TableWork
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import WriteScope
from bucketline.streaming.batch.commit import compactor, owed_compaction_committed
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.make_visible import settle_visibility
from tests.support.spark.stream_run import StreamRun
from tests.support.storage.recorder import Recorder, recorded

GOLDEN = Path(__file__).parent / "recorded_writes.json"
PLAIN = {
    "file.format": "avro",
    "file.compression": "none",
    "manifest.compression": "null",
    "num-sorted-run.compaction-trigger": "3",
    "commit.min-retry-wait": "1 ms",
}
COLUMNS = "p STRING NOT NULL, id INT NOT NULL, v BIGINT, name STRING"
FULL = {"compaction-plan.strategy": "full"}


@dataclass(frozen=True)
class Kind:
    """A table: its primary key, its options, and whether its rows may be deletes."""

    key: tuple[str, ...] = ("p", "id")
    options: Mapping[str, str] = field(default_factory=dict)
    deletes: bool = True


def aggregating(**functions: str) -> dict[str, str]:
    return {"merge-engine": "aggregation", **{f"fields.{c}.aggregate-function": f for c, f in functions.items()}}


FIXED = {"bucket": "2"}
DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}
KINDS: Mapping[str, Kind] = {
    "fixed": Kind(options=FIXED),
    "fixed, sequence field": Kind(options={**FIXED, "sequence.field": "v"}),
    "fixed, write-only": Kind(options={**FIXED, "write-only": "true"}),
    "fixed, full compaction each": Kind(options={**FIXED, "full-compaction.delta-commits": "1"}),
    "fixed, vectors": Kind(options={**FIXED, "deletion-vectors.enabled": "true"}),
    "fixed, vectors, lookup": Kind(
        options={**FIXED, "deletion-vectors.enabled": "true", "changelog-producer": "lookup"}
    ),
    "fixed, input": Kind(options={**FIXED, "changelog-producer": "input"}),
    "fixed, lookup": Kind(options={**FIXED, "changelog-producer": "lookup"}),
    "fixed, full-compaction": Kind(
        options={**FIXED, "changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"}
    ),
    "partial-update": Kind(
        options={**FIXED, "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    ),
    "partial-update, lookup": Kind(
        options={**FIXED, "merge-engine": "partial-update", "ignore-delete": "true", "changelog-producer": "lookup"}
    ),
    "aggregation": Kind(options={**FIXED, **aggregating(v="sum", name="last_non_null_value")}, deletes=False),
    "aggregation, lookup": Kind(
        options={**FIXED, **aggregating(v="max", name="listagg"), "changelog-producer": "lookup"}, deletes=False
    ),
    "first-row": Kind(options={**FIXED, "merge-engine": "first-row"}, deletes=False),
    "first-row, lookup": Kind(
        options={**FIXED, "merge-engine": "first-row", "changelog-producer": "lookup"}, deletes=False
    ),
    "dynamic": Kind(options=DYNAMIC),
    "dynamic, vectors": Kind(options={**DYNAMIC, "deletion-vectors.enabled": "true"}),
    "dynamic, aggregation": Kind(options={**DYNAMIC, **aggregating(v="sum", name="max")}, deletes=False),
    "cross-partition": Kind(("id",), DYNAMIC),
    "cross-partition, partial-update": Kind(("id",), {**DYNAMIC, "merge-engine": "partial-update"}, deletes=False),
    "cross-partition, first-row": Kind(("id",), {**DYNAMIC, "merge-engine": "first-row"}, deletes=False),
    "postpone": Kind(options={"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}),
    "postpone, fixed batches": Kind(options={"bucket": "-2", "postpone.default-bucket-num": "2"}),
    "append": Kind((), {}, deletes=False),
    "append, buckets": Kind((), {"bucket": "2", "bucket-key": "id"}, deletes=False),
    "append, vectors": Kind((), {"deletion-vectors.enabled": "true"}, deletes=False),
}


def rows(number: int, kinds: bool = False) -> pa.Table:
    ids = range(number % 3, 12 + number, 2)
    found = pa.table(
        {
            "p": ["ab"[i % 2] for i in ids],
            "id": pa.array(ids, pa.int32()),
            "v": pa.array([i * 10 + number if i % 5 else None for i in ids], pa.int64()),
            "name": [f"n{number}" if i % 4 else None for i in ids],
        }
    )
    if not kinds:
        return found
    return found.append_column("_row_kind", pa.array([3 if i % 4 == 1 else 2 for i in ids], pa.int8()))


class Shop:
    """One table and the steps that it goes through; a step that is refused is recorded as that."""

    def __init__(self, path: Path, kind: Kind, recorder: Recorder) -> None:
        self.kind, self.recorder, self.sink = kind, recorder, {"local-directory": str(path / "local")}
        self.path = create_table(str(path / "s.db" / "t"), COLUMNS, kind.key, ("p",), {**PLAIN, **kind.options}).path
        self.number, self.has_w, self.is_refused = 0, False, False

    @property
    def table(self) -> Table:
        return open_table(self.path, options=self.sink)

    def step(self, name: str, act: Callable[[Table], object]) -> None:
        self.recorder.step(name)
        self.is_refused = False
        try:
            said = act(self.table)
            self.recorder.log.append(f"= {said!r}")
        except BucketlineError as e:
            self.recorder.log.append(f"refused: {type(e).__name__} {e.code}")
            self.is_refused = True
        self.recorder.before_publish.clear()

    def write(self, kinds: bool = False) -> Callable[[Table], object]:
        self.number += 1
        new = rows(self.number, kinds and self.kind.deletes)
        if self.has_w:
            new = new.append_column("w", new["id"])
        return lambda t: t.write(new)

    def raced(self, act: Callable[[Table], object]) -> Callable[[Table], object]:
        """The act, before whose snapshot somebody else writes."""

        def race(table: Table) -> object:
            other = self.write()
            self.recorder.before_publish.append(lambda: other(self.table))
            return act(table)

        return race

    def follow_plan(self, table: Table) -> object:
        session = table_at(handle_of(table), FULL).refreshed()
        folder = PlanFolder(handle_of(table).io, table.path)
        planned = make_plan(session, folder)
        work = TableWork(table_at(handle_of(table), {}))
        compactor = Compactor(folder, work, LOCAL_ENGINE, lambda renew, lease: nullcontext(), lease_ms=60_000)
        done = []
        while more := compactor.round():
            done += [(f.item.number, f.result and f.result.state.name, f.result and f.result.snapshot_id) for f in more]
        return planned.number, done

    def stream(self, options: Mapping[str, str], batches: int, *, first: int = 0, raced: bool = False) -> None:
        run = self._started(options)
        for batch_id in range(first, first + batches):
            if self.is_refused:
                # After an error nothing that is known of the table is trusted.
                run = self._started(options)
            self.step(f"batch {batch_id}", lambda t, r=run, b=batch_id: self._batch(r, b, raced))  # type: ignore[misc]

    def _started(self, options: Mapping[str, str]) -> StreamRun:
        return StreamRun(self.path, {**self.sink, **options}, "query")

    def _batch(self, run: StreamRun, batch_id: int, raced: bool) -> object:
        run.refresh()
        run.history()
        plan = run.at.plan
        trigger = plan.trigger(batch_id)
        self.number += 1
        source = Parts([GivenRows([rows(self.number, self.kind.deletes)])])
        scope = WriteScope(trigger, run.user, batch_id=batch_id)
        outcome = LOCAL_ENGINE.run(plan.mode.stages(plan, run.at, scope, source))
        if raced:
            other = self.write()
            self.recorder.before_publish.append(lambda: other(self.table))
        report = run.commit_batch(BatchIdentity("query", batch_id, None, f"[{batch_id}]", f"d{batch_id}"), outcome)

        run.target, rounds = settle_visibility(
            run.target,
            Again(
                LOCAL_ENGINE,
                compactor(run.target, batch_id),
                trigger,
                run.target.budget(),
                lambda at, made, done: owed_compaction_committed(run.target, at, made, done) and None,
            ),
            outcome.messages,
            report.committed,
        )
        again = None if rounds is None else [s.id for s in rounds.snapshots]
        return [s.id for s in report.committed.snapshots], report.committed.dropped is not None, again


def changes(shop: Shop) -> None:
    """Writes of all sorts, one after the other, and what keeps the table tidy."""
    for kinds in (False, True, True, False):
        shop.step("write", shop.write(kinds))
    shop.step("minor compaction", lambda t: t.compact("minor"))
    shop.step("update", lambda t: t.update("id < 4", {"v": expr("coalesce(v, 0) + 1")}))
    shop.step("delete", lambda t: t.delete("id = 3 OR v = 20"))
    shop.step("merge", lambda t: t.merge(rows(7), list(shop.kind.key) or ["p", "id"], {"name": expr("source.name")}))
    shop.step("overwrite of a partition", lambda t: t.overwrite(rows(8).filter(pc.field("p") == "a"), {"p": "a"}))
    shop.step("overwrite", lambda t: t.overwrite(rows(9).slice(0, 2)))
    shop.step("empty write", lambda t: t.write(rows(1).slice(0, 0)))
    shop.step("tag", lambda t: t.create_tag("kept"))
    shop.step("full compaction", lambda t: t.compact())
    shop.step("write", shop.write(True))
    shop.step("rescale", lambda t: t.rescale(3))
    shop.step("write", shop.write())
    shop.step("plan", shop.follow_plan)
    shop.step("sort", lambda t: t.compact(order_by=["v"], order_strategy="zorder"))
    shop.step("new column", lambda t: t.add_column("w", "INT").options.get("bucket"))
    shop.has_w = True
    shop.step("write", shop.write())
    shop.step("expiry", lambda t: t.expire_snapshots(retain_min=1, retain_max=1, older_than=timedelta()))
    shop.step("no tag", lambda t: t.delete_tag("kept"))
    shop.step("orphans", lambda t: len(t.remove_orphan_files(dry_run=False).files))
    shop.step("drop of a partition", lambda t: t.drop_partitions([{"p": "b"}]))
    shop.step("truncate", lambda t: t.truncate())
    shop.step("write", shop.write())


def races(shop: Shop) -> None:
    """The same, while somebody else writes just before each is published."""
    for kinds in (False, True):
        shop.step("write", shop.write(kinds))
        shop.step("raced write", shop.raced(shop.write(kinds)))
    shop.step("raced update", shop.raced(lambda t: t.update("id < 4", {"v": 1})))
    shop.step("raced delete", shop.raced(lambda t: t.delete("id = 3")))
    shop.step("raced merge", shop.raced(lambda t: t.merge(rows(7), list(shop.kind.key) or ["p", "id"])))
    shop.step("raced overwrite", shop.raced(lambda t: t.overwrite(rows(9).slice(0, 2))))
    shop.step("raced compaction", shop.raced(lambda t: t.compact()))
    shop.step("raced rescale", shop.raced(lambda t: t.rescale(3)))
    shop.step("raced plan", shop.raced(shop.follow_plan))


def streams(shop: Shop) -> None:
    """Two runs of a query, the second while others write, and its end."""
    shop.stream({}, 4)
    shop.stream({"visibility-timeout": "10 s"}, 3, first=4, raced=True)


STORIES = (changes, races, streams)


def play(root: Path, kind: str, story: Callable[[Shop], None]) -> Recorder:
    with recorded(root) as recorder:
        story(Shop(root, KINDS[kind], recorder))
        recorder.settle()
    return recorder


def said(recorder: Recorder) -> dict[str, object]:
    return {"lines": len(recorder.log), "digest": recorder.digest()[:32], "reads": recorder.reads}


@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_written_published_and_deleted_is_as_recorded(
    tmp_path: Path, kind: str, story: Callable[[Shop], None]
) -> None:
    recorder = play(tmp_path, kind, story)
    golden = json.loads(GOLDEN.read_text())[f"{kind}: {story.__name__}"]
    found = said(recorder)
    assert {**found, "reads": 0} == {**golden, "reads": 0}, "\n".join(recorder.log)
    # Threads that work side by side may both read what one of them would have kept for the other.
    assert recorder.reads <= golden["reads"] + 5


def _write_all(folder: Path | None) -> None:
    found = {}
    for kind in KINDS:
        for story in STORIES:
            with TemporaryDirectory() as root:
                recorder = play(Path(root), kind, story)
            found[f"{kind}: {story.__name__}"] = said(recorder)
            if folder is not None:
                text = "\n".join((*recorder.log, f"{recorder.reads} reads", ""))
                (folder / f"{kind}, {story.__name__}.txt").write_text(text)
    if folder is None:
        lines = (f"  {json.dumps(name)}: {json.dumps(what)}" for name, what in found.items())
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    _write_all(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
