"""Plans what a stream of changes reads between two positions, and where a micro-batch of limited size ends."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bucketline.conf.table.choices import ChangeFiles
from bucketline.conf.table.read_options import DV_MERGE_ON_READ, POSTPONE_MERGE_ON_READ
from bucketline.state.errors import SchemaMismatchError, SnapshotExpiredError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Versions
from bucketline.state.store.read.change_splits import ChangeUnit, change_units
from bucketline.state.store.read.changes import change_files
from bucketline.state.store.read.splits import Scan, plan_scan
from bucketline.state.store.read.table_read import ReadRequest
from bucketline.streaming.reader.stream_position import StreamPosition

REMEDY = (
    "start the query with a new checkpoint; to avoid this in future, set 'consumer-id', which keeps what the stream "
    "has not read, or a longer 'snapshot.time-retained' or 'changelog.time-retained'"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest size of a micro-batch, in files, bytes and rows; None means no limit. A micro-batch has at least one
    file.
    """

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.files, self.bytes, self.rows))


@dataclass(slots=True)
class _Budget:
    limits: Limits
    files: int = 0
    bytes: int = 0
    rows: int = 0

    def takes(self, files: Sequence[DataFileMeta]) -> bool:
        """Returns True if these files still fit into the micro-batch, and then counts them as files of the micro-batch.
        The first files always fit.
        """
        limits = self.limits
        if self.files and (
            (limits.files is not None and self.files + len(files) > limits.files)
            or (limits.bytes is not None and self.bytes >= limits.bytes)
            or (limits.rows is not None and self.rows >= limits.rows)
        ):
            return False
        self.files += len(files)
        self.bytes += sum(f.file_size for f in files)
        self.rows += sum(f.row_count for f in files)
        return True


