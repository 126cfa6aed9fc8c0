"""Finds the snapshot that a read asks for: by id, by tag, by time, or the newest snapshot."""

from bucketline.conf.errors import OptionError
from bucketline.conf.option import whole_number
from bucketline.conf.table.read_options import (
    SCAN_SNAPSHOT_ID,
    SCAN_TAG_NAME,
    SCAN_TIMESTAMP_MILLIS,
    SCAN_VERSION,
    check_read_options,
)
from bucketline.conf.table.table_settings import ReadSettings
from bucketline.conf.wording import span
from bucketline.state.errors import MissingSnapshotError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot
from bucketline.state.format.paths import SNAPSHOT_DIR, TAG_DIR, parse_tag, tag_name
from bucketline.state.store.catalog.changelogs import read_changelog
from bucketline.state.store.catalog.newest_snapshot import rolled_back_to
from bucketline.state.store.catalog.rollback import ROLLBACK_TAG
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.file_io import FileIO

Version = int | str
"""The id of a snapshot, or the name of a tag."""


class Versions:
    """The snapshots and tags below `path`, the metadata folder of a table or of a branch."""

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._path = path
        self._snapshots = Snapshots(io, path)

    def find(self, version: Version | None, settings: ReadSettings) -> Snapshot | None:
        """Returns the snapshot `version`. If `version` is None, returns the snapshot that the read options name, or the
        newest snapshot if they name none. Returns None for an empty table.

        Raises OptionError for a version that does not exist; its message lists the versions that exist.
        """
        if version is not None:
            return self.named(version, "snapshot")
        check_read_options(settings.options)
        if (snapshot_id := settings.snapshot_id) is not None:
            return self.by_id(snapshot_id, SCAN_SNAPSHOT_ID.key)
        if (tag := settings.tag) is not None:
            return self.by_tag(tag, SCAN_TAG_NAME.key)
        if (time_ms := settings.time_ms) is not None:
            return self.by_time(time_ms)
        if (text := settings.version) is not None:
            return self.named(text if self.is_tag(text) else whole_number(text), SCAN_VERSION.key)
        return self._snapshots.latest()

    def named(self, version: Version, key: str) -> Snapshot:
        """Returns the snapshot that `version` names: an id, or the name of a tag. `key` is the option or argument that
        an OptionError names.
        """
        return self.by_tag(version, key) if isinstance(version, str) else self.by_id(version, key)

    def by_id(self, snapshot_id: int, key: str) -> Snapshot:
        snapshot = self._snapshots.get(snapshot_id)
        if snapshot is None:
            ids = self._snapshots.ids()
            self._check_no_hole(snapshot_id, ids)
            known = f"it has {span(ids[0], ids[-1], 'snapshot')}" if ids else "it has none yet"
            raise OptionError(f"{self._path} has no snapshot {snapshot_id}; {known}", key=key, value=snapshot_id)
        return snapshot

    def by_tag(self, tag: str, key: str) -> Snapshot:
        """Returns the snapshot of a tag. The snapshot itself may have expired. `key` is the option or argument that an
        OptionError names.
        """
        snapshot = self._tagged(tag)
        if snapshot is None:
            names = sorted(filter(None, map(parse_tag, self._io.list_names(f"{self._path}/{TAG_DIR}"))))
            known = f"its tags: {', '.join(names)}" if names else "it has no tags"
            raise OptionError(f"{self._path} has no tag {tag!r}; {known}", key=key, value=tag)
        return snapshot

    def is_tag(self, text: str) -> bool:
        """Returns True if this value of `scan.version` is the name of a tag: a string that is not a number, or a number
        that is also the name of a tag.
        """
        return not (text.isascii() and text.isdigit()) or self._tagged(text) is not None

    def has_tag(self, name: str) -> bool:
        return self._tagged(name) is not None

    def by_time(self, time_ms: int) -> Snapshot:
        """Returns the newest snapshot that was committed at `time_ms` (milliseconds since 1970) or before. Raises
        OptionError if no snapshot is that old.
        """
        snapshot = self.at_time(time_ms)
        if snapshot is None:
            raise OptionError(
                f"{self._path} has no snapshot committed at {time_ms} or before; choose a later time",
                key=SCAN_TIMESTAMP_MILLIS.key,
                value=time_ms,
            )
        return snapshot

    def at_time(self, time_ms: int) -> Snapshot | None:
        """Returns the newest snapshot that was committed at `time_ms` (milliseconds since 1970) or before; None if no
        snapshot is that old. Raises MissingSnapshotError if the file of this snapshot is missing.
        """
        earliest, latest = self._snapshots.earliest_id(), self._snapshots.latest_id()
        newest: Snapshot | None = None
        if earliest is not None and latest is not None:
            low, high = earliest, latest
            while low <= high:
                middle = (low + high) // 2
                snapshot = self._snapshots.get(middle)
                # An expired snapshot is older than all remaining snapshots.
                if snapshot is None or snapshot.time_ms <= time_ms:
                    newest, low = snapshot or newest, middle + 1
                else:
                    high = middle - 1
            if newest is None or newest.id < high:
                self._check_no_hole(high, self._snapshots.ids())
        return newest

    def between(self, since: int, until: int, *, with_changelogs: bool) -> list[Snapshot]:
        """Returns the snapshots after the id `since` up to and including the id `until`, in order.

        If `with_changelogs` is true, an expired snapshot is included as long as its changelog exists. Raises
        OptionError if a snapshot does not exist any more.
        """
        if since > until:
            newest = (
                f"snapshot {until}, the newest that is read" if until else "what is read: the table has no snapshot"
            )
            raise OptionError(
                f"changes_since is snapshot {since}, which is newer than {newest}; give an older snapshot, or 0 for "
                "all changes",
                key="changes_since",
                value=since,
            )
        snapshots: list[Snapshot] = []
        for snapshot_id in range(since + 1, until + 1):
            snapshot = self._snapshots.get(snapshot_id)
            if snapshot is None and with_changelogs:
                snapshot = read_changelog(self._io, self._path, snapshot_id)
            if snapshot is None:
                self._check_no_hole(snapshot_id, self._snapshots.ids())
                oldest = self._snapshots.earliest_id()
                raise OptionError(
                    f"{self._path}: snapshot {snapshot_id} is expired, so that the changes since {since} are not "
                    f"complete; {'no snapshot is left' if oldest is None else f'the oldest snapshot is {oldest}'}",
                    key="changes_since",
                    value=since,
                )
            snapshots.append(snapshot)
        return snapshots

    def changes_at(self, snapshot_id: int, *, with_changelogs: bool) -> Snapshot | None:
        """Returns the snapshot with this id. If the snapshot has expired and `with_changelogs` is true, returns its
        changelog instead. Returns None if neither exists.

        Raises MissingSnapshotError if the file of the snapshot is missing although older snapshots exist.
        """
        snapshot = self._snapshots.get(snapshot_id)
        if snapshot is None and with_changelogs:
            snapshot = read_changelog(self._io, self._path, snapshot_id)
        if snapshot is None:
            self._check_no_hole(snapshot_id, self._snapshots.ids())
        return snapshot

    def _check_no_hole(self, snapshot_id: int, ids: list[int]) -> None:
        """Raises MissingSnapshotError if a snapshot has no file although it was published and has not expired."""
        if ids and ids[0] < snapshot_id < ids[-1]:
            mark = self._tagged(ROLLBACK_TAG)
            target = None if mark is None or mark.id < snapshot_id else rolled_back_to(mark)
            raise MissingSnapshotError(
                f"{self._path}: the file of snapshot {snapshot_id} is missing although older snapshots exist; "
                + (
                    "restore it from a copy. Newer snapshots can be read as before"
                    if target is None
                    else f"a rollback to snapshot {target} removed it, and was interrupted while a writer committed. "
                    f"Roll the table back to snapshot {target} again, or read from a newer snapshot on"
                ),
                path=f"{self._path}/{SNAPSHOT_DIR}",
                snapshot=snapshot_id,
            )

    def _tagged(self, tag: str) -> Snapshot | None:
        if not tag or "/" in tag or tag in (".", ".."):
            return None
        path = f"{self._path}/{TAG_DIR}/{tag_name(tag)}"
        data = self._io.read_optional(path)
        if data is None:
            return None
        with naming_file(path):
            return decode_snapshot(data)
