"""A topic for bad records in memory, and the places of a job that sends them there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from bucketline.conf.job import BadRecords
from bucketline.streaming.bad_records.stored_topic import StoredInTopic
from bucketline.streaming.bad_records.topic import Topic, TopicMessage
from bucketline.streaming.bad_records.topic_notes import TopicNotes, notes_beside
from bucketline.streaming.decode.rejects import HEADERS


@dataclass
class FakeTopic:
    """The messages of a topic. `notes` are those of the job that sends them."""

    notes: TopicNotes
    messages: list[TopicMessage] = field(default_factory=list)

    @classmethod
    def beside(cls, checkpoint: str) -> "FakeTopic":
        return cls(notes_beside(checkpoint, "bad", {}))

    @property
    def place(self) -> Topic:
        return Topic("bad", notes=self.notes, send=self._send)

    @property
    def stored(self) -> StoredInTopic:
        return StoredInTopic(self.read, self.notes)

    def places(self, bad_records: BadRecords) -> Topic:
        """As `BadRecordPlaces`."""
        assert bad_records.topic == "bad"
        return self.place

    def read(self) -> pa.Table:
        headers = [[{"key": k, "value": v} for k, v in m[2]] for m in self.messages]
        keys, values = ([m[at] for m in self.messages] for at in (0, 1))
        columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(headers, HEADERS)]
        return pa.table(columns, ["key", "value", "headers"])

    def _send(self, topic: str, client: Mapping[str, str], messages: Sequence[TopicMessage]) -> None:
        self.messages += messages
