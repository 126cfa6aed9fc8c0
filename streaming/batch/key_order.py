"""Finds keys with records in several partitions of a topic, and decides what happens to a batch with such keys.

Kafka orders only the records of one partition. If a key has records in two partitions, the order in which batches and
tasks read them decides what the table holds, unless the table itself orders rows (`sequence.field`). Inside a batch,
the task that gets all rows of a key notices such a key. Across batches no task can notice it. Therefore the driver
checks that the stream does not begin a new partition before it has read the older partitions of the topic to their
ends.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.sink_options import KEY_ORDER, KeyOrder
from bucketline.conf.sources.message_options import TRUNCATE, Truncate
from bucketline.conf.wording import counted
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.write.write_plan import WritePlan
from bucketline.streaming.batch.history import other_queries
from bucketline.streaming.batch.identity import BatchIdentity, first_offsets, numbered_offsets, read_note, write_note
from bucketline.streaming.batch.recover import END_OFFSETS, of_other_cluster
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import Decoder
from bucketline.streaming.tasks.kafka.kafka_feeds import PARTITION_COLUMN, TOPIC_COLUMN, KafkaFeeds, TopicPartition
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.parquet_files import ParquetFiles
from bucketline.streaming.tasks.read_task import Frame, Records

_LOG = logging.getLogger(__name__)

_ORDERED_BY = (
    "Give the table a sequence.field, a column that says which change is newer; or write all records of a key to one "
    "partition of a new topic"
)
_OR_ANY_ORDER = "or set key-order to 'warn', which accepts the order in which rows are read"
_PAGE = "docs/exactly-once.md says more under 'Order of rows'"
_READ_ORDER = (
    "Inside a batch, rows count as newer in the order of topic, partition and offset; rows of a later batch count as "
    "newer than all rows of earlier batches"
)

_REFUSED = "key-order-refused"
"""The name of the note in the checkpoint with the digest of a batch that was refused because it begins partitions."""

OffsetOfPartition = Mapping[TopicPartition, int]


class KeyOrderError(BucketlineError):
    """Rows of one key came from partitions whose records have no common order; the batch is not committed.

    The user should give the table an order (`sequence.field`), or state that any order will do (`key-order`).
    """

    code = "KEY_ORDER"


def origin_columns(columns: Iterable[str], plan: WritePlan) -> tuple[str, ...]:
    """Returns those of the names in `columns` that are columns for the Kafka topic and partition of a row, if the order
    of rows between topic partitions matters. A name that is also a column of the table is not returned, because that
    column holds data.
    """
    if plan.sink.key_order is None:
        return ()
    known = {f.name for f in plan.schema.fields}
    return tuple(c for c in columns if c in (TOPIC_COLUMN, PARTITION_COLUMN) and c not in known)


def with_feeds(rows: Records, plan: WritePlan, identity: BatchIdentity) -> Records:
    """Returns the records together with the topic partition of each record (its feed), if the partition matters for
    this table; otherwise returns the records unchanged.

    Raises OptionError if `key-order` is set and the partitions of the rows are not known.
    """
    if isinstance(rows, ParquetFiles) or policy_of(plan, rows.decode) is None:
        return rows
    is_asked = plan.sink.key_order is not None
    partitions = _partitions(identity, is_asked=is_asked)
    matters = len(partitions) > 1 and merging_of(plan.schema).order_matters()
    columns = _feed_columns(rows, is_asked=is_asked) if matters or is_asked else None
    origin = (
        () if rows.decode is not None or isinstance(rows, KafkaRanges) else origin_columns(rows.frame.columns, plan)
    )
    if matters and columns is not None:
        return replace(rows, feeds=KafkaFeeds(partitions, *columns, origin))
    return replace(rows, frame=rows.frame.drop(*origin)) if isinstance(rows, Frame) and origin else rows


def policy_of(plan: WritePlan, decode: Decoder | None) -> KeyOrder | None:
    """Returns the job's policy for keys that have records in several Kafka partitions; None if the batch is not
    searched for such keys.
    """
    if plan.sink.key_order is not None:
        return plan.sink.key_order
    return decode.decode.key_order if isinstance(decode, DecodeStep) else None


def _feed_columns(rows: Frame | KafkaRanges, *, is_asked: bool) -> tuple[str, str] | None:
    """Returns the names of the columns with topic and partition; None if the batch lacks them and no option needs them.
    If `is_asked` is true, the option `key-order` needs the columns, and OptionError is raised for missing columns.
    """
    columns = ("topic", "partition") if rows.decode is not None else (TOPIC_COLUMN, PARTITION_COLUMN)
    there = rows.columns if isinstance(rows, KafkaRanges) else rows.frame.columns
    missing = [name for name in columns if name not in there]
    if not missing:
        return columns
    if is_asked:
        raise OptionError(
            f"'{KEY_ORDER.key}' is set, but the rows have no column {missing[0]!r}: select Kafka's topic and "
            f"partition as {columns[0]} and {columns[1]}, or remove the option",
            key=KEY_ORDER.key,
            column=missing[0],
        )
    return None


def _partitions(identity: BatchIdentity, *, is_asked: bool) -> tuple[TopicPartition, ...]:
    partitions = tuple(sorted(numbered_offsets(identity.end_offsets)))
    if not partitions and is_asked and identity.end_offsets not in (None, "[{}]"):
        raise OptionError(
            f"'{KEY_ORDER.key}' needs a Kafka source, and this query reads none; remove the option",
            key=KEY_ORDER.key,
        )
    return partitions


def check_truncates(identity: BatchIdentity, decode: Decoder | None) -> None:
    """Checks that the order of the records relative to a truncate of the source's table is known, if the job applies
    truncates. Raises OptionError if the order is not known.
    """
    if not isinstance(decode, DecodeStep) or decode.messages.truncate is not Truncate.APPLY:
        return
    partitions = _partitions(identity, is_asked=False)
    if len(partitions) == 1:
        return
    why = (
        f"records of {counted(len(partitions), 'partition')} have no order among each other"
        if partitions
        else "this query does not read Kafka"
    )
    raise OptionError(
        f"{TRUNCATE.key} = {Truncate.APPLY.value} needs one topic with one partition, but {why}: so it is not known "
        "which rows came before a truncate. Write the records to a new topic with one partition, or set "
        f"{TRUNCATE.key} to skip or reject",
        key=TRUNCATE.key,
    )


def settle_mixed_keys(target: Target, identity: BatchIdentity, outcome: Outcome, policy: KeyOrder | None) -> Target:
    """Handles keys whose rows came from several topic partitions, so that nothing says which row is newer: raises
    KeyOrderError or logs a warning, as the job's policy says. Before the error the files of the batch are removed.

    Returns the target (the table that the batch is written to), which remembers the warnings that were logged.
    """
    if not outcome.mixed or policy is None:
        return target
    partitions = _partitions(identity, is_asked=False)
    # The smallest key is reported, so that a repeated batch reports the same key.
    first = min(outcome.mixed)
    one, other = (partitions[feed] for feed in first.feeds)
    found = (
        f"batch {identity.batch_id}: {_places(one, other)} both hold records of the key {first.key}, and nothing says "
        "which of them is newer"
    )
    if fails(policy, target.at.plan):
        target.at.discard(outcome.messages)
        raise KeyOrderError(
            f"{found}. Nothing of the batch is committed. {_ORDERED_BY}; {_OR_ANY_ORDER}. {_PAGE}",
            batch_id=identity.batch_id,
            key=first.key,
            partitions=[one, other],
        )
    return _told(target, f"{one[0]},{other[0]}", found)


def fails(policy: KeyOrder, plan: WritePlan) -> bool:
    """Returns True if a key from several partitions ends the job. In a postpone table such a key never ends the job,
    because postponed rows are ordered later.
    """
    return policy is KeyOrder.FAIL and not plan.mode.postpones


def _places(one: TopicPartition, other: TopicPartition) -> str:
    if one[0] == other[0]:
        return f"partitions {one[1]} and {other[1]} of topic {one[0]!r}"
    return f"topic {one[0]!r} (partition {one[1]}) and topic {other[0]!r} (partition {other[1]})"


def _told(target: Target, about: str, found: str) -> Target:
    """Logs `found`, a sentence about keys from several partitions: as a warning the first time in a run of the job for
    these topics (`about`), later at level INFO. Returns the target, which remembers the topics.
    """
    is_new = about not in target.state.mixed_topics
    level = logging.WARNING if is_new else logging.INFO
    _LOG.log(level, "%s: %s. %s. %s. %s", target.at.table.path, found, _READ_ORDER, _ORDERED_BY, _PAGE)
    return (
        target.with_state(replace(target.state, mixed_topics=target.state.mixed_topics | {about})) if is_new else target
    )


def check_begun_partitions(
    target: Target, identity: BatchIdentity, spark: Any, decode: Decoder | None, most_records: int | None
) -> Target:
    """Checks that a batch does not begin a new partition of a topic before the stream has read the older partitions to
    their ends. If it does, a key may have moved to the new partition, and the table could keep an older row of the key.
    `most_records` is the limit of records in a batch.

    If the job's policy is to fail, raises KeyOrderError; otherwise logs a warning once. Returns the target, which
    remembers the warning. A batch that was refused once is refused again, whatever the limit is now, because Spark
    repeats the batch as it was planned.
    """
    plan = target.at.plan
    policy = policy_of(plan, decode)
    starts, ends = (numbered_offsets(o) for o in (identity.start_offsets, identity.end_offsets))
    # The checkpoint and the snapshots of other queries are read only if the batch begins a partition and also reads
    # another partition.
    if policy is None or not may_begin(starts, ends):
        return target
    was_refused = read_note(spark, identity, _REFUSED) == identity.digest
    if not (was_refused or is_full(starts, ends, most_records)) or not merging_of(plan.schema).order_matters():
        return target
    first = numbered_offsets(first_offsets(spark, identity))
    began = first or {p: at for p, at in starts.items() if at > 0}
    others = [
        numbered_offsets(s.properties.get(END_OFFSETS))
        for s in other_queries(target)
        if not of_other_cluster(identity, s)
    ]
    early = begun_with_known(starts, ends, known_before(began, others))
    if not early:
        return target
    topic, partition = early[0]
    found = (
        f"batch {identity.batch_id} takes the first records of {counted(len(early), 'partition')} that were added to "
        f"topic {topic!r} (partition {partition}), and older partitions of the topic may hold records that the batch "
        "does not reach: if a key has moved to a new partition, its older records would be written after its newer ones"
    )
    if fails(policy, plan):
        if identity.digest is not None:
            write_note(spark, identity, _REFUSED, identity.digest)
        raise KeyOrderError(
            f"{found}. Nothing of the batch is committed. Run the job once with --reset-identity, and with a "
            "source.options.maxOffsetsPerTrigger that lets one batch take all records, so that a key that has moved "
            f"is found. {_ORDERED_BY}; {_OR_ANY_ORDER}. {_PAGE}",
            batch_id=identity.batch_id,
            partitions=early,
        )
    return _told(target, f"new:{topic}", found)


def known_before(began: OffsetOfPartition, others: Iterable[OffsetOfPartition]) -> set[TopicPartition]:
    """Returns the partitions of topics that existed when the stream began. All other partitions were added later.

    `began` has the first offsets of the query; `others` are the offsets up to which other queries have read. The
    partitions in `began` existed. If the query begins a topic at the offsets where other queries have ended, it
    continues these queries. Then the partitions that the other queries have read existed, and a partition in `began`
    with offset 0 is new.
    """
    read = [(p, offset) for other in others for p, offset in other.items() if offset > 0]
    anew = {p[0] for p, offset in read if began.get(p, 0) < offset}
    continued = {p for p, _ in read if p[0] not in anew}
    topics = {topic for topic, _ in continued}
    return {p for p, offset in began.items() if p[0] not in topics or offset > 0} | continued


def is_full(starts: OffsetOfPartition, ends: OffsetOfPartition, most_records: int | None) -> bool:
    """Returns True if the source may have more records than this batch takes: the batch takes about as many records
    as the limit `most_records` allows.

    Spark divides the limit among the partitions in proportion to their numbers of records, rounds down, and takes one
    record from each partition that would get none. Source: Spark 4.0 KafkaMicroBatchStream.rateLimit.
    """
    return most_records is not None and sum(_taken(starts, ends).values()) > most_records - len(ends)


def may_begin(starts: OffsetOfPartition, ends: OffsetOfPartition) -> bool:
    """Returns True if a batch takes the first records of a partition together with records of another partition of the
    same topic.
    """
    taken = _taken(starts, ends)
    begun = {topic for topic, partition in taken if starts.get((topic, partition), 0) == 0}
    return any(sum(place[0] == topic for place in taken) > 1 for topic in begun)


def begun_with_known(
    starts: OffsetOfPartition, ends: OffsetOfPartition, known: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Returns the new partitions (partitions that are not in `known`) from which a batch takes the first records, if
    the batch also takes records from a known partition of the same topic. The partitions are in ascending order.

    A known partition from which the batch takes nothing does not count, because it has no unread records: a batch takes
    some from each partition that has unread records.
    """
    taken, before = _taken(starts, ends), set(known)
    topics = {topic for topic, partition in taken if (topic, partition) in before}
    return sorted(p for p in taken if starts.get(p, 0) == 0 and p not in before and p[0] in topics)


def _taken(starts: OffsetOfPartition, ends: OffsetOfPartition) -> dict[TopicPartition, int]:
    """Returns how many records a batch takes from each partition; partitions without records are left out."""
    return {p: end - starts.get(p, 0) for p, end in ends.items() if end > starts.get(p, 0)}
