"""Paimon's options for the expiry of rows and partitions, and for marking partitions as done.
Source: Paimon 2.0 CoreOptions, FlinkConnectorOptions, RecordLevelExpire, PartitionMarkDoneAction.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.java_time import check_time_pattern
from bucketline.conf.option import (
    Option,
    did_you_mean,
    parse_bool,
    parse_count,
    parse_duration,
    parse_enum,
    parse_given_text,
    parse_int,
    parse_names,
)
from bucketline.conf.table.choices import DoneAction, DoneTime, PartitionTime


def _actions(text: str) -> tuple[DoneAction, ...]:
    known = [action.value for action in DoneAction]
    actions = []
    for name in parse_names(text):
        lowered = name.lower().replace("_", "-")
        if lowered not in known:
            raise OptionError(f"must be among {', '.join(known)}{did_you_mean(lowered, known)}", value=text)
        actions.append(DoneAction(lowered))
    return tuple(actions)


def _time_pattern(text: str) -> str:
    check_time_pattern(text)
    return text


PARTITION_EXPIRATION_TIME: Option[int] = Option(
    "partition.expiration-time", parse_duration, None, "milliseconds after which a partition is dropped"
)
PARTITION_EXPIRATION_STRATEGY = Option(
    "partition.expiration-strategy",
    parse_enum(PartitionTime),
    PartitionTime.VALUES,
    "how the age of a partition is found: from its values, or from its newest file",
)
PARTITION_EXPIRATION_CHECK_INTERVAL = Option(
    "partition.expiration-check-interval",
    parse_duration,
    3_600_000,
    "milliseconds between two checks of a writer for expired partitions; 0: with each commit",
)
PARTITION_EXPIRATION_MAX_NUM = Option(
    "partition.expiration-max-num", parse_count, 100, "largest number of partitions that one check drops"
)
PARTITION_EXPIRATION_BATCH_SIZE: Option[int] = Option(
    "partition.expiration-batch-size",
    parse_int,
    None,
    "largest number of partitions that one commit drops; default: no limit",
)
END_INPUT_CHECK_PARTITION_EXPIRE = Option(
    "end-input.check-partition-expire", parse_bool, False, "batch writes check for expired partitions too"
)
PARTITION_TIMESTAMP_FORMATTER: Option[str] = Option(
    "partition.timestamp-formatter",
    _time_pattern,
    None,
    "how the time in a partition's values is written, as patterns of Java",
)
PARTITION_TIMESTAMP_PATTERN: Option[str] = Option(
    "partition.timestamp-pattern",
    parse_given_text,
    None,
    "how the time of a partition is composed of its values, with $column for the value of a column",
)

PARTITION_TIMESTAMP_STRICT = Option(
    "partition.timestamp-format.strict", parse_bool, False, "a partition is refused if its values hold no time"
)

RECORD_LEVEL_EXPIRE_TIME: Option[int] = Option(
    "record-level.expire-time", parse_duration, None, "milliseconds after which compactions drop a row"
)
RECORD_LEVEL_TIME_FIELD: Option[str] = Option(
    "record-level.time-field", parse_given_text, None, "column with a row's time: seconds, milliseconds, or TIMESTAMP"
)

MARK_DONE_ACTION: Option[tuple[DoneAction, ...]] = Option(
    "partition.mark-done-action", _actions, (DoneAction.SUCCESS_FILE,), "what is done to mark a partition as done"
)
MARK_DONE_URL: Option[str] = Option(
    "partition.mark-done-action.http.url",
    parse_given_text,
    None,
    "server that 'http-report' informs of partitions that are done",
)
MARK_DONE_PARAMS: Option[str] = Option(
    "partition.mark-done-action.http.params", parse_given_text, None, "text that 'http-report' adds to its message"
)
PARTITIONED_IN_CATALOG = Option(
    "metastore.partitioned-table",
    parse_bool,
    False,
    "the REST catalog keeps a list of the table's partitions, and can mark them as done",
)
IDLE_TIME_TO_DONE: Option[int] = Option(
    "partition.idle-time-to-done",
    parse_duration,
    None,
    "a stream marks a partition after this number of milliseconds without new rows",
)
PARTITION_TIME_INTERVAL: Option[int] = Option(
    "partition.time-interval",
    parse_duration,
    None,
    "the length of the period that a partition covers, for example '1 d'",
)
END_INPUT_TO_DONE = Option(
    "partition.end-input-to-done",
    parse_bool,
    False,
    "batch writes, and streams that end, mark their partitions",
)
MARK_DONE_MODE = Option(
    "partition.mark-done-action.mode",
    parse_enum(DoneTime),
    DoneTime.PROCESS_TIME,
    "the clock that decides whether a partition has no new rows for long enough",
)

EXPIRY_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""


def check_expiry_options(options: Mapping[str, str], partition_keys: Sequence[str], *, has_primary_key: bool) -> None:
    """Raises OptionError, which names one of the options, if the options for expiry contradict each other or do not fit
    the table.
    """
    batch = PARTITION_EXPIRATION_BATCH_SIZE.find(options)
    if batch is not None and batch < 1:
        _refuse(PARTITION_EXPIRATION_BATCH_SIZE, "must be at least 1")
    if PARTITION_EXPIRATION_TIME.is_set(options) and not partition_keys:
        _refuse(PARTITION_EXPIRATION_TIME, "needs a table with partitions, and this table has none; remove it")
    if RECORD_LEVEL_EXPIRE_TIME.is_set(options):
        if not RECORD_LEVEL_TIME_FIELD.is_set(options):
            raise OptionError(
                f"'{RECORD_LEVEL_EXPIRE_TIME.key}': You should set time field for record-level expire: "
                f"'{RECORD_LEVEL_TIME_FIELD.key}'",
                key=RECORD_LEVEL_EXPIRE_TIME.key,
            )
        if not has_primary_key:
            _refuse(
                RECORD_LEVEL_EXPIRE_TIME,
                "rows of a table without a primary key cannot expire, as in Paimon; remove it, or partition the "
                f"table and use '{PARTITION_EXPIRATION_TIME.key}'",
            )
    _check_done(options, partition_keys)


def _check_done(options: Mapping[str, str], partition_keys: Sequence[str]) -> None:
    idle, at_end = IDLE_TIME_TO_DONE.is_set(options), END_INPUT_TO_DONE.get(options)
    if not (idle or at_end):
        return
    if not partition_keys:
        _refuse(IDLE_TIME_TO_DONE if idle else END_INPUT_TO_DONE, "the table has no partitions; remove it")
    if idle and not PARTITION_TIME_INTERVAL.is_set(options):
        _refuse(
            IDLE_TIME_TO_DONE,
            f"'{PARTITION_TIME_INTERVAL.key}' must be set to the time that a partition covers, such as '1 d'",
        )
    if MARK_DONE_MODE.get(options) is not DoneTime.PROCESS_TIME:
        _refuse(
            MARK_DONE_MODE,
            (
                "cannot be 'watermark', because Spark reports the watermark of a batch only after the batch; set it to "
                "'process-time'"
            ),
        )
    check_done_actions(options)
    if idle and DoneAction.SUCCESS_FILE not in MARK_DONE_ACTION.get(options):
        others = [action.value for action in MARK_DONE_ACTION.get(options)]
        _refuse(
            MARK_DONE_ACTION,
            "must contain 'success-file', the file in which a stream records marked partitions; set it to "
            f"'{','.join([DoneAction.SUCCESS_FILE.value, *others])}'",
        )


IN_CATALOG = frozenset({DoneAction.DONE_PARTITION, DoneAction.MARK_EVENT})
"""The actions that mark a partition in the catalog of the table."""


def check_done_actions(options: Mapping[str, str]) -> None:
    """Raises OptionError if partitions cannot be marked as done in the way that the options ask for."""
    actions = MARK_DONE_ACTION.get(options)
    for action in actions:
        if action in IN_CATALOG and not PARTITIONED_IN_CATALOG.get(options):
            _refuse(
                MARK_DONE_ACTION,
                f"'{action.value}' marks a partition in the catalog, so '{PARTITIONED_IN_CATALOG.key}' must be "
                f"'true', which needs a REST catalog; without one use {_ELSEWHERE}",
            )
        if action is DoneAction.CUSTOM:
            _refuse(
                MARK_DONE_ACTION, f"'{action.value}' calls a Java class, which cannot be called here; use {_ELSEWHERE}"
            )
    if DoneAction.HTTP_REPORT in actions:
        url = MARK_DONE_URL.find(options)
        if url is None or not url.lower().startswith(("http://", "https://")):
            _refuse(
                MARK_DONE_ACTION if url is None else MARK_DONE_URL,
                f"'{DoneAction.HTTP_REPORT.value}' needs a server's address in '{MARK_DONE_URL.key}', as "
                "'https://host/done'",
            )


def refuse_unregistered(options: Mapping[str, str], table: str) -> None:
    """Raises OptionError if the options require that a catalog is informed of new partitions. `table` is the name of
    the table in errors.
    """
    if PARTITIONED_IN_CATALOG.get(options):
        _refuse(
            PARTITIONED_IN_CATALOG,
            f"{table} was not opened through a REST catalog, and only such a catalog can be informed of new "
            "partitions; open "
            "the table by its name (bl.catalog), or set the option to 'false'",
        )


_ELSEWHERE = f"'{DoneAction.SUCCESS_FILE.value}' or '{DoneAction.HTTP_REPORT.value}', which can start the same"


def _refuse(option: Option[Any], message: str) -> None:
    raise OptionError(f"'{option.key}': {message}", key=option.key)
