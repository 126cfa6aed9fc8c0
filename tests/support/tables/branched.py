"""A table with a branch that begins below the newest snapshot."""

import pyarrow as pa

from bucketline.state.store.table.table import Table, create_table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def rows(v: int) -> pa.Table:
    """Rows with the keys 1 and 2 and the value `v`."""
    return pa.table({"id": [1, 2], "v": [v, v]}, schema=COLUMNS)


def branched_table(path: str) -> Table:
    """A table with snapshots 1 to 4, and a branch `b` that begins at snapshot 2, which has the tag `old`."""
    table = create_table(path, COLUMNS, ("id",), options={"bucket": "1"})
    for v in range(4):
        table.write(rows(v))
    table.create_tag("old", snapshot=2)
    table.create_branch("b", "old")
    return table
