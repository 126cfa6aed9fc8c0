"""The ids of Kafka's topics. A topic that is deleted and created again under the same name gets another id.

Offsets count within one topic, so the snapshot of a batch holds the ids of its topics next to its offsets. An id is
written as 32 hexadecimal digits, whichever client has returned it. Ids are compared only within one cluster, and only
if both ids are known. Source: KIP-516; Kafka 4.1 Uuid, librdkafka 2.16 rd_kafka_Uuid_t.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping

from bucketline.state.format.entries import Snapshot

CLUSTER = "bucketline.kafka-cluster"
TOPIC_IDS = "bucketline.kafka-topic-ids"
"""Snapshot property: the ids of the topics in the end offsets, as JSON from topic to id."""

TopicIds = Mapping[str, str]
"""The id of each topic whose id is known."""

_BITS, _DIGITS = 64, 16
_NO_ID = "0" * (2 * _DIGITS)
"""The id that brokers without topic ids (before Kafka 2.8) return for every topic."""


def id_of_halves(most: int, least: int) -> str | None:
    """Takes the two halves of a UUID as integers of 64 bits, signed or not, and returns the topic's id; None for the
    UUID that stands for no topic.
    """
    mask = (1 << _BITS) - 1
    return _real(f"{most & mask:0{_DIGITS}x}{least & mask:0{_DIGITS}x}")


def id_of_text(text: str) -> str | None:
    """Takes a UUID in Kafka's form (URL-safe base64 without padding), and returns the topic's id. Returns None for the
    UUID that stands for no topic, and for strings of another form.
    """
    try:
        found = base64.b64decode(text + "==", altchars=b"-_", validate=True).hex()
    except (binascii.Error, ValueError):
        return None
    return _real(found) if len(found) == len(_NO_ID) else None


def ids_in(snapshot: Snapshot, cluster: str | None) -> dict[str, str]:
    """Returns the ids of topics that a snapshot holds, by topic; empty if it is not certain that the ids belong to the
    cluster `cluster`.
    """
    if cluster is None or snapshot.properties.get(CLUSTER) != cluster:
        return {}
    try:
        found = json.loads(snapshot.properties.get(TOPIC_IDS, "{}"))
    except ValueError:
        return {}
    return {t: i for t, i in found.items() if isinstance(i, str)} if isinstance(found, dict) else {}


def newest_ids(newest_first: Iterable[Snapshot], cluster: str | None) -> dict[str, str]:
    """Takes the snapshots of a batch, newest first. Returns the topic ids in the newest snapshot that has topic ids;
    the snapshot of a compaction may have none.
    """
    return next(filter(None, (ids_in(s, cluster) for s in newest_first)), {})


def ids_text(ids: TopicIds) -> str | None:
    """Returns the ids of topics as JSON text, as a snapshot stores them in a property; None if there are no ids."""
    return json.dumps(dict(ids), separators=(",", ":"), sort_keys=True) if ids else None


def created_again(known: TopicIds, now: TopicIds) -> list[str]:
    """Returns the topics, in order, whose id in `now` differs from their id in `known`."""
    return sorted(topic for topic, found in now.items() if known.get(topic, found) != found)


def _real(found: str) -> str | None:
    return None if found == _NO_ID else found
