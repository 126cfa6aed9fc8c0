"""Streams for tests of the sink: Parquet files that arrive one a batch, and queries over them that end alone."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_ROW_GROUPS = 4


class FileStream:
    """A folder of input files; each file that is added is one micro-batch."""

    def __init__(self, root: Path, ddl: str) -> None:
        self.root, self.ddl = root, ddl
        self.folder = root / "input"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.checkpoint = root / "checkpoint"
        self._count = 0

    def add(self, rows: pa.Table) -> None:
        """One more batch of input."""
        name = f"{self._count:06d}.parquet"
        # As many row groups as a topic has partitions: Spark reads a file of one on one core, however large it is.
        pq.write_table(rows, self.root / name, row_group_size=max(1, -(-rows.num_rows // _ROW_GROUPS)))
        # The file source takes files by their time of change; those of one moment come in any order.
        os.utime(self.root / name, (1_700_000_000 + self._count, 1_700_000_000 + self._count))
        (self.root / name).rename(self.folder / name)
        self._count += 1

    def frame(self, spark: Any) -> Any:
        """The stream as a DataFrame."""
        return spark.readStream.schema(self.ddl).option("maxFilesPerTrigger", 1).parquet(str(self.folder))

    def run(self, spark: Any, sink: Any, *, options: Mapping[str, str] | None = None) -> Any:
        """Runs a query over what is there until it is done; raises what stopped it."""
        writer = self.frame(spark).writeStream.foreachBatch(sink).option("checkpointLocation", str(self.checkpoint))
        for key, value in (options or {}).items():
            writer = writer.option(key, value)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def forget_commit(self, batch_id: int) -> None:
        """Takes the last entry of Spark's commit log away, as a crash before it is written does."""
        commits = self.checkpoint / "commits"
        for name in (str(batch_id), f".{batch_id}.crc"):
            (commits / name).unlink(missing_ok=True)

    def rewind_to(self, batch_id: int) -> None:
        """Makes the checkpoint as it was when batch `batch_id` was about to start; nothing of it was planned."""
        for folder, first in (("commits", batch_id), ("offsets", batch_id)):
            for path in (self.checkpoint / folder).iterdir():
                number = path.name.removeprefix(".").removesuffix(".crc")
                if number.isdigit() and int(number) >= first:
                    path.unlink()
        for path in (self.checkpoint / "sources" / "0").glob("*"):
            number = path.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= batch_id:
                path.unlink()
