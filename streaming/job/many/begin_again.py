"""Carries out `--reset-identity` for a job of several tables: the job gets a new checkpoint, which continues after
the last record that each table has.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError

from bucketline.conf.errors import OptionError
from bucketline.conf.job import CHECKPOINT, SOURCE_FORMAT, JobConfig
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.conf.sources.source_options import KAFKA, start_at
from bucketline.streaming.batch.identity import newest_offsets_of
from bucketline.streaming.job.job_table import has_table, open_existing
from bucketline.streaming.job.kafka.kafka_admin import JvmAdmin
from bucketline.streaming.job.kafka.table_offsets import newest_offsets
from bucketline.streaming.job.run import set_aside
from bucketline.streaming.many.entries import route_of, started_again
from bucketline.streaming.many.ledger import Entry, FeedOffsets, offsets_in
from bucketline.streaming.many.ledger_files import LedgerFiles

_LOG = logging.getLogger("bucketline.job")
_EARLIEST = -2


def begin_again(spark: Any, routed: RoutedJob, files: LedgerFiles, earliest: Callable[[], FeedOffsets]) -> None:
    """Renames the checkpoint, and writes a ledger (the state of the job's tables) into the new checkpoint. The new
    query begins with this ledger. `earliest` asks Kafka for the offset of the first record in each partition: a table
    that needs older records is parked (left out of batches).

    Raises OptionError for a source other than Kafka, and if no ledger says which records the tables already have.
    """
    common = routed.common
    if common.source.format != KAFKA:
        raise OptionError(
            f"--reset-identity begins again at Kafka offsets, but the source is {common.source.format!r}; restore the "
            "checkpoint",
            key=SOURCE_FORMAT.key,
        )
    numbers = files.numbers()
    ledger = files.read(numbers[-1]) if numbers else files.read_start()
    if ledger is None:
        raise OptionError(
            f"--reset-identity: the folder {files.root} has no ledger, so nothing says which records each table of the "
            "job has. Restore the folder; or write one job for each table: such a job begins at the table's offsets",
            key=CHECKPOINT.key,
        )
    reached = {name: _reached(routed, name, entry, ledger.query) for name, entry in ledger.tables.items()}
    start = started_again(ledger, reached, earliest=earliest(), now_ms=files.world.clock.now_ms())
    for name, entry in start.tables.items():
        parked = entry.parked
        if parked is not None and ledger.tables[name].parked is None:
            _LOG.warning("%s is parked: %s", name, parked.why)
    kept = set_aside(spark, common.checkpoint)
    files.put_start(start)
    _LOG.warning(
        (
            "the old checkpoint was renamed to %s; the new checkpoint begins at the offsets up to which the tables "
            "have all records"
        ),
        kept,
    )


def first_offsets(admin: JvmAdmin) -> FeedOffsets:
    """Returns the offset of the first record of each partition that the source reads; empty if the brokers do not
    answer.
    """
    try:
        return offsets_in(admin.offsets(of_first=True))
    except Py4JError as e:
        _LOG.warning("Kafka does not say which records it still has, so lost records would not be noticed: %s", e)
        return {}


def _reached(routed: RoutedJob, name: str, entry: Entry, query: str) -> FeedOffsets:
    """Returns the end offsets in a query's newest snapshot of a table; empty if the query has made no snapshot."""
    to = route_of(name, entry, lambda o: routed.resolve(o.name, o.topic))
    if to is None or not query:
        return {}
    config = routed.config_of(to)
    if not has_table(config):
        return {}
    written = next(newest_offsets(open_existing(config), query), None)
    return {} if written is None else offsets_in(written.topics)


def go_on(
    spark: Any,
    common: JobConfig,
    files: LedgerFiles,
    options: Mapping[str, str],
    partitions: Callable[[], Mapping[str, Sequence[str]]],
) -> dict[str, str]:
    """Returns the options of the source. If no batch was planned yet, the options are changed so that the query
    begins at the offsets of the ledger (the stored state of the job's tables).
    """
    start = files.read_start()
    if start is None or newest_offsets_of(spark, common.checkpoint):
        return dict(options)
    now = partitions()
    known = {topic: {str(p): _EARLIEST for p in numbers} for topic, numbers in now.items()}
    for (topic, partition), offset in start.end.items():
        # If the current partitions are not known, the partitions that were read before are used.
        if str(partition) in known.get(topic, {}) or not now:
            known.setdefault(topic, {})[str(partition)] = offset
    return dict(start_at(options, json.dumps(known)))
