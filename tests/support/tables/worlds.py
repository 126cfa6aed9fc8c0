"""Tables in a world that a test has made: its clock, its names, its chance, its pauses."""

from dataclasses import replace
from typing import Any

from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.table.table import Table, handle_of


def handle_in(table: Table, **sources: Any) -> TableHandle:
    """What is behind the table, with these sources (`clock`, `ids`, `random`, `pause`, `stopwatch`) in place of the
    machine's."""
    return replace(handle_of(table), world=replace(SYSTEM_WORLD, **sources))


def table_in(table: Table, **sources: Any) -> Table:
    """The table, as `handle_in`."""
    return Table(handle_in(table, **sources))
