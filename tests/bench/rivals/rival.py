"""A rival: a way to write a stream of upserts into a table, with what must be known of it to repeat a measurement."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROWS_VARIABLE = "BUCKETLINE_REPORT_ROWS"
BATCHES = 6
"""Batches of the stream that is measured. One more comes after a restart."""

WARM_UP = 2
"""Batches of another stream, into another table, that warm a session up before anything is measured."""

BUCKETS = 4


@dataclass(frozen=True, slots=True)
class Load:
    """The work: each batch has `rows` rows, no id twice, with ids below `keys`."""

    rows: int
    repeats: int

    @property
    def keys(self) -> int:
        return 4 * self.rows

    @classmethod
    def from_environment(cls) -> "Load":
        return cls(int(os.environ.get(ROWS_VARIABLE, "200000")), int(os.environ.get("BUCKETLINE_BENCH_REPEATS", "3")))


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a stream in a folder, of which each is a batch, and the checkpoint of who reads it."""

    folder: Path
    checkpoint: Path

    def frame(self, spark: Any, ddl: str) -> Any:
        """The stream as a DataFrame of Spark."""
        return spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(self.folder))


@dataclass(frozen=True, slots=True)
class Rival:
    """How one contender is set up, writes and reads, in a session of Spark.

    `create` makes the table at a path; `write` writes all that a source has and has not written before; `read` gives
    the table as a DataFrame. `table_settings` and `session_settings` are all that differs from the defaults. `why_not`
    says why it cannot run here, or None.
    """

    name: str
    title: str
    table_settings: Mapping[str, str]
    create: Callable[[Any, str], None]
    write: Callable[[Any, Source, str], None]
    read: Callable[[Any, str], Any]
    version: str = ""
    session_settings: Mapping[str, str] = field(default_factory=dict)
    jar_sets: tuple[str, ...] = ()
    more_jars: tuple[str, ...] = ()
    spark: str = "4.0"
    keeps_keys: bool = True
    remark: str = ""
    why_not: Callable[[], str | None] = lambda: None


def each_batch(source: Source, spark: Any, ddl: str, write: Callable[[Any, int], None]) -> None:
    """Runs a foreachBatch query over all that a source has."""
    writer = (
        source.frame(spark, ddl).writeStream.foreachBatch(write).option("checkpointLocation", str(source.checkpoint))
    )
    writer.trigger(availableNow=True).start().awaitTermination()
