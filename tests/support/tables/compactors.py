"""Compactors of tables that are open already."""

from collections.abc import Callable, Mapping

from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.plans.compactor import Compactor
from bucketline.state.store.plans.serve import compactor_in, few
from bucketline.state.store.write.table_at import table_at


def compactor_of(
    table: TableHandle,
    options: Mapping[str, str],
    engine: Engine,
    *,
    lease_ms: int,
    take: Callable[[int], int] = few,
) -> Compactor:
    """A compactor of one table. Errors as of `compactor_in`."""
    return compactor_in(table_at(table, options), engine, lease_ms=lease_ms, take=take)
