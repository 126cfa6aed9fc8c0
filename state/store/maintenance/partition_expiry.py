"""Drops partitions that have expired, with an OVERWRITE snapshot that takes all their files out of the table.

Source: Paimon 2.0 NormalPartitionExpire, FileStoreCommitImpl.dropPartitions.
"""

import logging
from collections.abc import Sequence

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Replace
from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.commit.partition_age import expired_partitions
from bucketline.state.format.paths import partition_path
from bucketline.state.store.maintenance.done_actions import forget_done
from bucketline.state.store.write.commit_change import commit_change
from bucketline.state.store.write.table_at import TableAt

_LOG = logging.getLogger(__name__)


def expire_partitions(at: TableAt, *, user: str, after_ms: int | None = None) -> tuple[str, ...]:
    """Drops the partitions that have expired, and returns the names of their folders.

    `after_ms` replaces the table's `partition.expiration-time`; if both are missing, no partition expires. Partitions
    whose values hold no time stay, and are named in a warning. Raises the errors of `commit_change`; partitions that
    were dropped before the error stay dropped.
    """
    schema = at.plan.schema
    at = at.followed()
    view = at.view
    expired = expired_partitions(schema, newest_files(view), at.table.world.clock.local_ms(), after_ms=after_ms)
    if expired.timeless:
        _LOG.warning(
            "%s: the partitions %s hold no time that 'partition.timestamp-pattern' and "
            "'partition.timestamp-formatter' can read, so they do not expire; set these options, or "
            "'partition.expiration-strategy' = 'update-time'",
            at.table.path,
            ", ".join(partition_path(schema, p).rstrip("/") for p in expired.timeless[:3]),
        )
    at_once = schema.settings.expiry.at_once or max(1, len(expired.partitions))
    for start in range(0, len(expired.partitions), at_once):
        dropped = expired.partitions[start : start + at_once]
        at = _dropped(at, dropped, user)
        _forget(at, dropped)
    return tuple(partition_path(schema, p).rstrip("/") for p in expired.partitions)


def newest_files(view: LiveFiles) -> dict[bytes, int | None]:
    """Returns the creation time of the newest live file of each partition, as local time in milliseconds; None if a
    file of the partition does not record its creation time.
    """
    newest: dict[bytes, int | None] = {}
    for partition, bucket in view.buckets():
        times = [f.creation_time_ms for f in view.files((partition, bucket))]
        known = [t for t in (*times, newest.get(partition, 0)) if t is not None]
        newest[partition] = max(known) if len(known) == len(times) + 1 else None
    return newest


def _forget(at: TableAt, dropped: Sequence[bytes]) -> None:
    """Removes the entries of the partitions from the catalog. The partitions have been dropped already, so a failure is
    only logged as a warning.
    """
    try:
        forget_done(at.table, at.plan.schema, dropped)
    except BucketlineError as e:
        _LOG.warning("%s: partitions were dropped, but stay marked as done in the catalog: %s", at.table.path, e)


def _dropped(at: TableAt, partitions: Sequence[bytes], user: str) -> TableAt:
    """Commits the removal of these partitions, and returns the table after the commit."""
    chosen = frozenset(partitions)
    return at.after(commit_change(at, Replace((), chosen.__contains__), Author(user)))
