"""The identity of a table: a table that is dropped and created again has another identity."""

import hashlib

from bucketline.state.format.paths import SCHEMA_DIR
from bucketline.state.store.catalog.table_handle import TableHandle


def birth_of(table: TableHandle) -> str:
    """Returns the hash of the table's first schema; empty if that schema is gone.

    A table that is created again has another hash.
    """
    data = table.io.read_optional(f"{table.metadata_path}/{SCHEMA_DIR}/schema-0")
    return "" if data is None else hashlib.sha256(data).hexdigest()[:32]
