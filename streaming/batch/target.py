"""The table that a stream writes to, called a target, as an unchanging value. Each batch takes a target and returns the
target for the next batch.
"""

from dataclasses import dataclass, field, replace

from bucketline.state.commit.outcome import Committed
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.maintenance.upkeep import Upkeep
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import Budget, FileNames, Waits, all_on_level0, what_waits


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream remembers about a table between two batches, and the work that the stream still has to do on the
    table.

    - `commits` are the snapshots of the stream's newest batch.
    - `seen_id`: the snapshots up to this id were searched for the stream's batches.
    - `is_complete` is true if the search was complete, so that the stream certainly has no newer batch up to
      `seen_id`.
    - `key_shares` is the number of tasks that share the keys.
    - `rejected_in_all` is the number of rejected records.
    - `touched` are the partitions that the last batch wrote.
    - `rows_a_partition` is the average number of rows that the last batch wrote to each of these partitions.
    - `hidden` are files on level 0 that readers skip and that this stream has to compact; None until the stream has
      looked for such files.
    - `owes_full` is true if a compaction of all buckets was refused and has to be repeated.
    - `owes_postponed` is true if postponed rows still have to be moved.
    - `source_tables` are the source's tables whose records the stream has written; empty if it may write records of
      any table.
    - `is_advised` is true once advice has been logged.
    - `shares_buckets` is true once keys of several shares were found in one bucket.
    - `mixed_topics` are the topics about whose keys a warning was logged.

    The attributes are together because each batch takes all of them from the last batch and passes them on.
    """

    commits: tuple[Snapshot, ...] = ()
    seen_id: int = 0
    is_complete: bool = False
    key_shares: int | None = None
    rejected_in_all: int | None = None
    touched: frozenset[bytes] | None = None
    rows_a_partition: int = 0
    hidden: FileNames | None = None
    owes_full: bool = False
    owes_postponed: bool = False
    is_advised: bool = False
    source_tables: tuple[str, ...] = ()
    shares_buckets: bool = False
    mixed_topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    """The open table (`at`), the commit user of the stream, and the stream's state.

    `upkeep` remembers the expiry and tagging that the stream has done; it is the only field that changes.
    """

    at: TableAt
    user: str
    state: StreamState = field(default_factory=StreamState)
    upkeep: Upkeep = field(default_factory=Upkeep, compare=False)

    def with_state(self, state: StreamState) -> "Target":
        """Returns this target with another state of the stream."""
        return replace(self, state=state)

    def with_table(self, at: TableAt) -> "Target":
        """Returns this target with a later view of the table; the state of the stream stays."""
        return replace(self, at=at)

    def refreshed(self) -> "Target":
        """Returns this target with the table's newest schema and newest snapshot."""
        return self.with_table(self.at.refreshed())

    def after(self, committed: Committed) -> "Target":
        """Returns this target (the table that a stream writes to) with the state of the table after a commit."""
        return self.with_table(self.at.after(committed))

    def budget(self) -> Budget:
        """Returns the time that the writer may spend on making rows visible to readers. The time starts
        with this call.
        """
        sink = self.at.plan.sink
        return Budget(sink.visibility_timeout_ms, self.at.table.world)


def taken_over(target: Target) -> Target:
    """Returns the target of a stream that starts. If new rows or their changes are shown to readers only after a
    compaction, and the stream compacts, the stream must compact all files that are on level 0 now. Otherwise the stream
    starts without such files.

    These files include files that this stream left before it ended, because level 0 does not show who wrote its files.
    """
    if target.state.hidden is not None:
        return target
    at = target.at
    waits = what_waits(at.plan.schema) is not Waits.NOTHING and at.plan.compacts
    return target.with_state(replace(target.state, hidden=all_on_level0(at.view) if waits else {}))
