"""Carries out CALL of sys.plan_compaction and sys.run_compactor. With these two procedures, one process plans
compactions, and any number of other processes carry them out.
"""

import pyarrow as pa

from bucketline.conf.option import did_you_mean
from bucketline.conf.plan_options import PLAN_STRATEGY, Strategy, lease_and_others
from bucketline.state.format.paths import bucket_path
from bucketline.state.plans.plan import ItemState, executors_worth_having
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.maintenance.compactor_upkeep import CompactorUpkeep
from bucketline.state.store.plans.compactor import Finished
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.plans.plan_table import plan_table
from bucketline.state.store.plans.serve import Stop, compactor_in, few, serve_plans
from bucketline.state.store.sql.arguments import (
    Arguments,
    chosen_partitions,
    duration_ms_of,
    flag_of,
    options_of,
    wrong_argument,
)
from bucketline.state.store.table.partition_choice import choose_partitions
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.store.write.table_at import table_at

_DONE = pa.schema(
    [
        ("item", pa.int32()),
        ("bucket", pa.string()),
        ("state", pa.string()),
        ("snapshot_id", pa.int64()),
        ("reason", pa.string()),
    ]
)

_POLL_MS = 200
"""How long a compactor waits before it looks again whether other compactors still hold items, in milliseconds."""


def plan_compaction(table: Table, arguments: Arguments) -> pa.Table:
    """Plans compactions that compactors carry out later. Returns one row for each item of the plan, with the plan's
    number and the number of executors that can share the plan's work. Raises OptionError, UnsupportedTableError.
    """
    options = options_of(arguments)
    if "compact_strategy" in arguments:
        options[PLAN_STRATEGY.key] = _strategy(arguments["compact_strategy"])
    handle = handle_of(table)
    at = table_at(handle, {**handle.write_options, **options})
    made = make_plan(
        at,
        PlanFolder(handle.io, handle.metadata_path),
        chosen=choose_partitions(at.plan.schema, chosen_partitions(table, arguments)),
        dry_run=flag_of(arguments, "dry_run"),
    )
    rows = plan_table(handle.table_schema, made.plan)
    count = rows.num_rows
    executors = executors_worth_having(made.plan.items)
    return rows.add_column(0, "plan", pa.array([made.number] * count, pa.int64())).append_column(
        "executors", pa.array([executors] * count, pa.int32())
    )


def run_compactor(table: Table, arguments: Arguments, engine: Engine) -> pa.Table:
    """Carries out items (planned compactions of buckets) until no item is left to claim. Returns a table with one row
    for each item that this process has claimed, in the order in which the items ended.

    Also waits while other compactors work on items, at most for the time in the argument `wait`. If the lease of
    another compactor ends, takes over its item. Raises OptionError, UnsupportedTableError, StorageError.
    """
    lease_ms, others = lease_and_others(options_of(arguments))
    handle = handle_of(table)
    stopwatch = handle.world.stopwatch
    at = table_at(handle, {**handle.write_options, **others})
    most = engine.workers.parallelism
    take = few if most == 1 else lambda open_items: most
    compactor = compactor_in(at, engine, lease_ms=lease_ms, take=take)
    ended: list[Finished] = []
    stop, until_ms = Stop(), stopwatch.elapsed_ms() + (duration_ms_of(arguments, "wait") if "wait" in arguments else 0)
    compactors = {handle.metadata_path: compactor}
    while True:
        serve_plans(compactors, poll_ms=0, once=True, stop=stop, tell=lambda _, finished: ended.append(finished))
        if not compactor.open.count or stopwatch.elapsed_ms() >= until_ms:
            break
        stop.wait_ms(_POLL_MS)
    upkeep = CompactorUpkeep(at)
    if any(e.result is not None and e.result.state is ItemState.DONE for e in ended):
        upkeep.owe()
    upkeep.at_end()
    rows = [
        {
            "item": e.item.number,
            "bucket": bucket_path(handle.table_schema, e.item.partition, e.item.bucket),
            "state": "given back" if e.result is None else e.result.state.value,
            "snapshot_id": None if e.result is None else e.result.snapshot_id,
            "reason": e.reason,
        }
        for e in ended
    ]
    return pa.Table.from_pylist(rows, schema=_DONE)


def _strategy(text: str) -> str:
    known = [s.value for s in Strategy]
    strategy = text.strip().lower()
    if strategy not in known:
        near = did_you_mean(strategy, known) or f"; there are {', '.join(known)}"
        raise wrong_argument(f"unknown compact_strategy {text!r}{near}", "compact_strategy")
    return strategy