@dataclass(slots=True)
class StreamPlan:
    """The changes of a table, divided into units: a unit is files that are read together. The changes have the schema
    of `table`. `request` has the columns and the filter of the stream.

    The units of a snapshot are remembered until the stream has passed the snapshot.
    """

    table: TableHandle
    request: ReadRequest
    has_all_columns: bool
    _units: dict[int, list[ChangeUnit]] = field(default_factory=dict)
    _full: Scan | None = None

    @property
    def schema(self) -> TableSchema:
        return self.table.table_schema

    def advance(self, start: StreamPosition, limits: Limits, newest_id: int) -> StreamPosition:
        """Returns the end of a micro-batch that begins at `start`. The end is not beyond the snapshot `newest_id`."""
        end = StreamPosition(newest_id + 1)
        if end.order < start.order:
            # The start may name a snapshot that is not committed yet.
            return start
        if not limits:
            return end
        budget = _Budget(limits)
        if start.is_full:
            scan = self.full(start.snapshot)
            for number, unit in enumerate(scan.units[start.index :], start.index):
                if not budget.takes(unit.files):
                    return StreamPosition(start.snapshot, number, is_full=True)
            start = StreamPosition(start.snapshot + 1)
        for snapshot_id in range(start.snapshot, newest_id + 1):
            first = start.index if snapshot_id == start.snapshot else 0
            for number, change in enumerate(self.changes(snapshot_id)[first:], first):
                if not budget.takes([change.file]):
                    return StreamPosition(snapshot_id, number)
        return end

    def check_not_rolled_back(self, at: StreamPosition) -> None:
        """Checks that the table still has the snapshot before a position. Raises SnapshotExpiredError if the table
        lacks it.
        """
        if (self.table.snapshot_store.latest_id() or 0) + 1 < at.snapshot:
            raise self._expired(at.snapshot - 1)

    def between(self, start: StreamPosition, end: StreamPosition) -> tuple[Scan | None, list[ChangeUnit]]:
        """Returns what a stream reads from `start` to `end`. The first result is the part of a whole snapshot that is
        still to be read, or None if the stream is past that snapshot. The second result lists the files with changes
        of the later snapshots, in order.
        """
        scan = None
        if start.is_full:
            scan = self.full(start.snapshot)
            until = end.index if end.is_full and end.snapshot == start.snapshot else len(scan.units)
            scan = replace(scan, units=scan.units[start.index : until])
            start = StreamPosition(start.snapshot + 1)
        else:
            self._full = None
        changes: list[ChangeUnit] = []
        if end.is_full:
            return scan, changes
        for snapshot_id in range(start.snapshot, end.snapshot + (end.index > 0)):
            units = self.changes(snapshot_id)
            first = start.index if snapshot_id == start.snapshot else 0
            changes += units[first : end.index if snapshot_id == end.snapshot else len(units)]
        for passed in [known for known in self._units if known < start.snapshot]:
            del self._units[passed]
        return scan, changes

    def changes(self, snapshot_id: int) -> list[ChangeUnit]:
        """Returns the files with a snapshot's changes. Raises SnapshotExpiredError if the snapshot is gone, and
        SchemaMismatchError if the columns have changed.
        """
        if snapshot_id not in self._units:
            is_logged = change_files(self.schema) is ChangeFiles.CHANGELOG
            versions = Versions(self.table.io, self.table.metadata_path)
            snapshot = versions.changes_at(snapshot_id, with_changelogs=is_logged)
            if snapshot is None:
                raise self._expired(snapshot_id)
            self._check_columns(snapshot)
            is_plain = not self.schema.settings.changelog.producer.writes_files
            self._units[snapshot_id] = change_units(self.table, snapshot, postponed=is_plain)
        return self._units[snapshot_id]

    def full(self, snapshot_id: int) -> Scan:
        """Returns the units (files that are read together) of a whole snapshot, for the start of a stream. Rows that a
        later compaction writes to the changelog are not included, because the stream will read them as changes. Raises
        SnapshotExpiredError if the snapshot is gone.
        """
        if self._full is None or self._full.snapshot_id != snapshot_id:
            snapshot = self.table.snapshot_store.get(snapshot_id)
            if snapshot is None:
                raise self._expired(snapshot_id)
            self._check_columns(snapshot)
            producer = self.schema.settings.changelog.producer
            table = self.table
            if not producer.logs_compactions:
                table = _seeing_all(table, postponed=not producer.writes_files)
            self._full = plan_scan(
                table,
                replace(self.request, read_optimized=producer.logs_full_compactions),
                snapshot=snapshot,
                least_level=1 if producer.logs_lookups else 0,
            )
        return self._full

    def _check_columns(self, snapshot: Snapshot) -> None:
        if snapshot.schema_id <= self.schema.id:
            return
        newer = self.table.schema_store.get(snapshot.schema_id)
        old, new = _types(self.schema, self.request.columns), _types(newer, self.request.columns)
        if self.has_all_columns:
            new = _types(newer, None)
        if old != new:
            names = sorted({name for name in {*old, *new} if old.get(name) != new.get(name)})
            raise SchemaMismatchError(
                f"{self.table.path}: the columns {', '.join(names)} were changed before snapshot {snapshot.id}; start "
                "the query again: it continues at this snapshot with the new columns",
                columns=names,
                snapshot=snapshot.id,
            )

    def _expired(self, snapshot_id: int) -> SnapshotExpiredError:
        kept_ids = self.table.snapshot_store.ids()
        if kept_ids and snapshot_id > kept_ids[-1]:
            why = f"the table was rolled back to snapshot {kept_ids[-1]}"
        else:
            why = f"the snapshot expired; the oldest snapshot is {kept_ids[0]}" if kept_ids else "no snapshot is left"
        return SnapshotExpiredError(
            f"{self.table.path}: snapshot {snapshot_id}, which the stream has reached, no longer exists: "
            f"{why}; {REMEDY}",
            path=self.table.path,
            snapshot=snapshot_id,
        )


def _types(schema: TableSchema, names: Iterable[str] | None) -> dict[str, str]:
    wanted = None if names is None else set(names)
    return {f.name: str(f.type) for f in schema.fields if wanted is None or f.name in wanted}


def _seeing_all(table: TableHandle, *, postponed: bool) -> TableHandle:
    """Returns the table with options that let reads see the rows of level 0. If `postponed`, reads also see the rows of
    the postpone bucket. (These rows do not come as changes later.)
    """
    options = {**table.table_schema.options, DV_MERGE_ON_READ.key: "true"}
    if postponed:
        options[POSTPONE_MERGE_ON_READ.key] = "true"
    return replace(table, table_schema=replace(table.table_schema, options=options))
