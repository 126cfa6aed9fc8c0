"""Keys out of several partitions of a topic: who looks for them, and what becomes of a batch that has one.

Kafka orders the records of one partition. Where a key has records in two, the order in which batches and tasks read
them decides what the table holds, unless the table itself orders rows (`sequence.field`). Inside a batch tasks see it
where rows of a key meet. Across batches nobody does: there it counts that a partition which is new to the stream is
begun before the older ones of its topic have been read to their ends.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.message_options import TRUNCATE, Truncate
from bucketline.conf.sink_options import KEY_ORDER, KeyOrder
from bucketline.conf.wording import counted
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.write.write_plan import WritePlan
from bucketline.streaming.batch.history import other_queries
from bucketline.streaming.batch.identity import BatchIdentity, first_offsets, kafka_offsets, read_note, write_note
from bucketline.streaming.batch.recover import END_OFFSETS, of_other_cluster
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import Decoder
from bucketline.streaming.tasks.kafka_feeds import PARTITION_COLUMN, TOPIC_COLUMN, KafkaFeeds, TopicPartition
from bucketline.streaming.tasks.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.parquet_files import ParquetFiles
from bucketline.streaming.tasks.read_task import Frame, Records

_LOG = logging.getLogger(__name__)

_ORDERED_BY = (
    "Give the table a sequence.field, a column that says which change is newer; or write all records of a key to one "
    "partition of a new topic"
)
_OR_ANY_ORDER = "or set key-order to 'warn', which takes rows in the order in which they are read"
_PAGE = "docs/exactly-once.md says more under 'Order of rows'"
_READ_ORDER = "The later in the order of topic, partition and offset counts as newer, and a later batch before all"

_REFUSED = "key-order-refused"
"""The note that names the batch which was refused for the partitions that it begins."""

OffsetOfPartition = Mapping[TopicPartition, int]


class KeyOrderError(BucketlineError):
    """Rows of one key came from partitions whose records have no order among each other; nothing of the batch is
    committed. The caller gives the table an order, or says that any will do."""

    code = "KEY_ORDER"


def beside_table(columns: Iterable[str], plan: WritePlan) -> tuple[str, ...]:
    """The columns of a frame of rows that say where rows came from and are no columns of the table."""
    if plan.sink.key_order is None:
        return ()
    known = {f.name for f in plan.schema.fields}
    return tuple(c for c in columns if c in (TOPIC_COLUMN, PARTITION_COLUMN) and c not in known)


def with_feeds(rows: Records, plan: WritePlan, identity: BatchIdentity) -> Records:
    """The records, and where each came from if that matters for this table.

    Raises OptionError where `key-order` is set and nothing says which partitions the rows came from.
    """
    if isinstance(rows, ParquetFiles) or policy_of(plan, rows.decode) is None:
        return rows
    is_asked = plan.sink.key_order is not None
    partitions = _partitions(identity, is_asked=is_asked)
    matters = len(partitions) > 1 and merging_of(plan.schema).order_matters()
    columns = _feed_columns(rows, is_asked=is_asked) if matters or is_asked else None
    beside = () if rows.decode is not None or isinstance(rows, KafkaRanges) else beside_table(rows.frame.columns, plan)
    if matters and columns is not None:
        return replace(rows, feeds=KafkaFeeds(partitions, *columns, beside))
    return replace(rows, frame=rows.frame.drop(*beside)) if isinstance(rows, Frame) and beside else rows


def policy_of(plan: WritePlan, decode: Decoder | None) -> KeyOrder | None:
    """What the job does about a key of several partitions; None if keys are not checked."""
    if plan.sink.key_order is not None:
        return plan.sink.key_order
    return decode.decode.key_order if isinstance(decode, DecodeStep) else None


def _feed_columns(rows: Frame | KafkaRanges, *, is_asked: bool) -> tuple[str, str] | None:
    """The columns with topic and partition; None if the batch lacks them and no option asks for them."""
    columns = ("topic", "partition") if rows.decode is not None else (TOPIC_COLUMN, PARTITION_COLUMN)
    there = rows.columns if isinstance(rows, KafkaRanges) else rows.frame.columns
    missing = [name for name in columns if name not in there]
    if not missing:
        return columns
    if is_asked:
        raise OptionError(
            f"'{KEY_ORDER.key}' is set, and the rows have no column {missing[0]!r}: select Kafka's topic and partition "
            f"as {columns[0]} and {columns[1]}, or take the option out",
            key=KEY_ORDER.key,
            column=missing[0],
        )
    return None


def _partitions(identity: BatchIdentity, *, is_asked: bool) -> tuple[TopicPartition, ...]:
    partitions = tuple(sorted(_numbered(kafka_offsets(identity.end_offsets))))
    if not partitions and is_asked and identity.end_offsets not in (None, "[{}]"):
        raise OptionError(
            f"'{KEY_ORDER.key}' is about partitions of Kafka topics, and this query reads none; take the option out",
            key=KEY_ORDER.key,
        )
    return partitions


def _numbered(offsets: Mapping[tuple[str, str], int]) -> dict[TopicPartition, int]:
    return {(topic, int(partition)): offset for (topic, partition), offset in offsets.items()}


def check_truncates(identity: BatchIdentity, decode: Decoder | None) -> None:
    """Returns if it will be known which rows came before a truncate of the source's table, as far as these are applied.
    Raises OptionError."""
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
        f"{TRUNCATE.key} = {Truncate.APPLY.value} needs one topic with one partition, and {why}: nothing says which "
        "rows came before a truncate. Write the records to a new topic with one partition, or set "
        f"{TRUNCATE.key} to skip or reject",
        key=TRUNCATE.key,
    )


def settle_mixed_keys(target: Target, identity: BatchIdentity, outcome: Outcome, policy: KeyOrder | None) -> Target:
    """The target that knows what has been said of keys out of several partitions, after a batch's tasks have run.

    Raises KeyOrderError where the job is to fail; what the tasks have written is removed then.
    """
    if not outcome.mixed or policy is None:
        return target
    partitions = _partitions(identity, is_asked=False)
    # The smallest, so that a replay names the same one.
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
    """Whether a key of several partitions ends the job; rows that are postponed get their order later."""
    return policy is KeyOrder.FAIL and not plan.mode.postpones


def _places(one: TopicPartition, other: TopicPartition) -> str:
    if one[0] == other[0]:
        return f"partitions {one[1]} and {other[1]} of topic {one[0]!r}"
    return f"topic {one[0]!r} (partition {one[1]}) and topic {other[0]!r} (partition {other[1]})"


def _told(target: Target, about: str, found: str) -> Target:
    """Warns once in a run of the query about the same topics, and logs each further time more quietly."""
    is_new = about not in target.state.mixed_topics
    level = logging.WARNING if is_new else logging.INFO
    _LOG.log(level, "%s: %s. %s. %s. %s", target.at.table.path, found, _READ_ORDER, _ORDERED_BY, _PAGE)
    return (
        target.with_state(replace(target.state, mixed_topics=target.state.mixed_topics | {about})) if is_new else target
    )


def check_begun_partitions(
    target: Target, identity: BatchIdentity, spark: Any, decode: Decoder | None, most_records: int | None
) -> Target:
    """The target, for a batch that begins no partition too early; `most_records` is the limit of a batch.

    A batch that was refused is refused again: Spark repeats it as it was planned, whatever the limit is by then.
    Raises KeyOrderError where the job is to fail.
    """
    plan = target.at.plan
    policy = policy_of(plan, decode)
    starts, ends = (_numbered(kafka_offsets(o)) for o in (identity.start_offsets, identity.end_offsets))
    # Files of the checkpoint and other queries are asked only where a batch begins a partition beside others.
    if policy is None or not may_begin(starts, ends):
        return target
    was_refused = read_note(spark, identity, _REFUSED) == identity.digest
    if not (was_refused or is_full(starts, ends, most_records)) or not merging_of(plan.schema).order_matters():
        return target
    first = _numbered(kafka_offsets(first_offsets(spark, identity)))
    began = first or {p: at for p, at in starts.items() if at > 0}
    others = [
        _numbered(kafka_offsets(s.properties.get(END_OFFSETS)))
        for s in other_queries(target)
        if not of_other_cluster(identity, s)
    ]
    early = begun_beside(starts, ends, known_before(began, others))
    if not early:
        return target
    topic, partition = early[0]
    found = (
        f"batch {identity.batch_id} takes the first records of {counted(len(early), 'partition')} that topic {topic!r} "
        f"has gained (partition {partition}), and older partitions of it may hold records that the batch does not "
        "reach: where a key has moved, older records would come after newer ones"
    )
    if fails(policy, plan):
        if identity.digest is not None:
            write_note(spark, identity, _REFUSED, identity.digest)
        raise KeyOrderError(
            f"{found}. Nothing of the batch is committed. Run the job once with --reset-identity, and with a "
            "source.options.maxOffsetsPerTrigger that lets one batch take all of them: then it is seen whether a key "
            f"has moved. {_ORDERED_BY}; {_OR_ANY_ORDER}. {_PAGE}",
            batch_id=identity.batch_id,
            partitions=early,
        )
    return _told(target, f"new:{topic}", found)


def known_before(began: OffsetOfPartition, others: Iterable[OffsetOfPartition]) -> set[TopicPartition]:
    """The partitions that the stream has not gained on its way: those that the query began with, in its first offsets
    `began`; of topics that it goes on with where other queries have got to, those that anybody had read of by then.
    """
    read = [(p, offset) for other in others for p, offset in other.items() if offset > 0]
    anew = {p[0] for p, offset in read if began.get(p, 0) < offset}
    continued = {p for p, _ in read if p[0] not in anew}
    topics = {topic for topic, _ in continued}
    return {p for p, offset in began.items() if p[0] not in topics or offset > 0} | continued


def is_full(starts: OffsetOfPartition, ends: OffsetOfPartition, most_records: int | None) -> bool:
    """Whether a batch may leave records behind, as it takes about as many as it may.

    Spark shares the limit among partitions by what each holds, rounds each share down, and gives one record to those
    that would get none. Source: Spark 4.0 KafkaMicroBatchStream.rateLimit.
    """
    return most_records is not None and sum(_taken(starts, ends).values()) > most_records - len(ends)


def may_begin(starts: OffsetOfPartition, ends: OffsetOfPartition) -> bool:
    """Whether a batch takes the first records of a partition, and records of another one of its topic."""
    taken = _taken(starts, ends)
    begun = {topic for topic, partition in taken if starts.get((topic, partition), 0) == 0}
    return any(sum(place[0] == topic for place in taken) > 1 for topic in begun)


def begun_beside(
    starts: OffsetOfPartition, ends: OffsetOfPartition, known: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions whose first records a batch takes, though they are not known, beside records of known ones of
    their topic; ascending. A full batch takes records of each partition that holds any.
    """
    taken, before = _taken(starts, ends), set(known)
    beside = {topic for topic, partition in taken if (topic, partition) in before}
    return sorted(p for p in taken if starts.get(p, 0) == 0 and p not in before and p[0] in beside)


def _taken(starts: OffsetOfPartition, ends: OffsetOfPartition) -> dict[TopicPartition, int]:
    """How many records a batch takes of each partition that it takes any of."""
    return {p: end - starts.get(p, 0) for p, end in ends.items() if end > starts.get(p, 0)}
