"""Asks for the ids of a job's topics, with the client that reads its records. A missing id never fails a batch."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from bucketline.streaming.batch.inputs.topic_ids import TopicIds
from bucketline.streaming.job.choose_reader import ChosenReader
from bucketline.streaming.job.kafka.kafka_admin import Described
from bucketline.streaming.job.kafka.native_admin import NativeAdmin

_LOG = logging.getLogger("bucketline.job")
_SLOW_SECONDS, _PAUSE_SECONDS = 4.0, 60.0


class Admin(Protocol):
    """A client that returns the ids of topics."""

    def describe(self, topics: Collection[str]) -> Described: ...
    def close(self) -> None: ...


class AskTopicIds:
    """Asks for the ids of topics, with one client for a run of a query. Warns once about each topic whose id is not
    known.

    `spark` is asked if Spark reads; if tasks read, a client with the settings that `reader` chooses is asked. After a
    slow request without an answer, no request is sent for a minute.
    """

    def __init__(
        self,
        spark: Admin,
        reader: ChosenReader | None,
        native: Callable[[Mapping[str, str]], Admin] = NativeAdmin,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark, self._reader, self._make, self._now = spark, reader, native, now
        self._native: Admin | None = None
        self._warned: set[str] = set()
        self._silent_until = 0.0

    def __call__(self, topics: Collection[str]) -> TopicIds:
        started = self._now()
        if started < self._silent_until:
            return {}
        described = self._admin().describe(topics)
        ended = self._now()
        if not described.ids and ended - started > _SLOW_SECONDS:
            self._silent_until = ended + _PAUSE_SECONDS
        new = sorted(described.unknown.keys() - self._warned)
        if new:
            self._warned.update(new)
            _LOG.warning(
                "topic %s%s: the id in Kafka is not known (%s), so the job may not notice if the topic is deleted "
                "and created again",
                new[0],
                f" and {len(new) - 1} more" if len(new) > 1 else "",
                described.unknown[new[0]],
            )
        return described.ids

    def close(self) -> None:
        """Closes the client that this object has created."""
        if self._native is not None:
            self._native.close()
        self._native = None

    def _admin(self) -> Admin:
        reader = None if self._reader is None else self._reader()
        if reader is None:
            return self._spark
        if self._native is None:
            self._spark.close()  # This client was only for the start.
            self._native = self._make(reader.settings)
        return self._native
