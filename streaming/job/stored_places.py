"""Reads back the bad records that a job has stored in a folder, a table or a topic. Spark reads a topic."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BAD_RECORDS_TOPIC, CHECKPOINT, JobConfig
from bucketline.conf.sources.source_options import TOPIC_OPTIONS, source_options
from bucketline.streaming.bad_records.place import BadRecordsPlace
from bucketline.streaming.bad_records.stored import StoredRecords, stored_in
from bucketline.streaming.bad_records.stored_topic import StoredInTopic
from bucketline.streaming.bad_records.topic import Topic
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.job.bad_place import ready_place
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.kafka.kafka_admin import jvm_admin
from bucketline.streaming.job.kafka.kafka_failure import kafka_failures
from bucketline.streaming.job.open_session import open_session
from bucketline.streaming.job.run import look_around
from bucketline.streaming.job.source import read_topic
from bucketline.streaming.job.start.silence import Silence, broken_silence


def place_with_options(config: JobConfig) -> BadRecordsPlace | None:
    """Returns the place (folder, table or topic) in which a job stores bad records, ready for use. A topic gets the
    options of the source, which say how to reach its cluster.
    """
    return ready_place(config, source_options(config.source).options if config.bad_records.topic is not None else {})


def stored_records(session: Any, config: JobConfig) -> StoredRecords | None:
    """Returns the bad records that a job has stored; None if the job stores none.

    Raises OptionError for a topic if the storage of the checkpoint cannot be reached.
    """
    place = place_with_options(config)
    if not isinstance(place, Topic):
        return stored_in(place)
    if place.notes is None:
        raise OptionError(
            f"{BAD_RECORDS_TOPIC.key} = {place.topic} cannot be read back: bucketline cannot reach the notes next to "
            f"{config.checkpoint}, which say what was replayed; set storage.*, or give the topic to a job as "
            "source.options.subscribe",
            key=CHECKPOINT.key,
        )
    return StoredInTopic(partial(_messages, session, config, place.topic), place.notes)


def look_for_topics(configs: Sequence[JobConfig], spark: Any | None, silence: Silence) -> None:
    """Checks that Kafka can be reached, if one of the places (folders, tables, topics) for bad records is a topic."""
    config = next((config for config in configs if config.bad_records.topic is not None), None)
    if config is not None:
        look_around(config, source_options(config.source), spark, silence)


def read_bad_records(configs: Sequence[JobConfig], ending: Ending, spark: Any | None = None) -> pa.Table:
    """Returns the bad records that jobs have stored, with the columns of STORED_SCHEMA. Starts Spark to read topics."""
    with broken_silence("reading bad records") as silence:
        look_for_topics(configs, spark, silence)
        with (
            explained(),
            open_session("bucketline bad-records", spark, ending, SparkLog.OURS_ONCE, silence) as session,
        ):
            stored = [stored_records(session, config) for config in configs]
            return pa.concat_tables([place.rows("") for place in stored if place is not None])


def _messages(session: Any, config: JobConfig, topic: str) -> pa.Table:
    """Returns the messages that a topic holds now. Raises KafkaTopicMissingError if there is no such topic."""
    options = source_options(config.source).options
    chosen = {name.lower() for name in TOPIC_OPTIONS}
    of_topic = {key: text for key, text in options.items() if key.lower() not in chosen} | {"subscribe": topic}
    with jvm_admin(session, of_topic) as admin:
        admin.cluster()
    with kafka_failures(of_topic):
        return read_topic(session, of_topic, topic)
