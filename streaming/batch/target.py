"""A table that a stream writes to, as a value: each batch takes one and gives the next one back."""

from dataclasses import dataclass, field, replace

from bucketline.state.commit.outcome import Committed
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.maintenance.upkeep import Upkeep
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import Budget, FileNames, Waits, all_on_level0, what_waits


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream knows of a table, and owes it, between two batches.

    `commits` are the snapshots of its newest batch, and `seen_id` is the snapshot up to which they were looked for;
    `is_complete` when it is certain that none is newer up to there.
    `key_shares` and `rejected_in_all` are what they say: among how many tasks the keys are shared, and how many records
    were rejected. `touched` are the partitions that the last batch wrote, with `rows_a_partition` each.
    `hidden` are files on level 0 that readers skip and that this stream is to compact; None until it has looked. A lost
    compaction of all buckets, and lost postponed rows, are owed as well. `source_tables` are the source's tables
    whose records it has written, where it matters. `is_advised` once advice has been logged,
    `shares_buckets` once keys of several shares were found in one bucket. `mixed_topics` are those
    about whose keys a warning has been logged.
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
    """The open table, the name that the stream commits under, and the state of the stream there.

    `upkeep` remembers what the stream has looked after in the table; it is the one thing here that changes.
    """

    at: TableAt
    user: str
    state: StreamState = field(default_factory=StreamState)
    upkeep: Upkeep = field(default_factory=Upkeep, compare=False)

    def with_state(self, state: StreamState) -> "Target":
        """The same table, with the stream in another state."""
        return replace(self, state=state)

    def with_table(self, at: TableAt) -> "Target":
        """The stream in the same state, on a later view of the table."""
        return replace(self, at=at)

    def refreshed(self) -> "Target":
        """The same, on the table with its newest schema, at its newest snapshot."""
        return self.with_table(self.at.refreshed())

    def after(self, committed: Committed) -> "Target":
        """The same, on the table as a commit has left it."""
        return self.with_table(self.at.after(committed))

    def budget(self) -> Budget:
        """The time for making rows visible, from now on."""
        sink = self.at.plan.sink
        return Budget(sink.visibility_timeout_ms, self.at.table.world)


def taken_over(target: Target) -> Target:
    """The target of a stream that owes, from its start, whatever waits on level 0 already.

    What this stream left before it ended is among it, and nothing on level 0 says who has written it.
    """
    if target.state.hidden is not None:
        return target
    at = target.at
    waits = what_waits(at.plan.schema) is not Waits.NOTHING and at.plan.compacts
    return target.with_state(replace(target.state, hidden=all_on_level0(at.view) if waits else {}))
