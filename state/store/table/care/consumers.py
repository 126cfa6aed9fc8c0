"""Moves and removes consumers of a table, when a user asks for it.

Source: Paimon 2.0 ConsumerManager, ResetConsumerProcedure, ClearConsumersProcedure.
"""

import re

from bucketline.conf.errors import OptionError
from bucketline.state.store.catalog.consumers import begin_consumer, drop_consumer, next_of_consumers
from bucketline.state.store.catalog.table_handle import TableHandle


def set_consumer(table: TableHandle, name: str, next_snapshot: int | None) -> None:
    """Sets the snapshot that a consumer reads next; if `next_snapshot` is None, removes the consumer.

    Raises OptionError for a snapshot that does not exist and for an invalid name, RemovalUnderWayError for a snapshot
    that is being removed.
    """
    if not name.strip() or "/" in name:
        raise OptionError(
            f"{name!r} is not a valid name of a consumer: a name must have characters other than spaces, and no '/'",
            key="consumer",
            value=name,
        )
    if next_snapshot is None:
        drop_consumer(table.io, table.metadata_path, name)
        return
    if table.snapshot_store.get(next_snapshot) is None:
        raise OptionError(
            f"{table.path} has no snapshot {next_snapshot} for the consumer to read next; choose a snapshot that "
            "`snapshots()` lists",
            key="next_snapshot",
            value=next_snapshot,
        )
    begin_consumer(table.snapshot_store, table.io, table.metadata_path, name, next_snapshot, table.world)


def remove_consumers(table: TableHandle, including: str, excluding: str | None) -> tuple[str, ...]:
    """Removes the consumers whose whole name matches the regular expression `including` and does not match `excluding`.
    Returns the names of the removed consumers. Raises OptionError for a string that is no regular expression.
    """
    wanted, spared = _pattern(including, "including"), None if excluding is None else _pattern(excluding, "excluding")
    found = sorted(next_of_consumers(table.io, table.metadata_path))
    gone = [name for name in found if wanted.fullmatch(name) and not (spared and spared.fullmatch(name))]
    for name in gone:
        drop_consumer(table.io, table.metadata_path, name)
    return tuple(gone)


def _pattern(text: str, name: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as e:
        raise OptionError(f"{name} = {text!r} is not a regular expression: {e}", key=name, value=text) from e
