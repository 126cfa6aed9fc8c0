"""`KeptTable`: the methods with which a user maintains a table: tags, branches, expiry, and checks for damage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bucketline.conf.errors import OptionError
from bucketline.state.store.doctor.examine import examine
from bucketline.state.store.doctor.finding import Finding
from bucketline.state.store.maintenance.expiry import ExpireResult
from bucketline.state.store.maintenance.orphans import OrphanResult, remove_orphan_files
from bucketline.state.store.table.care.consumers import remove_consumers, set_consumer
from bucketline.state.store.table.care.file_indexes import Indexed, index_files
from bucketline.state.store.table.care.named_times import (
    create_due_tags,
    end_tags,
    roll_back_to_time,
    roll_back_to_watermark,
    tag_from_time,
)
from bucketline.state.store.table.care.purge import purge_table
from bucketline.state.store.table.care.rewrites import forget_lost_files, merge_manifests
from bucketline.state.store.table.maintenance import (
    branch_table,
    expire_table,
    expire_table_partitions,
    forward_table,
    mark_table_done,
    milliseconds,
    move_tag,
    rename_branch,
    rename_tag,
    roll_back_table,
    tag_table,
    unbranch_table,
    untag_table,
)
from bucketline.state.store.table.view.readable import ReadableTable


@dataclass(frozen=True, repr=False)
class KeptTable(ReadableTable):
    """A table with methods for reading and maintenance; `Table` adds methods that change rows and columns."""

    def create_tag(self, name: str, snapshot: int | None = None, retained: timedelta | None = None) -> None:
        """Creates a tag on a snapshot, by default on the newest snapshot. The tag keeps the files of the snapshot until
        the tag is deleted, or for the time `retained`.

        If `retained` is None and the table sets `tag.default-time-retained`, that option says how long the tag is kept.
        """
        tag_table(self._handle, name, snapshot, retained)

    def delete_tag(self, name: str) -> bool:
        """Removes a tag and the files that only the tag needs; returns False if there is no such tag."""
        return untag_table(self._handle, name)

    def replace_tag(self, name: str, snapshot: int | None = None, retained: timedelta | None = None) -> None:
        """Moves an existing tag to a snapshot. The arguments mean the same as in `create_tag`.

        Raises OptionError if there is no tag of that name, and for a table whose catalog stores the tags.
        """
        move_tag(self._handle, name, snapshot, retained)

    def rename_tag(self, name: str, to: str) -> None:
        """Gives a tag another name."""
        rename_tag(self._handle, name, to)

    def expire_tags(self, older_than: timedelta | None = None) -> tuple[str, ...]:
        """Removes the tags whose retention time is over, and the tags that were created longer ago than `older_than`.
        Returns the names of the removed tags.
        """
        return end_tags(self._handle, older_than)

    def create_tag_from_timestamp(self, name: str, timestamp: datetime, retained: timedelta | None = None) -> int:
        """Creates a tag on the oldest snapshot that was committed at the given time or later, and returns the id of the
        snapshot.

        A time without a time zone is local time. Raises OptionError if there is no such snapshot.
        """
        return tag_from_time(self._handle, name, timestamp, retained).id

    def create_due_tags(self) -> tuple[str, ...]:
        """Creates the tags that are due by `tag.automatic-creation`, and removes the tags whose retention time is over.
        Returns the names of the new tags.

        Writers also do this after a commit.
        """
        return create_due_tags(self._handle)

    def create_branch(self, name: str, tag: str | None = None) -> None:
        """Creates an empty branch, or a branch that begins at a tag. To read and write the branch, open the table with
        the option `branch`.
        """
        branch_table(self._handle, name, tag)

    def delete_branch(self, name: str) -> bool:
        """Removes a branch; returns False if there is no branch of that name. The files that only the branch used
        remain until `remove_orphan_files` removes them.
        """
        return unbranch_table(self._handle, name)

    def rename_branch(self, name: str, to: str) -> None:
        """Gives a branch another name. No writer of the branch may be active."""
        rename_branch(self._handle, name, to)

    def fast_forward(self, branch: str) -> int:
        """Makes the history of the branch the history of the table itself, and returns the id of the table's newest
        snapshot.

        The branch's snapshots replace the snapshots that the table has made since branch and table had the same
        history. The branch's schemas replace the table's schemas, and its tags replace tags with the same name. The
        branch stays. No writer of the table may be active. Raises OptionError for a branch that does not exist or has
        no snapshot, RemovalUnderWayError while another process rolls the table back, or fast-forwards it to another
        branch.
        """
        return forward_table(self._handle, branch)

    def rollback_to(self, target: int | str) -> int:
        """Makes an older snapshot the newest snapshot again, and returns its id. `target` is the id of the snapshot or
        the name of a tag.

        Newer snapshots and their tags are removed, and the marker tag of a stream (the tag that keeps the stream's last
        snapshot) moves back. No writer may be active.
        """
        return roll_back_table(self._handle, target)

    def rollback_to_timestamp(self, timestamp: datetime) -> int:
        """Rolls back to the newest snapshot that was committed at `timestamp` or before, and returns the id of this
        snapshot; see `rollback_to`. A time without a time zone is local time.
        """
        return roll_back_to_time(self._handle, timestamp)

    def rollback_to_watermark(self, watermark: int) -> int:
        """Rolls back to the newest snapshot with that watermark or an earlier watermark, and returns its id; see
        `rollback_to`.
        """
        return roll_back_to_watermark(self._handle, watermark)

    def reset_consumer(self, name: str, next_snapshot: int | None = None) -> None:
        """Sets the snapshot that a consumer reads next. The snapshot must exist; None removes the consumer."""
        set_consumer(self._handle, name, next_snapshot)

    def clear_consumers(self, including: str = ".*", excluding: str | None = None) -> tuple[str, ...]:
        """Removes the consumers whose whole name matches the regular expression `including` and does not match
        `excluding`. Returns the names of the removed consumers.
        """
        return remove_consumers(self._handle, including, excluding)

    def compact_manifests(self) -> int | None:
        """Merges all manifests into as few as possible. Returns the id of the new snapshot; None if there was nothing
        to merge.

        Commits also merge manifests, as soon as there are enough manifests.
        """
        return merge_manifests(self._handle)

    def rewrite_file_index(self, partitions: Sequence[Mapping[str, object]] | None = None) -> Indexed:
        """Makes the bloom filters of `file-index.bloom-filter.columns` for files that were written before the option
        was set, and returns the numbers of files and partitions with new bloom filters. The data files stay unchanged.
        `partitions` has the same form as in `compact`.

        Raises OptionError if the option names no column, and CommitConflictError if a compaction has replaced one of
        the files first; the table is unchanged then.
        """
        return index_files(self._handle, partitions)

    def remove_unexisting_files(self, dry_run: bool = True) -> tuple[str, ...]:
        """Finds data files that the newest snapshot names but that do not exist, and returns their paths.

        If `dry_run` is False, the missing files are also removed from the table's metadata. The rows of the missing
        files are lost, and all other rows can be read again.
        """
        return forget_lost_files(self._handle, dry_run=dry_run)

    def purge_files(self, *, no_writers: bool) -> None:
        """Removes all rows, branches, tags, consumers and older snapshots, with all their files. The empty table stays,
        with its columns and options. `no_writers=True` states that nobody writes to the table during the call.
        """
        if not no_writers:
            raise OptionError(
                "purge_files removes files of writers too: pass no_writers=True if there are no writers",
                key="no_writers",
            )
        purge_table(self._handle)

    def expire_snapshots(
        self,
        *,
        retain_min: int | None = None,
        retain_max: int | None = None,
        older_than: timedelta | None = None,
        limit: int | None = None,
    ) -> ExpireResult:
        """Removes old snapshots and the files that only these snapshots needed, and returns what was removed. For each
        argument that is None, the table's options decide. Also removes tags whose retention time is over, and
        changelogs that the options no longer keep.

        `limit` is the largest number of snapshots to remove; None removes all snapshots that may be removed. Files that
        a tag, a branch or a consumer needs stay.
        """
        return expire_table(
            self._handle, retain_min=retain_min, retain_max=retain_max, older_than=older_than, limit=limit
        )

    def expire_partitions(self, older_than: timedelta | None = None) -> tuple[str, ...]:
        """Drops the partitions that have expired, in one commit or several, and returns the names of their folders.

        The table's options `partition.expiration-*` and `partition.timestamp-*` apply; `older_than` replaces
        `partition.expiration-time`. Writers also do this, once in every `partition.expiration-check-interval`. Raises
        OptionError if neither an option nor `older_than` says when partitions expire, and the errors of `overwrite`.
        """
        return expire_table_partitions(self._handle, older_than=older_than)

    def mark_done(self, partitions: Sequence[Mapping[str, object]] | None = None) -> tuple[str, ...]:
        """Marks partitions as done, and returns the names of their folders. `partition.mark-done-action` says how: a
        `_SUCCESS` file in each folder, a report to a server, or a mark in the REST catalog.

        `partitions` has the same form as in `compact`; None stands for all partitions. Streams also mark partitions, by
        `partition.idle-time-to-done`. Raises OptionError for an unknown action, StorageError for a mark that was not
        accepted, UnsupportedTableError if the catalog cannot mark partitions.
        """
        return mark_table_done(self._handle, partitions)

    def remove_orphan_files(
        self, dry_run: bool = True, older_than: timedelta = timedelta(days=1), *, no_writers: bool = False
    ) -> OrphanResult:
        """Finds orphan files, which are files that no snapshot, tag or branch names, and returns them. If `dry_run` is
        False, these files are also removed.

        Only files that have not changed for the time `older_than` count as orphan files. To remove files, `older_than`
        must be at least a day, because no snapshot names a file that a writer has created and not committed yet.
        `no_writers=True` states that nobody writes to the table, and allows a shorter time. Danger: if anybody does
        write to the table, even Paimon or a paused job, the next snapshot can name removed files, and rows are lost.

        Raises FilesTooYoungError for a removal with less than a day and without `no_writers`, UnsupportedTableError for
        storage that does not tell when a file was written, CorruptFileError if a file that says which files are in use
        cannot be read.
        """
        age_ms = milliseconds(older_than, "older_than")
        return remove_orphan_files(self._handle, dry_run=dry_run, older_than_ms=age_ms, no_writers=no_writers)

    def doctor(self, rows: bool = False) -> list[Finding]:
        """Looks for damage in this table, and returns what was found, errors first. If `rows` is True, all live rows
        are read as well. Nothing is changed.
        """
        return examine(self._handle, rows=rows)
