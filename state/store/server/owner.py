"""The interface of a catalog that decides, instead of the table's files, which snapshot of a table or branch is the
newest.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.json_files.tag_json import Tag

PartitionSpec = Mapping[str, str]
"""A partition as catalogs name it: the string for the value of each partition column."""


class TableOwner(Protocol):
    """The catalog that a table or a branch belongs to. Implementations can be pickled.

    If the answer to a change of a tag or branch, or to a rollback, is lost, the implementation checks whether the
    change has happened. So a StorageError means that the change has not happened, or that it is not known whether the
    change has happened.
    """

    def newest(self) -> Snapshot | None:
        """Returns the newest snapshot; None for a table without snapshots."""
        ...

    def commit(self, snapshot: Snapshot, before: Snapshot | None) -> bool:
        """Makes `snapshot` the successor of `before`, and returns True. Returns False if another snapshot is the
        newest.

        After a StorageError the commit may have happened, unless the error's `published` is False.
        """
        ...

    def change_schema(self, before: TableSchema, wanted: TableSchema) -> None:
        """Changes the schema from `before` to `wanted`. Raises StorageError, and OptionError if the catalog refuses the
        change.
        """
        ...

    def roll_back(self, target: int | str, *, newest: int | None = None) -> None:
        """Makes the snapshot with this id, or of this tag, the newest snapshot again. If `newest` is not None, the
        rollback happens only if the newest snapshot has the id `newest`. Raises OptionError if there is no such
        snapshot or tag.
        """
        ...

    def create_tag(self, tag: Tag) -> bool:
        """Creates a tag; returns False if the name is taken."""
        ...

    def delete_tag(self, name: str) -> None:
        """Removes a tag. Does nothing if there is no such tag."""
        ...

    def branches(self) -> list[str]:
        """Returns the names of the table's branches, sorted."""
        ...

    def create_branch(self, name: str, tag: str | None) -> None:
        """Creates a branch: at the tag `tag`, or empty if `tag` is None. Raises OptionError if the name is taken."""
        ...

    def delete_branch(self, name: str) -> None:
        """Removes a branch. Does nothing if there is no such branch."""
        ...

    def fast_forward(self, branch: str) -> None:
        """Makes the history of the branch the history of the table. Raises OptionError if there is no such branch."""
        ...

    def mark_partitions_done(self, partitions: Sequence[PartitionSpec]) -> None:
        """Marks partitions as done. Raises StorageError, and UnsupportedTableError if the catalog stores no
        partitions.
        """
        ...

    def add_partitions(self, partitions: Sequence[PartitionSpec]) -> None:
        """Adds partitions to the catalog. Partitions that are there already stay. Raises the errors of
        `mark_partitions_done`.
        """
        ...

    def drop_partitions(self, partitions: Sequence[PartitionSpec]) -> None:
        """Removes partitions from the catalog. Partitions that are not there are ignored. Raises the errors of
        `mark_partitions_done`.
        """
        ...
