"""A table that a REST catalog owns, or a branch of it. Its snapshots, schema, tags and branches are read and changed
through the server.

The server decides about commits: a commit is one request that names the uuid of the snapshot before it. For the server,
a branch is a table named `table$branch_name`, with its own id.

Source: Paimon's OpenAPI description of the REST catalog; Paimon 2.0 RESTCatalog, CatalogSnapshotCommit.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.state.errors import (
    BranchNotFoundError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
    VersionNotFoundError,
)
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.rest_json import schema_changes
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.json_files.snapshot_json import decode_snapshot, encode_snapshot
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.format.table_name import TableName
from bucketline.state.store.server.owner import PartitionSpec
from bucketline.state.store.server.rest_client import NotThereError, RestClient, TakenError

_SNAPSHOT, _TAG, _BRANCH = "SNAPSHOT", "TAG", "BRANCH"


def table_path(name: TableName) -> tuple[str, ...]:
    """Returns the path of a table, or of a branch, as segments below the catalog's prefix: `("databases", "db",
    "tables", "t")`.
    """
    return ("databases", name.database, "tables", name.object_name)


@dataclass(frozen=True, slots=True)
class RestTable:
    """The table `name` with the id that the catalog has given it. A later table with the same name has another id."""

    client: RestClient
    name: TableName
    uuid: str | None
    """The id of the table; None if it is not known. Each branch has its own id."""

    def on_branch(self, branch: str) -> "RestTable":
        """Returns the branch of this table with that name, as a `RestTable`."""
        return replace(self, name=replace(self.name, branch=branch))

    def newest(self) -> Snapshot | None:
        try:
            answer = self.client.get(*table_path(self.name), "snapshot")
        except NotThereError as e:
            if e.kind == _SNAPSHOT:
                return None
            raise self._gone(e) from e
        snapshot = (answer.get("snapshot") or {}).get("snapshot")
        return None if snapshot is None else decode_snapshot(json.dumps(snapshot).encode())

    def commit(self, snapshot: Snapshot, before: Snapshot | None) -> bool:
        body = {
            "tableId": self.uuid if self.name.branch is None else self._branch_id(),
            "baseSnapshotUuid": None if before is None else before.uuid,
            "snapshot": json.loads(encode_snapshot(snapshot)),
            "statistics": [],
        }
        try:
            answer = self.client.post(body, *table_path(self.name), "commit")
        except NotThereError as e:
            # Another branch with that name may have been created since.
            _branch_id.cache_clear()
            raise self._gone(e) from e
        except TakenError:
            return False
        if not isinstance(answer.get("success"), bool):
            raise StorageError(
                f"{self.name}: the catalog's answer to a commit does not say whether it happened",
                path=str(self.name),
                retryable=True,
                missing=False,
            )
        return bool(answer["success"])

    def change_schema(self, before: TableSchema, wanted: TableSchema) -> None:
        try:
            self.client.post({"changes": schema_changes(before, wanted)}, *table_path(self.name))
        except NotThereError as e:
            if e.kind == "COLUMN":
                raise OptionError(f"the catalog refuses the change: {e.message}", key="schema") from e
            raise self._gone(e) from e
        except TakenError as e:
            raise OptionError(f"the catalog refuses the change: {e}", key="schema") from e

    def roll_back(self, target: int | str, *, newest: int | None = None) -> None:
        instant: dict[str, object] = {"type": "snapshot", "snapshotId": target}
        if isinstance(target, str):
            instant = {"type": "tag", "tagName": target}
        body = {"instant": instant, "fromSnapshot": newest}
        try:
            self._changed(lambda: self._post(body, "rollback"), lambda: self._is_at(target))
        except NotThereError as e:
            if e.kind not in (_SNAPSHOT, _TAG):
                raise self._gone(e) from e
            kind = str(instant["type"])
            raise VersionNotFoundError(f"Rollback {kind} '{target}' doesn't exist.", key=kind, value=target) from e

    def create_tag(self, tag: Tag) -> bool:
        kept = None if tag.retained_ms is None else f"{tag.retained_ms} ms"
        body = {"tagName": tag.name, "snapshotId": tag.snapshot.id, "timeRetained": kept}
        try:
            self._changed(lambda: self._post(body, "tags"), lambda: self._tagged(tag.name) == tag.snapshot.id)
        except TakenError:
            return False
        except NotThereError as e:
            if e.kind != _SNAPSHOT:
                raise self._gone(e) from e
            raise OptionError(
                f"{self.name} has no snapshot {tag.snapshot.id} any more; name a newer snapshot",
                key="snapshot",
                value=tag.snapshot.id,
            ) from e
        return True

    def delete_tag(self, name: str) -> None:
        try:
            self._changed(lambda: self._delete("tags", name), lambda: self._tagged(name) is None)
        except NotThereError as e:
            if e.kind != _TAG:
                raise self._gone(e) from e

    def branches(self) -> list[str]:
        try:
            return self.client.names("branches", *table_path(self.name), "branches")
        except NotThereError as e:
            raise self._gone(e) from e

    def create_branch(self, name: str, tag: str | None) -> None:
        name_taken = OptionError(f"Branch name '{name}' already exists.", key="branch", value=name)
        if name in self.branches():
            raise name_taken
        _branch_id.cache_clear()
        body = {"branch": name, "fromTag": tag}
        try:
            self._changed(lambda: self._post(body, "branches"), lambda: name in self.branches())
        except TakenError as e:
            raise name_taken from e
        except NotThereError as e:
            if e.kind != _TAG:
                raise self._gone(e) from e
            raise VersionNotFoundError(f"Tag '{tag}' doesn't exist.", key="tag", value=tag) from e

    def delete_branch(self, name: str) -> None:
        _branch_id.cache_clear()
        try:
            self._changed(lambda: self._delete("branches", name), lambda: name not in self.branches())
        except NotThereError as e:
            if e.kind != _BRANCH:
                raise self._gone(e) from e

    def fast_forward(self, branch: str) -> None:
        try:
            self._changed(
                lambda: self._post({}, "branches", branch, "forward"),
                lambda: self.newest() == self.on_branch(branch).newest(),
            )
        except NotThereError as e:
            if e.kind != _BRANCH:
                raise self._gone(e) from e
            raise VersionNotFoundError(f"Branch name '{branch}' doesn't exist.", key="branch", value=branch) from e

    def mark_partitions_done(self, partitions: Sequence[PartitionSpec]) -> None:
        self._keep_partitions({"specs": _listed(partitions)}, "mark")

    def add_partitions(self, partitions: Sequence[PartitionSpec]) -> None:
        self._keep_partitions({"partitionSpecs": _listed(partitions), "ignoreIfExists": True})

    def drop_partitions(self, partitions: Sequence[PartitionSpec]) -> None:
        self._keep_partitions({"partitionSpecs": _listed(partitions), "ignoreIfNotExists": True}, "drop")

    def _keep_partitions(self, body: Mapping[str, Any], *action: str) -> None:
        try:
            self._post(body, "partitions", *action)
        except NotThereError as e:
            if e.kind == "TABLE":
                raise self._gone(e) from e
            raise _keeps_none(self.name, e.message) from e
        except UnsupportedTableError as e:
            raise _keeps_none(self.name, str(e)) from e

    def _post(self, body: Mapping[str, object], *path: str) -> None:
        self.client.post(body, *table_path(self.name), *path)

    def _delete(self, *path: str) -> None:
        self.client.delete(*table_path(self.name), *path)

    def _changed(self, change: Callable[[], None], is_done: Callable[[], bool]) -> None:
        """Carries out a change. After an unclear answer, `is_done` says whether the change has happened. Raises
        StorageError if the change has not happened.
        """
        try:
            change()
        except StorageError as e:
            if e.published is False or not is_done():
                raise

    def _is_at(self, target: int | str) -> bool:
        """Returns True if the newest snapshot has this id, or is the snapshot of this tag."""
        newest, wanted = self.newest(), self._tagged(target) if isinstance(target, str) else target
        return newest is not None and newest.id == wanted

    def _tagged(self, name: str) -> int | None:
        """Returns the id of a tag's snapshot; None if there is no such tag."""
        try:
            answer = self.client.get(*table_path(self.name), "tags", name)
        except NotThereError as e:
            if e.kind == _TAG:
                return None
            raise self._gone(e) from e
        return int((answer.get("snapshot") or {}).get("id") or 0)

    def _branch_id(self) -> str | None:
        try:
            return _branch_id(self.client, self.name) or self.uuid
        except NotThereError as e:
            raise self._gone(e) from e

    def _gone(self, error: NotThereError) -> TableNotFoundError | BranchNotFoundError:
        if self.name.branch is not None:
            return BranchNotFoundError(
                f"the catalog has no branch '{self.name.branch}' of the table {self.name.without_branch}: "
                f"{error.message}",
                table=str(self.name.without_branch),
                branch=self.name.branch,
            )
        return TableNotFoundError(
            f"the catalog has no table {self.name} with the id {self.uuid}: {error.message}", table=str(self.name)
        )


def _listed(partitions: Sequence[PartitionSpec]) -> list[dict[str, str]]:
    return [dict(p) for p in partitions]


def _keeps_none(name: TableName, answer: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the catalog does not store partitions of {name}: {answer}; set 'partition.mark-done-action' to "
        "'success-file'",
        table=str(name),
    )


@lru_cache(maxsize=256)
def _branch_id(client: RestClient, name: TableName) -> str | None:
    """Returns the id that the catalog has given a branch. A process requests the id once."""
    branch_id = client.get(*table_path(name)).get("id")
    return None if branch_id is None else str(branch_id)
