"""The partitions that a writer has changed and not marked as done yet.

Paimon stores these partitions in the state of its job. Here the table itself shows them: a partition is unmarked if it
has no `_SUCCESS` file that is newer than its data files.

Source: Paimon 2.0 PartitionMarkDoneListener, PartitionMarkDoneTrigger.
"""

from collections.abc import Collection, Iterable

from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.partition_age import is_done
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import partition_path
from bucketline.state.store.maintenance.done_actions import mark_partitions
from bucketline.state.store.maintenance.partition_expiry import newest_files
from bucketline.state.store.maintenance.success_files import marked_ms
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import Waits, what_waits


class PendingMarks:
    """The partitions of one table that have to be marked as done later, each with the local time of its last change."""

    def __init__(self, at: TableAt, *, resumes: bool) -> None:
        self._clock = at.table.world.clock
        schema = at.plan.schema
        self._waits = what_waits(schema) is Waits.ROWS or at.plan.mode.postpones
        self._changed = _unmarked(at, at.view) if resumes else {}

    def touch(self, messages: Iterable[CommitMessage]) -> None:
        """Records the partitions that a commit has changed. If readers see rows only after a compaction, a compaction
        also counts as a change.
        """
        for message in messages:
            if message.new_files or (self._waits and not message.is_empty):
                self._changed[message.partition] = self._clock.local_ms()

    def forget(self, schema: TableSchema, dropped: Collection[str]) -> None:
        """Called when partitions were dropped: these partitions are no longer waiting to be marked as done. `dropped`
        are the names of the folders of the partitions.
        """
        for partition in list(self._changed):
            if partition_path(schema, partition).rstrip("/") in dropped:
                del self._changed[partition]

    def mark(self, at: TableAt, *, at_end: bool, hidden: Collection[bytes] = ()) -> list[str]:
        """Marks partitions as done (`partition.mark-done-action`), and returns the names of their folders. A partition
        is done if it has got no rows for the time that the options set. At the end of the input all partitions are
        marked, if the options say so.

        `hidden` are partitions with rows that readers do not see yet; they are not marked.
        """
        schema, now = at.plan.schema, self._clock.local_ms()
        ends = at_end and schema.settings.expiry.done_at_end
        done = [p for p, at in self._changed.items() if p not in hidden and (ends or is_done(schema, p, at, now))]
        named = mark_partitions(at.table, schema, sorted(done))
        for partition in done:
            del self._changed[partition]
        return named


def _unmarked(at: TableAt, view: LiveFiles) -> dict[bytes, int]:
    """Returns the partitions that were changed after they were last marked, with the time of the change. The search
    costs one small read for each partition.
    """
    table, schema = at.table, at.plan.schema
    clock = table.world.clock
    ahead = clock.local_ms() - clock.now_ms()
    unmarked = {}
    for partition, changed in newest_files(view).items():
        changed_ms = clock.local_ms() if changed is None else changed
        marked = marked_ms(table.io, table.path, schema, partition)
        if marked is None or marked + ahead < changed_ms:
            unmarked[partition] = changed_ms
    return unmarked
