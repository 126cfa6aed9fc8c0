"""What actors do to a table: each operation as a user calls it, with details drawn from its step's own number.

An operation tells the judge what it means to change before it calls.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from bucketline.state.sql.compute.expression import expr
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.maintenance import move_tag, rename_tag
from bucketline.state.store.table.partition_choice import choose_partitions
from bucketline.state.store.table.table import Table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from tests.simulation.judge import Doing, Judge
from tests.simulation.rows import DAYS, DELETE, INSERT, UPDATE_AFTER, Effect, Kind, Row, state_of, table_of
from tests.support.tables.compactors import compactor_of

LEASE_MS = 60_000


@dataclass
class Act:
    """An operation that an actor is about to do."""

    table: Table
    kind: Kind
    judge: Judge
    doing: Doing
    draw: random.Random
    first_id: int = 0
    """The first of the eight keys of an actor, or of all actors."""

    def some_row_id(self) -> int:
        """A key that the table may have."""
        return self.first_id + self.draw.randrange(8)

    def rows(self, table: Table) -> tuple[tuple[Row, int], ...]:
        """Rows to be written."""
        return draw_rows(self.draw, self.kind, has_more="more" in table.schema.names, first_id=self.first_id)

    def means(self, effect: Effect) -> Effect:
        """Tells the judge which effect the operation intends, and returns the effect."""
        self.doing.effect = effect
        return effect

    @property
    def has_more(self) -> bool:
        return "more" in self.table.schema.names

    @property
    def ids(self) -> list[int]:
        found: list[int] = self.table.snapshots()["snapshot_id"].to_pylist()
        return found

    def some_id(self) -> int:
        """The id of a snapshot that existed when the snapshots were listed."""
        ids = self.ids
        return self.draw.choice(ids) if ids else 1


def draw_rows(draw: random.Random, kind: Kind, *, has_more: bool, first_id: int = 0) -> tuple[tuple[Row, int], ...]:
    """Rows of a few keys, so that writers meet."""
    found = []
    for _ in range(draw.choice((1, 2, 3, 5))):
        number = first_id + draw.randrange(8)
        day = DAYS[draw.randrange(2)] if kind.days else DAYS[number % 2]
        v = None if draw.random() < 0.1 else draw.randrange(10**6 if kind.has_versions else 1000)
        more = draw.randrange(100) if has_more and draw.random() < 0.7 else None
        kinds = (INSERT, INSERT, UPDATE_AFTER, DELETE) if kind.takes_deletes else (INSERT,)
        found.append(((number, day, v, more), draw.choice(kinds)))
    return tuple(found)


def write(a: Act) -> None:
    effect = a.means(Effect(a.rows(a.table)))
    a.table.write(table_of(effect.rows, has_more=a.has_more))


def overwrite(a: Act) -> None:
    rows = tuple((row, INSERT) for row, _ in a.rows(a.table))
    effect = a.means(Effect(rows, is_own_days=True))
    a.table.overwrite(table_of(effect.rows, has_more=a.has_more).drop_columns("_row_kind"))


def truncate(a: Act) -> None:
    a.means(Effect(empties=True))
    a.table.truncate()


def drop_partition(a: Act) -> None:
    effect = a.means(Effect(days=(a.draw.choice(DAYS),)))
    a.table.drop_partitions([{"day": d} for d in effect.days])


def expire_partitions(a: Act) -> None:
    a.means(Effect(days=DAYS[:1]))
    a.table.expire_partitions()


def delete(a: Act) -> None:
    effect = a.means(Effect(ids=(a.some_row_id(),)))
    a.table.delete(f"id = {effect.ids[0]}")


def update(a: Act) -> None:
    effect = a.means(Effect(ids=(a.some_row_id(),), new_value=a.draw.randrange(1000)))
    a.table.update(f"id = {effect.ids[0]}", {"v": effect.new_value})


def merge(a: Act) -> None:
    rows = {a.kind.key_of(row): row for row, _ in a.rows(a.table)}
    effect = a.means(Effect(merged=tuple(rows.values())))
    source = table_of(tuple((row, INSERT) for row in effect.merged), has_more=a.has_more).drop_columns("_row_kind")
    a.table.merge(source, on=list(a.kind.key), when_matched={"v": expr("source.v")})


def read(a: Act) -> None:
    a.judge.check_read(a.doing, state_of(a.table.to_arrow()))


def follow_changes(a: Act) -> None:
    start = a.judge.known(a.some_id())
    if start is not None:
        changes = a.table.to_arrow(changes_since=start.snapshot.id)
        options = a.table.options
        # Of a table that only dedicated compactors compact, their changelogs come later than the rows.
        if not (options.get("changelog-producer") == "lookup" and options.get("write-only") == "true"):
            a.judge.check_changes(a.doing, start, changes)


def read_tag(a: Act) -> None:
    names = [t for t in a.table.tags()["tag_name"].to_pylist() if not t.startswith("bucketline-")]
    if names:
        name = a.draw.choice(names)
        open_table(a.table.path, options={"scan.tag-name": name}).to_arrow()


def plan(a: Act) -> None:
    handle = handle_of(a.table)
    session = table_at(handle, {})
    chosen = choose_partitions(session.plan.schema, None)
    make_plan(session, PlanFolder(handle.io, handle.metadata_path), chosen=chosen)


def work(a: Act) -> None:
    compactor_of(handle_of(a.table), {}, LOCAL_ENGINE, lease_ms=LEASE_MS).round()


def tag(a: Act) -> None:
    a.table.create_tag(f"t{a.doing.number}", snapshot=a.some_id() if a.draw.random() < 0.7 else None)


def tag_for_a_time(a: Act) -> None:
    a.table.create_tag(f"t{a.doing.number}", retained=timedelta(seconds=a.draw.choice((1, 60))))


def _some_tag(a: Act) -> str:
    names = [t for t in a.table.tags()["tag_name"].to_pylist() if not t.startswith("bucketline-")]
    return a.draw.choice(names) if names else "old"


def branch(a: Act) -> None:
    a.table.create_branch(f"b{a.doing.number}", _some_tag(a))


def _some_branch(a: Act) -> str:
    names = a.table.branches()
    return a.draw.choice(names) if names else "none"


def write_to_branch(a: Act) -> None:
    side = open_table(a.table.path, options={"branch": _some_branch(a)})
    has_more = "more" in side.schema.names
    effect = a.means(Effect(a.rows(side)))
    side.write(table_of(effect.rows, has_more=has_more))


def expire_branch(a: Act) -> None:
    open_table(a.table.path, options={"branch": _some_branch(a)}).expire_snapshots(retain_min=1, retain_max=1)


def roll_back(a: Act) -> None:
    ids = a.ids
    a.doing.target = a.draw.choice(ids[-4:]) if ids else 1
    a.table.rollback_to(a.doing.target)


def roll_back_to_tag(a: Act) -> None:
    name = _some_tag(a)
    a.doing.target = a.judge.tagged(name)
    a.table.rollback_to(name)


OPERATIONS: Mapping[str, Callable[[Act], object]] = {
    "write": write,
    "overwrite": overwrite,
    "truncate": truncate,
    "drop a partition": drop_partition,
    "expire partitions": expire_partitions,
    "delete": delete,
    "update": update,
    "merge": merge,
    "read": read,
    "follow changes": follow_changes,
    "read a tag": read_tag,
    "compact": lambda a: a.table.compact(),
    "minor compaction": lambda a: a.table.compact("minor"),
    "sort": lambda a: a.table.compact(order_by=["v"]),
    "rescale": lambda a: a.table.rescale(a.draw.choice((1, 2, 3))),
    "plan": plan,
    "work on plans": work,
    "tag": tag,
    "tag for a time": tag_for_a_time,
    "delete a tag": lambda a: a.table.delete_tag(_some_tag(a)),
    "replace a tag": lambda a: move_tag(handle_of(a.table), _some_tag(a), a.some_id(), None),
    "rename a tag": lambda a: rename_tag(handle_of(a.table), _some_tag(a), f"r{a.doing.number}"),
    "branch": branch,
    "delete a branch": lambda a: a.table.delete_branch(_some_branch(a)),
    "write to a branch": write_to_branch,
    "expire a branch": expire_branch,
    "fast-forward": lambda a: a.table.fast_forward(_some_branch(a)),
    "roll back": roll_back,
    "roll back to a tag": roll_back_to_tag,
    "expire": lambda a: a.table.expire_snapshots(retain_min=1, retain_max=a.draw.choice((1, 2, 4))),
    "expire by the options": lambda a: a.table.expire_snapshots(),
    "remove orphans": lambda a: a.table.remove_orphan_files(dry_run=False),
    "add a column": lambda a: a.table.add_column("more", "INT"),
    "describe a column": lambda a: a.table.alter_column("v", comment=f"as of {a.doing.number}"),
    "set an option": lambda a: a.table.set_options({"snapshot.num-retained.max": str(a.draw.choice((5, 6)))}),
    "consumer": lambda a: a.table.reset_consumer("c", a.some_id()),
    "mark partitions": lambda a: a.table.mark_done(),
}
