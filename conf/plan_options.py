"""Options of compaction plans and of the compactors that carry them out. A sink accepts these options too."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.option import (
    Option,
    nearest_key,
    parse_count,
    parse_duration,
    parse_enum,
    parse_given_duration,
    parse_int,
    parse_size,
)
from bucketline.conf.table import compaction_options, own_options
from bucketline.conf.table.own_options import Compaction


class Strategy(Enum):
    """Which buckets a compaction plan takes, and in which order."""

    MINOR = "minor"
    FULL = "full"
    LEVEL_0 = "level-0"
    SIZE_AMPLIFICATION = "size-amplification"
    READ_AMPLIFICATION = "read-amplification"


class PlanTrigger(Enum):
    """When a writer makes a compaction plan."""

    COMMITS = "commits"
    TIME = "time"
    BOTH = "both"
    EITHER = "either"


PLAN_STRATEGY = Option(
    "compaction-plan.strategy",
    parse_enum(Strategy),
    Strategy.MINOR,
    "which buckets a plan takes. minor: those that a writer would compact, most runs first; full: all, to the last "
    "level; level-0: those with most runs on level 0, that level only; size-amplification: those whose newer runs are "
    "large compared to the oldest; read-amplification: those with most sorted runs",
)
PLAN_TRIGGER = Option(
    "compaction-plan.trigger",
    parse_enum(PlanTrigger),
    PlanTrigger.COMMITS,
    "when a writer with 'compaction' = 'dedicated' or 'async' makes a plan: after a number of commits, after a time, "
    "when both have come, or when either has come",
)
PLAN_COMMITS = Option(
    "compaction-plan.commits",
    parse_int,
    5,
    "number of batches between two plans of a writer; default with 'compaction' = 'async': 1",
)
PLAN_INTERVAL = Option(
    "compaction-plan.interval", parse_given_duration, 3_600_000, "time between two plans of a writer"
)
PLAN_MAX_BYTES = Option(
    "compaction-plan.max-bytes",
    parse_size,
    None,
    "largest number of bytes of input files in one plan; the first item of a plan may be larger; default: no limit",
)
PLAN_MIN_RUNS = Option(
    "compaction-plan.min-runs",
    parse_int,
    None,
    "level-0 and read-amplification: a bucket is taken if it has at least this number of sorted runs; default: the "
    "table's "
    "num-sorted-run.compaction-trigger",
)
PLAN_MIN_AMPLIFICATION = Option(
    "compaction-plan.min-amplification-percent",
    parse_count,
    None,
    "size-amplification: a bucket is taken when its newer runs reach this percentage of the oldest run; default: the "
    "table's compaction.max-size-amplification-percent",
)
PLAN_PARTITION_IDLE_TIME = Option(
    "compaction-plan.partition-idle-time",
    parse_given_duration,
    None,
    "only partitions that got no new file for this time are compacted; default: all partitions",
)
PLAN_FULL_AFTER = Option(
    "compaction-plan.full-after",
    parse_given_duration,
    None,
    "a bucket without a full compaction for this time gets one, under any strategy; default: never",
)
COMPACTOR_LEASE = Option(
    "compactor.lease",
    parse_duration,
    60_000,
    "how long an item stays reserved for a compactor that no longer renews its heartbeat",
)
COMPACTOR_POLL = Option("compactor.poll", parse_duration, 5_000, "time after which a compactor looks for work again")

PLAN_OPTIONS: Mapping[str, Option[object]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""

PLAN_PREFIX = "compaction-plan."
OPTIONS_OF_PLANS: Mapping[str, Option[object]] = {k: o for k, o in PLAN_OPTIONS.items() if k.startswith(PLAN_PREFIX)}
"""The options of compaction plans that a job may have in addition to the options of the sink."""

SHORTEST_LEASE_MS = 1_000


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The checked options of compaction plans. Times are in milliseconds, and None means no limit."""

    strategy: Strategy
    trigger: PlanTrigger
    commits: int
    interval_ms: int
    max_bytes: int | None
    min_runs: int
    min_amplification_percent: int
    partition_idle_ms: int | None
    full_after_ms: int | None


def plan_options(options: Mapping[str, str], *, each_commit: bool = False) -> PlanOptions:
    """Returns the options of compaction plans that are set in `options`. The table's options in `options` determine
    some defaults.

    If `each_commit` is true and no option says when to plan, a writer makes a plan with each of its commits. Raises
    OptionError for an unknown `compaction-plan.` option, and for a value that is not valid.
    """
    for key in options:
        if key.startswith(PLAN_PREFIX) and key not in OPTIONS_OF_PLANS:
            raise OptionError(f"unknown option '{key}'{nearest_key(key, OPTIONS_OF_PLANS)}", key=key)
    runs, percent = PLAN_MIN_RUNS.find(options), PLAN_MIN_AMPLIFICATION.find(options)
    for option, number in ((PLAN_COMMITS, PLAN_COMMITS.get(options)), (PLAN_MIN_RUNS, runs)):
        if number is not None and number < 1:
            raise OptionError(f"option '{option.key}' must be at least 1", key=option.key, value=number)
    if percent is None:
        percent = compaction_options.MAX_SIZE_AMPLIFICATION.get(options)
    return PlanOptions(
        strategy=PLAN_STRATEGY.get(options),
        trigger=PLAN_TRIGGER.get(options),
        commits=1 if each_commit and not PLAN_COMMITS.is_set(options) else PLAN_COMMITS.get(options),
        interval_ms=PLAN_INTERVAL.get(options),
        max_bytes=PLAN_MAX_BYTES.find(options),
        min_runs=max(1, compaction_options.COMPACTION_TRIGGER.get(options)) if runs is None else runs,
        min_amplification_percent=percent,
        partition_idle_ms=PLAN_PARTITION_IDLE_TIME.find(options),
        full_after_ms=PLAN_FULL_AFTER.find(options),
    )


def makes_plans(compaction: Compaction) -> bool:
    """Returns True if a writer with this `compaction` makes compaction plans."""
    return compaction in (Compaction.DEDICATED, Compaction.ASYNC)


def refuse_unused_plans(given: Mapping[str, str], compaction: Compaction) -> None:
    """Raises OptionError if `given` has an option of compaction plans, although a writer makes no plans. `compaction`
    is the writer's setting of the option `compaction`; only with `dedicated` and `async` does a writer make plans.
    """
    unused = next((key for key in given if key in OPTIONS_OF_PLANS), None)
    if unused is not None and not makes_plans(compaction):
        raise OptionError(
            f"option '{unused}' needs '{own_options.COMPACTION.key}' = 'dedicated' or 'async', but it "
            f"is '{compaction.value}'; remove it",
            key=unused,
        )


def lease_and_others(options: Mapping[str, str]) -> tuple[int, dict[str, str]]:
    """Splits options into the lease and all other options. The lease is the time in milliseconds for which an item of a
    compaction plan stays reserved for a compactor. Raises OptionError if the lease is too short.
    """
    lease_ms = COMPACTOR_LEASE.get(options)
    if lease_ms < SHORTEST_LEASE_MS:
        raise OptionError(f"option '{COMPACTOR_LEASE.key}' must be at least 1 s", key=COMPACTOR_LEASE.key)
    return lease_ms, {key: value for key, value in options.items() if key != COMPACTOR_LEASE.key}
