"""Spark's JVM as far as a job of RDDs asks it: RDDs of bytes, what Python functions make of them, and their shuffle.

The names are those of Spark's own classes and methods, as Py4J shows them.
"""

import random
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.serializers import NoOpSerializer, UTF8Deserializer, write_with_length

Run = Callable[[bytes, int, list[bytes]], list[bytes]]
"""What a function makes of a partition: its pickled command, the number of the partition, what is in it."""


@dataclass
class FakeRdd:
    """The items of an RDD by partition; of an RDD of Java, of pairs and of Scala alike."""

    parts: list[list[Any]]

    def id(self) -> int:
        return 0

    def rdd(self) -> "FakeRdd":
        return self

    def asJavaRDD(self) -> "FakeRdd":
        return self

    def asJavaPairRDD(self) -> "FakeRdd":
        return self

    def toJavaRDD(self) -> "FakeRdd":
        return self

    def getNumPartitions(self) -> int:
        return len(self.parts)

    def coalesce(self, count: int) -> "FakeRdd":
        """Into one partition at most, as none are joined into none."""
        assert count == 1
        return FakeRdd([[item for part in self.parts for item in part]] if self.parts else [])


@dataclass
class FakePairs(FakeRdd):
    """Pairs of a number and bytes. A shuffle delivers them in any order."""

    draw: random.Random

    def partitionBy(self, count: int) -> FakeRdd:
        parts: list[list[Any]] = [[] for _ in range(count)]
        for part in self.parts:
            for key, data in part:
                parts[key % count].append((key, data))
        for part in parts:
            self.draw.shuffle(part)
        return FakeRdd(parts)


@dataclass(eq=False)
class FakeJvm:
    """Runs tasks at once, where an RDD is made. `after_action` is called where one is collected. `serves_at_most` items
    are handed over before the connection ends."""

    draw: random.Random
    run: Run
    after_action: Callable[[], None]
    serves_at_most: int | None = None

    @property
    def java(self) -> "FakeJvm":
        return self

    @property
    def util(self) -> "FakeJvm":
        return self

    def ArrayList(self) -> list[Any]:
        return []

    def setCallSite(self, text: str | None) -> None:
        """Only for Spark's pages."""

    def parallelize(self, items: list[Any], count: int) -> FakeRdd:
        assert items == [], "tasks get nothing"
        return FakeRdd([[] for _ in range(count)])

    def SimplePythonFunction(self, command: bytearray, *others: object) -> bytes:
        return bytes(command)

    @property
    def PythonRDD(self) -> "_PythonRdds":
        return _PythonRdds(self)

    def PairwiseRDD(self, found: FakeRdd) -> FakePairs:
        pairs = [
            [(int.from_bytes(key, signed=True), data) for key, data in zip(part[::2], part[1::2], strict=True)]
            for part in found.parts
        ]
        return FakePairs(pairs, self.draw)

    def PythonPartitioner(self, count: int, function: int) -> int:
        return count


@dataclass
class _PythonRdds:
    """The class PythonRDD, and its companion object."""

    jvm: FakeJvm

    def __call__(self, parent: FakeRdd, command: bytes, preserves: bool, is_barrier: bool) -> FakeRdd:
        return FakeRdd([self.jvm.run(command, number, part) for number, part in enumerate(parent.parts)])

    def valueOfPair(self, pairs: FakeRdd) -> FakeRdd:
        return FakeRdd([[data for _, data in part] for part in pairs.parts])

    def collectAndServe(self, found: FakeRdd) -> tuple[int, str]:
        """The port at which one reader gets the items, and the secret that it has to know."""
        server = socket.create_server(("127.0.0.1", 0))
        self.jvm.after_action()

        def serve() -> None:
            with server, server.accept()[0] as reader, reader.makefile("rwb") as stream:
                assert UTF8Deserializer().loads(stream) == "secret"
                write_with_length(b"ok", stream)
                items = (item for part in found.parts for item in part)
                NoOpSerializer().dump_stream(islice(items, self.jvm.serves_at_most), stream)

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1], "secret"
