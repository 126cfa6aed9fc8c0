"""SQL text and what it gives, as plain rows."""

from collections.abc import Callable
from typing import Any

Run = Callable[[str], list[Any]]
"""Runs statements, and gives the rows of the last one; a row of one value is that value."""


def snapshots(run: Run, table: str) -> list[Any]:
    """The kind, the total and the change of records of each snapshot."""
    kinds = f"SELECT commit_kind, total_record_count, delta_record_count FROM `{table}$snapshots` ORDER BY snapshot_id"
    return run(kinds)
