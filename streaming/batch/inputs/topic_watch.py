"""Checks that the topics of a job are still the same topics: before a batch is planned, and again before its commit."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bucketline.state.format.entries import Snapshot
from bucketline.streaming.batch.identity import BatchIdentity, kafka_offsets
from bucketline.streaming.batch.inputs.topic_ids import TopicIds, created_again, newest_ids
from bucketline.streaming.batch.recover import topic_created_again

_LOG = logging.getLogger("bucketline.job")


class AskIds(Protocol):
    """A function that returns the current ids of topics. If an id cannot be found out, the function leaves the topic
    out and logs a warning once.
    """

    def __call__(self, topics: Collection[str]) -> TopicIds: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class TopicWatch:
    """Compares the topics of a batch with the topics that the job read at its start.

    `accepted` holds the ids that this run of the job has seen and accepts; it is the only field that changes. `fails`
    is the value of `failOnDataLoss`; if it is false, the job continues to read a topic that was created again, and a
    warning is logged.
    """

    ask: AskIds
    fails: bool = True
    accepted: dict[str, str] = field(default_factory=dict)

    def ids_of(self, batch: BatchIdentity) -> TopicIds:
        """Returns the current ids of the topics of a batch, as far as they are known."""
        topics = _topics(batch)
        return self.ask(topics) if topics else {}

    def accept(self, known: TopicIds, now: TopicIds) -> None:
        """Compares the current ids of topics (`now`) with the earlier ids, and then remembers the current ids as
        accepted. The earlier id of a topic is the id that this run has accepted, or else the id in the table (`known`).
        Raises TopicCreatedAgainError if a topic has another id than before.
        """
        before = {**known, **self.accepted}
        for topic in created_again(before, now):
            error = topic_created_again(topic, before[topic], now[topic])
            if self.fails:
                raise error
            _LOG.warning(
                "topic %r was deleted and created again (its id was %s, and is %s): failOnDataLoss is false, so the "
                "job continues at the old offsets, and leaves out the records before these offsets",
                topic,
                before[topic],
                now[topic],
            )
        self.accepted.update(now)

    def confirm(self, batch: BatchIdentity, commits: Sequence[Snapshot]) -> TopicIds:
        """Asks again for the ids of the topics, and returns the ids for the snapshot of the batch. `commits` are the
        snapshots of the previous batch.

        If the id of a topic is not known now, its last known id is returned. Raises TopicCreatedAgainError if a topic
        has another id than before.
        """
        known = newest_ids(commits, batch.cluster)
        self.accept(known, self.ids_of(batch))
        stays = {**known, **self.accepted}
        return {topic: stays[topic] for topic in _topics(batch) if topic in stays}


def _topics(batch: BatchIdentity) -> list[str]:
    return sorted({topic for topic, _ in kafka_offsets(batch.end_offsets)})
