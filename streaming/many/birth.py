"""Which table a path leads to: one that was dropped and made again is another."""

import hashlib

from bucketline.state.format.paths import SCHEMA_DIR
from bucketline.state.store.catalog.table_handle import TableHandle


def birth_of(table: TableHandle) -> str:
    """The hash of the table's first schema, which a table that is made anew has another of; empty where it is gone."""
    data = table.io.read_optional(f"{table.metadata_path}/{SCHEMA_DIR}/schema-0")
    return "" if data is None else hashlib.sha256(data).hexdigest()[:32]
