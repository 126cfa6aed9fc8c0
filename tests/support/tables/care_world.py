"""Tables of eleven kinds with some history, and the operations that publish, refer to or remove what they hold."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from bucketline.conf.errors import BucketlineError
from bucketline.state.store.catalog.consumers import begin_consumer
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.maintenance import move_tag, rename_tag
from bucketline.state.store.table.partition_choice import choose_partitions
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from tests.support.tables.compactors import compactor_of

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False), ("v", pa.int64())]
)
DAYS = ("2020-01-01", "2999-01-01")
_TARGET = "rolled-back-to"
"""A file in the table's folder: the snapshot that it is rolled back to, whatever happens before."""
_AGE_NS = 3 * 86_400 * 10**9
_RETAINED = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "6"}


@dataclass(frozen=True)
class Kind:
    """How a table is made."""

    options: Mapping[str, str]
    key: Sequence[str] = ("day", "id")
    days: Sequence[str] = ("day",)
    more: Mapping[str, str] = field(default_factory=dict)


_LONG_CHANGELOGS = {"changelog.num-retained.min": "2", "changelog.num-retained.max": "9"}
_DROPPED = {
    "partition.timestamp-pattern": "$day",
    "partition.timestamp-formatter": "yyyy-MM-dd",
    "partition.expiration-time": "900 d",
    "partition.expiration-check-interval": "9999 d",
}
KINDS: Mapping[str, Kind] = {
    "fixed": Kind({"bucket": "2"}, days=()),
    "partitioned": Kind({"bucket": "1", **_DROPPED}),
    "dynamic": Kind({"bucket": "-1"}),
    "cross-partition": Kind({"bucket": "-1"}, key=("id",)),
    "postpone": Kind({"bucket": "-2"}),
    "append": Kind({"bucket": "-1", "row-tracking.enabled": "false"}, key=()),
    "append by bucket": Kind({"bucket": "2", "bucket-key": "id"}, key=(), days=()),
    "deletion vectors": Kind({"bucket": "1", "deletion-vectors.enabled": "true"}, days=()),
    "changelog of the input": Kind({"bucket": "1", "changelog-producer": "input", **_LONG_CHANGELOGS}, days=()),
    "changelog of lookups": Kind({"bucket": "1", "changelog-producer": "lookup"}, days=()),
    "long history of changes": Kind({"bucket": "1", **_LONG_CHANGELOGS}, days=()),
}


def rows(numbers: Sequence[int], v: int) -> pa.Table:
    """Rows with these ids, half of them on each day."""
    days = [DAYS[n % 2] for n in numbers]
    return pa.table({"id": list(numbers), "day": days, "v": [v] * len(numbers)}, schema=COLUMNS)


def made(kind: Kind, path: str) -> Table:
    """A table of seven or more snapshots with two tags, one of which is over, and a branch; its files are days old."""
    options = {**kind.options, "snapshot.num-retained.max": "99", "snapshot.num-retained.min": "1"}
    table = create_table(path, COLUMNS, kind.key, kind.days, options)
    for v in range(4):
        table.write(rows(range(v, v + 4), v))
        table.compact()
    ids = table.snapshots()["snapshot_id"].to_pylist()
    table.create_tag("old", snapshot=ids[1])
    table.create_tag("over", snapshot=ids[2], retained=timedelta(milliseconds=1))
    table.create_branch("side", "old")
    open_table(path, options={"branch": "side"}).write(rows((1, 7), 70))
    table.rollback_to(ids[-1])
    table = table.set_options(_RETAINED)
    Path(path, _TARGET).write_text(str(ids[-3]))
    for file in Path(path).rglob("*"):
        if file.is_file():
            found = file.stat()
            os.utime(file, ns=(found.st_atime_ns - _AGE_NS, found.st_mtime_ns - _AGE_NS))
    return table


def _ids(t: Table) -> list[int]:
    ids: list[int] = t.snapshots()["snapshot_id"].to_pylist()
    return ids


def _plan_and_compact(t: Table) -> object:
    handle = handle_of(t)
    session = table_at(handle, {})
    folder = PlanFolder(handle.io, handle.metadata_path)
    make_plan(session, folder, chosen=choose_partitions(session.plan.schema, None))
    return compactor_of(handle, {}, LOCAL_ENGINE, lease_ms=60_000).round()


