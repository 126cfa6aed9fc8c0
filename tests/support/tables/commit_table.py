"""A table for tests about commits: real metadata, data files of made-up bytes, and what must hold after any commit."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Append, AppendCheck, Change, Compact, PartitionTest, Replace
from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import CommitResult, Committed
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta
from bucketline.state.format.entries import CommitKind, FileKind, ManifestEntry, Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import INDEX_DIR, bucket_path
from bucketline.state.store.catalog.live_files import newest_live
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.commit_check import PlannedOn
from bucketline.state.store.commit.publish import Base, publish
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from tests.support.storage.memory_io import MemoryIO


@dataclass
class StillClock:
    """Time that moves only by waiting."""

    now: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def local_ms(self) -> int:
        return self.now


@dataclass
class CountedPause:
    """Waits at once, and remembers for how long it would have."""

    clock: StillClock = field(default_factory=StillClock)
    waits: list[int] = field(default_factory=list)

    def wait_ms(self, duration_ms: int) -> None:
        self.waits.append(duration_ms)
        self.clock.now += duration_ms


@dataclass
class Follower:
    """The live files of a table that a writer knows between its commits."""

    snapshots: Snapshots
    manifests: Manifests
    live: LiveFiles = field(default_factory=LiveFiles)

    def refresh(self) -> LiveFiles:
        self.live = newest_live(self.live, self.snapshots, self.manifests, SYSTEM_WORLD)
        return self.live


@dataclass(frozen=True)
class Commits:
    """Commits to one table, through its FileIO: a test names only what it is about."""

    table: TableHandle

    def commit(
        self,
        messages: Iterable[CommitMessage],
        *,
        kind: CommitKind = CommitKind.APPEND,
        overwrite: PartitionTest | None = None,
        append_check: AppendCheck = AppendCheck.BUCKET_COUNT,
        ignore_empty: bool | None = None,
        based_on: int | None = None,
        view: Follower | None = None,
        planned: PlannedOn | None = None,
        planned_ms: int | None = None,
        **author: Any,
    ) -> CommitResult:
        """Publishes the messages by the author; the view follows."""
        listed = tuple(messages)
        change: Change = Append(listed, append_check, ignore_empty=ignore_empty)
        if overwrite is not None:
            change = Replace(listed, overwrite, moves_rows=based_on is not None)
        elif kind is CommitKind.COMPACT:
            change = Compact(listed)
        live = None if planned is None else planned.live
        vectors = None if planned is None else planned.vectors
        base = Base(self.table, live if view is None else view.live, based_on, vectors, planned_ms)
        outcome = publish(base, change, Author(**author))
        if view is not None and isinstance(outcome, Committed):
            view.live = outcome.live or view.live
        return outcome


@dataclass
class CommitTable:
    """A primary-key table (k INT) with two fixed buckets at `path`.

    `storage` never fails and is what tests look through; `io` is what committers use, if that is another.
    """

    path: str = "/table"
    storage: FileIO = field(default_factory=MemoryIO)
    io: FileIO | None = None
    options: dict[str, str] = field(default_factory=dict)
    pause: CountedPause = field(default_factory=CountedPause)

    @property
    def schema(self) -> TableSchema:
        key = DataField(0, "k", DataType(TypeRoot.INT, nullable=False))
        return TableSchema(0, (key,), 0, primary_keys=("k",), options={"bucket": "2", **self.options})

    def create(self) -> "CommitTable":
        Schemas(self.storage, self.path).create(self.schema)
        return self

    def committer(self, io: FileIO | None = None) -> "Commits":
        return Commits(TableHandle(io or self.io or self.storage, self.path, self.schema, world=self.world))

    @property
    def world(self) -> World:
        """The machine's names, and a clock that only pauses move on."""
        return World(clock=self.pause.clock, pause=self.pause)

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.storage, self.path)

    @property
    def manifests(self) -> Manifests:
        return Manifests(self.storage, self.path)

    def latest(self) -> Snapshot:
        newest = max(self.snapshots.ids())
        found = self.snapshots.get(newest)
        assert found is not None
        return found

    def live(self) -> list[ManifestEntry]:
        return self.manifests.live_entries(self.latest()) if self.snapshots.ids() else []

    def live_names(self) -> list[str]:
        return sorted(e.file.file_name for e in self.live())

    def data_path(self, name: str, bucket: int = 0) -> str:
        return f"{self.path}/{bucket_path(self.schema, EMPTY_ROW, bucket)}/{name}"

    def put_files(self, messages: Iterable[CommitMessage]) -> Sequence[CommitMessage]:
        """Makes the files that messages promise, of the size they promise."""
        found = list(messages)
        io = self.storage
        for m in found:
            for f in (*m.new_files, *m.changelog_files, *m.compact_after, *m.compact_changelog):
                if not io.exists(self.data_path(f.file_name, m.bucket)):
                    io.write_new(self.data_path(f.file_name, m.bucket), b"rows".ljust(f.file_size))
            for index in (*m.new_index_files, *m.compact_index_files):
                io.write_new(f"{self.path}/{INDEX_DIR}/{index.file_name}", b"index")
        return found

    def manifest_files(self) -> set[str]:
        return set(self.storage.list_names(f"{self.path}/manifest"))

    def named_manifest_files(self) -> set[str]:
        """Everything in the manifest folder that some snapshot names."""
        names: set[str] = set()
        for snapshot in self.all_snapshots():
            lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list]
            for name in [n for n in lists if n is not None]:
                names.add(name)
                names |= {m.file_name for m in self.manifests.read_list(name)}
            if snapshot.index_manifest is not None:
                names.add(snapshot.index_manifest)
        return names

    def all_snapshots(self) -> list[Snapshot]:
        found = [self.snapshots.get(i) for i in self.snapshots.ids()]
        return [s for s in found if s is not None]

    def check(self) -> None:
        """Every snapshot is whole: its files are there, none is live twice, and the counts add up."""
        io = self.storage
        snapshots = self.all_snapshots()
        assert [s.id for s in snapshots] == list(range(1, len(snapshots) + 1))
        total = 0
        for s in snapshots:
            total += s.delta_record_count
            live = self.manifests.live_entries(s)
            assert s.total_record_count == total == sum(e.file.row_count for e in live)
            twice = [name for name, n in Counter(e.file.file_name for e in live).items() if n > 1]
            assert twice == []
            for e in (*live, *self.manifests.changelog_entries(s)):
                assert e.kind is FileKind.ADD
                assert io.exists(self.data_path(e.file.file_name, e.bucket)), e.file.file_name
            for index in self.manifests.read_index(s.index_manifest):
                assert io.exists(f"{self.path}/{INDEX_DIR}/{index.file_name}")


def message(
    *new: DataFileMeta,
    bucket: int = 0,
    before: Sequence[DataFileMeta] = (),
    after: Sequence[DataFileMeta] = (),
    total: int = 2,
) -> CommitMessage:
    return CommitMessage(
        EMPTY_ROW, bucket, total, new_files=new, compact_before=tuple(before), compact_after=tuple(after)
    )
