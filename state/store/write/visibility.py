"""Finds the files of a commit that still wait on level 0 for a compaction.

A commit publishes its rows first and its compaction second, and the compaction may conflict with another writer. In
some tables (tables with deletion vectors but without merge-on-read, and first-row tables) batch readers skip level 0,
so the rows cannot be read until a compaction moves the rows to a higher level. With `changelog-producer` = `lookup` the
changes are not logged until the compaction. The files are in the table, so any later writer finds them on level 0.

Source: Paimon 2.0 CoreOptions.batchScanSkipLevel0 and needLookup. After a conflict of the compaction, Paimon's writers
fail, or leave the rows hidden.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.determinism import World
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import CommitKind
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.read.prune import hides_level0

FileNames = Mapping[BucketId, frozenset[str]]
"""Names of files, by bucket. Buckets without files are left out."""

_SHORTEST_WAIT_MS = 20
_LONGEST_WAIT_MS = 5_000
_MOST_DOUBLINGS = 10


class Waits(Enum):
    """Says what waits until a compaction has moved the files of a commit from level 0 to a higher level: nothing, the
    logging of the changes, or the readers of the rows.
    """

    NOTHING = "nothing"
    CHANGELOG = "the changes are not logged yet"
    ROWS = "readers do not see the rows yet"


def what_waits(schema: TableSchema) -> Waits:
    """Returns what readers must wait for until the new files of a commit are compacted, in a table with this schema:
    for the rows, for the changelog, or for nothing.
    """
    if not schema.primary_keys:
        return Waits.NOTHING
    if hides_level0(schema):
        return Waits.ROWS
    return Waits.CHANGELOG if schema.settings.changelog.producer.logs_lookups else Waits.NOTHING


def left_on_level0(messages: Iterable[CommitMessage], committed: Committed) -> FileNames:
    """Returns the new level-0 files of real buckets that the commit of these messages has not compacted."""
    compacted = any(s.commit_kind is CommitKind.COMPACT for s in committed.snapshots)
    left: dict[BucketId, frozenset[str]] = {}
    for m in messages:
        consumed = {f.file_name for f in m.compact_before} if compacted else set()
        names = frozenset(f.file_name for f in m.new_files if f.level == 0) - consumed
        if names and m.bucket >= 0:
            left[m.partition, m.bucket] = left.get((m.partition, m.bucket), frozenset()) | names
    return left


def all_on_level0(view: LiveFiles) -> FileNames:
    """Returns the names of all live level-0 files, by bucket. Files from all writers are included, because a file does
    not record its writer. The postpone bucket is left out.
    """
    named = {b: frozenset(f.file_name for f in view.files(b) if f.level == 0) for b in view.buckets() if b[1] >= 0}
    return {b: names for b, names in named.items() if names}


def still_on_level0(view: LiveFiles, files: FileNames) -> FileNames:
    """Returns the files that are still live on level 0. All other files were compacted or replaced by some process."""
    live = {b: frozenset(f.file_name for f in _level0(view, b, names)) for b, names in files.items()}
    return {b: names for b, names in live.items() if names}


def joined(one: FileNames, other: FileNames) -> FileNames:
    """Returns the files of both arguments together."""
    return {b: one.get(b, frozenset()) | other.get(b, frozenset()) for b in {*one, *other}}


@dataclass(frozen=True, slots=True)
class Hidden:
    """The number of rows, files and buckets that wait on level 0, where readers do not see them, for a compaction.
    `since_ms` is the local time at which the oldest waiting file was written; None if no files wait.
    """

    rows: int = 0
    files: int = 0
    buckets: int = 0
    since_ms: int | None = None

    def age_seconds(self, local_ms: int) -> int:
        """Returns for how many seconds the oldest file that readers do not see has waited for a compaction, at the
        local time `local_ms`; 0 if no files wait.
        """
        return 0 if self.since_ms is None else max(0, (local_ms - self.since_ms) // 1000)


def find_hidden(view: LiveFiles, files: FileNames) -> Hidden:
    """Counts the given files that are still on level 0 in the view, and their rows and buckets. Returns the counts."""
    hidden = [f for b, names in files.items() for f in _level0(view, b, names)]
    return Hidden(
        rows=sum(f.row_count for f in hidden),
        files=len(hidden),
        buckets=len(still_on_level0(view, files)),
        since_ms=min((f.creation_time_ms or 0 for f in hidden), default=None),
    )


def _level0(view: LiveFiles, bucket_id: BucketId, names: frozenset[str]) -> list[DataFileMeta]:
    return [f for f in view.files(bucket_id) if f.level == 0 and f.file_name in names]


class Budget:
    """A time limit for repeated attempts. The pauses between attempts double, up to a limit, and have a
    random factor.
    """

    def __init__(self, budget_ms: int, world: World) -> None:
        self._budget_ms, self._world = budget_ms, world
        self._started_ms = world.clock.now_ms()
        self._paused_ms = 0
        self._pauses = 0

    @property
    def left_ms(self) -> int:
        return max(0, self._budget_ms - max(self._world.clock.now_ms() - self._started_ms, self._paused_ms))

    def wait(self) -> None:
        """Pauses before the next attempt, but not beyond the end of the time limit."""
        base = min(_SHORTEST_WAIT_MS << min(self._pauses, _MOST_DOUBLINGS), _LONGEST_WAIT_MS)
        wait_ms = min(max(1, int(base * (0.5 + self._world.random.fraction()))), self.left_ms)
        self._pauses += 1
        if wait_ms > 0:
            self._world.pause.wait_ms(wait_ms)
            self._paused_ms += wait_ms
