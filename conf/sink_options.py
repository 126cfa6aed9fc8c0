"""The options of a sink (the part of a job that writes): who compacts, how much memory and which local folder are used.

These options are set next to Paimon's table options (`options:` of a job file, `TableSink(options=...)`) and never
stored in a table. Only `compaction` may be stored in a table as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bucketline.conf.async_options import ASYNC_OPTIONS, AsyncOptions, async_options
from bucketline.conf.errors import OptionError
from bucketline.conf.metrics_options import METRICS_OPTIONS, MetricsOptions, metrics_options
from bucketline.conf.option import (
    Option,
    nearest_key,
    parse_count,
    parse_duration,
    parse_enum,
    parse_given_text,
    parse_int,
    parse_size,
    parse_text,
)
from bucketline.conf.plan_options import OPTIONS_OF_PLANS, PLAN_PREFIX, PlanOptions, plan_options
from bucketline.conf.table import memory_options
from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.conf.table.other_options import HARMLESS_PREFIXES
from bucketline.conf.table.own_options import COMPACTION, Compaction
from bucketline.conf.table.table_options import KNOWN_KEYS


class KeyOrder(Enum):
    """What happens if rows with the same key came from two partitions of a Kafka topic, so that it is not known which
    row is newer.
    """

    FAIL = "fail"
    WARN = "warn"


class FrameReader(Enum):
    """What reads the DataFrame that is passed to a sink, if the DataFrame consists only of columns of Parquet files.
    AUTO means the sink's own tasks if they can, and otherwise Spark.
    """

    AUTO = "auto"
    SPARK = "spark"


MB = 1 << 20
LEAST_MEMORY_BYTES = MB

VISIBILITY_TIMEOUT = Option(
    "visibility-timeout",
    parse_duration,
    120_000,
    "for tables whose readers skip level 0: how long a write whose compaction failed tries to compact again, until "
    "readers see its rows; 0: it does not try again",
)
WRITE_PARALLELISM = Option("write-parallelism", parse_int, None, "write tasks per batch; default: by the bucket mode")
ASSIGNER_PARALLELISM = Option(
    "assigner-parallelism",
    parse_int,
    None,
    (
        "number of assigners of a dynamic or cross-partition table: tasks that each decide the buckets of a share of "
        "the keys"
    ),
)
ROUTE_MEMORY = Option(
    "route-memory",
    parse_size,
    64 * MB,
    "bytes that a map task buffers before it seals its sorted runs; default: the table's write-buffer-size if set",
)
RUN_SIZE = Option("run-size", parse_size, 8 * MB, "largest size in bytes of one sealed run in Spark's shuffle")
MERGE_MEMORY = Option("merge-memory", parse_size, 256 * MB, "bytes that a write task holds while it merges sorted runs")
COMPACT_MEMORY = Option("compact-memory", parse_size, 256 * MB, "bytes that a task holds while it compacts one bucket")
LOCAL_DIRECTORY = Option(
    "local-directory", parse_text, None, "folder for spills and local indexes; default: the system's temporary folder"
)
KEY_INDEX_MEMORY = Option(
    "key-index-memory",
    parse_size,
    256 * MB,
    "bytes of memory for the key index of one assigner of a cross-partition table, and for a dynamic table's HASH "
    "index (6 bytes per key) in one process; a larger HASH index is split among assigners, with a second shuffle",
)
SCHEMA_EVOLUTION = Option(
    "schema-evolution",
    parse_enum(EvolutionPolicy),
    EvolutionPolicy.FAIL,
    "what happens to new columns and wider types of the input: evolve changes the table, ignore leaves them out, fail "
    "stops the job; with decode, fail leaves unknown fields of the records out",
)
POSTPONE_COMPACT_BATCHES = Option(
    "postpone-compaction.batches",
    parse_int,
    None,
    "the job moves postponed rows to their buckets after this number of batches; default: never",
)
KEY_ORDER: Option[KeyOrder | None] = Option(
    "key-order",
    parse_enum(KeyOrder),
    None,
    "what happens if one key comes from two partitions of a Kafka topic, or from two topics, and nothing orders its "
    "records: fail stops the job before the batch is committed, warn logs it; default: fail for change events, warn "
    "for json",
)
FRAME_READER = Option(
    "frame-reader",
    parse_enum(FrameReader),
    FrameReader.AUTO,
    "who reads a frame that is nothing but columns of Parquet files, chosen and renamed: auto: the tasks themselves, "
    "where the rows are certainly those that Spark would read; spark: Spark",
)
BAD_RECORDS_PATH = Option("bad-records.path", parse_text, None, "folder for records that cannot be written")
BAD_RECORDS_TABLE = Option(
    "bad-records.table",
    parse_given_text,
    None,
    (
        "path of the table for records that cannot be written; the table is created if it does not exist; in a job "
        "with `catalog` the table's name"
    ),
)
BAD_RECORDS_MAX = Option(
    "bad-records.max", parse_count, 0, "largest number of bad records in one batch; if there are more, the job stops"
)

SINK_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""

OUR_OPTIONS: Mapping[str, Option[Any]] = {**SINK_OPTIONS, **OPTIONS_OF_PLANS, **ASYNC_OPTIONS, **METRICS_OPTIONS}
"""All options of bucketline itself that a job may have."""

_LARGEST_RUN_BYTES = 1024 * MB
_LONGEST_VISIBILITY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a sink. Memory is in bytes. None means that the default is determined later.

    There is one attribute for each option, or group of options, of the sink.
    """

    compaction: Compaction
    visibility_timeout_ms: int
    write_parallelism: int | None
    assigner_parallelism: int | None
    route_memory_bytes: int
    run_bytes: int
    merge_memory_bytes: int
    compact_memory_bytes: int
    local_directory: str | None
    key_index_memory_bytes: int
    schema_evolution: EvolutionPolicy
    postpone_compact_batches: int | None
    bad_records_path: str | None
    bad_records_table: str | None
    bad_records_max: int
    key_order: KeyOrder | None
    frame_reader: FrameReader
    plans: PlanOptions
    async_compaction: AsyncOptions
    metrics: MetricsOptions


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Returns the options of the sink that are set in `options`. Table options in `options` are used only if a default
    depends on them. Raises OptionError for invalid or unsupported values.
    """
    compaction = COMPACTION.get(options)
    for count in (WRITE_PARALLELISM, ASSIGNER_PARALLELISM, POSTPONE_COMPACT_BATCHES):
        number = count.find(options)
        if number is not None and number < 1:
            _refuse(count, "must be at least 1")
    for memory in (ROUTE_MEMORY, RUN_SIZE, MERGE_MEMORY, COMPACT_MEMORY, KEY_INDEX_MEMORY):
        if memory.get(options) < LEAST_MEMORY_BYTES:
            _refuse(memory, "must be at least 1 mb")
    if VISIBILITY_TIMEOUT.get(options) > _LONGEST_VISIBILITY_MS:
        _refuse(VISIBILITY_TIMEOUT, "must not be above 1 d, so that every write ends")
    if BAD_RECORDS_PATH.is_set(options) and BAD_RECORDS_TABLE.is_set(options):
        _refuse(
            BAD_RECORDS_TABLE,
            f"cannot be set together with '{BAD_RECORDS_PATH.key}', because bad records go to one place; remove one",
        )
    if RUN_SIZE.get(options) > _LARGEST_RUN_BYTES:
        _refuse(RUN_SIZE, "must not be above 1 gb: one value in a Spark row is limited to 2 gb")
    return SinkOptions(
        compaction=compaction,
        visibility_timeout_ms=VISIBILITY_TIMEOUT.get(options),
        write_parallelism=WRITE_PARALLELISM.find(options),
        assigner_parallelism=ASSIGNER_PARALLELISM.find(options),
        route_memory_bytes=route_memory(options),
        run_bytes=RUN_SIZE.get(options),
        merge_memory_bytes=MERGE_MEMORY.get(options),
        compact_memory_bytes=COMPACT_MEMORY.get(options),
        local_directory=LOCAL_DIRECTORY.find(options),
        key_index_memory_bytes=KEY_INDEX_MEMORY.get(options),
        schema_evolution=SCHEMA_EVOLUTION.get(options),
        postpone_compact_batches=POSTPONE_COMPACT_BATCHES.find(options),
        bad_records_path=BAD_RECORDS_PATH.find(options),
        bad_records_table=BAD_RECORDS_TABLE.find(options),
        bad_records_max=BAD_RECORDS_MAX.get(options),
        key_order=KEY_ORDER.find(options),
        frame_reader=FRAME_READER.get(options),
        plans=plan_options(options, each_commit=compaction is Compaction.ASYNC),
        async_compaction=async_options(options, compaction),
        metrics=metrics_options(options),
    )


def route_memory(options: Mapping[str, str]) -> int:
    """Returns the number of bytes that a map task buffers: the value of the sink's option, or else the table's write
    buffer, or else the default.
    """
    buffer = memory_options.WRITE_BUFFER_SIZE.find(options)
    if buffer is None or ROUTE_MEMORY.is_set(options):
        return ROUTE_MEMORY.get(options)
    return max(LEAST_MEMORY_BYTES, buffer)


def refuse_unknown_options(options: Mapping[str, str]) -> None:
    """Raises OptionError, which names the most similar option, for an option that neither sinks nor tables have."""
    known = KNOWN_KEYS | OUR_OPTIONS.keys()
    for key in options:
        if key not in known and not key.startswith((PLAN_PREFIX, *HARMLESS_PREFIXES)):
            raise OptionError(f"unknown option '{key}'{nearest_key(key, known)}", key=key)


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits options into the options of the sink and all other options, which are Paimon's table options."""
    ours = {key: text for key, text in options.items() if key in OUR_OPTIONS or key.startswith(PLAN_PREFIX)}
    return ours, {key: text for key, text in options.items() if key not in ours}


def _refuse(option: Option[Any], why: str) -> None:
    raise OptionError(f"option '{option.key}' {why}", key=option.key)
