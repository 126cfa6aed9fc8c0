"""Options for compaction that runs at the same time as the batches of a stream, and for what a batch does if buckets
have too many sorted runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_enum, parse_given_duration, parse_given_text, parse_int
from bucketline.conf.table.compaction_options import WRITE_ONLY
from bucketline.conf.table.own_options import COMPACTION, Compaction


class BackPressure(Enum):
    """What a batch does when a bucket has more sorted runs than `num-sorted-run.stop-trigger`."""

    CONTINUE = "continue"
    WAIT = "wait"
    COMPACT = "compact"


ASYNC_TASKS = Option(
    "async-compaction.tasks",
    parse_int,
    None,
    (
        "async: the largest number of tasks that compact at a time, in addition to the tasks of the batch; default: "
        "half of "
        "Spark's parallelism, at least 1"
    ),
)
ASYNC_POOL = Option(
    "async-compaction.pool",
    parse_given_text,
    None,
    (
        "async: the Spark scheduler pool of the tasks that compact; needs spark.scheduler.mode = FAIR; default: the "
        "pool of the batches"
    ),
)
ASYNC_STOP_TIMEOUT = Option(
    "async-compaction.stop-timeout",
    parse_given_duration,
    20_000,
    "async: how long a job that is stopped waits for the running compaction before it abandons it",
)
BACK_PRESSURE = Option(
    "back-pressure",
    parse_enum(BackPressure),
    None,
    "what a batch does first when a bucket of the partitions that the last batch wrote has more sorted runs than "
    "num-sorted-run.stop-trigger: compact it, wait until other processes have compacted it, or log a warning and "
    "continue; default: wait with "
    "'compaction' = 'async', else continue",
)
BACK_PRESSURE_TIMEOUT = Option(
    "back-pressure.timeout",
    parse_given_duration,
    300_000,
    "how long a batch waits for other processes to compact; after that it goes on and logs a warning",
)

ASYNC_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in (ASYNC_TASKS, ASYNC_POOL, ASYNC_STOP_TIMEOUT, BACK_PRESSURE, BACK_PRESSURE_TIMEOUT)
}

_OF_ASYNC = (ASYNC_TASKS, ASYNC_POOL, ASYNC_STOP_TIMEOUT)
_LONGEST_WAIT_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class AsyncOptions:
    """The checked options of asynchronous compaction. Times are in milliseconds. If `tasks` is None, half of Spark's
    parallelism is used.
    """

    tasks: int | None
    pool: str | None
    stop_timeout_ms: int
    back_pressure: BackPressure
    back_pressure_timeout_ms: int


def async_options(options: Mapping[str, str], compaction: Compaction) -> AsyncOptions:
    """Returns the options of asynchronous compaction that are set in `options`. `compaction` is the value of the job's
    option `compaction`.

    Raises OptionError for a value that is not valid, and for an option that would have no effect.
    """
    for option in ASYNC_OPTIONS.values():
        if not option.is_set(options):
            continue
        if option in _OF_ASYNC and compaction is not Compaction.ASYNC:
            _refuse(
                option,
                f"has an effect only with '{COMPACTION.key}' = 'async', but it is '{compaction.value}'; remove it",
            )
        if option not in _OF_ASYNC and compaction is Compaction.INLINE:
            _refuse(
                option,
                f"has an effect only with '{COMPACTION.key}' = 'async', 'dedicated' or 'none': with 'inline' each "
                "batch compacts what it writes, so that no bucket has too many sorted runs; remove it",
            )
    for timed in (ASYNC_STOP_TIMEOUT, BACK_PRESSURE_TIMEOUT):
        if timed.get(options) > _LONGEST_WAIT_MS:
            _refuse(timed, "must not be above 1 d")
    tasks = ASYNC_TASKS.find(options)
    if tasks is not None and tasks < 1:
        _refuse(ASYNC_TASKS, "must be at least 1")
    pressure = BACK_PRESSURE.find(options)
    if pressure is None:
        waits = compaction is Compaction.ASYNC and not WRITE_ONLY.get(options)
        pressure = BackPressure.WAIT if waits else BackPressure.CONTINUE
    return AsyncOptions(
        tasks=tasks,
        pool=ASYNC_POOL.find(options),
        stop_timeout_ms=ASYNC_STOP_TIMEOUT.get(options),
        back_pressure=pressure,
        back_pressure_timeout_ms=BACK_PRESSURE_TIMEOUT.get(options),
    )


def _refuse(option: Option[Any], why: str) -> None:
    raise OptionError(f"option '{option.key}' {why}", key=option.key)
