"""Decides which snapshots may be removed, and which files are removed with them. The caller reads all metadata, and
passes the metadata to the functions.

A file is removed together with the last snapshot that needs it. If a snapshot's delta deletes a file, the snapshot
before it is the last one that needs the file. The cost depends on the size of the deltas, not on the size of the table.
Source: Paimon 2.0 ExpireSnapshotsImpl, SnapshotDeletion, TagManager.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bucketline.conf.errors import OptionError
from bucketline.conf.table.table_options import (
    CHANGELOG_NUM_RETAINED_MAX,
    CHANGELOG_NUM_RETAINED_MIN,
    CHANGELOG_TIME_RETAINED,
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
)
from bucketline.conf.table.table_settings import RetentionSettings
from bucketline.conf.wording import counted
from bucketline.state.format.entries import FileKind, ManifestEntry, Snapshot

FileKey = tuple[bytes, int, str]
"""Identifies a data file in storage by its partition, bucket and name. Its level is not part of the key."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which snapshots expiry keeps: at least `min_count`, at most `max_count`, and all snapshots younger than
    `time_ms` milliseconds. One expiry removes at most `limit` snapshots.
    """

    min_count: int
    max_count: int
    time_ms: int
    limit: int

    def __post_init__(self) -> None:
        if self.min_count < 1:
            raise OptionError(
                f"at least one snapshot must be kept; set '{SNAPSHOT_NUM_RETAINED_MIN.key}' to 1 or more",
                key=SNAPSHOT_NUM_RETAINED_MIN.key,
                value=self.min_count,
            )
        if self.max_count < self.min_count:
            raise OptionError(
                f"the table cannot keep at least {counted(self.min_count, 'snapshot')} and at most {self.max_count:,}; "
                f"set '{SNAPSHOT_NUM_RETAINED_MAX.key}' to {self.min_count} or more",
                key=SNAPSHOT_NUM_RETAINED_MAX.key,
                value=self.max_count,
            )

    @classmethod
    def of(cls, settings: RetentionSettings) -> "Retention":
        """Returns the retention that a table's settings describe. Raises OptionError if a setting is invalid, or if two
        settings contradict each other.
        """
        return cls(
            min_count=settings.snapshots_min,
            max_count=settings.snapshots_max,
            time_ms=settings.snapshots_ms,
            limit=settings.expire_limit,
        )

    @classmethod
    def of_changelogs(cls, settings: RetentionSettings) -> "Retention":
        """Returns how many changelogs expiry keeps, and for how long, by the table's settings. An own setting for
        changelogs that is missing is replaced by the setting for snapshots.
        """
        snapshots = cls.of(settings)
        return cls(
            min_count=snapshots.min_count if settings.changelogs_min is None else settings.changelogs_min,
            max_count=snapshots.max_count if settings.changelogs_max is None else settings.changelogs_max,
            time_ms=snapshots.time_ms if settings.changelogs_ms is None else settings.changelogs_ms,
            limit=settings.expire_limit,
        )


def longer_changelog(settings: RetentionSettings) -> str | None:
    """Returns the name of an option that keeps changelogs longer than snapshots; None if no option does."""
    for changelogs, snapshots, option in (
        (settings.changelogs_min, settings.snapshots_min, CHANGELOG_NUM_RETAINED_MIN),
        (settings.changelogs_max, settings.snapshots_max, CHANGELOG_NUM_RETAINED_MAX),
        (settings.changelogs_ms, settings.snapshots_ms, CHANGELOG_TIME_RETAINED),
    ):
        if changelogs is not None and changelogs > snapshots:
            return option.key
    return None


def expiry_end(
    earliest: int,
    latest: int,
    retention: Retention,
    *,
    now_ms: int,
    next_of_consumers: Iterable[int],
    time_of: Callable[[int], int | None],
) -> int:
    """Returns the id of the oldest snapshot that stays. The snapshots from `earliest` up to this id (not included) are
    to be removed.

    A snapshot is removed once its successor is older than the retention time, so that every state within that time
    stays readable. If there are more snapshots than the largest number to keep, the oldest ones are removed at any age.
    `time_of` returns the time of a snapshot, or None if the snapshot does not exist any more. `time_of` is called for
    at most as many ids as one expiry may remove. `next_of_consumers` are the snapshots that consumers will read next,
    which stay.
    """
    stop = min([latest - retention.min_count + 1, earliest + retention.limit, *next_of_consumers])
    end = max(earliest, min(latest - retention.max_count + 1, stop))
    while end < stop:
        successor_ms = time_of(end + 1)
        if successor_ms is not None and successor_ms >= now_ms - retention.time_ms:
            break
        end += 1
    return end


def changelog_end(
    ids: Sequence[int],
    latest: int,
    retention: Retention,
    *,
    now_ms: int,
    next_of_consumers: Iterable[int],
    time_of: Callable[[int], int | None],
) -> int:
    """Returns the id of the oldest changelog that stays. `ids` are the ascending ids of the changelogs whose snapshots
    have expired, and `latest` is the id of the newest snapshot. The other arguments mean the same as in `expiry_end`.

    The age of a changelog is counted from its own time, and the newest changelog always stays.
    Source: Paimon 2.0 ExpireChangelogImpl.
    """
    earliest, last = ids[0], ids[-1]
    stop = min([latest - retention.min_count + 1, earliest + retention.limit, last, *next_of_consumers])
    end = max(earliest, min(latest - retention.max_count + 1, stop))
    while end < stop:
        time_ms = time_of(end)
        if time_ms is not None and time_ms >= now_ms - retention.time_ms:
            break
        end += 1
    return end


def sharing_tags(tags: Iterable[Snapshot], begin: int, end: int) -> list[Snapshot]:
    """Returns the tagged snapshots that may share files with the snapshots from `begin` up to `end` (not included): the
    tagged snapshots in this range, and the nearest tagged snapshot before `begin`.

    Other tags need no check, because a file is live in consecutive snapshots. If a snapshot of the range shares a file
    with an older tag, the nearest tag before `begin` has the file, too. If a snapshot of the range shares a file with a
    later tag, snapshot `end` has the file, too.
    """
    ordered = sorted(tags, key=lambda s: s.id)
    before = [s for s in ordered if s.id < begin]
    return before[-1:] + [s for s in ordered if begin <= s.id < end]


def dead_files(deltas: Iterable[tuple[int, Sequence[ManifestEntry]]]) -> dict[FileKey, tuple[int, ManifestEntry]]:
    """Returns the data files that deltas delete, each with the id of the last snapshot that has it.

    `deltas` are pairs of snapshot id and manifest entries, in ascending order. If a delta both deletes and adds a file,
    only the level of the file has changed, so the file stays. The order of the two entries does not matter.
    """
    dead: dict[FileKey, tuple[int, ManifestEntry]] = {}
    for snapshot_id, entries in deltas:
        for entry in entries:
            if entry.kind is FileKind.DELETE:
                dead[file_key(entry)] = (snapshot_id - 1, entry)
        for entry in entries:
            if entry.kind is FileKind.ADD:
                dead.pop(file_key(entry), None)
    return dead


def file_key(entry: ManifestEntry) -> FileKey:
    return (entry.partition, entry.bucket, entry.file.file_name)


@dataclass(frozen=True, slots=True)
class Footprint:
    """The files that a snapshot needs in addition to data files. `lists` (manifest lists), `manifests` and `statistics`
    are file names without their folder. `index_files` are paths relative to the table's folder.
    """

    lists: frozenset[str] = field(default_factory=frozenset)
    manifests: frozenset[str] = field(default_factory=frozenset)
    index_files: frozenset[str] = field(default_factory=frozenset)
    statistics: frozenset[str] = field(default_factory=frozenset)

    def union(self, other: "Footprint") -> "Footprint":
        return Footprint(
            self.lists | other.lists,
            self.manifests | other.manifests,
            self.index_files | other.index_files,
            self.statistics | other.statistics,
        )

    def without(self, other: "Footprint") -> "Footprint":
        return Footprint(
            self.lists - other.lists,
            self.manifests - other.manifests,
            self.index_files - other.index_files,
            self.statistics - other.statistics,
        )


def _kinds_of(footprint: Footprint) -> tuple[frozenset[str], ...]:
    return footprint.lists, footprint.manifests, footprint.index_files, footprint.statistics


def unite(footprints: Iterable[Footprint]) -> Footprint:
    """Returns one `Footprint` (the files that a snapshot needs in addition to data files) with the files of all given
    footprints.
    """
    kinds = zip(*map(_kinds_of, footprints), strict=True)
    return Footprint(*(frozenset[str]().union(*files) for files in kinds))


def retire(footprints: Sequence[tuple[int, Footprint]], kept: Footprint) -> dict[int, Footprint]:
    """Divides the files of expired snapshots by the snapshot with which they can be removed: the last snapshot that
    needs the file. Files in `kept` are left out, because they stay. `footprints` has the files of each snapshot, in
    ascending order of ids. The result has the files to remove, by snapshot id.
    """
    needed, retired = [set(files) for files in _kinds_of(kept)], dict[int, Footprint]()
    for snapshot_id, footprint in reversed(footprints):
        kinds = list(zip(_kinds_of(footprint), needed, strict=True))
        retired[snapshot_id] = Footprint(*(files - later for files, later in kinds))
        for files, later in kinds:
            later |= files
    return retired
