"""The ids of Kafka's topics. A topic that is deleted and created again under the same name gets another id.

Offsets count within one topic, so the snapshot of a batch holds the ids of its topics next to its offsets. An id is
written as 32 hexadecimal digits, whatever client has given it. Ids are compared only within one cluster, and only if
both are known. Source: KIP-516; Kafka 4.1 Uuid, librdkafka 2.16 rd_kafka_Uuid_t.
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
"""Topic → id, for the topics whose id is known."""

_BITS, _DIGITS = 64, 16
_NO_ID = "0" * (2 * _DIGITS)
"""The id that brokers without topic ids give, as before Kafka 2.8."""


def id_of_halves(most: int, least: int) -> str | None:
    """The id of a UUID given as two numbers of 64 bits, signed or not; None for the id that stands for no topic."""
    mask = (1 << _BITS) - 1
    return _real(f"{most & mask:0{_DIGITS}x}{least & mask:0{_DIGITS}x}")


def id_of_text(text: str) -> str | None:
    """The id of a UUID in URL-safe base64 without padding, Kafka's form; None for the id of no topic and for other
    texts.
    """
    try:
        found = base64.b64decode(text + "==", altchars=b"-_", validate=True).hex()
    except (binascii.Error, ValueError):
        return None
    return _real(found) if len(found) == len(_NO_ID) else None


def ids_in(snapshot: Snapshot, cluster: str | None) -> dict[str, str]:
    """The ids of topics in a snapshot, by topic; empty unless it is certain that they belong to this cluster."""
    if cluster is None or snapshot.properties.get(CLUSTER) != cluster:
        return {}
    try:
        found = json.loads(snapshot.properties.get(TOPIC_IDS, "{}"))
    except ValueError:
        return {}
    return {t: i for t, i in found.items() if isinstance(i, str)} if isinstance(found, dict) else {}


def newest_ids(newest_first: Iterable[Snapshot], cluster: str | None) -> dict[str, str]:
    """The topic ids in the newest of a batch's snapshots that has topic ids, because the snapshot of a compaction may
    have none.
    """
    return next(filter(None, (ids_in(s, cluster) for s in newest_first)), {})


def ids_text(ids: TopicIds) -> str | None:
    """The ids as the text of the property; None if there are none."""
    return json.dumps(dict(ids), separators=(",", ":"), sort_keys=True) if ids else None


def created_again(known: TopicIds, now: TopicIds) -> list[str]:
    """The topics, in order, whose id now differs from the known id."""
    return sorted(topic for topic, found in now.items() if known.get(topic, found) != found)


def _real(found: str) -> str | None:
    return None if found == _NO_ID else found
