"""Announces that a partition is done, in the ways that the table's options ask for: a mark or an added partition in the
catalog, a report to an HTTP server, and the `_SUCCESS` file.

The `_SUCCESS` file is written last, whatever the order in the options. Writers treat a partition with this file as
marked, so a mark that failed is sent again.

Source: Paimon 2.0 PartitionMarkDoneAction, MarkPartitionDoneEventAction, AddDonePartitionAction,
HttpReportMarkDoneAction, NormalPartitionExpire.
"""

import json
from collections.abc import Iterable
from http.client import HTTPException
from urllib.request import Request, urlopen

from bucketline.conf.secrets import mask_text
from bucketline.conf.table.choices import DoneAction
from bucketline.conf.table.expiry_options import IN_CATALOG, MARK_DONE_URL, check_done_actions
from bucketline.state.errors import StorageError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import partition_path, partition_values
from bucketline.state.format.table_name import DATABASE_SUFFIX
from bucketline.state.store.catalog.owned import check_partitions_kept
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.maintenance.success_files import mark_done
from bucketline.state.store.server.owner import PartitionSpec, TableOwner
from bucketline.state.store.storage.rest_table_io import owned_io, owner_of

_TIMEOUT_S = 30.0
_MOST_ANSWER_BYTES = 1 << 20
_SUCCESS = "SUCCESS"
_DONE = ".done"
"""The suffix of the last partition value, by which the catalog knows an added partition that stands for a done
partition.
"""


def mark_partitions(table: TableHandle, schema: TableSchema, partitions: Iterable[bytes]) -> list[str]:
    """Marks partitions as done, and returns the names of their folders.

    `schema` holds the options that apply. Raises StorageError if a mark or report was not accepted, and the errors of
    `mark_done`; all partitions before the failed partition are marked then.
    """
    owner = _catalog(table, schema)
    actions = schema.settings.expiry.done_actions
    named: list[str] = []
    for partition in partitions:
        if owner is not None and DoneAction.MARK_EVENT in actions:
            owner.mark_partitions_done([dict(partition_values(schema, partition))])
        if owner is not None and DoneAction.DONE_PARTITION in actions:
            owner.add_partitions([_done_partition(schema, partition)])
        if DoneAction.HTTP_REPORT in actions:
            _report(table, schema, partition)
        if DoneAction.SUCCESS_FILE in actions:
            mark_done(table.io, table.path, schema, [partition], table.world)
        named.append(partition_path(schema, partition).rstrip("/"))
    return named


def forget_done(table: TableHandle, schema: TableSchema, dropped: Iterable[bytes]) -> None:
    """Removes partitions from the catalog. The action `done-partition` has added these partitions when they were done,
    and they have been dropped since. Raises StorageError, UnsupportedTableError.
    """
    owner = owner_of(table.io, table.metadata_path)
    if owner is not None and DoneAction.DONE_PARTITION in schema.settings.expiry.done_actions:
        owner.drop_partitions([_done_partition(schema, p) for p in dropped])


def _catalog(table: TableHandle, schema: TableSchema) -> TableOwner | None:
    """Returns the catalog in which partitions are marked as done; None if the options ask for no marks in a catalog.
    Raises OptionError if the options ask for marks in a catalog, but the table has no catalog that can hold marks.
    """
    check_done_actions(schema.options)
    if IN_CATALOG.isdisjoint(schema.settings.expiry.done_actions):
        return None
    check_partitions_kept(schema, table.io, table.path)
    return owner_of(table.io, table.metadata_path)


def _done_partition(schema: TableSchema, partition: bytes) -> PartitionSpec:
    *before, (column, text) = partition_values(schema, partition)
    return dict([*before, (column, text + _DONE)])


def _report(table: TableHandle, schema: TableSchema, partition: bytes) -> None:
    """Reports one partition to the HTTP server, and waits for the answer. Raises StorageError if the report is not
    accepted.
    """
    settings = schema.settings.expiry
    assert settings.done_url is not None, "checked with the options"
    body = {
        "params": settings.done_params,
        "table": _full_name(table),
        "path": table.uri,
        "partition": partition_path(schema, partition),
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    request = Request(settings.done_url, json.dumps(body, ensure_ascii=False).encode(), headers, method="POST")
    where = f"'{MARK_DONE_URL.key}' = {mask_text(settings.done_url)}"
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:
            said = json.loads(answer.read(_MOST_ANSWER_BYTES))
    except (OSError, HTTPException, ValueError, RecursionError) as e:
        raise StorageError(
            f"{where}: the report of partition {body['partition']} failed: {e}; it is sent again the next time that "
            "partitions are marked",
            path=table.path,
            retryable=True,
        ) from e
    result = said.get("result") if isinstance(said, dict) else said
    if str(result).upper() != _SUCCESS:
        raise StorageError(
            f"{where}: the report of partition {body['partition']} was not accepted: in the answer, `result` must be "
            f"'{_SUCCESS}' but is {result!r}",
            path=table.path,
            retryable=True,
        )


def _full_name(table: TableHandle) -> str:
    """Returns the name of the database and the table, from the REST catalog, or else from the folders of the
    warehouse.
    """
    owned = owned_io(table.io)
    if owned is not None:
        return str(owned.table.name)
    folder, _, name = table.path.rstrip("/").rpartition("/")
    return f"{folder.rpartition('/')[2].removesuffix(DATABASE_SUFFIX)}.{name}"
