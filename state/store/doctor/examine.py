"""Examines a table and says what is broken: compares the files on storage with the rules that every writer keeps.

Reads all metadata, each manifest file once, and with `rows` every live data file; changes nothing. A problem on which
Paimon would fail is an error. A problem that only costs space, or points to a crash, is a warning. If a broken file
makes a check impossible, this check is skipped, and all others run. The table may be written, compacted and expired
meanwhile.

Source: the rules of Paimon 2.0 (ConflictDetection, SnapshotManager, SchemaManager) and of this library.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bucketline.conf.errors import BucketlineError
from bucketline.conf.storage_options import check_storage_options
from bucketline.conf.table.read_options import check_open_options
from bucketline.conf.table.table_settings import ReadSettings
from bucketline.conf.wording import counted
from bucketline.state.commit.replay import writer_of
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.schemas import Schemas, readable_schemas
from bucketline.state.store.catalog.table_handle import TableHandle, branch_path, newest_schema, remote_location
from bucketline.state.store.doctor.again import still_broken
from bucketline.state.store.doctor.files import FileChecks
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.doctor.hashes import hash_problems
from bucketline.state.store.doctor.history import HistoryWalk
from bucketline.state.store.doctor.live import Share
from bucketline.state.store.doctor.problem import Broken, Problem, State, passable
from bucketline.state.store.doctor.repeats import repeat_problems
from bucketline.state.store.doctor.rows import row_problems, vector_problems
from bucketline.state.store.doctor.states import NamedState, named_states
from bucketline.state.store.doctor.unique_keys import unique_key_problems
from bucketline.state.store.index.deletion_vectors import find_deletions
from bucketline.state.store.maintenance.named_files import Progress
from bucketline.state.store.maintenance.orphans import remove_orphan_files
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import group_by_bucket
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.remembered import ReadOnceIO

LIVE_BYTES = 512 << 20
"""The default for the memory, in bytes, of the entries of live files. If they need more, the buckets are checked in
several shares. For each share the manifests are read again, except for those that are cached in memory.
"""

_ENTRY_BYTES = 3000


def examine(
    table: TableHandle,
    *,
    rows: bool = False,
    progress: Progress = lambda done, total: None,
    live_bytes: int = LIVE_BYTES,
) -> list[Finding]:
    """Returns the findings of a table, errors before warnings.

    With `rows` the live rows are read too: their number, order, buckets, statistics, sequence numbers and HASH index
    are checked. Takes `live_bytes` of memory for live files, and also the memory for the cache of `ReadOnceIO` and for
    `remove_orphan_files`. Raises StorageError if the storage fails for another reason than a missing file.
    """
    looked_at = replace(table, io=ReadOnceIO(table.io))
    examination = _Examination(looked_at, progress, live_bytes)
    problems = [*examination.states(), *(examination.rows() if rows else ())]
    problems, findings = still_broken(table, problems)
    findings += [Finding(Severity.ERROR, p.rule, p.subject, p.message) for p in problems]
    # Orphan files are known only if all snapshots and tags can be read.
    try:
        orphans = remove_orphan_files(looked_at, progress=examination.goes_on)
    except BucketlineError as e:
        passable(e)
    else:
        if orphans.files:
            message = (
                f"{counted(len(orphans.files), 'file')}, {counted(orphans.size_bytes, 'byte')}, older than a day, are "
                "named by no snapshot, tag or branch; `bucketline orphans` lists them"
            )
            findings.append(Finding(Severity.WARNING, "orphans", orphans.files[0].path, message))
    return sorted(findings, key=lambda f: f.severity is Severity.WARNING)


def open_to_examine(
    path: str, options: Mapping[str, str] | None = None, storage_options: Mapping[str, str] | None = None
) -> TableHandle:
    """Opens the table at a path or URI, with the newest schema that can be read, and returns its handle.

    Arguments are those of `open_table`. Raises the errors of `newest_schema` if no schema can be read.
    """
    storage, reading = check_storage_options(storage_options), dict(options or {})
    check_open_options(reading)
    io, root = file_io_for(path, storage)
    metadata = branch_path(root, ReadSettings(reading))
    try:
        schema = newest_schema(io, metadata, table=root)
    except CorruptFileError:
        schemas = readable_schemas(io, metadata)
        if not schemas:
            raise
        schema = schemas[0]
    table = TableHandle(io, root, schema, read_options=reading, location=remote_location(io, path), storage=storage)
    return replace(table, table_schema=table.with_read_options(schema))


class _Examination:
    """One examination of all snapshots, tags and branches of a table."""

    def __init__(self, table: TableHandle, progress: Progress, live_bytes: int) -> None:
        self._table, self._progress = table, progress
        self._live_bytes = live_bytes
        self._newest: Snapshot | None = None
        self._done = self._total = 0

    def states(self) -> Iterator[Problem]:
        """Yields the problems of all snapshots, tags and branches. An error while a snapshot is read is yielded as a
        problem of this snapshot, tag or branch.
        """
        table = self._table
        self._newest = self._newest_readable()
        named = list(named_states(table))
        broken = Broken()
        schemas = table.schema_store
        files = FileChecks(table.io, table.path, table.table_schema, schemas.get, broken)
        branches = {n.branch for n in named if n.branch is not None}
        of_branch = {b: self._branch_files(files, b) for b in sorted(branches)}
        count = self._share_count()
        ids = table.snapshot_store.ids()
        self._total = count * (len(ids) + len(named))
        for number in range(count):
            history = HistoryWalk(files, table.manifests, table.table_schema, Share(number, count), broken)
            yield from self._snapshots(history, ids, is_first=number == 0)
            for tag_or_branch in named:
                yield from self._named(
                    history, tag_or_branch, of_branch.get(tag_or_branch.branch or "", files), is_first=number == 0
                )
            broken.extend(0, ())
        yield from broken.problems()

    def rows(self) -> Iterator[Problem]:
        """Checks the stored rows of the newest snapshot, bucket by bucket, and yields the problems: for example wrong
        deletion vectors, or keys that occur twice.
        """
        table, newest = self._table, self._newest
        if newest is None:
            return
        state = State(f"snapshot {newest.id}", newest.id)
        schema = table.table_schema
        access = FileAccess(table.io, table.path, schema, table.schema_store.read_under(schema))
        try:
            buckets = group_by_bucket(table.manifests.live_entries(newest))
            index = table.manifests.read_index(newest.index_manifest)
        except BucketlineError as e:
            passable(e)
            return  # This problem is reported for the snapshot.
        try:
            deletions = find_deletions(table.io, table.path, schema, index)
        except CorruptFileError as e:
            yield Problem("deletion-vector", state.name, e.message, state.needed)
            deletions = None
        self._total += len(buckets) + 2
        for bucket in buckets:
            problems = list(row_problems(access, bucket, state))
            yield from problems
            if deletions is not None:
                vectors = list(vector_problems(deletions, bucket, state))
                yield from vectors
                if not vectors:
                    known = {p.message for p in problems}
                    marked = replace(access, deletions=deletions)
                    yield from (p for p in repeat_problems(marked, bucket, state) if p.message not in known)
            self._step()
        for look in (hash_problems, unique_key_problems):
            try:
                yield from (replace(p, needed=state.needed) for p in look(table, newest))
            except BucketlineError as e:
                passable(e)  # This problem is reported for the snapshot, or for one of its files.
            self._step()

    def _snapshots(self, history: HistoryWalk, ids: list[int], *, is_first: bool) -> Iterator[Problem]:
        store = self._table.snapshot_store
        seen: dict[tuple[str, int], int] = {}
        for snapshot_id in ids:
            try:
                snapshot = store.get(snapshot_id)
            except BucketlineError as e:
                message = passable(e)
                if is_first:
                    yield Problem("snapshot", store.path(snapshot_id), message)
                snapshot = None
            if snapshot is not None:
                if is_first:
                    yield from _committed_twice(snapshot, seen)
                yield from history.follow(snapshot)
            self._step()

    def _named(
        self, history: HistoryWalk, tag_or_branch: NamedState, files: FileChecks, *, is_first: bool
    ) -> Iterator[Problem]:
        if tag_or_branch.snapshot is not None:
            yield from history.state(tag_or_branch.name, tag_or_branch.snapshot, files)
        elif is_first:
            yield Problem(
                "tag" if tag_or_branch.name.startswith("tag ") else "branch", tag_or_branch.path, tag_or_branch.message
            )
        self._step()

    def _branch_files(self, files: FileChecks, branch: str) -> FileChecks:
        """Returns the checks for files of a branch. A branch has its own schemas, whose ids are also ids of the table's
        schemas.
        """
        table = self._table
        return files.with_schemas(Schemas(table.io, Branches(table.io, table.path).path(branch)).get)

    def _newest_readable(self) -> Snapshot | None:
        for snapshot_id in reversed(self._table.snapshot_store.ids()):
            try:
                snapshot = self._table.snapshot_store.get(snapshot_id)
            except BucketlineError as e:
                passable(e)  # This problem is reported for the snapshot.
                continue
            if snapshot is not None:
                return snapshot
        return None

    def _share_count(self) -> int:
        """Returns into how many parts the buckets are divided, so that the live files of one part fit into memory. The
        number follows from the number of live files in the newest snapshot.
        """
        if self._newest is None:
            return 1
        try:
            metas = self._table.manifests.base_and_delta(self._newest)
        except BucketlineError as e:
            passable(e)
            return 1
        live = sum(m.num_added_files - m.num_deleted_files for m in metas)
        return max(1, -(-live * _ENTRY_BYTES // self._live_bytes))

    def goes_on(self, done: int, total: int) -> None:
        """Reports the progress of the search for orphan files, which is the last step of an examination."""
        self._progress(self._done + done, self._total + total)

    def _step(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)


def _committed_twice(snapshot: Snapshot, seen: dict[tuple[str, int], int]) -> Iterator[Problem]:
    """Yields a problem if an earlier snapshot was committed by the same commit user with the same identifier, although
    an identifier must name one commit. COMPACT snapshots are not checked, because the second snapshot of a commit has
    the same identifier. `seen` maps the users and identifiers of earlier snapshots to the ids of these snapshots; the
    function adds `snapshot` to `seen`.
    """
    s = snapshot
    if s.commit_identifier == BATCH_COMMIT_IDENTIFIER or s.commit_kind is CommitKind.COMPACT:
        return
    key = (writer_of(s.commit_user), s.commit_identifier)
    if key in seen:
        message = (
            f"user {s.commit_user} has committed identifier {s.commit_identifier} already in snapshot {seen[key]}, so "
            "its rows are in the table twice"
        )
        yield Problem("commit-twice", f"snapshot {s.id}", message)
    seen[key] = s.id