def _with_tags(t: Table) -> object:
    t.set_options({"tag.automatic-creation": "batch"})
    return open_table(t.path).write(rows((5,), 55))


def _side(t: Table) -> Table:
    return open_table(t.path, options={"branch": "side"})


def _consumer(t: Table) -> None:
    handle = handle_of(t)
    begin_consumer(handle.snapshot_store, handle.io, t.path, "c", _ids(t)[1], handle.world)


OPERATIONS: Mapping[str, Callable[[Table], object]] = {
    "write": lambda t: t.write(rows((2, 3, 9), 10)),
    "overwrite": lambda t: t.overwrite(rows((1, 2), 20)),
    "truncate": lambda t: t.truncate(),
    "drop a partition": lambda t: t.drop_partitions([{"day": DAYS[0]}]),
    "delete": lambda t: t.delete("id = 3"),
    "update": lambda t: t.update({"v": 40}, "id = 4"),
    "compact": lambda t: t.compact(),
    "sort": lambda t: t.compact(order_by=["v"]),
    "rescale": lambda t: t.rescale(3),
    "plan and compact": _plan_and_compact,
    "tag an old snapshot": lambda t: t.create_tag("new", snapshot=_ids(t)[1]),
    "tag the newest": lambda t: t.create_tag("newest"),
    "delete a tag": lambda t: t.delete_tag("old"),
    "replace a tag": lambda t: move_tag(handle_of(t), "old", _ids(t)[2], None),
    "rename a tag": lambda t: rename_tag(handle_of(t), "old", "renamed"),
    "write and tag": _with_tags,
    "branch": lambda t: t.create_branch("b", "old"),
    "empty branch": lambda t: t.create_branch("b"),
    "delete a branch": lambda t: t.delete_branch("side"),
    "write to the branch": lambda t: _side(t).write(rows((1,), 71)),
    "expire the branch": lambda t: _side(t).expire_snapshots(retain_min=1, retain_max=1),
    "fast-forward": lambda t: t.fast_forward("side"),
    "roll back": lambda t: t.rollback_to(int(Path(t.path, _TARGET).read_text())),
    "roll back to a tag": lambda t: t.rollback_to("old"),
    "expire": lambda t: t.expire_snapshots(retain_min=1, retain_max=1),
    "expire some": lambda t: t.expire_snapshots(retain_min=1, retain_max=4),
    "expire by the options": lambda t: t.expire_snapshots(),
    "expire partitions": lambda t: t.expire_partitions(),
    "remove orphans": lambda t: t.remove_orphan_files(dry_run=False),
    "add a column": lambda t: t.add_column("more", "INT"),
    "set an option": lambda t: t.set_options({"snapshot.num-retained.max": "5"}),
    "consumer": _consumer,
    "mark partitions": lambda t: t.mark_done(),
}


_COMMITS = frozenset(
    ("write", "overwrite", "truncate", "drop a partition", "delete", "update", "compact", "sort", "rescale")
) | {"plan and compact", "write and tag", "expire partitions"}
"""The operations that may publish a snapshot of the table."""


def is_unnoticed(first: str, second: str, where: str) -> bool:
    """Whether a rollback was stopped right before it removed a snapshot, and a writer went on from its target
    meanwhile. No storage removes a file on a condition, so the rollback removes the writer's snapshot of that id:
    `docs/care-beside-history.md` says that no writer should be active."""
    return first.startswith("roll back") and second in _COMMITS and _is_removal(where)


def _is_removal(where: str) -> bool:
    return where.startswith("delete ") and "/snapshot/snapshot-" in where


def done(path: str, operation: str) -> bool:
    """Whether an operation was done; False: it was refused, or gave up."""
    try:
        OPERATIONS[operation](open_table(path))
    except (BucketlineError, IndexError):  # a snapshot that the operation is about may have gone
        return False
    return True


def content(path: str, **options: str) -> tuple[str, ...]:
    """The rows of a table, or of what the read options say, in an order of their own."""
    kept = open_table(path, options=options).to_arrow().to_pylist()
    return tuple(sorted(str((r["id"], r["day"], r["v"])) for r in kept))
