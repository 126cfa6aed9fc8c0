"""Writes changed rows of a table with a primary key, and commits them once. Changed rows are written in the same way as
new rows, by the table's bucket mode.

The commit succeeds only if no other writer has written the same keys since the snapshot at which the rows were read.
"""

from collections.abc import Callable
from typing import Any

from bucketline.state.commit.author import Author
from bucketline.state.commit.change import AppendCheck
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.entries import Operation
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_changed
from bucketline.state.store.engine.engine import Engine, Parts
from bucketline.state.store.table.cycle import Commit, carry_out, noted
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.commit_change import appended
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.store.write.write_plan import Mode, WritePlan, WriteScope


def open_change(table: TableHandle) -> TableAt:
    """Returns the table at its newest snapshot. The rows to change are read from this snapshot. Raises the errors of
    `TableAt.refreshed` and of `FileIO.require_publish`.
    """
    table.io.require_publish()
    return table_at(table, {}).refreshed()


def write_plan(table: TableHandle) -> WritePlan:
    """Returns the plan for writing the table under its newest schema. The table's manifests are not read. Raises the
    errors of `table_at` and of `FileIO.require_publish`.
    """
    table.io.require_publish()
    return table_at(table.refreshed(), {}).plan


def planned_until_first(table: TableHandle, change: Callable[[], WriteResult]) -> WriteResult:
    """Carries out a change and returns its result. If another writer has committed first, the change is planned and
    carried out again. Raises the errors of `repeat_if_changed`.
    """
    result, replanned = repeat_if_changed(change, table.world)
    return result.counting(replanned) if replanned else result


def write_changes(at: TableAt, source: Any, operation: Operation, *, engine: Engine) -> WriteResult:
    """Writes the rows of a source, commits them, and returns the result. `source` is a source that the engine can run.
    If the source has no rows, nothing is committed.

    Raises CommitConflictError if another writer has written a key of these rows since the table was read.
    """
    if isinstance(source, Parts) and not source.parts:
        return WriteResult(at.snapshot_id)
    plan = at.plan
    trigger, user = plan.trigger(0), at.table.world.ids.new_uuid()
    scope = WriteScope(trigger, user, engine.workers)

    def work(made: list[CommitMessage]) -> Commit | None:
        outcome = engine.run(_mode(at).stages(plan, at, scope, source))
        made += outcome.messages
        if not any(m.new_files for m in made):
            return None
        one_writer = plan.mode.append_check is AppendCheck.ONE_WRITER
        check = AppendCheck.ONE_WRITER if one_writer else AppendCheck.ROWS_READ
        author = Author(user, properties=noted(outcome), operation=operation)
        return Commit(appended(at, made, check=check), author, brought=made)

    return carry_out(at, engine, work, trigger).result


def _mode(at: TableAt) -> Mode:
    """Returns the bucket mode in which the changes are written. Changes of a postpone table are appended to the
    postpone bucket if rows wait there, and are written to real buckets otherwise.

    If rows wait, a change in a real bucket would be lost when a compaction moves older rows of the same key there from
    the postpone bucket.
    """
    mode = at.plan.mode
    waits = mode.postpones and any(b == POSTPONE_BUCKET for _, b in at.view.buckets())
    return mode if waits else mode.in_batch(at.plan)
