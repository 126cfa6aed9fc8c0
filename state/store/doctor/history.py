"""Checks snapshots in order: that each snapshot follows from the snapshot before it, and that all files exist that a
snapshot names.

For each snapshot only the new manifests are read. Manifests that a merge has replaced must hold the same entries as the
new manifests; sums of hashes show this without keeping entries in memory.

Source: Paimon 2.0 ConflictDetection, FileStoreCommitImpl, SnapshotDeletion.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.format.entries import (
    EntryIdentity,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
    Snapshot,
)
from bucketline.state.format.index.deletion_vector import DELETION_VECTORS
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.doctor.files import FileChecks
from bucketline.state.store.doctor.live import LiveOfShare, Share
from bucketline.state.store.doctor.problem import Broken, Problem, State, passable


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sum of a manifest's entries: the number of rows, and a sum of hashes in which a DELETE cancels its ADD."""

    rows: int
    mark: int


class HistoryWalk:
    """Follows the snapshots of a table one after the other, and then checks the snapshots of tags and branches.

    Only the buckets in `share` (one of several parts of the buckets) are checked. In memory are the live files that one
    snapshot has in these buckets, the manifest entries of the snapshot's delta, and about 200 bytes for each manifest
    of the snapshot.

    Each snapshot is checked against the state that the snapshot before it has left: the live files, the index files,
    and for each manifest the number of its rows and a sum of hashes of its entries. So these attributes belong
    together.
    """

    def __init__(
        self, files: FileChecks, manifests: Manifests, schema: TableSchema, share: Share, broken: Broken
    ) -> None:
        self._files, self._manifests, self._schema, self._share = files, manifests, schema, share
        self._broken = broken
        self._live = LiveOfShare(schema, share)
        self._sums: dict[str, _Sum | None] = {}
        self._names: Counter[str] | None = None
        self._at: int | None = None
        self._is_whole = False
        self._is_loaded = False
        self._index_name: str | None = None
        self._index: dict[str, IndexManifestEntry] = {}
        self._deltas: dict[str, int] = {}

    def follow(self, snapshot: Snapshot) -> Iterator[Problem]:
        """Checks the next snapshot, in the order of ids, and yields its problems."""
        state = State(f"snapshot {snapshot.id}", snapshot.id)
        self._deltas[snapshot.delta_manifest_list] = snapshot.id
        base = self._list(state, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta = self._list(state, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        yield from self._to_base(state, base)
        if delta is not None:
            yield from self._apply(state, snapshot, base, delta)
        else:
            self._look_at_files(state, ())
        self._changelog(state, snapshot)
        yield from self._index_of(state, snapshot)
        is_known = base is not None and delta is not None
        self._names = Counter(m.file_name for m in (*(base or ()), *(delta or ()))) if is_known else None
        self._at = snapshot.id if is_known else None
        named = self._names or Counter()
        self._sums = {name: s for name, s in self._sums.items() if name in named}
        self._broken.extend(snapshot.id, _Owners(self._live, named, self._index))

    def state(self, name: str, snapshot: Snapshot, files: FileChecks) -> Iterator[Problem]:
        """Checks the snapshot of the tag or branch `name`: that all of its files exist, and that the levels of the live
        files are correct. Yields the problems.
        """
        own = self._deltas.get(snapshot.delta_manifest_list)
        if own is not None:
            self._broken.also(own, name)
            return
        state = State(name)
        base = self._list(state, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        delta = self._list(state, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        other = HistoryWalk(files, self._manifests, self._schema, self._share, self._broken)
        other._load(state, [*(base or ()), *(delta or ())])
        other._look_at_files(state, ())
        yield from other._live.problems(name)
        yield from other._index_of(state, snapshot)

    def _to_base(self, state: State, base: list[ManifestFileMeta] | None) -> Iterator[Problem]:
        """The base manifests of a snapshot must name exactly the files that were live at the previous snapshot. Yields
        a problem if the manifests `base` name other files. Then loads the live files from the base manifests, unless
        the files in memory are already the same.
        """
        is_next = self._at is not None and state.id == self._at + 1
        if base is None:
            if not is_next:
                self._load(state, [])
                self._is_whole = False
            return
        if is_next and self._names is not None:
            names = Counter(m.file_name for m in base)
            gone, new = self._names - names, names - self._names
            if not gone and not new:
                return
            if self._is_whole:
                before = self._added_up(gone)
                for meta in base:
                    if meta.file_name in new:
                        self._entries(state, meta)
                after = self._added_up(new)
                if before == after and None not in (before, after):
                    return
                if None not in (before, after) and self._share.number == 0:
                    message = (
                        f"its base differs from the files that snapshot {self._at} has left: files were lost or gained"
                    )
                    yield Problem("base", state.name, message)
        self._load(state, base)

    def _load(self, state: State, metas: Sequence[ManifestFileMeta]) -> None:
        """Replaces the live files that are held in memory by the files that the manifests `metas` name."""
        self._is_whole = True
        self._live.load(e for meta in metas for e in self._entries(state, meta) or ())
        self._is_whole = all(self._sums.get(m.file_name) is not None for m in metas)
        self._is_loaded = True

    def _look_at_files(self, state: State, added: Iterable[ManifestEntry]) -> None:
        """Checks the data files that a snapshot has added (`added`) and that are still live. If the live files were
        just read from the base manifests, checks all live files instead.
        """
        for entry in self._live if self._is_loaded else added:
            if entry.identity in self._live:
                self._files.data_file(state, entry)
        self._is_loaded = False

    def _apply(
        self, state: State, snapshot: Snapshot, base: list[ManifestFileMeta] | None, delta: list[ManifestFileMeta]
    ) -> Iterator[Problem]:
        read = [self._entries(state, meta) for meta in delta]
        entries = [e for part in read for e in part or () if self._live.is_mine(e)]
        is_read = None not in read
        if self._is_whole and is_read:
            yield from self._follows(state.name, entries)
        deleted: set[EntryIdentity] = set()
        for entry in entries:
            if entry.kind is FileKind.DELETE:
                deleted.add(entry.identity)
                self._live.remove(entry)
        for entry in entries:
            if entry.kind is FileKind.ADD and entry.identity not in deleted:
                self._live.add(entry)
        self._look_at_files(state, entries)
        self._is_whole = self._is_whole and is_read
        if is_read and self._share.number == 0:
            yield from self._counts(state.name, snapshot, base, delta)

    def _follows(self, name: str, delta: Sequence[ManifestEntry]) -> Iterator[Problem]:
        added: set[str] = set()
        deleted = {e.identity for e in delta if e.kind is FileKind.DELETE}
        for entry in delta:
            if entry.kind is FileKind.ADD:
                added.add(entry.file.file_name)
                if entry.identity in self._live and entry.identity not in deleted:
                    yield Problem("added-twice", name, f"it adds {entry.file.file_name}, which is live already")
                continue
            if entry.identity not in self._live:
                yield Problem("deleted-nothing", name, f"it deletes {entry.file.file_name}, which is not live")
            if entry.file.file_name in added:
                message = (
                    f"it adds {entry.file.file_name} before it deletes the same file, so expiry by Paimon removes the "
                    "file"
                )
                yield Problem("entry-order", name, message)

    def _counts(
        self, name: str, snapshot: Snapshot, base: list[ManifestFileMeta] | None, delta: list[ManifestFileMeta]
    ) -> Iterator[Problem]:
        change = sum(s.rows for m in delta if (s := self._sums[m.file_name]) is not None)
        if change != snapshot.delta_record_count:
            message = f"its changes have {counted(change, 'row')}, but it records {snapshot.delta_record_count}"
            yield Problem("record-count", name, message)
        if base is None or not self._is_whole:
            return
        rows = change + sum(s.rows for m in base if (s := self._sums.get(m.file_name)) is not None)
        if rows != snapshot.total_record_count:
            yield Problem(
                "record-count",
                name,
                f"its files hold {counted(rows, 'row')}, but it records {snapshot.total_record_count}",
            )

    def _changelog(self, state: State, snapshot: Snapshot) -> None:
        if snapshot.changelog_manifest_list is None:
            return
        state = replace(state, has_tags=False)
        metas = self._list(state, snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
        for meta in metas or ():
            for entry in self._entries(state, meta) or ():
                if self._live.is_mine(entry):
                    self._files.data_file(state, entry)

    def _index_of(self, state: State, snapshot: Snapshot) -> Iterator[Problem]:
        """Checks new index files; also checks deletion vectors if the vectors or the live files have changed. Yields
        the problems.
        """
        touched = self._live.touched
        is_new = snapshot.index_manifest != self._index_name
        if is_new:
            try:
                entries = self._manifests.read_index(snapshot.index_manifest)
            except BucketlineError as e:
                path = self._manifests.path(snapshot.index_manifest or "")
                self._broken.note(state, "unreadable", path, f"{{state}} needs it: {passable(e)}")
                entries = []
            index = {e.file_name: e for e in entries if self._share.holds(e.partition, e.bucket)}
            for file_name in index.keys() - self._index.keys():
                self._files.index_file(state, index[file_name])
            self._index_name, self._index = snapshot.index_manifest, index
        for entry in self._index.values():
            bucket = (entry.partition, entry.bucket)
            if entry.index_type == DELETION_VECTORS and self._is_whole and (is_new or bucket in touched):
                live = self._live.names_in(bucket)
                for vector in entry.deletion_vector_ranges or ():
                    if vector.data_file_name not in live:
                        yield Problem("dangling-vector", state.name, f"{vector.data_file_name} is not live")
        yield from self._live.problems(state.name)

    def _list(self, state: State, name: str, size: int | None) -> list[ManifestFileMeta] | None:
        try:
            return self._manifests.read_list(name, size)
        except BucketlineError as e:
            self._broken.note(state, "unreadable", self._manifests.path(name), f"{{state}} needs it: {passable(e)}")
            return None

    def _entries(self, state: State, meta: ManifestFileMeta) -> list[ManifestEntry] | None:
        """Returns the entries of a manifest; None if the manifest cannot be read. Also records what the entries add up
        to: the number of rows, and a sum of hashes in which a DELETE cancels its ADD.
        """
        try:
            entries = self._manifests.read(meta)
        except BucketlineError as e:
            path, text = self._manifests.path(meta.file_name), f"{{state}} needs it: {passable(e)}"
            self._broken.note(state, "unreadable", path, text, owner=meta.file_name)
            self._sums[meta.file_name] = None
            return None
        if meta.file_name not in self._sums:
            signs = [1 if e.kind is FileKind.ADD else -1 for e in entries]
            self._sums[meta.file_name] = _Sum(
                sum(sign * e.file.row_count for sign, e in zip(signs, entries, strict=True)),
                sum(sign * _mark(e) for sign, e in zip(signs, entries, strict=True)),
            )
        return entries

    def _added_up(self, names: Counter[str]) -> int | None:
        """Compares what manifests contain by one number: returns the sum of the hashes of all manifest entries, in
        which a DELETE cancels the ADD of the same file. `names` says how often each manifest is listed; its entries
        count as often. Returns None if a manifest could not be read.
        """
        total = 0
        for name, count in names.items():
            entries_sum = self._sums.get(name)
            if entries_sum is None:
                return None
            total += count * entries_sum.mark
        return total


@dataclass(frozen=True, slots=True)
class _Owners:
    """The files that the newest snapshot needs: its live files, its manifests by name, and its index files by name."""

    live: LiveOfShare
    manifests: Counter[str]
    index: dict[str, IndexManifestEntry]

    def __contains__(self, owner: object) -> bool:
        return owner in self.live or owner in self.manifests or owner in self.index


def _mark(entry: ManifestEntry) -> int:
    return int.from_bytes(blake2b(repr(entry.identity).encode(), digest_size=16).digest(), "big")
