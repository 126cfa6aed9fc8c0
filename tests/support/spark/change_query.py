"""A query over a stream of changes, without Spark: its calls, its checkpoint, and crashes between any two of them."""

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bucketline.streaming.reader.source import BucketlineSource
from bucketline.streaming.reader.stream_reader import RememberingReader, StreamReader


class Crash(Exception):
    """The query's process ended here."""


def never(point: str) -> None:
    """No crash."""


@dataclass
class ChangeQuery:
    """Runs micro-batches as Spark 4.0 does. `batches` is what a sink holds that writes each batch once, by its id."""

    options: Mapping[str, str]
    offsets: list[str] = field(default_factory=list)
    """The offsets log: the end of each batch."""
    committed: int = 0
    """Batches in the commit log."""
    batches: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def reader(self) -> StreamReader:
        source = BucketlineSource(dict(self.options))
        schema = source.schema()
        found = pickle.loads(pickle.dumps(source)).streamReader(schema)
        return RememberingReader(found.read_plan)

    def run(self, point: Callable[[str], None] = never, most: int | None = None) -> int:
        """Starts the query and lets it read until nothing is new, or `most` batches. The number of batches."""
        reader = self.reader()
        if self.offsets:
            seen = json.loads(self.offsets[-1])
            reader.partitions(seen, seen)
        done = 0
        while most is None or done < most:
            if self.committed == len(self.offsets):
                end = json.dumps(reader.latestOffset())
                if self.committed and end == self.offsets[-1]:
                    return done
                if self.committed:
                    reader.commit(json.loads(self.offsets[-1]))
                point("before the offsets")
                self.offsets.append(end)
            point("after the offsets")
            self._batch(reader, point)
            point("before the commit")
            self.committed += 1
            point("after the commit")
            done += 1
        return done

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of batches and splits."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def _batch(self, reader: StreamReader, point: Callable[[str], None]) -> None:
        number = self.committed
        start = json.loads(self.offsets[number - 1]) if number else reader.initialOffset()
        splits = pickle.loads(pickle.dumps(list(reader.partitions(start, json.loads(self.offsets[number])))))
        point("after planning")
        task = pickle.loads(pickle.dumps(self.reader()))
        found = [row for split in splits for batch in task.read(split) for row in batch.to_pylist()]
        assert self.batches.setdefault(number, found) == found, "a batch that is read again has the same rows"
