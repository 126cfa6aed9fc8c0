"""The results of statements that are no queries."""

from collections.abc import Sequence

import pyarrow as pa

DONE = pa.table({"result": ["OK"]})
"""The result of a statement that defines something or sets an option: one row, `OK`."""


def snapshot_result(snapshot_id: int | None) -> pa.Table:
    """Returns the result of a change of rows: the id of the newest snapshot; null if the table has no snapshot."""
    return pa.table({"snapshot_id": pa.array([snapshot_id or None], pa.int64())})


def texts(name: str, values: Sequence[str]) -> pa.Table:
    """Returns a table with one STRING column of these values."""
    return pa.table({name: pa.array(list(values), pa.string())})
