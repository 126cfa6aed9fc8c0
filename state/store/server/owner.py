"""The interface of a catalog that decides which snapshot of a table or branch is the newest, in place of the table's
files.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.json_files.tag_json import Tag

PartitionSpec = Mapping[str, str]
"""A partition as catalogs name it: the text of each partition column."""


class TableOwner(Protocol):
    """The catalog that a table or a branch belongs to. Implementations can be pickled.

    After a lost answer it is looked up whether a change of a tag or branch, or a rollback, has happened. So a
    StorageError means that it has not, or that nobody knows.
    """

    def newest(self) -> Snapshot | None:
        """The newest snapshot; None for a table without any."""
        ...

    def commit(self, snapshot: Snapshot, before: Snapshot | None) -> bool:
        """Makes `snapshot` the successor of `before`; False when another one is the newest.

        After a StorageError it may have happened, unless its `published` is False.
        """
        ...

    def change_schema(self, before: TableSchema, wanted: TableSchema) -> None:
        """Changes the schema as from `before` to `wanted`. Raises StorageError; OptionError for what is refused."""
        ...

    def roll_back(self, target: int | str, *, newest: int | None = None) -> None:
        """Makes a snapshot, by id or tag, the newest again, if `newest` is the id of the newest one (None: whatever it
        is). Raises OptionError when there is none."""
        ...

    def create_tag(self, tag: Tag) -> bool:
        """Creates a tag; False when the name is taken."""
        ...

    def delete_tag(self, name: str) -> None:
        """Removes a tag; a missing one is no error."""
        ...

    def branches(self) -> list[str]:
        """The names of the table's branches, sorted."""
        ...

    def create_branch(self, name: str, tag: str | None) -> None:
        """Creates a branch, at a tag if one is named. Raises OptionError when the name is taken."""
        ...

    def delete_branch(self, name: str) -> None:
        """Removes a branch; a missing one is no error."""
        ...

    def fast_forward(self, branch: str) -> None:
        """Makes the branch's history that of the table. Raises OptionError for a branch that is not there."""
        ...

    def mark_partitions_done(self, partitions: Sequence[PartitionSpec]) -> None:
        """Says that partitions are done. Raises StorageError; UnsupportedTableError where the catalog keeps none."""
        ...

    def add_partitions(self, partitions: Sequence[PartitionSpec]) -> None:
        """Adds partitions to those that the catalog keeps, unless they are there. Errors as above."""
        ...

    def drop_partitions(self, partitions: Sequence[PartitionSpec]) -> None:
        """Takes partitions out of those that the catalog keeps; missing ones are no error. Errors as above."""
        ...
