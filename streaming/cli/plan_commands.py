"""`plan`, `compactor`: one process plans compactions, and any number of other processes carry them out."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any

import click

from bucketline.conf.metrics_options import MetricsOptions, metrics_options
from bucketline.conf.plan_options import (
    COMPACTOR_LEASE,
    COMPACTOR_POLL,
    PLAN_STRATEGY,
    SHORTEST_LEASE_MS,
    Strategy,
)
from bucketline.conf.table.read_options import BRANCH
from bucketline.conf.wording import counted
from bucketline.state.plans.plan import ItemState, Plan, executors_worth_having
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.maintenance.compactor_upkeep import CompactorUpkeep
from bucketline.state.store.maintenance.upkeep import Upkept
from bucketline.state.store.plans.compactor import Compactor, Finished
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.plans.plan_table import plan_table
from bucketline.state.store.plans.serve import Stop, compactor_in, few, serve_plans
from bucketline.state.store.table.partition_choice import choose_partitions
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.cli.arguments import (
    assignments,
    duration,
    format_option,
    opened,
    partition_option,
    storage_arguments,
    table_arguments,
)
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format, print_table
from bucketline.streaming.cli.spark_side import spark_module
from bucketline.streaming.job.start.silence import broken_silence
from bucketline.streaming.log import log_to_standard_error
from bucketline.streaming.metrics.outlets import open_outlets, write_outlets
from bucketline.streaming.metrics.registry import REGISTRY, Metric, MetricKind

_MS = timedelta(milliseconds=1)
_SETTING = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Option of compaction, for example compaction-plan.max-bytes='10 gb'; repeatable.",
)


@program.command(short_help="Plans compactions for `bucketline compactor`.")
@table_arguments
@click.option(
    "--strategy",
    type=click.Choice([s.value for s in Strategy]),
    help="Which buckets are planned, and in which order; by default 'compaction-plan.strategy', which is "
    "minor if unset.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be planned.")
@_SETTING
@partition_option
@format_option
def plan(
    path: str,
    option: tuple[str, ...],
    strategy: str | None,
    dry_run: bool,
    settings: tuple[str, ...],
    partitions: list[dict[str, object]] | None,
    form: Format,
) -> None:
    """Plans compactions for `bucketline compactor`. Prints the items of the plan, their bytes, and how many executors
    would be useful.

    Buckets with an open item in another plan are left out.
    """
    table = handle_of(opened(path, option))
    options = {**assignments(settings, "--set"), **({} if strategy is None else {PLAN_STRATEGY.key: strategy})}
    at = table_at(table, options)
    made = make_plan(
        at,
        PlanFolder(table.io, table.metadata_path),
        chosen=choose_partitions(at.plan.schema, partitions),
        dry_run=dry_run,
    )
    if made.plan.items or form is not Format.TABLE:
        print_table(plan_table(table.table_schema, made.plan), form)
    click.echo(_summary(made.plan, made.number), err=True)


@program.command(short_help="Carries out planned compactions.")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--once", is_flag=True, help="Exit when no planned item is left that this compactor can claim.")
@click.option("--spark", is_flag=True, help="Compact in tasks of a Spark application, one planned item in each task.")
@click.option(
    "--tasks",
    type=click.IntRange(1),
    metavar="N",
    help="Number of items at a time with --spark; by default Spark's parallelism.",
)
@click.option(
    "--poll",
    default=COMPACTOR_POLL.shown(),
    show_default=True,
    metavar="DURATION",
    help=COMPACTOR_POLL.doc.capitalize(),
)
@click.option(
    "--lease",
    default=COMPACTOR_LEASE.shown(),
    show_default=True,
    metavar="DURATION",
    help=COMPACTOR_LEASE.doc.capitalize(),
)
@click.option("--branch", metavar="NAME", help="Work on the plans of this branch of each table.")
@_SETTING
@storage_arguments
def compactor(
    paths: tuple[str, ...],
    once: bool,
    spark: bool,
    tasks: int | None,
    poll: str,
    lease: str,
    branch: str | None,
    settings: tuple[str, ...],
) -> None:
    """Carries out the compactions that `bucketline plan`, and writers with 'compaction' = 'dedicated', have planned.

    Any number of compactors may run. A killed compactor loses nothing: another compactor does the items when the lease
    of the killed compactor has ended. After a first SIGTERM or Ctrl-C the compactor finishes the running items; after a
    second signal it gives them back. Between items a compactor creates tags and expires snapshots, tags and partitions
    by the table's own rules, as writers do.
    """
    log_to_standard_error()
    poll_ms, lease_ms = duration(poll, "--poll") // _MS, duration(lease, "--lease") // _MS
    options = assignments(settings, "--set")
    shown = metrics_options(options)
    open_outlets(shown)
    if lease_ms < SHORTEST_LEASE_MS:
        raise click.BadParameter("must be at least 1 s", param_hint="--lease")
    if tasks is not None and not spark:
        raise click.UsageError("--tasks needs --spark")
    engine: Engine = LOCAL_ENGINE
    take = few
    if spark:
        starting = spark_module("job.session")
        with broken_silence("starting Spark"):
            session = starting.start_session("bucketline")
        click.get_current_context().call_on_close(lambda: starting.end_session(session))
        engine = spark_module("batch.procedures").spark_engine(session)
        most = tasks or engine.workers.parallelism
        take = lambda open_items: most  # noqa: E731
    of_branch = () if branch is None else (f"{BRANCH.key}={branch}",)
    tables = [handle_of(opened(path, of_branch)) for path in paths]
    sessions = {t.metadata_path: table_at(t, options) for t in tables}
    compactors = {p: compactor_in(s, engine, lease_ms=lease_ms, take=take) for p, s in sessions.items()}
    upkeeps = {p: CompactorUpkeep(s) for p, s in sessions.items()}
    stop = Stop()
    with _stopped_by_signals(stop):
        if not once:
            click.echo(f"waiting for plans of {counted(len(compactors), 'table')}", err=True)
        closed = serve_plans(
            compactors,
            poll_ms=poll_ms,
            once=once,
            stop=stop,
            tell=_told_to(shown, upkeeps),
            looked=_looked_at(compactors, shown, upkeeps),
        )
        for path, upkeep in upkeeps.items() if once else ():
            _say_upkept(path, upkeep.at_end())
    left = sum(c.open.count for c in compactors.values())
    others = f", {counted(left, 'item')} left to other compactors" if once and left else ""
    click.echo(f"{counted(closed, 'item')} closed{others}", err=True)


ITEMS = Metric("compactor_items", MetricKind.COUNTER, "items that a compactor has worked on, by table and outcome")
OPEN_ITEMS = Metric("compactor_open_items", MetricKind.GAUGE, "items that were open when the compactor last looked")


class StoppedError(BaseException):
    """Raised when a second signal has come: the compactor gives the running items back."""


@contextmanager
def _stopped_by_signals(stop: Stop) -> Iterator[None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_asked:
            raise StoppedError
        stop.ask()

    before: dict[int, Any] = {n: signal.signal(n, on_signal) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except StoppedError as e:
        raise click.Abort from e
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _looked_at(
    compactors: Mapping[str, Compactor], shown: MetricsOptions, upkeeps: Mapping[str, CompactorUpkeep]
) -> Callable[[str], None]:
    """Returns the function that a compactor calls after each look at a table. The function applies the table's rules
    for expiry. If the number of open items (planned compactions) has changed, the function sets the metric of open
    items and writes the file of metrics.
    """
    known: dict[str, int] = {}

    def looked(path: str) -> None:
        _say_upkept(path, upkeeps[path].between_rounds())
        count = compactors[path].open.count
        if known.get(path) == count:
            return
        known[path] = count
        REGISTRY.set(OPEN_ITEMS, count, {"table": path})
        write_outlets(replace(shown, json_file=None), "")

    return looked


def _say_upkept(path: str, upkept: Upkept) -> None:
    said = [f"{counted(upkept.expired_snapshots, 'snapshot')} expired"] if upkept.expired_snapshots else []
    said += [f"tag {name} created" for name in upkept.tags]
    said += [f"partition {name} dropped" for name in upkept.dropped_partitions]
    if said:
        click.echo(f"{path}: {', '.join(said)}")


def _told_to(shown: MetricsOptions, upkeeps: Mapping[str, CompactorUpkeep]) -> Callable[[str, Finished], None]:
    """Returns the function that is called after each plan item. That function prints what was done, and adds the item
    to the metrics of this process.
    """

    def told(path: str, finished: Finished) -> None:
        if finished.result is not None and finished.result.state is ItemState.DONE:
            upkeeps[path].owe()
        _tell(path, finished)
        outcome = "given back" if finished.result is None else finished.result.state.value
        REGISTRY.add(ITEMS, 1, {"table": path, "outcome": outcome})
        if shown.is_shown:
            line = {"table": path, "item": finished.item.number, "bucket": finished.item.bucket, "outcome": outcome}
            write_outlets(shown, json.dumps({**line, "reason": finished.reason}))

    return told


def _tell(path: str, finished: Finished) -> None:
    result = finished.result
    place = f"{path} {'postponed rows' if finished.item.moves_rows else f'bucket {finished.item.bucket}'}"
    if result is None:
        click.echo(f"{place}: released: {finished.reason}")
    elif result.state is ItemState.DONE:
        click.echo(f"{place}: done, snapshot {result.snapshot_id}")
    else:
        click.echo(f"{place}: {result.state.value}: {finished.reason}")


def _summary(new_plan: Plan, number: int | None) -> str:
    if not new_plan.items:
        return "nothing to plan"
    items, size = counted(len(new_plan.items), "item"), counted(sum(i.input_bytes for i in new_plan.items), "byte")
    executors = counted(executors_worth_having(new_plan.items), "executor")
    return f"{items}, {size}, {executors} useful; {('not published' if number is None else f'plan {number}')}"
