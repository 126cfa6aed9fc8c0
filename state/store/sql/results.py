"""The results of statements that are not queries."""

from collections.abc import Sequence

import pyarrow as pa

DONE = pa.table({"result": ["OK"]})
"""The results of statements that define something, and of those that set an option."""


def snapshot_result(snapshot_id: int | None) -> pa.Table:
    """Returns the result of a change of rows: the newest snapshot, null if there is none."""
    return pa.table({"snapshot_id": pa.array([snapshot_id or None], pa.int64())})


def texts(name: str, values: Sequence[str]) -> pa.Table:
    """Returns one column of texts."""
    return pa.table({name: pa.array(list(values), pa.string())})
