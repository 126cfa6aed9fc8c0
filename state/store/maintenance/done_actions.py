"""What says that a partition is done: a report to an HTTP server, and the `_SUCCESS` file, as the table's options ask.

The file comes last, whatever the order in the options: it is what a writer remembers by, so that a report that failed
is sent again.
Source: Paimon 2.0 PartitionMarkDoneAction, HttpReportMarkDoneAction.
"""

import json
from collections.abc import Iterable
from http.client import HTTPException
from urllib.request import Request, urlopen

from bucketline.conf.secrets import mask_text
from bucketline.conf.table.choices import DoneAction
from bucketline.conf.table.expiry_options import MARK_DONE_URL, check_done_actions
from bucketline.state.determinism import Clock
from bucketline.state.errors import StorageError
from bucketline.state.format.paths import partition_path
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.format.table_name import DATABASE_SUFFIX
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.maintenance.success_files import mark_done

_TIMEOUT_S = 30.0
_MOST_ANSWER_BYTES = 1 << 20
_SUCCESS = "SUCCESS"


def mark_partitions(table: TableHandle, schema: TableSchema, partitions: Iterable[bytes], clock: Clock) -> list[str]:
    """Marks partitions as done, and names them as their folders are called.

    `schema` has the options in force. Raises StorageError for a report that was not accepted, and as `mark_done`;
    partitions before it are marked then.
    """
    check_done_actions(schema.options)
    actions = schema.settings.expiry.done_actions
    named: list[str] = []
    for partition in partitions:
        if DoneAction.HTTP_REPORT in actions:
            _report(table, schema, partition)
        if DoneAction.SUCCESS_FILE in actions:
            mark_done(table.io, table.path, schema, [partition], clock)
        named.append(partition_path(schema, partition).rstrip("/"))
    return named


def _report(table: TableHandle, schema: TableSchema, partition: bytes) -> None:
    """Tells the server of one partition, and waits for its answer."""
    settings = schema.settings.expiry
    assert settings.done_url is not None, "checked with the options"
    body = {
        "params": settings.done_params,
        "table": _full_name(table.path),
        "path": table.uri,
        "partition": partition_path(schema, partition),
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    request = Request(settings.done_url, json.dumps(body, ensure_ascii=False).encode(), headers, method="POST")
    where = f"'{MARK_DONE_URL.key}' = {mask_text(settings.done_url)}"
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:
            said = json.loads(answer.read(_MOST_ANSWER_BYTES))
    except (OSError, HTTPException, ValueError) as e:
        raise StorageError(
            f"{where}: the report of partition {body['partition']} failed: {e}; it is sent again when partitions are "
            "marked next",
            path=table.path,
            retryable=True,
        ) from e
    result = said.get("result") if isinstance(said, dict) else said
    if str(result).upper() != _SUCCESS:
        raise StorageError(
            f"{where}: the report of partition {body['partition']} was not accepted: `result` of the answer should be "
            f"'{_SUCCESS}' but is {result!r}",
            path=table.path,
            retryable=True,
        )


def _full_name(path: str) -> str:
    """Database and table, as the folders of a warehouse say them."""
    folder, _, name = path.rstrip("/").rpartition("/")
    return f"{folder.rpartition('/')[2].removesuffix(DATABASE_SUFFIX)}.{name}"
