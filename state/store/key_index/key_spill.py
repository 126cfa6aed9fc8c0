"""Stores keys that do not fit into memory on local disk, in any order, and reads them back range by range."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.bucket.key_entries import key_order
from bucketline.state.store.key_index.rocks import rocks_errors
from bucketline.state.store.storage.errors import local_disk

_SAMPLE_STEP = 997


@dataclass(frozen=True, slots=True, eq=False)
class SourcedKeys:
    """Normalized keys, and for each key the number of its source (uint32). A source is the partition, the bucket and
    the time of writing of a key; keys for which these three are equal have the same number.
    """

    keys: pa.Array
    sources: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size_bytes(self) -> int:
        return int(self.keys.nbytes) + self.sources.nbytes

    def take(self, rows: NDArray[np.int64]) -> "SourcedKeys":
        return SourcedKeys(self.keys.take(rows), self.sources[rows])


def concat_keys(parts: Sequence[SourcedKeys]) -> SourcedKeys:
    """Returns the keys of all parts as one value. There must be at least one part."""
    return SourcedKeys(pa.concat_arrays([p.keys for p in parts]), np.concatenate([p.sources for p in parts]))


class KeySpill:
    """Keys of a key index that is being built, in a file in `directory`, because they may need more memory than there
    is. The object also holds a sample of the keys in memory: `ranges` needs the sample to divide the keys into ranges
    of about the same size.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = f"{directory}/spill.arrow"
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        self._samples: list[pa.Array] = []
        self._skip = 0
        self.size_bytes = 0

    def write(self, sourced: SourcedKeys) -> None:
        batch = pa.record_batch([sourced.keys, pa.array(sourced.sources)], names=["key", "source"])
        with rocks_errors(self._directory):
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._path, batch.schema)
            self._writer.write_batch(batch)
        self.size_bytes += sourced.size_bytes
        picked = np.arange(self._skip, len(sourced), _SAMPLE_STEP)
        self._samples.append(sourced.keys.take(picked))
        self._skip = (self._skip - len(sourced)) % _SAMPLE_STEP

    def ranges(self, range_bytes: int) -> Iterator[SourcedKeys]:
        """Yields the keys in ranges of about the given size in bytes. All keys of a range are smaller than the keys of
        the next range. Inside a range, the keys are not sorted.
        """
        with rocks_errors(self._directory):
            self.close()
        sample = pa.concat_arrays(self._samples)
        sample = sample.take(key_order(sample))
        count = -(-self.size_bytes // range_bytes)
        picked = np.unique(np.linspace(0, len(sample), count, endpoint=False).astype(np.int64)[1:])
        splitters = [sample[int(i)] for i in picked]
        names = [f"{self._directory}/range-{i}.arrow" for i in range(len(splitters) + 1)]
        with local_disk(self._directory):
            self._split(splitters, names)
            os.remove(self._path)
        for name in names:
            with local_disk(self._directory):
                with pa.OSFile(name) as source, pa.ipc.open_stream(source) as reader:
                    parts = [SourcedKeys(b.column(0), np.asarray(b.column(1))) for b in reader]
                os.remove(name)
            if parts:
                yield concat_keys(parts)

    def _split(self, splitters: list[pa.Scalar], names: list[str]) -> None:
        with pa.OSFile(self._path) as source, pa.ipc.open_stream(source) as reader, rocks_errors(self._directory):
            writers = [pa.ipc.new_stream(name, reader.schema) for name in names]
            for batch in reader:
                number = np.zeros(batch.num_rows, np.int64)
                for splitter in splitters:
                    number += np.asarray(pc.greater_equal(batch.column(0), splitter))
                order = np.argsort(number, kind="stable")
                ends = np.searchsorted(number[order], np.arange(len(names)), side="right")
                for writer, start, end in zip(writers, [0, *ends[:-1]], ends, strict=True):
                    if end > start:
                        writer.write_batch(batch.take(pa.array(order[start:end])))
            for writer in writers:
                writer.close()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def abandon(self) -> None:
        """Closes the file without reading it."""
        with suppress(OSError):
            self.close()
